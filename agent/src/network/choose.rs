//! Which NIC is the provisioning NIC: pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

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
    /// One NIC has a carrier, others may get theirs within this time and would come first; the sentence says which, where that takes long.
    Settle(Duration, Option<String>),
}

/// How long a NIC with a carrier waits for one that would come first: auto-negotiation takes up to 3 s.
const SETTLE: Duration = Duration::from_secs(4);
/// And for the one that the box has served on: after a power cut the switch of a rack takes minutes.
const SETTLE_SERVED: Duration = Duration::from_mins(5);

/// What the box has learned of its NICs.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// Where somebody was heard who is none of ours, with how often the link was up by then: each time it may be another network's.
    strangers: BTreeMap<u32, (u32, BTreeSet<Stranger>)>,
    /// Where the box has leased addresses, now or before it was switched off.
    pub served: Option<MacAddr>,
}

/// Who is heard on a network that is somebody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stranger {
    Router,
    DhcpServer,
}

impl Learned {
    pub fn new(served: Option<MacAddr>) -> Self {
        Self {
            served,
            ..Self::default()
        }
    }

    pub fn hears(&mut self, link: &Link, stranger: Stranger, is_there: bool) {
        let (link_ups, heard) = self.strangers.entry(link.index).or_default();
        if *link_ups != link.link_ups {
            *link_ups = link.link_ups;
            heard.clear();
        }
        if is_there {
            heard.insert(stranger);
        } else {
            heard.remove(&stranger);
        }
    }

    /// The worst of those that are heard there.
    fn stranger(&self, link: &Link) -> Option<Stranger> {
        let (link_ups, heard) = self.strangers.get(&link.index)?;
        heard.last().copied().filter(|_| *link_ups == link.link_ups)
    }

    fn has_served(&self, link: &Link) -> bool {
        link.mac.is_some() && link.mac == self.served
    }
}

/// `waited`: how long it has been [`Choice::Settle`].
pub fn choose(
    form: BoxForm,
    choice: &InterfaceChoice,
    links: &[Link],
    learned: &Learned,
    waited: Duration,
) -> Choice {
    match choice {
        // The first NIC with a cable may be the one to an office, where a second DHCP server does harm.
        InterfaceChoice::Auto if form == BoxForm::Installed => Choice::Wait(format!(
            "waiting for site.yaml to name the provisioning NIC, because this machine has other uses; found {}",
            list(&candidates(links))
        )),
        InterfaceChoice::Auto => choose_auto(links, learned, waited),
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

/// Whether `auto` would leave the NIC that it took, on which nobody is served, for another one.
pub fn leaves(current: &Link, links: &[Link], learned: &Learned) -> bool {
    let lit: Vec<_> = candidates(links)
        .into_iter()
        .filter(|link| link.carrier)
        .collect();
    let best = lit.iter().min_by_key(|link| rank(link, learned));
    best.is_some_and(|best| rank(best, learned) < rank(current, learned))
}

/// The lower, the better; those of one rank in the order of their places.
fn rank(link: &Link, learned: &Learned) -> (Option<Stranger>, bool) {
    (learned.stranger(link), !learned.has_served(link))
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

fn choose_auto(links: &[Link], learned: &Learned, waited: Duration) -> Choice {
    let candidates = candidates(links);
    let down: Vec<_> = candidates
        .iter()
        .filter(|link| !link.up)
        .map(|link| link.index)
        .collect();
    if !down.is_empty() {
        return Choice::RaiseFirst(down);
    }
    let Some(best) = candidates
        .iter()
        .filter(|link| link.carrier)
        .min_by_key(|link| rank(link, learned))
    else {
        return match candidates.as_slice() {
            [] => Choice::Wait("waiting for an Ethernet NIC".to_owned()),
            _ => Choice::Wait(format!("waiting for a cable at {}", list(&candidates))),
        };
    };
    let served = candidates.iter().find(|link| learned.has_served(link));
    if let Some(served) = served.filter(|link| !link.carrier)
        && waited < SETTLE_SERVED
    {
        let why = format!(
            "waiting for a link at {}, where this box served before; it takes {} in a few minutes",
            served.name, best.name
        );
        return Choice::Settle(SETTLE_SERVED.saturating_sub(waited), Some(why));
    }
    let mut before = candidates.iter().take_while(|link| *link != best);
    let another_may_come = before.any(|link| !link.carrier) && !learned.has_served(best);
    if another_may_come && waited < SETTLE {
        Choice::Settle(SETTLE.saturating_sub(waited), None)
    } else {
        Choice::Use((*best).clone())
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

    fn auto(links: &[Link], waited: Duration) -> Choice {
        told(links, &Learned::default(), waited)
    }

    fn told(links: &[Link], learned: &Learned, waited: Duration) -> Choice {
        choose(BoxForm::Box, &InterfaceChoice::Auto, links, learned, waited)
    }

    #[test]
    fn auto_takes_the_first_by_place_that_has_a_carrier() {
        let (first, second) = (
            nic(7, "/sys/devices/pci0000:00/0000:00:03.0", true),
            nic(2, "/sys/devices/pci0000:00/0000:00:04.0", true),
        );
        assert_eq!(
            auto(&[second.clone(), first.clone()], Duration::ZERO),
            Choice::Use(first.clone())
        );
        let dark = Link {
            carrier: false,
            ..first
        };
        assert_eq!(
            auto(&[second.clone(), dark.clone()], Duration::ZERO),
            Choice::Settle(SETTLE, None)
        );
        assert_eq!(auto(&[second.clone(), dark], SETTLE), Choice::Use(second));
    }

    #[test]
    fn an_installed_machine_wants_its_nic_named() {
        let links = [nic(1, "/a", true)];
        let choice = choose(
            BoxForm::Installed,
            &InterfaceChoice::Auto,
            &links,
            &Learned::default(),
            SETTLE,
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
            auto(&links, SETTLE),
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
        assert_eq!(auto(&links, SETTLE), Choice::RaiseFirst(vec![1]));
        let links = [nic(1, "/a", false), nic(2, "/b", false)];
        assert_eq!(
            auto(&links, Duration::ZERO),
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
                &Learned::default(),
                Duration::ZERO
            ),
            Choice::Use(dark.clone())
        );
        let by_mac = InterfaceChoice::Mac(MacAddr::new([0x52, 0x54, 0, 0, 0, 1]).unwrap());
        assert_eq!(
            choose(
                BoxForm::Box,
                &by_mac,
                std::slice::from_ref(&dark),
                &Learned::default(),
                Duration::ZERO
            ),
            Choice::Use(dark)
        );
        let others = [nic(2, "/b", true)];
        let absent = choose(
            BoxForm::Box,
            &by_name,
            &others,
            &Learned::default(),
            Duration::ZERO,
        );
        assert_eq!(
            absent,
            Choice::Wait("waiting for eth1, which site.yaml names; found eth2".into())
        );
    }

    #[test]
    fn auto_leaves_a_network_that_is_somebodys_for_one_that_is_quiet() {
        let (office, rack) = (nic(1, "/a", true), nic(2, "/b", true));
        let links = [office.clone(), rack.clone()];
        let mut learned = Learned::default();
        assert_eq!(
            told(&links, &learned, Duration::ZERO),
            Choice::Use(office.clone())
        );
        assert!(!leaves(&office, &links, &learned));
        learned.hears(&office, Stranger::Router, true);
        assert!(leaves(&office, &links, &learned));
        assert_eq!(
            told(&links, &learned, Duration::ZERO),
            Choice::Use(rack.clone())
        );
        // A router alone is the lesser evil.
        learned.hears(&rack, Stranger::DhcpServer, true);
        assert_eq!(
            told(&links, &learned, Duration::ZERO),
            Choice::Use(office.clone())
        );
        learned.hears(&rack, Stranger::DhcpServer, false);
        assert!(leaves(&office, &links, &learned));
        // With another cable it may be another network.
        let moved = Link {
            link_ups: 2,
            ..office.clone()
        };
        assert!(!leaves(&moved, &[moved.clone(), rack], &learned));
        // Without a better one it stays, and says what is wrong.
        assert!(!leaves(&office, std::slice::from_ref(&office), &learned));
    }

    #[test]
    fn auto_waits_for_the_nic_that_it_served_on() {
        let (office, rack) = (nic(1, "/a", true), nic(2, "/b", false));
        let learned = Learned::new(rack.mac);
        let links = [office.clone(), rack.clone()];
        let Choice::Settle(rest, Some(why)) = told(&links, &learned, Duration::ZERO) else {
            panic!("it takes the office");
        };
        assert_eq!(rest, SETTLE_SERVED);
        assert!(why.contains("a link at eth2"), "{why}");
        assert_eq!(
            told(&links, &learned, SETTLE_SERVED),
            Choice::Use(office.clone())
        );
        let lit = Link {
            carrier: true,
            ..rack
        };
        assert!(leaves(&office, &[office.clone(), lit.clone()], &learned));
        assert_eq!(
            told(&[office, lit.clone()], &learned, Duration::ZERO),
            Choice::Use(lit)
        );
        // A card that is gone is not waited for.
        let other = [nic(3, "/c", true)];
        assert_eq!(
            told(&other, &learned, Duration::ZERO),
            Choice::Use(other[0].clone())
        );
    }
}
