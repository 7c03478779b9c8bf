//! Whether somebody uses an address (RFC 5227 section 2.1.1: ARP probes, which disturb nobody's ARP cache), and who uses
//! the box's own.

use std::{convert::Infallible, net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::net::MacAddr;
use tokio::time::Instant;

use super::packets::Packets;

const EVERYBODY: [u8; 6] = [0xff; 6];
const ETH_P_ARP: u16 = 0x0806;
const PACKET: usize = 28;
/// Two questions; a neighbour on Ethernet answers within a few milliseconds, a sleepy one within the second.
const QUESTIONS: u32 = 2;
const BETWEEN: Duration = Duration::from_millis(250);
/// How often the box asks who else has its address.
const WATCH: Duration = Duration::from_secs(30);

/// What another machine's packet says about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Has(MacAddr),
    /// It asks as we do, and takes it if nobody answers.
    Wants(MacAddr),
}

impl Claim {
    pub fn by(self) -> MacAddr {
        match self {
            Self::Has(mac) | Self::Wants(mac) => mac,
        }
    }
}

/// A socket for ARP packets of one interface.
#[derive(Debug)]
pub struct Arp {
    packets: Packets,
    mac: MacAddr,
}

impl Arp {
    pub fn open(index: u32, mac: MacAddr) -> Result<Self> {
        let packets = Packets::open(index, ETH_P_ARP)?;
        Ok(Self { packets, mac })
    }

    /// Who else has `address`, or is about to take it. A network that takes no packets has nobody to answer.
    pub async fn claim(&self, address: Ipv4Addr) -> Result<Option<Claim>> {
        self.packets.drain();
        for _ in 0..QUESTIONS {
            self.ask(address).await;
            let deadline = Instant::now() + BETWEEN;
            while let Ok(packet) = tokio::time::timeout_at(deadline, self.packets.receive()).await {
                let packet = packet.context("listening for ARP")?;
                if let Some(claim) = claim(&packet, address, self.mac) {
                    return Ok(Some(claim));
                }
            }
        }
        Ok(None)
    }

    /// Tells who uses the box's own address as well, once a minute at most, and when nobody does any more. A newcomer that
    /// only asks for it is answered by the kernel, and does not take it.
    pub async fn watch(
        &self,
        address: Ipv4Addr,
        tell: impl Fn(Option<MacAddr>),
    ) -> Result<Infallible> {
        loop {
            self.ask(address).await;
            let deadline = Instant::now() + WATCH;
            let mut heard = None;
            while let Ok(packet) = tokio::time::timeout_at(deadline, self.packets.receive()).await {
                let Ok(packet) = packet else {
                    // The interface goes down.
                    tokio::time::sleep(BETWEEN).await;
                    continue;
                };
                if let Some(Claim::Has(mac)) = claim(&packet, address, self.mac)
                    && heard.is_none()
                {
                    heard = Some(mac);
                    tell(heard);
                }
            }
            if heard.is_none() {
                tell(None);
            }
        }
    }

    async fn ask(&self, address: Ipv4Addr) {
        if let Err(error) = self
            .packets
            .send(&probe(self.mac, address), EVERYBODY)
            .await
        {
            tracing::debug!(%error, %address, "an ARP probe was not sent");
        }
    }
}

/// RFC 826 with the sender's address zero.
fn probe(mac: MacAddr, address: Ipv4Addr) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    packet[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    packet[8..14].copy_from_slice(&mac.octets());
    packet[24..28].copy_from_slice(&address.octets());
    packet
}

/// Whether `packet` shows that somebody other than us has `address`, or is about to take it.
fn claim(packet: &[u8], address: Ipv4Addr, own: MacAddr) -> Option<Claim> {
    let packet = packet.first_chunk::<PACKET>()?;
    if packet[..6] != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    let mac = MacAddr::new(*packet[8..].first_chunk()?).filter(|mac| *mac != own)?;
    let (sender, target) = (&packet[14..18], &packet[24..28]);
    let is_request = packet[6..8] == [0, 1];
    if sender == address.octets() {
        Some(Claim::Has(mac))
    } else if is_request && sender == [0; 4] && target == address.octets() {
        Some(Claim::Wants(mac))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 100);

    fn own() -> MacAddr {
        MacAddr::new([2, 0, 0, 0, 0, 1]).unwrap()
    }

    fn other() -> MacAddr {
        MacAddr::new([2, 0, 0, 0, 0, 2]).unwrap()
    }

    fn reply(mac: MacAddr, sender: Ipv4Addr) -> [u8; PACKET] {
        let mut packet = probe(mac, Ipv4Addr::new(172, 22, 0, 1));
        packet[7] = 2;
        packet[14..18].copy_from_slice(&sender.octets());
        packet
    }

    #[test]
    fn only_another_machine_with_that_address_counts() {
        let claim = |packet: &[u8]| claim(packet, ADDRESS, own());
        assert_eq!(claim(&reply(other(), ADDRESS)), Some(Claim::Has(other())));
        assert_eq!(claim(&probe(other(), ADDRESS)), Some(Claim::Wants(other())));
        assert_eq!(claim(&reply(other(), Ipv4Addr::new(172, 22, 0, 101))), None);
        assert_eq!(claim(&reply(own(), ADDRESS)), None);
        assert_eq!(claim(&probe(own(), ADDRESS)), None, "our own question");
        assert_eq!(claim(&reply(other(), ADDRESS)[..20]), None, "cut off");
    }

    #[test]
    fn a_probe_is_a_request_without_a_sender() {
        assert_eq!(
            probe(own(), ADDRESS),
            [
                0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 172, 22, 0,
                100
            ]
        );
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_claim_only_if_it_names_the_address_and_another_machine(
            random in proptest::collection::vec(any::<u8>(), 0..64),
            changes in proptest::collection::vec((0..PACKET, any::<u8>()), 0..4),
            asks in any::<bool>(),
        ) {
            let mut near = if asks { probe(other(), ADDRESS) } else { reply(other(), ADDRESS) };
            for (at, value) in changes {
                near[at] = value;
            }
            for packet in [random.as_slice(), &near] {
                let found = claim(packet, ADDRESS, own());
                if let Some(found) = found {
                    prop_assert!(packet.len() >= PACKET && packet[..6] == [0, 1, 8, 0, 6, 4]);
                    prop_assert_eq!(packet[8..14].to_vec(), found.by().octets());
                    prop_assert_ne!(found.by(), own());
                    let names = [&packet[14..18], &packet[24..28]];
                    prop_assert!(names.contains(&ADDRESS.octets().as_slice()));
                }
            }
        }
    }
}
