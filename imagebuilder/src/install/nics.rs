//! Which NIC the servers boot from, and whether a DHCP server may answer there. Pure.
//!
//! On a stick `auto` takes the first NIC with a cable. A machine that is there already has other networks, so somebody has
//! to name the NIC, and it must be free.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use firstlight_api::site::{InterfaceChoice, MacAddr, ProvisioningConfig, Subnet};

use super::finding::Finding;

/// One network device with its IPv4 addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    pub name: String,
    pub mac: Option<MacAddr>,
    /// There is hardware behind it.
    pub hardware: bool,
    pub addresses: Vec<(Ipv4Addr, u8)>,
    pub default_route: bool,
}

/// Node, services and pods of the box's Kubernetes (docs/reference.md, "Addresses of the box").
const INSIDE: (Ipv4Addr, u8) = (Ipv4Addr::new(100, 64, 0, 0), 22);

pub fn check_nics(nics: &[Nic], wanted: &ProvisioningConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    let named = match &wanted.interface {
        InterfaceChoice::Auto => {
            findings.push(unnamed(nics));
            None
        }
        InterfaceChoice::Name(name) => find(nics, name, |nic| nic.name == *name, &mut findings),
        InterfaceChoice::Mac(mac) => find(
            nics,
            &mac.to_string(),
            |nic| nic.mac == Some(*mac) && nic.hardware,
            &mut findings,
        ),
    };
    if let Some(nic) = named {
        findings.extend(check_named(nic, wanted.address));
    }
    let own = (wanted.address.address(), wanted.address.prefix());
    for nic in nics {
        let elsewhere = named.is_some_and(|named| named.name != nic.name);
        for address in &nic.addresses {
            if overlap(*address, INSIDE) {
                findings.push(taken(
                    nic,
                    *address,
                    "a box uses 100.64.0.0/22 inside itself",
                ));
            }
            if elsewhere && overlap(*address, own) {
                findings.push(taken(
                    nic,
                    *address,
                    "`provisioning` in site.yaml gives the network of the servers the same addresses",
                ));
            }
        }
    }
    findings
}

fn unnamed(nics: &[Nic]) -> Finding {
    Finding::new(
        "site.yaml",
        "does not say which NIC leads to the servers, and the box must not answer DHCP on another network of this machine",
        format!(
            "name it under `provisioning: interface:` and give the file with --site; there is {}",
            list(nics)
        ),
    )
}

fn find<'n>(
    nics: &'n [Nic],
    wanted: &str,
    is_it: impl Fn(&Nic) -> bool,
    findings: &mut Vec<Finding>,
) -> Option<&'n Nic> {
    let found = nics.iter().find(|nic| is_it(nic));
    if found.is_none() {
        findings.push(Finding::new(
            "site.yaml",
            format!("names the NIC {wanted}, which this machine does not have"),
            format!("name another one; there is {}", list(nics)),
        ));
    }
    found
}

/// The box's own address may be there already: somebody prepared the NIC.
fn check_named(nic: &Nic, address: Subnet) -> Vec<Finding> {
    let own = (address.address(), address.prefix());
    let mut findings = Vec::new();
    for other in nic.addresses.iter().filter(|other| **other != own) {
        findings.push(Finding::new(
            format!("NIC {}", nic.name),
            format!(
                "has the address {}/{}: it is in use, and the box would answer DHCP there as {address}",
                other.0, other.1
            ),
            "name a NIC that leads to the servers only, or take this address away and out of the machine's configuration",
        ));
    }
    if nic.default_route {
        findings.push(Finding::new(
            format!("NIC {}", nic.name),
            "has this machine's default route: it leads to a network that is not the servers'",
            "name a NIC that leads to the servers only",
        ));
    }
    findings
}

fn taken(nic: &Nic, (address, prefix): (Ipv4Addr, u8), why: &str) -> Finding {
    Finding::new(
        format!("NIC {}", nic.name),
        format!("has the address {address}/{prefix}, and {why}"),
        "give one of the two other addresses",
    )
}

fn overlap(a: (Ipv4Addr, u8), b: (Ipv4Addr, u8)) -> bool {
    let prefix = u32::from(a.1.min(b.1));
    let network = |address: Ipv4Addr| u32::from(address).checked_shr(32 - prefix).unwrap_or(0);
    network(a.0) == network(b.0)
}

fn list(nics: &[Nic]) -> String {
    let mut text = String::new();
    for nic in nics.iter().filter(|nic| nic.hardware) {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&nic.name);
        match nic.addresses.first() {
            Some((address, prefix)) => {
                let _ = write!(text, " (in use, {address}/{prefix})");
            }
            None => text.push_str(" (no address)"),
        }
    }
    if text.is_empty() {
        "no Ethernet NIC".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn nic(name: &str, addresses: &[(&str, u8)]) -> Nic {
        Nic {
            name: name.to_owned(),
            mac: None,
            hardware: true,
            addresses: addresses
                .iter()
                .map(|(address, prefix)| (address.parse().unwrap(), *prefix))
                .collect(),
            default_route: false,
        }
    }

    fn wanted(interface: InterfaceChoice) -> ProvisioningConfig {
        ProvisioningConfig {
            interface,
            ..firstlight_api::site::SiteConfig::default().provisioning
        }
    }

    fn named(name: &str) -> ProvisioningConfig {
        wanted(InterfaceChoice::Name(name.to_owned()))
    }

    fn lines(nics: &[Nic], wanted: &ProvisioningConfig) -> Vec<String> {
        let findings = check_nics(nics, wanted);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn auto_is_refused_with_the_nics_to_choose_from() {
        let nics = [nic("office0", &[("10.0.0.5", 24)]), nic("rack0", &[])];
        let lines = lines(&nics, &wanted(InterfaceChoice::Auto));
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].ends_with("there is office0 (in use, 10.0.0.5/24), rack0 (no address)"),
            "{lines:#?}"
        );
    }

    #[test]
    fn a_free_nic_is_good_and_so_is_one_that_has_the_boxs_address_already() {
        let office = nic("office0", &[("10.0.0.5", 24)]);
        for rack in [nic("rack0", &[]), nic("rack0", &[("172.22.0.1", 24)])] {
            assert_eq!(lines(&[office.clone(), rack], &named("rack0")), [""; 0]);
        }
    }

    #[test]
    fn a_nic_in_use_an_absent_one_and_taken_addresses_are_refused() {
        let office = Nic {
            default_route: true,
            ..nic("office0", &[("10.0.0.5", 24)])
        };
        let mac = wanted(InterfaceChoice::Mac(
            MacAddr::new([2, 0, 0, 0, 0, 9]).unwrap(),
        ));
        let cases: [(&[Nic], _, &[&str]); 5] = [
            (
                std::slice::from_ref(&office),
                named("office0"),
                &["has the address 10.0.0.5/24", "default route"],
            ),
            (
                std::slice::from_ref(&office),
                named("rack0"),
                &["names the NIC rack0"],
            ),
            (&[nic("a", &[])], mac, &["names the NIC 02:00:00:00:00:09"]),
            (
                &[nic("a", &[]), nic("b", &[("172.22.0.77", 16)])],
                named("a"),
                &["NIC b: has the address 172.22.0.77/16, and `provisioning`"],
            ),
            (
                &[nic("a", &[]), nic("vpn0", &[("100.64.1.9", 32)])],
                named("a"),
                &["100.64.0.0/22"],
            ),
        ];
        for (nics, wanted, parts) in cases {
            let lines = lines(nics, &wanted);
            assert_eq!(lines.len(), parts.len(), "{lines:#?}");
            for (line, part) in lines.iter().zip(parts) {
                assert!(line.contains(part), "{line} / {part}");
            }
        }
    }
}
