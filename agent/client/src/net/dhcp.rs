//! DHCP client (RFC 2131) as a state machine: packets and the time go in, packets and leases come out.
//!
//! Must not: open sockets, read a clock, draw random numbers. `now` is the time since the client was made. The client sends
//! no client identifier: leases are keyed by MAC, and the firmware that booted this machine had none of ours either.

use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::Encodable;
use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, OptionCode};

/// Between two sends of the same question: doubled from the first to the last. A port that spanning tree still blocks
/// swallows the first ones, so the last is short too.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(8);
/// Questions for one offer, before another round of offers.
const REQUESTS: u32 = 4;
/// RFC 2131, section 4.4.5: a renewal is repeated after half of the time left, but not more often than this.
const RENEW_RETRY: Duration = Duration::from_mins(1);

mod reply;

use reply::Reply;

/// What a server gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `yiaddr`; never unspecified, broadcast, multicast or loopback.
    pub address: Ipv4Addr,
    /// 0 to 32
    pub prefix: u8,
    /// The first of option 3.
    pub router: Option<Ipv4Addr>,
    /// Option 54; renewals are sent to it.
    pub server: Ipv4Addr,
    /// Option 12: UTF-8, 1 to 64 bytes, otherwise ignored.
    pub hostname: Option<String>,
    /// T1 (option 58), counted from the answer: when the server is asked again. 10 seconds at least.
    pub renew: Duration,
    /// T2 (option 59), counted from the answer: when any server will do.
    pub rebind: Duration,
    /// Option 51, counted from the answer: when the address is lost. 30 seconds at least.
    pub expire: Duration,
}

/// What the edge must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// UDP from port 68 to port 67; `None` is the broadcast address.
    Send {
        /// The server that is asked to renew.
        to: Option<Ipv4Addr>,
        /// The UDP payload.
        packet: Vec<u8>,
    },
    /// New, or renewed with possibly other values.
    Bound(Lease),
    /// The lease ran out, or the server took it back; the search for another one goes on.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Selecting,
    Requesting {
        offer: Box<Offer>,
    },
    /// After the link was down: is the address still ours?
    Rebooting {
        address: Ipv4Addr,
    },
    Bound {
        lease: Box<Lease>,
        since: Duration,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Offer {
    address: Ipv4Addr,
    server: Ipv4Addr,
}

/// The client of one NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    mac: [u8; 6],
    xid: u32,
    state: State,
    /// Sends of the present question so far.
    sent: u32,
    /// When the next one is due.
    due: Duration,
    /// When this exchange began, for the field `secs`.
    begun: Duration,
}

impl Client {
    /// `xid` is random; each round of questions takes the next number.
    pub fn new(mac: [u8; 6], xid: u32) -> Self {
        Self {
            mac,
            xid,
            state: State::Selecting,
            sent: 0,
            due: Duration::ZERO,
            begun: Duration::ZERO,
        }
    }

    /// When [`Client::poll`] wants to be called next.
    pub fn deadline(&self) -> Duration {
        match &self.state {
            State::Bound { lease, since } => self.due.min(*since + lease.expire),
            _ => self.due,
        }
    }

    /// The link came back: ask whether the lease still holds, or go on searching at once.
    pub fn link_up(&mut self, now: Duration) {
        let state = match &self.state {
            State::Bound { lease, .. } => State::Rebooting {
                address: lease.address,
            },
            State::Rebooting { address } => State::Rebooting { address: *address },
            _ => State::Selecting,
        };
        self.enter(state, now);
    }

    fn enter(&mut self, state: State, now: Duration) {
        if !matches!(state, State::Requesting { .. }) {
            self.xid = self.xid.wrapping_add(1);
            self.begun = now;
        }
        self.state = state;
        self.sent = 0;
        self.due = now;
    }

    /// Sends what is due.
    pub fn poll(&mut self, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        if let State::Bound { lease, since } = &self.state
            && now >= *since + lease.expire
        {
            outputs.push(Output::Lost);
            self.enter(State::Selecting, now);
        }
        if matches!(
            self.state,
            State::Requesting { .. } | State::Rebooting { .. }
        ) && self.sent >= REQUESTS
            && now >= self.due
        {
            self.enter(State::Selecting, now);
        }
        if now >= self.due {
            outputs.push(self.question(now));
            self.due = now + self.retry(now);
            self.sent = self.sent.saturating_add(1);
        }
        outputs
    }

    fn retry(&self, now: Duration) -> Duration {
        match &self.state {
            State::Bound { lease, since } => {
                let (rebind, expire) = (*since + lease.rebind, *since + lease.expire);
                let left = if now < rebind {
                    rebind.saturating_sub(now)
                } else {
                    expire.saturating_sub(now)
                };
                (left / 2).max(RENEW_RETRY).min(left.max(FIRST_RETRY))
            }
            _ => FIRST_RETRY
                .saturating_mul(1 << self.sent.min(6))
                .min(LAST_RETRY),
        }
    }

    /// RFC 2131, table 5: which field carries which address in which state.
    fn question(&self, now: Duration) -> Output {
        let mut message = Message::new_with_id(
            self.xid,
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::UNSPECIFIED,
            &self.mac,
        );
        message
            .set_secs(u16::try_from(now.saturating_sub(self.begun).as_secs()).unwrap_or(u16::MAX));
        message.set_flags(Flags::default().set_broadcast());
        let mut to = None;
        let mut kind = MessageType::Request;
        match &self.state {
            State::Selecting => kind = MessageType::Discover,
            State::Requesting { offer } => {
                message
                    .opts_mut()
                    .insert(DhcpOption::RequestedIpAddress(offer.address));
                message
                    .opts_mut()
                    .insert(DhcpOption::ServerIdentifier(offer.server));
            }
            State::Rebooting { address } => {
                message
                    .opts_mut()
                    .insert(DhcpOption::RequestedIpAddress(*address));
            }
            State::Bound { lease, since } => {
                message.set_ciaddr(lease.address);
                message.set_flags(Flags::default());
                to = (now < *since + lease.rebind).then_some(lease.server);
            }
        }
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(kind));
        options.insert(DhcpOption::MaxMessageSize(1472));
        options.insert(DhcpOption::ParameterRequestList(vec![
            OptionCode::SubnetMask,
            OptionCode::Router,
            OptionCode::Hostname,
            OptionCode::AddressLeaseTime,
            OptionCode::Renewal,
            OptionCode::Rebinding,
        ]));
        let packet = message
            .to_vec()
            .expect("options of fixed, small size always encode");
        Output::Send { to, packet }
    }

    /// Takes a datagram that came to port 68. What does not answer our question is ignored.
    pub fn receive(&mut self, now: Duration, packet: &[u8]) -> Vec<Output> {
        let Some(reply) = Reply::parse(packet) else {
            return Vec::new();
        };
        if reply.xid != self.xid || reply.mac != self.mac {
            return Vec::new();
        }
        match (&self.state, reply.kind) {
            (State::Selecting, MessageType::Offer) => {
                let Some(server) = reply.server() else {
                    return Vec::new();
                };
                let offer = Box::new(Offer {
                    address: reply.address,
                    server,
                });
                self.enter(State::Requesting { offer }, now);
                self.poll(now)
            }
            (State::Requesting { offer }, MessageType::Ack) if offer.address == reply.address => {
                self.bind(&reply, now)
            }
            (State::Rebooting { .. } | State::Bound { .. }, MessageType::Ack) => {
                self.bind(&reply, now)
            }
            (State::Requesting { .. }, MessageType::Nak) => {
                self.enter(State::Selecting, now);
                // A server that refuses what it offered would be asked as fast as it answers.
                self.due = now + FIRST_RETRY;
                Vec::new()
            }
            (State::Rebooting { .. } | State::Bound { .. }, MessageType::Nak) => {
                self.enter(State::Selecting, now);
                [vec![Output::Lost], self.poll(now)].concat()
            }
            _ => Vec::new(),
        }
    }

    fn bind(&mut self, reply: &Reply, now: Duration) -> Vec<Output> {
        let Some(lease) = reply.lease() else {
            return Vec::new();
        };
        self.state = State::Bound {
            lease: Box::new(lease.clone()),
            since: now,
        };
        self.sent = 0;
        self.begun = now + lease.renew;
        self.due = now + lease.renew;
        self.xid = self.xid.wrapping_add(1);
        vec![Output::Bound(lease)]
    }
}

#[cfg(test)]
mod tests;
