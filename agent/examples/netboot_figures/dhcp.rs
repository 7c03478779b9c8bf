//! Four-way exchanges by perfdhcp, each of a client that nobody met before, so that each is a lease to keep.

use std::{fs, path::Path, time::Duration};

use super::{
    median, row,
    space::{Served, Space, wait_for},
};

const ROUNDS: usize = 5;
/// Offered, one after the other; the most that was done of any of them counts.
const OFFERED: [u32; 4] = [2000, 5000, 8000, 12_000];
const SECONDS: u32 = 2;
const KINDS: [&str; 3] = ["ours", "kea", "dnsmasq"];

const KEA: &str = r#"{"Dhcp4": {
  "interfaces-config": {"interfaces": ["fl-box"], "dhcp-socket-type": "udp"}, "authoritative": true,
  "lease-database": {"type": "memfile", "persist": true, "name": "FOLDER/leases.csv"}, "valid-lifetime": 14400,
  "multi-threading": {"enable-multi-threading": true},
  "subnet4": [{"id": 1, "subnet": "10.55.0.0/16", "pools": [{"pool": "10.55.1.0-10.55.250.255"}]}],
  "loggers": [{"name": "kea-dhcp4", "severity": "ERROR", "output_options": [{"output": "stderr"}]}]}}"#;

pub fn measure() {
    let spaces = KINDS.map(Space::make);
    let mut rates = KINDS.map(|_| Vec::new());
    let mut spent = KINDS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((space, rates), spent) in spaces.iter().zip(&mut rates).zip(&mut spent) {
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            let server = start(space, folder.path());
            let mut load = Load::new(space);
            let before = server.processor_time();
            let done = OFFERED.map(|rate| load.run(rate, SECONDS).done);
            let used = server.processor_time().saturating_sub(before);
            rates.push(done.into_iter().fold(0.0, f64::max));
            spent.push(used.as_secs_f64() * 1e6 / (done.iter().sum::<f64>() * f64::from(SECONDS)));
        }
    }
    let [ours, others @ ..] = rates.map(median);
    let (name, best) = best_of(others, f64::total_cmp);
    row(
        "DHCP: four-way exchanges a second",
        ours,
        (name, best),
        ours / best,
        1.5,
    );
    let half = (best / 2.0) as u32;
    // perfdhcp takes a whole processor itself, so that on two of them it is at its end before a server is.
    let [ours, others @ ..] = spent.map(median);
    let (name, best) = best_of(others, |a, b| b.total_cmp(a));
    row(
        "DHCP: µs of the server's processor for each of these",
        ours,
        (name, best),
        best / ours,
        1.5,
    );
    let mut delays = KINDS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (space, delays) in spaces.iter().zip(&mut delays) {
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            let _server = start(space, folder.path());
            let mut load = Load::new(space);
            delays.push(load.run(half, 3 * SECONDS).p99);
        }
    }
    let [ours, others @ ..] = delays.map(median);
    let (name, best) = best_of(others, |a, b| b.total_cmp(a));
    row(
        &format!("DHCP: ms, p99 of an exchange at {half} a second"),
        ours,
        (name, best),
        best / ours,
        1.0,
    );
}

fn best_of(
    others: [f64; 2],
    order: impl Fn(&f64, &f64) -> std::cmp::Ordering,
) -> (&'static str, f64) {
    let named = KINDS.into_iter().skip(1).zip(others);
    named.max_by(|a, b| order(&a.1, &b.1)).unwrap()
}

fn start(space: &Space, folder: &Path) -> Served {
    let name = folder.to_str().unwrap();
    let server = match space.name {
        "ours" => {
            let own = std::env::current_exe().unwrap();
            // The namespace's own devices.
            let script = format!(
                "mount -t sysfs sysfs /sys && exec {} --serve-dhcp fl-box {name}",
                own.display()
            );
            space.serve("unshare", &["--mount", "sh", "-c", &script])
        }
        "kea" => {
            let config = folder.join("kea.json");
            fs::write(&config, KEA.replace("FOLDER", name)).unwrap();
            let dirs = [
                format!("KEA_LOCKFILE_DIR={name}"),
                format!("KEA_PIDFILE_DIR={name}"),
            ];
            let config = config.to_str().unwrap();
            space.serve("env", &[&dirs[0], &dirs[1], "kea-dhcp4", "-c", config])
        }
        _ => {
            let leases = format!("--dhcp-leasefile={name}/leases");
            space.serve(
                "dnsmasq",
                &[
                    "--keep-in-foreground",
                    "--conf-file=/dev/null",
                    "--pid-file=",
                    "--port=0",
                    "--user=root",
                    "--interface=fl-box",
                    "--bind-interfaces",
                    "--dhcp-authoritative",
                    "--no-ping",
                    "--quiet-dhcp",
                    "--log-facility=/dev/null",
                    "--dhcp-lease-max=100000",
                    "--dhcp-range=10.55.1.0,10.55.250.255,4h",
                    &leases,
                ],
            )
        }
    };
    let mut load = Load { space, round: 200 };
    wait_for(space.name, || load.run(10, 1).done > 0.0);
    server
}

struct Load<'a> {
    space: &'a Space,
    /// A part of the MAC addresses, new for each run.
    round: u8,
}

/// What perfdhcp says.
struct Told {
    /// Exchanges a second that came to their end.
    done: f64,
    /// Of OFFER and of ACK together, milliseconds.
    p99: f64,
}

impl<'a> Load<'a> {
    fn new(space: &'a Space) -> Self {
        Self { space, round: 0 }
    }

    fn run(&mut self, rate: u32, seconds: u32) -> Told {
        self.round = self.round.wrapping_add(1);
        let base = format!("mac=00:0c:{:02x}:02:03:04", self.round);
        let (rate, period) = (rate.to_string(), seconds.to_string());
        let output = self
            .space
            .load("perfdhcp")
            .args(["-4", "-l", "load", "-r", &rate, "-R", "60000", "-b", &base])
            .args(["-p", &period, "-W", "500000", "-x", "t", "10.55.0.1"])
            .output()
            .unwrap_or_else(|error| panic!("perfdhcp: {error}; install kea-admin"));
        let said = String::from_utf8_lossy(&output.stdout);
        let received = said
            .lines()
            .filter_map(|line| line.strip_prefix("received packets: "));
        let received: Vec<f64> = received.filter_map(|count| count.parse().ok()).collect();
        let mut p99 = 0.0;
        for part in said.split("***Timestamps for packets:").skip(1) {
            let mut delays: Vec<f64> = part.lines().filter_map(delay).collect();
            delays.sort_by(f64::total_cmp);
            p99 += delays.get(delays.len() * 99 / 100).unwrap_or(&f64::MAX);
        }
        Told {
            done: received.get(1).copied().unwrap_or(0.0) / f64::from(seconds),
            p99,
        }
    }
}

/// `sent / received: 000000.000071 / 000000.000629`, in milliseconds.
fn delay(line: &str) -> Option<f64> {
    let (sent, received) = line.strip_prefix("sent / received: ")?.split_once(" / ")?;
    let [sent, received] = [sent, received].map(str::parse::<f64>);
    Some(Duration::from_secs_f64((received.ok()? - sent.ok()?).max(0.0)).as_secs_f64() * 1e3)
}
