//! What one DHCP packet costs with a thousand hosts: a figure of `scripts/bench base`.

use std::time::Instant;

use firstlight_netboot::ClientArch;
use tokio::sync::watch;

use super::*;
use crate::{fleet::View, hosts::runner::Window};

const HOSTS: u32 = 1000;

fn mac_of(number: u32) -> MacAddr {
    let [_, _, a, b] = number.to_be_bytes();
    MacAddr::new([0x52, 0x54, 0, 0, a, b]).unwrap()
}

/// Milliseconds for one packet of each host, in the mean: decided, and shown to everybody who looks.
fn packet(hosts: &mut Hosts, window: &Window, arch: Option<ClientArch>) -> f64 {
    let began = Instant::now();
    for number in 0..HOSTS {
        let event = Event::Dhcp {
            mac: mac_of(number),
            arch,
            address: Some(Ipv4Addr::from(0x0a00_0000 + number)),
        };
        for effect in hosts.fold(event, now()) {
            if let Effect::Show { mac, shown } = effect {
                window.show(mac, shown);
            }
        }
    }
    began.elapsed().as_secs_f64() * 1000.0 / f64::from(HOSTS)
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
    let mut hosts = hosts(&settings(SitePolicy::Cluster), &BTreeMap::new());
    let wanted = watch::Sender::new(Arc::new(Vec::new()));
    let window = Window::new(
        watch::Sender::new(Arc::new(View::default())),
        watch::Sender::new(Vec::new()),
        wanted.clone(),
    );
    let server = Server::new(FakeIronic::start().await.unwrap().client());
    for number in 0..HOSTS {
        let address = Ipv4Addr::from(0x7f00_0001 + number % 200);
        let report = Report {
            boot_mac: mac_of(number).to_string(),
            address: address.to_string(),
            ..server.report()
        };
        let from = Speaker {
            peer: address.into(),
            ..server.speaker()
        };
        // A quarter of an hour later, when the one before with this address has gone.
        let up = Duration::from_mins(15 * u64::from(number / 200));
        let event = Event::Report {
            ticket: 0,
            from,
            report: Box::new(report),
        };
        for effect in hosts.fold(event, Now { up, ..now() }) {
            if let Effect::Show { mac, shown } = effect {
                window.show(mac, shown);
            }
        }
    }
    assert_eq!(wanted.borrow().len(), HOSTS as usize);
    packet(&mut hosts, &window, None);
    let renewal = packet(&mut hosts, &window, None);
    let boot = packet(&mut hosts, &window, Some(ClientArch::UefiX64));
    eprintln!("figure base-packet {:.4}", renewal.max(boot));
}
