//! A server and who loads it, each in a network namespace, with a cable between them.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Busy machines are slow.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runtime files of this machine are not met.
pub fn apart() {
    run("mount", &["-t", "tmpfs", "tmpfs", "/run"]);
    run("mount", &["-t", "tmpfs", "tmpfs", "/var/lib/misc"]);
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install it"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {said}{errors}"
    );
    said
}

/// The server has 10.55.0.1/16 on `fl-box`, the others 10.55.0.2 on `load`.
pub struct Space {
    pub name: &'static str,
}

impl Space {
    pub fn make(name: &'static str) -> Self {
        let load = format!("{name}-load");
        for namespace in [name, load.as_str()] {
            run("ip", &["netns", "add", namespace]);
            run("ip", &["-n", namespace, "link", "set", "lo", "up"]);
        }
        run(
            "ip",
            &[
                "link", "add", "fl-box", "netns", name, "type", "veth", "peer", "name", "load",
                "netns", &load,
            ],
        );
        for (namespace, device, address) in [
            (name, "fl-box", "10.55.0.1/16"),
            (load.as_str(), "load", "10.55.0.2/16"),
        ] {
            run(
                "ip",
                &["-n", namespace, "address", "add", address, "dev", device],
            );
            run("ip", &["-n", namespace, "link", "set", device, "up"]);
        }
        Self { name }
    }

    /// Beside the server.
    pub fn load(&self, program: &str) -> Command {
        enter(&format!("{}-load", self.name), program)
    }

    pub fn serve(&self, program: &str, arguments: &[&str]) -> Served {
        let mut command = enter(self.name, program);
        command.args(arguments).stdout(Stdio::null());
        if std::env::var_os("FIRSTLIGHT_SHOW").is_none() {
            command.stderr(Stdio::null());
        }
        Served(command.spawn().unwrap())
    }
}

fn enter(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net=/run/netns/{namespace}"))
        .arg(program);
    command
}

/// A server that runs until it is dropped.
pub struct Served(Child);

impl Served {
    /// It and its children.
    fn all(&self) -> Vec<u32> {
        let own = self.0.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let children = children.unwrap_or_default();
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        std::iter::once(own).chain(children).collect()
    }

    pub fn processor_time(&self) -> Duration {
        let all = self.all().into_iter();
        all.map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // Behind the name, which may have spaces: utime and stime are 14 and 15 of all fields.
            let fields = stat.rsplit(')').next().unwrap_or_default().to_owned();
            let ticks = fields.split_whitespace().skip(11).take(2);
            let ticks: u64 = ticks.map(|field| field.parse().unwrap_or(0)).sum();
            // USER_HZ
            Duration::from_millis(ticks * 10)
        })
        .sum()
    }

    /// Megabytes that are in memory for it, its program among them.
    pub fn memory(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<f64>().unwrap() * 1024.0 / 1e6
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        sleep(Duration::from_millis(50));
    }
}
