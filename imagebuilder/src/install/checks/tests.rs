use firstlight_api::site::{InterfaceChoice, ProvisioningConfig};

use super::*;
use crate::install::ports::Protocol;

const NEED: Need = Need {
    state: 5 << 30,
    programs: 400 << 20,
};

fn plain() -> Machine {
    Machine {
        system: ("debian".to_owned(), "13".to_owned()),
        arch: "x86_64".to_owned(),
        systemd: true,
        container: false,
        memory: 3900 << 20,
        room: (20 << 30, 20 << 30),
        packages: BTreeSet::from(["runc".to_owned()]),
        users: vec![("root".to_owned(), 0), ("debian".to_owned(), 1000)],
        groups: vec![("root".to_owned(), 0)],
        listeners: vec![],
        nics: vec![Nic {
            name: "rack0".to_owned(),
            mac: None,
            hardware: true,
            addresses: vec![],
            default_route: false,
        }],
        signs: vec![],
        missing_modules: vec![],
        forwards: false,
        state: State::Absent,
    }
}

fn site() -> SiteConfig {
    let site = SiteConfig::default();
    SiteConfig {
        provisioning: ProvisioningConfig {
            interface: InterfaceChoice::Name("rack0".to_owned()),
            ..site.provisioning
        },
        ..site
    }
}

fn lines(machine: &Machine) -> Vec<String> {
    let findings = check(machine, &site(), NEED);
    findings.iter().map(ToString::to_string).collect()
}

fn page() -> Listener {
    Listener {
        protocol: Protocol::Tcp,
        port: 80,
        inode: 1,
        program: Some("nginx".to_owned()),
    }
}

#[test]
fn a_plain_debian_13_is_good() {
    assert_eq!(lines(&plain()), [""; 0]);
}

#[test]
fn each_thing_that_speaks_against_a_machine_is_said() {
    type Change = fn(&mut Machine);
    let cases: [(Change, &str); 16] = [
        (|m| m.system.1 = "12".into(), "runs debian 12"),
        (|m| m.arch = "aarch64".into(), "is aarch64"),
        (|m| m.systemd = false, "not started by systemd"),
        (|m| m.container = true, "is a container"),
        (
            |m| m.memory = 2048 << 20,
            "has 2048 MiB of memory, and a box needs 3584",
        ),
        (|m| m.forwards = true, "forwards packets"),
        (
            |m| m.missing_modules = vec!["dummy"],
            "kernel without dummy",
        ),
        (
            |m| m.room.0 = 1,
            "/var/lib/firstlight: needs 5,368,709,120 bytes, and 1 are free",
        ),
        (|m| m.room.1 = 1, "/usr: needs"),
        (
            |m| m.packages.extend(["docker.io".into()]),
            "package docker.io",
        ),
        (
            |m| m.users.push(("redis".into(), 900)),
            "user redis: has number 900",
        ),
        (
            |m| m.groups.push(("firstlight".into(), 998)),
            "group firstlight: has number 998",
        ),
        (
            |m| m.users.push(("printer".into(), 902)),
            "user printer: has number 902, and a box has firstlight-ironic",
        ),
        (
            |m| m.signs = vec!["var/lib/kubelet"],
            "/var/lib/kubelet: belongs to a node",
        ),
        (|m| m.listeners.push(page()), "port tcp/80: nginx listens"),
        (
            |m| m.state = State::Foreign,
            "/var/lib/firstlight: holds the state",
        ),
    ];
    for (change, part) in cases {
        let mut machine = plain();
        change(&mut machine);
        let lines = lines(&machine);
        assert_eq!(lines.len(), 1, "{part}: {lines:#?}");
        assert!(lines[0].contains(part), "{part}: {lines:#?}");
    }
}

#[test]
fn everything_is_said_at_once() {
    let mut machine = plain();
    machine.system.0 = "ubuntu".into();
    machine.memory = 1 << 30;
    machine.packages.insert("dnsmasq".into());
    machine.listeners.push(page());
    machine.nics.clear();
    assert_eq!(lines(&machine).len(), 5, "{:#?}", lines(&machine));
}

#[test]
fn a_box_that_runs_here_has_its_own_ports_and_containers() {
    let machine = Machine {
        listeners: vec![page()],
        signs: vec!["run/containerd/containerd.sock"],
        forwards: true,
        users: vec![
            ("firstlight".into(), 900),
            ("firstlight-kube".into(), 901),
            ("firstlight-ironic".into(), 902),
        ],
        groups: vec![
            ("firstlight".into(), 900),
            ("firstlight-ironic".into(), 902),
        ],
        state: State::Running,
        ..plain()
    };
    assert_eq!(lines(&machine), [""; 0]);
}
