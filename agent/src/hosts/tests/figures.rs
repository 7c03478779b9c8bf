//! What a thousand hosts cost: one DHCP packet of each, memory, a round over all of their objects. Figures of `scripts/bench base`.

use std::time::Instant;

use firstlight_api::status::SiteStatus;
use firstlight_netboot::ClientArch;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{fleet::View, hosts::runner::Window, status};

const HOSTS: u32 = 1000;

fn mac_of(number: u32) -> MacAddr {
    let [_, _, a, b] = number.to_be_bytes();
    MacAddr::new([0x52, 0x54, 0, 0, a, b]).unwrap()
}

/// Milliseconds for one packet of each host, in the mean: decided, and shown to everybody who looks.
fn packet(rack: &mut Rack, arch: Option<ClientArch>) -> f64 {
    let began = Instant::now();
    for number in 0..HOSTS {
        rack.fold(Event::Dhcp {
            mac: mac_of(number),
            arch,
            address: Some(address_of(number)),
        });
    }
    began.elapsed().as_secs_f64() * 1000.0 / f64::from(HOSTS)
}

fn address_of(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0100 + number)
}

fn now() -> Now {
    Now {
        up: Duration::from_hours(1),
        wall: 1_800_000_000,
    }
}

#[tokio::test]
#[ignore = "figures of scripts/bench base, measured alone"]
async fn figures_of_a_packet() {
    let (mut rack, _page) = Rack::new();
    rack.settle().await;
    let server = Server::new(FakeIronic::start().await.unwrap().client());
    for number in 0..HOSTS {
        rack.report(&server, number, server.report());
    }
    assert_eq!(rack.wanted.borrow().hosts.len(), HOSTS as usize);
    packet(&mut rack, None);
    let renewal = packet(&mut rack, None);
    let boot = packet(&mut rack, Some(ClientArch::UefiX64));
    eprintln!("figure base-packet {:.4}", renewal.max(boot));
}

/// What a server of a rack says of itself.
fn of_a_rack(number: u32, address: Ipv4Addr) -> Inventory {
    let mac = mac_of(number);
    let nic = |card: u32| {
        json!({"name": format!("eno{card}"), "mac_address": if card == 0 { mac.to_string() } else { format!("02:00:00:{card:02x}:{:02x}:{:02x}", number >> 8, number & 0xff) },
            "ipv4_address": if card == 0 { json!(address) } else { json!(null) }, "has_carrier": card < 2, "vendor": "0x8086", "product": "0x1593",
            "speed_mbps": 25_000, "pci_address": format!("0000:31:00.{card}")})
    };
    let disk = |slot: u32| {
        json!({"name": format!("/dev/nvme{slot}n1"), "model": "SAMSUNG MZQL23T8HCLS-00A07", "size": 3_840_755_982_336_u64, "rotational": false,
            "wwn": format!("eui.36344730{number:06}{slot:02}"), "serial": format!("S64HNE0T{number:06}{slot:02}"), "vendor": null,
            "by_path": format!("/dev/disk/by-path/pci-0000:c{slot}:00.0-nvme-1")})
    };
    let flags: Vec<String> = (0..150).map(|flag| format!("avx512_{flag}")).collect();
    let said = json!({
        "interfaces": (0..6).map(nic).collect::<Vec<_>>(),
        "cpu": {"architecture": "x86_64", "count": 128, "model_name": "AMD EPYC 9554 64-Core Processor", "frequency": "3100.0", "flags": flags},
        "memory": {"total": 1_649_267_441_664_u64, "physical_mb": 1_572_864},
        "disks": (0..8).map(disk).collect::<Vec<_>>(),
        "boot": {"current_boot_mode": "uefi", "pxe_interface": mac.to_string()},
        "system_vendor": {"manufacturer": "Dell Inc.", "product_name": "PowerEdge R7625", "serial_number": format!("ABC{number:04}"),
            "firmware": {"vendor": "Dell Inc.", "version": "1.8.3", "build_date": "04/02/2024"}},
        "bmc_address": null, "bmc_v6address": null, "hostname": "ramdisk",
    });
    Inventory::from_json(&said).unwrap()
}

/// MB of this process: now, and the most since [`forget_most`].
fn memory() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let megabytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<f64>().unwrap() * 1024.0 / 1e6
    };
    (megabytes("VmRSS:"), megabytes("VmHWM:"))
}

fn forget_most() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// All that the agent has of hosts beside one copy of their objects: decided, shown, on the page, wanted of Kubernetes.
struct Rack {
    hosts: Hosts,
    store: MemoryStore,
    window: Window,
    wanted: watch::Receiver<Arc<objects::Targets>>,
    budgets: objects::Budgets,
    up: Duration,
}

impl Rack {
    fn new() -> (Self, watch::Receiver<SiteStatus>) {
        let mut settings = settings(SitePolicy::Cluster);
        settings.networks = vec![Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 0, 255, 255)];
        let (sender, page, owner) = status::channel("tests");
        tokio::spawn(status::own(owner, CancellationToken::new()));
        let wanted = watch::Sender::new(Arc::default());
        let view = watch::Sender::new(Arc::new(View::default()));
        let mut rack = Self {
            hosts: hosts(&settings, &BTreeMap::new()),
            store: MemoryStore::default(),
            wanted: wanted.subscribe(),
            window: Window::new(view, sender, wanted),
            budgets: objects::Budgets::default(),
            up: Duration::from_mins(1),
        };
        rack.fold(Event::Ironic {
            box_http: "http://10.0.0.1".into(),
        });
        (rack, page)
    }

    /// So many a minute may be new.
    fn report(&mut self, server: &Server, number: u32, report: Report) {
        let [_, _, a, b] = number.to_be_bytes();
        let mut key = [1; 32];
        (key[0], key[1]) = (a, b);
        let address = address_of(number);
        self.up += Duration::from_secs(1);
        self.fold(Event::Report {
            ticket: 0,
            from: Speaker {
                peer: address.into(),
                key: PublicKey::new(key),
                ..server.speaker()
            },
            report: Box::new(Report {
                boot_mac: mac_of(number).to_string(),
                address: address.to_string(),
                ..report
            }),
        });
    }

    fn fold(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let now = Now {
                up: self.up,
                ..now()
            };
            for effect in self.hosts.fold(event, now) {
                match effect {
                    Effect::Show { mac, shown } => self.window.show(mac, shown),
                    Effect::Save { mac, .. } => events.push(Event::Saved {
                        mac,
                        result: Ok(()),
                    }),
                    _ => {}
                }
            }
        }
    }

    /// Objects are read, written as they shall be, and told; as seconds.
    async fn round(&mut self) -> f64 {
        let began = Instant::now();
        let wanted = self.wanted.borrow_and_update().clone();
        let listed = self.store.list().await.unwrap();
        let round = objects::write_all(&self.store, listed, &wanted, &mut self.budgets).await;
        let (seen, failures) = round.unwrap();
        assert!(failures.is_empty(), "{failures:?}");
        self.fold(Event::Objects(seen));
        began.elapsed().as_secs_f64()
    }

    async fn settle(&mut self) {
        self.round().await;
        while self.wanted.has_changed().unwrap() {
            self.round().await;
        }
    }
}

#[tokio::test]
#[ignore = "figures of scripts/bench base, measured alone"]
async fn figures_of_a_thousand_hosts() {
    let (before, _) = memory();
    let (mut rack, page) = Rack::new();
    rack.settle().await;
    let server = Server::new(FakeIronic::start().await.unwrap().client());
    for number in 0..HOSTS {
        let report = Report {
            inventory: of_a_rack(number, address_of(number)),
            ..server.report()
        };
        rack.report(&server, number, report);
        if number % 100 == 99 {
            rack.settle().await;
            tokio::task::yield_now().await;
        }
    }
    rack.settle().await;
    assert_eq!(rack.store.objects.lock().unwrap().len(), HOSTS as usize);
    assert_eq!(page.borrow().hosts.len(), HOSTS as usize);
    let (all, most) = memory();
    eprintln!("MB: {before:.1} before, {all:.1} with all, {most:.1} at most");
    forget_most();
    // Nothing happens, then everything: each has a word to say, while somebody reads the page.
    let began = Instant::now();
    rack.up += Duration::from_secs(1);
    rack.fold(Event::Tick);
    let tick = began.elapsed().as_secs_f64();
    let quiet = rack.round().await;
    eprintln!("ms: a tick {:.1}, a round {:.1}", tick * 1e3, quiet * 1e3);
    let event = packet(&mut rack, Some(ClientArch::UefiX64));
    let round = rack.round().await;
    rack.settle().await;
    let began = Instant::now();
    let json = serde_json::to_vec(&*page.borrow()).unwrap();
    eprintln!(
        "ms: an event {event:.3}, a round that writes all {:.1}, the page's JSON of {} kB {:.1}; MB at most {:.1}",
        round * 1e3,
        json.len() / 1000,
        began.elapsed().as_secs_f64() * 1e3,
        memory().1
    );
    eprintln!("figure base-hosts-memory {:.1}", memory().1 - before);
}
