//! Is somebody else leasing addresses here? Asked before the first answer, and watched for ever after.

use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::Encodable;
use dhcproto::v4::{
    DhcpOption, Flags, HType, Message, MessageType as WireType, Opcode, OptionCode,
};

use crate::MacAddr;
use crate::packet::{MessageType, RawPacket};

/// Between two questions, and after the last: three in three seconds.
const INTERVAL: Duration = Duration::from_secs(1);

/// Another DHCP server that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignServer {
    /// What it calls itself (option 54), or else the `siaddr` of its answer.
    pub server: Ipv4Addr,
    /// The address that it offered or leased.
    pub offered: Ipv4Addr,
}

/// What to do next in a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeStep {
    /// Broadcast this from port 68 to port 67, then ask again.
    Send(Vec<u8>),
    /// Hand in what arrives on port 68 ([`ForeignProbe::receive`]), and ask again at this time at the latest.
    WaitUntil(Duration),
    /// Nobody answered.
    Clear,
    /// Somebody did.
    Foreign(ForeignServer),
}

/// Asks for an address three times as a client would, and takes none. Time is what the caller's steady clock shows.
#[derive(Clone, Debug)]
pub struct ForeignProbe {
    mac: MacAddr,
    xids: [u32; 3],
    sent: usize,
    next: Duration,
    found: Option<ForeignServer>,
}

impl ForeignProbe {
    /// `mac`: the box's NIC. `xids`: three random numbers.
    pub fn new(mac: MacAddr, xids: [u32; 3], now: Duration) -> Self {
        Self {
            mac,
            xids,
            sent: 0,
            next: now,
            found: None,
        }
    }

    /// What is to be done at `now`; after [`ProbeStep::Clear`] and [`ProbeStep::Foreign`] always the same.
    pub fn step(&mut self, now: Duration) -> ProbeStep {
        if let Some(found) = self.found {
            return ProbeStep::Foreign(found);
        }
        if now < self.next {
            return ProbeStep::WaitUntil(self.next);
        }
        match self.xids.get(self.sent) {
            None => ProbeStep::Clear,
            Some(xid) => {
                let datagram = discover(self.mac, *xid, self.sent);
                self.sent += 1;
                self.next = now + INTERVAL;
                ProbeStep::Send(datagram)
            }
        }
    }

    /// Takes a datagram that came to port 68. Only answers to this probe count here, whatever server they name: the box does
    /// not answer itself, so one in its own name is from another box.
    pub fn receive(&mut self, datagram: &[u8]) {
        let Ok(packet) = RawPacket::parse(datagram) else {
            return;
        };
        if packet.mac == self.mac && self.xids[..self.sent].contains(&packet.xid) {
            let heard = observe_foreign(datagram);
            self.found = self.found.or_else(|| heard.map(|heard| heard.found));
        }
    }
}

/// An answer to a client that was seen on the segment, perhaps one of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overheard {
    /// The NIC that was answered.
    pub client: MacAddr,
    /// Who answered, with which address.
    pub found: ForeignServer,
}

/// Whether a datagram shows a server at work: an OFFER with an address, or an ACK of a lease. A proxyDHCP server, which
/// leases nothing, is none.
pub fn observe_foreign(datagram: &[u8]) -> Option<Overheard> {
    let packet = RawPacket::parse(datagram).ok()?;
    let leases = matches!(packet.message_type, MessageType::Offer | MessageType::Ack);
    if packet.opcode != Opcode::BootReply || !leases || packet.yiaddr.is_unspecified() {
        return None;
    }
    let named = packet.address(54).ok().flatten();
    Some(Overheard {
        client: packet.mac,
        found: ForeignServer {
            server: named.unwrap_or(packet.siaddr),
            offered: packet.yiaddr,
        },
    })
}

fn discover(mac: MacAddr, xid: u32, seconds: usize) -> Vec<u8> {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(xid, none, none, none, none, &mac.octets());
    message
        .set_opcode(Opcode::BootRequest)
        .set_htype(HType::Eth)
        .set_secs(u16::try_from(seconds).expect("at most three"))
        .set_flags(Flags::default().set_broadcast());
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(WireType::Discover));
    options.insert(DhcpOption::ParameterRequestList(vec![
        OptionCode::SubnetMask,
        OptionCode::Router,
        OptionCode::DomainNameServer,
    ]));
    let mut bytes = message.to_vec().expect("a message of a few short options");
    bytes.resize(bytes.len().max(300), 0);
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
