//! What the server decides, as values: tests compare them whole, the page and the log show them.

use std::fmt;
use std::net::Ipv4Addr;

use dhcproto::v4::MessageType as WireType;

use crate::reply::Reply;
use crate::{AddressRange, ClientArch, LeaseChange, Limit, MacAddr, PacketError};

/// The socket that a datagram came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// UDP 67.
    Dhcp,
    /// UDP 4011, where PXE clients ask boot servers (Intel PXE 2.1 section 2.2.3).
    Pxe,
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// It decides which rules hold.
    pub listener: Listener,
    /// Source address of the IP packet.
    pub source: Ipv4Addr,
    /// Destination address of the IP packet: the box's own, or a broadcast.
    pub destination: Ipv4Addr,
}

/// What to do about a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Persist, then send.
    Reply(Reply),
    /// Persist; nothing is sent.
    Record {
        /// Write and fsync these.
        persist: Vec<LeaseChange>,
        /// For the log.
        event: Event,
    },
    /// Find out by ARP or ICMP whether somebody uses `address`, tell [`Server::probed`](super::Server::probed), then
    /// hand the datagram in again.
    Probe {
        /// One that no lease is known of.
        address: Ipv4Addr,
    },
    /// Nothing is written and nothing is sent.
    Ignore(Reason),
}

/// Something that the operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client found its new address in use by somebody else.
    Declined {
        /// Who declined.
        mac: MacAddr,
        /// In quarantine from now on.
        address: Ipv4Addr,
    },
    /// A client does not need its address any more.
    Released {
        /// Whose it was.
        mac: MacAddr,
        /// Stays with that client until somebody else needs it.
        address: Ipv4Addr,
    },
}

/// What was not done, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages beyond a [`Limit`].
    pub limited: u64,
    /// Clients that got no address, because there is none.
    pub exhausted: u64,
    /// Clients that were told that their address is wrong.
    pub refused: u64,
}

impl Counters {
    pub(super) fn count(&mut self, decision: &Decision) {
        match decision {
            Decision::Ignore(Reason::Limited(_)) => self.limited += 1,
            Decision::Ignore(Reason::Exhausted { .. }) => self.exhausted += 1,
            Decision::Reply(reply) if reply.message_type() == Some(WireType::Nak) => {
                self.refused += 1;
            }
            _ => {}
        }
    }
}

/// What a conflict probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// Nobody answered.
    Free,
    /// Somebody uses the address.
    InUse,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It could not be parsed.
    Malformed(PacketError),
    /// The segment was not asked yet whether somebody else leases addresses there.
    Asking,
    /// The box's own search for other servers.
    OwnQuestion,
    /// Too much was sent; later requests may be answered.
    Limited(Limit),
    /// No subnet is configured for a relay agent's address.
    UnknownRelay {
        /// Who passed the request on, `giaddr`.
        relay: Ipv4Addr,
        /// The network that the client is in: link selection of the relay agent, or else `giaddr`.
        link: Ipv4Addr,
    },
    /// No subnet is configured for what the client selects.
    UnknownSubnet {
        /// Option 118.
        selected: Ipv4Addr,
    },
    /// All addresses are leased, offered, reserved, in quarantine, or kept for servers that boot.
    Exhausted {
        /// The subnet's.
        range: AddressRange,
    },
    /// The client took the offer of another DHCP server: there is one on the segment.
    ChoseOtherServer {
        /// As the client names it (option 54).
        server: Ipv4Addr,
    },
    /// The client has an address that another server may have given it.
    UnknownClient {
        /// What the client says it has.
        wanted: Ipv4Addr,
    },
    /// A REQUEST, DECLINE or RELEASE without an address to talk about.
    NoAddressRequested,
    /// A DECLINE or RELEASE of what the client was not leased.
    NotItsLease {
        /// The one that the message names.
        address: Ipv4Addr,
    },
    /// Another server leases addresses here, and nobody said that this one is to serve beside it.
    OtherServer {
        /// As it calls itself.
        server: Ipv4Addr,
    },
    /// This server leases no addresses here, and this is no request for boot information.
    ProxyOnly,
    /// This server is there for what relay agents forward.
    RelayedOnly,
    /// A proxy was asked by what does not boot from the network.
    NotAsked,
    /// A proxy was asked by a machine that nothing on the stick fits.
    Unsupported(ClientArch),
    /// A BOOTP client never says that it is gone, so it gets a reserved address and no other (RFC 1534 section 2).
    NotReserved,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declined { mac, address } => write!(
                f,
                "{mac} found {address} in use by another machine; nobody gets it for an hour. Give that machine an address outside the DHCP range"
            ),
            Self::Released { mac, address } => write!(f, "{mac} gave {address} back"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "no usable DHCP request: {error}"),
            Self::Asking => f.write_str("other DHCP servers are still being searched for"),
            Self::OwnQuestion => f.write_str("the box searches for other servers"),
            Self::Limited(Limit::Client) => f.write_str("this client sends too much"),
            Self::Limited(Limit::Strangers) => f.write_str("unknown clients send too much"),
            Self::Limited(Limit::Changes) => {
                f.write_str("unknown clients want too many leases at once")
            }
            Self::Limited(Limit::Declines) => f.write_str("too many addresses were declined"),
            Self::UnknownRelay { relay, link } => write!(
                f,
                "the relay agent {relay} asks for an address of the network of {link}, which is not configured: add that network under `provisioning.relayed` in site.yaml, or take the relay agent away"
            ),
            Self::UnknownSubnet { selected } => write!(
                f,
                "the client selects the subnet of {selected}, which is not configured"
            ),
            Self::Exhausted { range } => write!(
                f,
                "all addresses of the DHCP range {range} are taken, or kept for servers that boot: make the range larger in site.yaml"
            ),
            Self::ChoseOtherServer { server } => {
                write!(
                    f,
                    "the client took the offer of another DHCP server, {server}"
                )
            }
            Self::UnknownClient { wanted } => {
                write!(
                    f,
                    "{wanted} was not leased by this server, which does not speak for the whole network"
                )
            }
            Self::NoAddressRequested => f.write_str("the message names no address"),
            Self::NotItsLease { address } => write!(f, "{address} is not leased to this client"),
            Self::OtherServer { server } => write!(f, "{server} leases addresses here"),
            Self::ProxyOnly => f.write_str("by `dhcp: proxy` the box leases no addresses here"),
            Self::RelayedOnly => {
                f.write_str("by `dhcp: relay` the box answers only what relay agents forward")
            }
            Self::NotAsked => f.write_str("the client did not ask for a boot file"),
            Self::Unsupported(arch) => write!(
                f,
                "its firmware is {arch}, for which there is nothing on the stick: it starts x86-64 machines by BIOS or 64-bit UEFI"
            ),
            Self::NotReserved => f.write_str(
                "a BOOTP client gets a reserved address only: name its MAC and an address under `hosts` in site.yaml",
            ),
        }
    }
}
