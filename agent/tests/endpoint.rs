//! The address of a cluster's API, with the real keepalived of two control planes: it stays with them, whoever else is on the
//! cable.
//!
//! `scripts/test-nodes` makes the file system in which they run.
#![allow(clippy::unwrap_used)]

#[path = "common/root.rs"]
mod root;

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use firstlight_agent::clusters::node;
use firstlight_api::site::{ClusterChoice, ClusterConfig, SiteConfig, parse_site};
use root::{Root, Running, with_root};

const ENDPOINT: &str = "172.22.0.9";
const CONFIG: &str = "etc/keepalived/keepalived.conf";
const PATIENCE: Duration = Duration::from_mins(1);
/// A master that hears of a better one gives way at once; three times what a backup waits for.
const LONG_ENOUGH: Duration = Duration::from_secs(10);

/// A machine on the cable.
struct Machine {
    name: &'static str,
    namespace: Running,
    root: Root,
    keepalived: Option<Running>,
}

impl Machine {
    fn new(name: &'static str, address: &str, root: Root) -> Self {
        let mut namespace = Command::new("unshare");
        namespace.args(["--net", "sh", "-c", "echo; exec sleep infinity"]);
        let mut namespace = Running(namespace.stdout(Stdio::piped()).spawn().unwrap());
        // It says so once it is in its own namespace.
        let said = namespace.0.stdout.as_mut().unwrap();
        std::io::Read::read_exact(said, &mut [0]).unwrap();
        let machine = Self {
            name,
            root,
            namespace,
            keepalived: None,
        };
        let pid = machine.namespace.0.id();
        shell(&format!(
            "ip link add to-{name} type veth peer name nic netns {pid}; ip link set to-{name} master cable up"
        ));
        machine.run(&format!(
            "ip link set lo up; ip address add {address}/24 dev nic; ip link set nic up"
        ));
        machine
    }

    fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.namespace.0.id()));
        command
    }

    fn run(&self, script: &str) {
        let status = self.inside().args(["sh", "-euc", script]).status();
        assert!(status.unwrap().success(), "{}: {script}", self.name);
    }

    /// What cloud-init does with a control plane's files and commands, except that systemd starts no service.
    fn configure(&self, site: &SiteConfig, config: &ClusterConfig) {
        let file = node::endpoint_file(config);
        assert_eq!(file["path"], format!("/{CONFIG}"));
        self.root
            .write(CONFIG, 0o644, file["content"].as_str().unwrap());
        self.root
            .write("etc/kubernetes/pki/sa.key", 0o600, "the cluster's key");
        for command in node::endpoint_commands(site) {
            if command.starts_with("systemctl ") {
                continue;
            }
            let chroot = self.root.command(&["sh", "-c", &command]);
            let status = self
                .inside()
                .arg(chroot.get_program())
                .args(chroot.get_args())
                .status();
            assert!(status.unwrap().success(), "{command}");
        }
        let checked = self
            .keepalived(&["--config-test"])
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }

    fn keepalived(&self, more: &[&str]) -> Command {
        let file = format!("/{CONFIG}");
        let words = [
            &["/usr/sbin/keepalived", "--use-file", &file, "--dont-fork"],
            more,
        ]
        .concat();
        let chroot = self.root.command(&words);
        let mut command = self.inside();
        command.arg(chroot.get_program()).args(chroot.get_args());
        command
    }

    fn start(&mut self) {
        let log = std::fs::File::create(self.root.path("log")).unwrap();
        let mut command = self.keepalived(&["--log-console", "--log-detail", "--no-syslog"]);
        let log = command.stdout(log.try_clone().unwrap()).stderr(log);
        self.keepalived = Some(Running(log.spawn().unwrap()));
    }

    /// Without a word to the others, as by a power cut.
    fn cut(&mut self) {
        self.run("ip link set nic down");
    }

    fn holds(&self) -> bool {
        let mut asked = self.inside();
        let shown = asked.args(["ip", "-4", "address", "show", "dev", "nic"]);
        let shown = shown.output().unwrap().stdout;
        String::from_utf8(shown)
            .unwrap()
            .contains(&format!("inet {ENDPOINT}/"))
    }

    fn log(&self) -> String {
        self.root.read("log")
    }
}

fn shell(script: &str) {
    let status = Command::new("sh").args(["-euc", script]).status();
    assert!(status.unwrap().success(), "{script}");
}

fn logs(machines: &[&Machine]) -> String {
    let logs: Vec<String> = machines.iter().map(|machine| machine.log()).collect();
    logs.join("\n---\n")
}

fn wait(what: &str, machines: &[&Machine], holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}: {}", logs(machines));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Who says that the address is his own.
fn liar(authentication: &str) -> String {
    format!(
        "vrrp_instance endpoint {{\n    state MASTER\n    interface nic\n    virtual_router_id 9\n    priority 255\n    \
         advert_int 1\n    lower_prio_no_advert\n    {authentication}\n    virtual_ipaddress {{\n        {ENDPOINT}/32\n    }}\n}}\n"
    )
}

#[test]
#[ignore = "needs FIRSTLIGHT_ROOT: scripts/test-nodes"]
fn the_address_of_a_cluster_stays_with_its_control_planes() {
    let name = "the_address_of_a_cluster_stays_with_its_control_planes";
    with_root(
        name,
        |_| unreachable!("nothing is played in a tree"),
        |tree| {
            shell("ip link add cable type bridge; ip link set cable up");
            let site = parse_site(format!("cluster: {{endpoint: {ENDPOINT}}}\n")).unwrap();
            let ClusterChoice::Generated(config) = &site.cluster else {
                panic!("a cluster")
            };
            let debian = tree.unpack("debian");
            let make = |name, address| Machine::new(name, address, debian.over(name));
            let (mut first, mut second) =
                (make("first", "172.22.0.11"), make("second", "172.22.0.12"));
            first.configure(&site, config);
            second.configure(&site, config);
            first.start();
            wait("a lone one takes it", &[&first], || first.holds());
            second.start();
            wait("the second hears of it", &[&first, &second], || {
                second.log().contains("Entering BACKUP STATE")
            });

            let mut plain = make("plain", "172.22.0.98");
            plain.root.write(CONFIG, 0o644, liar(""));
            plain.start();
            // Two are heard more often than the holder speaks.
            let forgers =
                [("forger", "172.22.0.99"), ("another", "172.22.0.100")].map(|(name, address)| {
                    let mut forger = make(name, address);
                    let secret =
                        format!("authentication {{\n auth_type AH\n auth_pass {name}\n }}");
                    forger.root.write(CONFIG, 0o644, liar(&secret));
                    forger.start();
                    forger
                });
            let [forger, another] = &forgers;
            wait("they lie", &[&first, &plain, forger, another], || {
                let heard = first.log().contains("invalid IPSEC HMAC-MD5");
                plain.holds() && forger.holds() && another.holds() && heard
            });
            let start = Instant::now();
            while start.elapsed() < LONG_ENOUGH {
                let held = (first.holds(), second.holds());
                assert_eq!(held, (true, false), "{}", logs(&[&first, &second]));
                std::thread::sleep(Duration::from_millis(100));
            }

            first.cut();
            wait("the other one takes over", &[&first, &second], || {
                second.holds()
            });
            first.run("ip link set nic up");
            let both = || (first.holds(), second.holds());
            wait("one of them holds it", &[&first, &second], || {
                matches!(both(), (true, false) | (false, true))
            });
        },
    );
}
