//! Which NIC is the provisioning NIC: pure.

use firstlight_api::site::{
    InterfaceChoice, MacAddr,
    networks::{Carrier, NicChoice},
};

use crate::options::BoxForm;

/// One network device, as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub mac: Option<MacAddr>,
    pub up: bool,
    pub carrier: bool,
    /// How often it got a carrier.
    pub link_ups: u32,
    /// The path in sysfs of the hardware behind it; `None` for what software made (bridges, veth, the dummy).
    pub hardware: Option<String>,
    pub wireless: bool,
}

/// The answer of [`choose`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    Use(Link),
    /// Nothing to use now; the sentence says what for.
    Wait(String),
    /// NICs have to be up before they show a carrier.
    RaiseFirst(Vec<u32>),
    /// One NIC has a carrier, others may get theirs in a moment and would come first.
    Settle,
}

/// Whether slower NICs had their time to find a carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Fresh,
    Exhausted,
}

pub fn choose(
    form: BoxForm,
    wanted: &InterfaceChoice,
    links: &[Link],
    patience: Patience,
) -> Choice {
    match wanted {
        // The first NIC with a cable may be the one to an office, where a second DHCP server does harm.
        InterfaceChoice::Auto if form == BoxForm::Installed => Choice::Wait(format!(
            "waiting for site.yaml to name the provisioning NIC, because this machine has other uses; found {}",
            list(&candidates(links))
        )),
        InterfaceChoice::Auto => choose_auto(links, patience),
        InterfaceChoice::Name(name) => {
            named(links.iter().find(|link| link.name == *name), name, links)
        }
        InterfaceChoice::Mac(mac) => {
            let found = links
                .iter()
                .find(|link| link.mac == Some(*mac) && link.hardware.is_some());
            named(
                found.or_else(|| links.iter().find(|link| link.mac == Some(*mac))),
                &mac.to_string(),
                links,
            )
        }
    }
}

/// Whether a person calls this NIC so.
pub fn is_nic(named: &NicChoice, link: &Link) -> bool {
    match named {
        NicChoice::Name(name) => link.name == *name,
        NicChoice::Mac(mac) => link.mac == Some(*mac),
        // A server's.
        NicChoice::Boot => false,
    }
}

/// Whether the NIC is one of `carrier`.
pub fn has_nic(carrier: &Carrier, link: &Link) -> bool {
    carrier.nics().iter().any(|named| is_nic(named, link))
}

fn named(found: Option<&Link>, wanted: &str, links: &[Link]) -> Choice {
    match found {
        Some(link) if link.up => Choice::Use(link.clone()),
        Some(link) => Choice::RaiseFirst(vec![link.index]),
        None => Choice::Wait(format!(
            "waiting for {wanted}, which site.yaml names; found {}",
            list(&candidates(links))
        )),
    }
}

fn choose_auto(links: &[Link], patience: Patience) -> Choice {
    let candidates = candidates(links);
    let down: Vec<_> = candidates
        .iter()
        .filter(|link| !link.up)
        .map(|link| link.index)
        .collect();
    if !down.is_empty() {
        return Choice::RaiseFirst(down);
    }
    match candidates.iter().find(|link| link.carrier) {
        None if candidates.is_empty() => Choice::Wait("waiting for an Ethernet NIC".to_owned()),
        None => Choice::Wait(format!("waiting for a cable at {}", list(&candidates))),
        Some(first) if patience == Patience::Exhausted || candidates[0] == *first => {
            Choice::Use((*first).clone())
        }
        Some(_) => Choice::Settle,
    }
}

/// Physical Ethernet NICs in the order of their hardware's place, which does not change from boot to boot.
fn candidates(links: &[Link]) -> Vec<&Link> {
    let mut nics: Vec<_> = links
        .iter()
        .filter(|link| link.hardware.is_some() && !link.wireless && link.mac.is_some())
        .collect();
    nics.sort_by_key(|link| (link.hardware.clone(), link.index));
    nics
}

/// All NICs that the box could use.
pub fn list_nics(links: &[Link]) -> String {
    list(&candidates(links))
}

fn list(links: &[&Link]) -> String {
    if links.is_empty() {
        return "no Ethernet NIC".to_owned();
    }
    links
        .iter()
        .map(|link| link.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn nic(index: u32, path: &str, carrier: bool) -> Link {
        Link {
            index,
            name: format!("eth{index}"),
            mac: Some(
                MacAddr::new([0x52, 0x54, 0, 0, 0, u8::try_from(index).unwrap_or(0)]).unwrap(),
            ),
            up: true,
            carrier,
            link_ups: 1,
            hardware: Some(path.to_owned()),
            wireless: false,
        }
    }

    fn auto(links: &[Link], patience: Patience) -> Choice {
        choose(BoxForm::Box, &InterfaceChoice::Auto, links, patience)
    }

    #[test]
    fn auto_takes_the_first_by_place_that_has_a_carrier() {
        let (first, second) = (
            nic(7, "/sys/devices/pci0000:00/0000:00:03.0", true),
            nic(2, "/sys/devices/pci0000:00/0000:00:04.0", true),
        );
        assert_eq!(
            auto(&[second.clone(), first.clone()], Patience::Fresh),
            Choice::Use(first.clone())
        );
        let dark = Link {
            carrier: false,
            ..first
        };
        assert_eq!(
            auto(&[second.clone(), dark.clone()], Patience::Fresh),
            Choice::Settle
        );
        assert_eq!(
            auto(&[second.clone(), dark], Patience::Exhausted),
            Choice::Use(second)
        );
    }

    #[test]
    fn an_installed_machine_wants_its_nic_named() {
        let links = [nic(1, "/a", true)];
        let choice = choose(
            BoxForm::Installed,
            &InterfaceChoice::Auto,
            &links,
            Patience::Exhausted,
        );
        assert!(
            matches!(&choice, Choice::Wait(reason) if reason.contains("name the provisioning NIC") && reason.ends_with("found eth1")),
            "{choice:?}"
        );
    }

    #[test]
    fn auto_never_takes_software_or_wireless_devices() {
        let links = [
            Link {
                hardware: None,
                ..nic(1, "", true)
            },
            Link {
                wireless: true,
                ..nic(2, "/a", true)
            },
            Link {
                mac: None,
                ..nic(3, "/b", true)
            },
        ];
        assert_eq!(
            auto(&links, Patience::Exhausted),
            Choice::Wait("waiting for an Ethernet NIC".into())
        );
    }

    #[test]
    fn nics_are_raised_before_their_carrier_counts() {
        let links = [
            Link {
                up: false,
                ..nic(1, "/a", false)
            },
            nic(2, "/b", true),
        ];
        assert_eq!(
            auto(&links, Patience::Exhausted),
            Choice::RaiseFirst(vec![1])
        );
        let links = [nic(1, "/a", false), nic(2, "/b", false)];
        assert_eq!(
            auto(&links, Patience::Fresh),
            Choice::Wait("waiting for a cable at eth1, eth2".into())
        );
    }

    #[test]
    fn a_named_nic_is_used_without_a_carrier_and_awaited_when_absent() {
        let dark = nic(1, "/a", false);
        let by_name = InterfaceChoice::Name("eth1".into());
        assert_eq!(
            choose(
                BoxForm::Installed,
                &by_name,
                std::slice::from_ref(&dark),
                Patience::Fresh
            ),
            Choice::Use(dark.clone())
        );
        let by_mac = InterfaceChoice::Mac(MacAddr::new([0x52, 0x54, 0, 0, 0, 1]).unwrap());
        assert_eq!(
            choose(
                BoxForm::Box,
                &by_mac,
                std::slice::from_ref(&dark),
                Patience::Fresh
            ),
            Choice::Use(dark)
        );
        let others = [nic(2, "/b", true)];
        let absent = choose(BoxForm::Box, &by_name, &others, Patience::Fresh);
        assert_eq!(
            absent,
            Choice::Wait("waiting for eth1, which site.yaml names; found eth2".into())
        );
    }
}
