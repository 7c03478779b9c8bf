//! Whether a machine can become a box: all that speaks against it, at once. Pure.

use std::collections::BTreeSet;

use firstlight_api::site::SiteConfig;

use super::finding::Finding;
use super::nics::{Nic, check_nics};
use super::packages::check_rivals;
use super::ports::{Listener, check_ports};
use crate::build::group;

/// Less than this is left of 4 GiB when the firmware and the kernel have taken theirs.
const MEMORY: u64 = 3584 << 20;
/// For databases, logs and a first few uploads.
pub const STATE_ROOM: u64 = 4 << 30;

/// Fixed numbers: files on the state partition outlive the system that made them (overlays/box/usr/lib/sysusers.d).
const USERS: [(&str, u32); 4] = [
    ("firstlight", 900),
    ("firstlight-kube", 901),
    ("firstlight-ironic", 902),
    ("firstlight-monitoring", 903),
];
const GROUPS: [(&str, u32); 3] = [
    ("firstlight", 900),
    ("firstlight-ironic", 902),
    ("firstlight-monitoring", 903),
];

/// Paths that show what else a machine is.
pub const SIGNS: [(&str, &str); 9] = [
    (
        "run/firstlight/layers/base",
        "this machine runs from a stick: it is a box already",
    ),
    (
        "run/containerd/containerd.sock",
        "a container runtime is running",
    ),
    (
        "var/lib/containerd",
        "holds containers of another installation",
    ),
    ("var/lib/kubelet", "belongs to a node of another Kubernetes"),
    ("etc/kubernetes/admin.conf", "belongs to another Kubernetes"),
    ("etc/kubernetes/manifests", "belongs to another Kubernetes"),
    ("var/lib/etcd", "belongs to another etcd"),
    ("var/lib/rancher", "belongs to another Kubernetes"),
    ("var/snap/microk8s", "belongs to another Kubernetes"),
];

/// Kernel modules that a box loads.
pub const MODULES: [&str; 6] = [
    "br_netfilter",
    "dummy",
    "loop",
    "nf_tables",
    "overlay",
    "squashfs",
];

/// What was seen of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// `ID` and `VERSION_ID` of `/etc/os-release`.
    pub system: (String, String),
    pub arch: String,
    pub systemd: bool,
    /// It shares its kernel with others.
    pub container: bool,
    pub memory: u64,
    /// Free below `/var/lib` and below `/usr`.
    pub room: (u64, u64),
    pub packages: BTreeSet<String>,
    pub users: Vec<(String, u32)>,
    pub groups: Vec<(String, u32)>,
    pub listeners: Vec<Listener>,
    pub nics: Vec<Nic>,
    /// Those of [`SIGNS`] that are there.
    pub signs: Vec<&'static str>,
    pub missing_modules: Vec<&'static str>,
    pub forwards: bool,
    pub state: State,
}

/// What `/var/lib/firstlight` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Absent,
    /// Made by an installation on this machine.
    Ours,
    /// The same, and the box runs.
    Running,
    Foreign,
}

/// Bytes that will be written below `/var/lib` and below `/usr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub state: u64,
    pub programs: u64,
}

pub fn check(machine: &Machine, site: &SiteConfig, need: Need) -> Vec<Finding> {
    let mut findings = check_system(machine);
    findings.extend(check_room(machine, need));
    findings.extend(check_rivals(&machine.packages));
    findings.extend(check_accounts(&USERS, &machine.users, "user"));
    findings.extend(check_accounts(&GROUPS, &machine.groups, "group"));
    if machine.state == State::Foreign {
        findings.push(Finding::new(
            "/var/lib/firstlight",
            "holds the state of a box that was not installed on this machine",
            "move it away; what is in it, passwords and keys of a site, is good for that box only",
        ));
    }
    // A box that runs has the ports, the containers and the addresses itself.
    if machine.state != State::Running {
        findings.extend(check_signs(machine));
        findings.extend(check_ports(&machine.listeners));
        findings.extend(check_nics(&machine.nics, &site.provisioning));
    }
    findings
}

fn check_system(machine: &Machine) -> Vec<Finding> {
    let (id, version) = (machine.system.0.as_str(), machine.system.1.as_str());
    let cases = [
        (
            (id, version) != ("debian", "13"),
            format!("runs {id} {version}, and a box needs Debian 13"),
            "use a machine with Debian 13, or the stick, which brings its own",
        ),
        (
            machine.arch != "x86_64",
            format!("is {}, and the programs of a box are for x86_64 (amd64)", machine.arch),
            "use another machine",
        ),
        (
            !machine.systemd,
            "was not started by systemd, which starts the services of a box".to_owned(),
            "apt-get install systemd-sysv, and restart it",
        ),
        (
            machine.container,
            "is a container, and a box needs a kernel of its own".to_owned(),
            "use a server or a virtual machine",
        ),
        (
            machine.memory < MEMORY,
            format!(
                "has {} MiB of memory, and a box needs {}",
                machine.memory >> 20,
                MEMORY >> 20
            ),
            "use a machine with 4 GiB or more",
        ),
        (
            machine.forwards && machine.state == State::Absent,
            "forwards packets (net.ipv4.ip_forward is 1), and a box does that for its own pods only".to_owned(),
            "use a machine that is no router; or set it to 0, if nothing here needs it",
        ),
        (
            !machine.missing_modules.is_empty(),
            format!("has a kernel without {}", machine.missing_modules.join(", ")),
            "use the kernel of the package linux-image-amd64, and restart the machine after an upgrade of it",
        ),
    ];
    let wrong = cases.into_iter().filter(|(wrong, ..)| *wrong);
    wrong
        .map(|(_, what, next)| Finding::new("machine", what, next))
        .collect()
}

fn check_room(machine: &Machine, need: Need) -> Vec<Finding> {
    let places = [
        ("/var/lib/firstlight", machine.room.0, need.state),
        ("/usr", machine.room.1, need.programs),
    ];
    let short = places.into_iter().filter(|(_, room, need)| room < need);
    short
        .map(|(place, room, need)| {
            Finding::new(
                place,
                format!("needs {} bytes, and {} are free", group(need), group(room)),
                "make room, or give it a larger disk",
            )
        })
        .collect()
}

/// A name must have our number or none, and our number our name.
fn check_accounts(wanted: &[(&str, u32)], there: &[(String, u32)], kind: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, number) in there {
        let conflicts = wanted.iter().find(|(wanted_name, wanted_number)| {
            (name == wanted_name) != (number == wanted_number)
        });
        if let Some((wanted_name, wanted_number)) = conflicts {
            findings.push(Finding::new(
                format!("{kind} {name}"),
                format!("has number {number}, and a box has {wanted_name} with {wanted_number}"),
                "give it another name and number, or remove it",
            ));
        }
    }
    findings
}

fn check_signs(machine: &Machine) -> Vec<Finding> {
    let there = SIGNS
        .iter()
        .filter(|(path, _)| machine.signs.contains(path));
    there
        .map(|(path, what)| {
            Finding::new(
                format!("/{path}"),
                *what,
                "use another machine, or end what it belongs to and move it away",
            )
        })
        .collect()
}

#[cfg(test)]
#[path = "checks/tests.rs"]
mod tests;
