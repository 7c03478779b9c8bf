//! The network of a machine with one address: the NIC it booted from gets it by DHCP, and keeps it.

pub mod dhcp;
pub mod interface;
pub mod session;

use std::io::Read;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use dhcp::Lease;
use interface::{LinkNews, Nic, observe_nics, set_up};
use session::Session;

/// How long the NIC that is named may take to appear and to have a link before any other one will do.
const BOOT_NIC_PATIENCE: Duration = Duration::from_mins(1);
/// How long one of several NICs is asked before the next one.
const TURN: Duration = Duration::from_secs(12);
const REMINDER: Duration = Duration::from_secs(10);

/// What to do next about the choice of a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    /// Ask here, and nowhere else.
    Only(Nic),
    /// Ask each of them in turn.
    Any(Vec<Nic>),
    /// None that will do yet.
    Wait,
}

/// The NIC that is named, as soon as it has a link; or, if it has none (any more), every NIC with a link.
fn choose(nics: &[Nic], boot_mac: Option<&str>, waited: Duration) -> Choice {
    let is_named = |nic: &&Nic| boot_mac.is_some_and(|mac| nic.mac_text() == mac);
    if let Some(nic) = nics.iter().find(is_named).filter(|nic| nic.carrier) {
        return Choice::Only(nic.clone());
    }
    let linked: Vec<Nic> = nics.iter().filter(|nic| nic.carrier).cloned().collect();
    if linked.is_empty() || (boot_mac.is_some() && waited < BOOT_NIC_PATIENCE) {
        return Choice::Wait;
    }
    Choice::Any(linked)
}

/// Gets an address, however long it takes; on the NIC that is named, if it has a link. The session it returns must be kept running.
pub fn connect(boot_mac: Option<&str>) -> Result<(Session, Lease)> {
    set_up("lo").context("switching on the interface lo")?;
    let links = LinkNews::open().context("listening for news of links")?;
    let start = Instant::now();
    let mut reminder = start + REMINDER;
    loop {
        // Before looking, so that news which comes meanwhile is not missed.
        links.clear();
        let nics = observe_nics();
        for nic in &nics {
            if let Err(error) = set_up(&nic.name) {
                tracing::warn!(nic = nic.name, %error, "cannot be switched on");
            }
        }
        let (candidates, patience) = match choose(&nics, boot_mac, start.elapsed()) {
            Choice::Only(nic) => (vec![nic], None),
            Choice::Any(nics) => (nics, Some(TURN)),
            Choice::Wait => {
                if Instant::now() >= reminder {
                    reminder = Instant::now() + REMINDER;
                    let found: Vec<String> = nics
                        .iter()
                        .map(|nic| format!("{} {}", nic.name, nic.mac_text()))
                        .collect();
                    tracing::warn!(
                        wanted = boot_mac.unwrap_or("any with a link"),
                        found = found.join(", "),
                        "no network interface to boot from yet; check the cable"
                    );
                }
                links.wait(reminder.saturating_duration_since(Instant::now()))?;
                continue;
            }
        };
        for nic in candidates {
            tracing::info!(
                nic = nic.name,
                mac = nic.mac_text(),
                "asking for an address"
            );
            let mut session = Session::open(nic, random_number()?)?;
            if let Some(lease) = session.acquire(patience)? {
                return Ok((session, lease));
            }
        }
    }
}

/// For the transaction id: two machines that start together must not use the same.
fn random_number() -> Result<u32> {
    let mut bytes = [0; 4];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("reading /dev/urandom")?;
    Ok(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic(name: &str, last: u8, carrier: bool) -> Nic {
        Nic {
            name: name.to_owned(),
            mac: [0x52, 0x54, 0, 0, 0, last],
            carrier,
        }
    }

    #[test]
    fn the_boot_nic_is_the_one_and_waited_for_while_its_link_is_down() {
        let mut nics = [nic("eth0", 1, true), nic("eth1", 2, false)];
        let boot = Some("52:54:00:00:00:02");
        assert_eq!(choose(&nics, boot, Duration::ZERO), Choice::Wait);
        // Its cable is in another port now.
        let other = Choice::Any(vec![nics[0].clone()]);
        assert_eq!(choose(&nics, boot, Duration::from_mins(1)), other);
        nics[1].carrier = true;
        let only = Choice::Only(nics[1].clone());
        assert_eq!(choose(&nics, boot, Duration::ZERO), only);
    }

    #[test]
    fn a_boot_nic_that_does_not_appear_is_given_up_late() {
        let nics = [nic("eth0", 1, true), nic("eth1", 2, false)];
        let missing = Some("52:54:00:00:00:09");
        assert_eq!(
            choose(&nics, missing, Duration::from_secs(59)),
            Choice::Wait
        );
        assert_eq!(
            choose(&nics, missing, Duration::from_mins(1)),
            Choice::Any(vec![nics[0].clone()])
        );
    }

    #[test]
    fn without_a_boot_nic_every_link_is_tried() {
        let nics = [
            nic("eth0", 1, true),
            nic("eth1", 2, false),
            nic("eth2", 3, true),
        ];
        assert_eq!(
            choose(&nics, None, Duration::ZERO),
            Choice::Any(vec![nics[0].clone(), nics[2].clone()])
        );
        assert_eq!(
            choose(&nics[1..2], None, Duration::from_hours(1)),
            Choice::Wait
        );
    }
}
