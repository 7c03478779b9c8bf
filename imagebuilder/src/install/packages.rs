//! Debian packages: what is there, what a box lacks, what apt would do, and which ones do a box's work already. Pure.

use std::collections::BTreeSet;

use super::finding::Finding;

/// Packages beside which a box cannot be, and what they are.
const RIVALS: [(&str, &str); 22] = [
    ("containerd", "a container runtime"),
    ("containerd.io", "a container runtime"),
    ("cri-o", "a container runtime"),
    ("docker.io", "a container runtime"),
    ("docker-ce", "a container runtime"),
    ("kubelet", "Kubernetes"),
    ("kubeadm", "Kubernetes"),
    ("kubectl", "Kubernetes"),
    ("kubernetes-client", "Kubernetes"),
    ("etcd-server", "etcd"),
    ("dnsmasq", "a DHCP server"),
    ("isc-dhcp-server", "a DHCP server"),
    ("kea-dhcp4-server", "a DHCP server"),
    ("udhcpd", "a DHCP server"),
    ("atftpd", "a TFTP server"),
    ("tftpd-hpa", "a TFTP server"),
    ("docker-registry", "a registry"),
    ("ironic-api", "Ironic"),
    ("ironic-conductor", "Ironic"),
    ("firewalld", "a packet filter with rules of its own"),
    ("ufw", "a packet filter with rules of its own"),
    ("k3s", "Kubernetes"),
];

/// Out of dpkg's database (`/var/lib/dpkg/status`).
pub fn parse_installed(status: &str) -> BTreeSet<String> {
    let installed = status.split("\n\n").filter_map(|entry| {
        let field = |name: &str| entry.lines().find_map(|line| line.strip_prefix(name));
        field("Status: ")?
            .ends_with(" ok installed")
            .then(|| field("Package: "))?
    });
    installed.map(str::to_owned).collect()
}

pub fn check_rivals(installed: &BTreeSet<String>) -> Vec<Finding> {
    let there = RIVALS.iter().filter(|(name, _)| installed.contains(*name));
    there
        .map(|(name, what)| {
            Finding::new(
                format!("package {name}"),
                format!("is {what}, which a box brings itself"),
                format!("remove it, if nothing here needs it: apt-get remove {name}"),
            )
        })
        .collect()
}

/// What apt says it would do (`apt-get --simulate install`), or that it cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Simulation {
    Would { install: usize, remove: Vec<String> },
    Refused(String),
}

pub fn parse_simulation(output: &str) -> Simulation {
    let actions = |word: &str| {
        let names = output.lines().filter_map(|line| line.strip_prefix(word));
        let names = names.filter_map(|rest| rest.split_whitespace().next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    Simulation::Would {
        install: actions("Inst ").len(),
        remove: actions("Remv "),
    }
}

/// Nothing of the machine's own goes for what a box needs.
pub fn check_missing(missing: &[String], simulation: &Simulation) -> Option<Finding> {
    let command = format!(
        "apt-get install --no-install-recommends {}",
        missing.join(" ")
    );
    match simulation {
        Simulation::Would { remove, .. } if remove.is_empty() => None,
        Simulation::Would { remove, .. } => Some(Finding::new(
            format!("packages {}", missing.join(", ")),
            format!(
                "are needed, and apt would remove {} for them",
                remove.join(", ")
            ),
            format!("if that is right, do it yourself: {command}"),
        )),
        Simulation::Refused(reason) => Some(Finding::new(
            format!("packages {}", missing.join(", ")),
            format!("are needed, and apt cannot install them: {reason}"),
            format!("put them on this machine: apt-get update && {command}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: runc\nStatus: install ok installed\nVersion: 1\n\nPackage: dnsmasq\nStatus: deinstall ok config-files\n\nPackage: docker.io\nStatus: hold ok installed\n";

    #[test]
    fn only_what_is_really_installed_counts() {
        let installed = parse_installed(STATUS);
        assert_eq!(
            installed,
            BTreeSet::from(["runc".to_owned(), "docker.io".to_owned()])
        );
        let rivals = check_rivals(&installed);
        assert_eq!(rivals.len(), 1, "{rivals:#?}");
        assert_eq!(rivals[0].place, "package docker.io");
    }

    #[test]
    fn apt_may_add_and_never_remove() {
        let missing = ["chrony".to_owned(), "runc".to_owned()];
        let adds = parse_simulation(
            "Reading package lists...\nInst runc (1.1 Debian:13 [amd64])\nInst chrony (4 Debian:13 [amd64])\nConf runc (1.1)\n",
        );
        assert_eq!(
            adds,
            Simulation::Would {
                install: 2,
                remove: vec![]
            }
        );
        assert_eq!(check_missing(&missing, &adds), None);
        let removes =
            parse_simulation("Remv systemd-timesyncd [257]\nInst chrony (4 Debian:13 [amd64])\n");
        let finding = check_missing(&missing, &removes);
        assert!(
            finding
                .as_ref()
                .is_some_and(|f| f.what.contains("remove systemd-timesyncd")
                    && f.next.ends_with("chrony runc")),
            "{finding:?}"
        );
    }

    #[test]
    fn what_an_offline_machine_lacks_is_named() {
        let refused = Simulation::Refused("E: Unable to locate package runc".to_owned());
        let finding = check_missing(&["runc".to_owned()], &refused);
        assert!(
            finding
                .as_ref()
                .is_some_and(|f| f.place == "packages runc" && f.what.contains("Unable to locate")),
            "{finding:?}"
        );
    }
}
