//! From a datagram to a [`Request`]: everything the server uses of a client's message, parsed once.
//!
//! `dhcproto`'s lazy decoder finds the options; their values are read here, because its eager one drops every option behind
//! one that it cannot read (a host name in Latin-1 would hide the architecture).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use dhcproto::v4::borrowed::{DhcpOptionIterator, Message as LazyMessage};
use dhcproto::v4::{HType, MAGIC, Opcode};

use crate::{ClientArch, MacAddr};

/// Why a datagram is not a DHCP message that a server or a watcher can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PacketError {
    #[error("{0} bytes are too few for a DHCP message")]
    TooShort(usize),
    #[error("no DHCP magic cookie")]
    NoMagic,
    #[error("the operation code is wrong for its direction")]
    WrongDirection,
    #[error("the hardware address is no unicast Ethernet address")]
    HardwareAddress,
    #[error("message type {0} is unknown")]
    UnknownMessageType(u8),
    #[error("option {0} has a wrong length")]
    OptionLength(u8),
}

/// The least that every client takes (RFC 2131 section 2): 576 bytes of IP.
const LEAST_ROOM: u16 = 576;
/// What fills an Ethernet frame: fragments are lost on many firmware.
const MOST_ROOM: u16 = 1500;
const IP_AND_UDP: u16 = 28;

/// DHCP message type, option 53 (RFC 2132 section 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// 1: a client looks for servers.
    Discover,
    /// 2: a server offers an address.
    Offer,
    /// 3: a client takes an offer, renews, or asks after a restart whether its address still holds.
    Request,
    /// 4: a client found its address in use.
    Decline,
    /// 5: a server leases, or answers an INFORM.
    Ack,
    /// 6: a server says that the address is wrong.
    Nak,
    /// 7: a client gives its address back.
    Release,
    /// 8: a client that has its address otherwise asks for the rest.
    Inform,
    /// None: a client, or a server, of BOOTP (RFC 1534).
    Bootp,
}

impl MessageType {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Discover,
            2 => Self::Offer,
            3 => Self::Request,
            4 => Self::Decline,
            5 => Self::Ack,
            6 => Self::Nak,
            7 => Self::Release,
            8 => Self::Inform,
            _ => return None,
        })
    }

    fn is_from_client(self) -> bool {
        !matches!(self, Self::Offer | Self::Ack | Self::Nak)
    }
}

/// The fields of the fixed part and all options, not interpreted yet.
pub(crate) struct RawPacket {
    pub opcode: Opcode,
    pub xid: u32,
    pub broadcast: bool,
    pub ciaddr: Ipv4Addr,
    pub yiaddr: Ipv4Addr,
    pub siaddr: Ipv4Addr,
    pub giaddr: Ipv4Addr,
    pub mac: MacAddr,
    pub message_type: MessageType,
    options: BTreeMap<u8, Vec<u8>>,
}

impl RawPacket {
    pub fn parse(datagram: &[u8]) -> Result<Self, PacketError> {
        let too_short = || PacketError::TooShort(datagram.len());
        let message = LazyMessage::new(datagram).map_err(|_| too_short())?;
        if datagram[236..240] != MAGIC {
            return Err(PacketError::NoMagic);
        }
        // Checked before `chaddr()`, which trusts the length.
        if message.htype() != HType::Eth || message.hlen() != 6 {
            return Err(PacketError::HardwareAddress);
        }
        let octets = message.chaddr().try_into().map_err(|_| too_short())?;
        let mac = MacAddr::new(octets).ok_or(PacketError::HardwareAddress)?;
        let options = collect_options(datagram);
        let code = match options.get(&53).map(Vec::as_slice) {
            None => None,
            Some([code]) => Some(*code),
            Some(_) => return Err(PacketError::OptionLength(53)),
        };
        let message_type = match code {
            None => MessageType::Bootp,
            Some(code) => {
                MessageType::from_code(code).ok_or(PacketError::UnknownMessageType(code))?
            }
        };
        Ok(Self {
            opcode: message.opcode(),
            xid: message.xid(),
            broadcast: message.flags().broadcast(),
            ciaddr: message.ciaddr(),
            yiaddr: message.yiaddr(),
            siaddr: message.siaddr(),
            giaddr: message.giaddr(),
            mac,
            message_type,
            options,
        })
    }

    pub fn address(&self, code: u8) -> Result<Option<Ipv4Addr>, PacketError> {
        match self.options.get(&code) {
            None => Ok(None),
            Some(data) => <[u8; 4]>::try_from(data.as_slice())
                .map(|octets| Some(octets.into()))
                .map_err(|_| PacketError::OptionLength(code)),
        }
    }

    fn take(&mut self, code: u8) -> Option<Vec<u8>> {
        self.options.remove(&code)
    }
}

/// All options by code; those split over several (RFC 3396) joined, those in `file` and `sname` (option 52) included.
fn collect_options(datagram: &[u8]) -> BTreeMap<u8, Vec<u8>> {
    let mut options: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    let collect = |area: &[u8], options: &mut BTreeMap<u8, Vec<u8>>| {
        for option in DhcpOptionIterator::new(area) {
            options
                .entry(option.code().into())
                .or_default()
                .extend_from_slice(option.data());
        }
    };
    collect(&datagram[240..], &mut options);
    let overload = match options.get(&52).map(Vec::as_slice) {
        Some([value]) => *value,
        _ => 0,
    };
    if overload & 1 != 0 {
        collect(&datagram[108..236], &mut options);
    }
    if overload & 2 != 0 {
        collect(&datagram[44..108], &mut options);
    }
    options
}

/// A client's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Only what clients send.
    pub message_type: MessageType,
    /// The transaction, echoed.
    pub xid: u32,
    /// The client cannot receive unicast yet (RFC 2131 section 4.1).
    pub broadcast: bool,
    /// The address that the client already answers ARP for; unspecified if none.
    pub ciaddr: Ipv4Addr,
    /// The relay agent that it came through; unspecified if none.
    pub giaddr: Ipv4Addr,
    /// `chaddr`, a unicast Ethernet address: what hosts are known by.
    pub mac: MacAddr,
    /// Option 50.
    pub requested: Option<Ipv4Addr>,
    /// Option 54.
    pub server_id: Option<Ipv4Addr>,
    /// Bytes that a reply may have, from what option 57 says of the IP packet.
    pub room: usize,
    /// Option 60.
    pub vendor_class: Vec<u8>,
    /// Option 61, echoed (RFC 6842) and otherwise ignored: firmware, ramdisk and OS of one NIC send different ones.
    pub client_id: Option<Vec<u8>>,
    /// Option 77.
    pub user_class: Vec<u8>,
    /// Option 80 (RFC 4039).
    pub rapid_commit: bool,
    /// Option 82 as it came (RFC 3046).
    pub relay_info: Option<Vec<u8>>,
    /// Option 93.
    pub arch: Option<ClientArch>,
    /// Option 97 as it came: type byte and SMBIOS UUID.
    pub machine_id: Option<Vec<u8>>,
    /// Option 118 (RFC 3011): the subnet that whoever asks for others wants an address of.
    pub subnet_selection: Option<Ipv4Addr>,
}

impl Request {
    /// RENEWING and REBINDING fill in ciaddr, SELECTING and INIT-REBOOT option 50.
    pub fn wanted_address(&self) -> Option<Ipv4Addr> {
        if self.ciaddr.is_unspecified() {
            self.requested
        } else {
            Some(self.ciaddr)
        }
    }

    /// Of the UDP payload; an error for whatever no client of ours sends, which is not answered.
    pub fn parse(datagram: &[u8]) -> Result<Self, PacketError> {
        let mut raw = RawPacket::parse(datagram)?;
        if raw.opcode != Opcode::BootRequest || !raw.message_type.is_from_client() {
            return Err(PacketError::WrongDirection);
        }
        Ok(Self {
            message_type: raw.message_type,
            xid: raw.xid,
            broadcast: raw.broadcast,
            ciaddr: raw.ciaddr,
            giaddr: raw.giaddr,
            mac: raw.mac,
            requested: raw.address(50)?,
            server_id: raw.address(54)?,
            room: room(raw.take(57).as_deref()),
            vendor_class: raw.take(60).unwrap_or_default(),
            client_id: raw.take(61),
            user_class: raw.take(77).unwrap_or_default(),
            rapid_commit: raw.take(80).is_some(),
            relay_info: raw.take(82),
            arch: raw.take(93).as_deref().and_then(ClientArch::from_option),
            machine_id: raw.take(97),
            subnet_selection: raw
                .address(118)?
                .filter(|address| !address.is_unspecified()),
        })
    }

    /// PXE firmware (Intel PXE 2.1 section 2.2), iPXE included.
    pub fn is_pxe(&self) -> bool {
        self.vendor_class.starts_with(b"PXEClient")
    }

    /// UEFI HTTP boot (UEFI 2.10 section 24.7).
    pub fn is_http_boot(&self) -> bool {
        self.vendor_class.starts_with(b"HTTPClient")
    }

    /// iPXE sends the bare word; RFC 3004 wants a length in front of it, so both are taken.
    pub fn is_ipxe(&self) -> bool {
        self.user_class == b"iPXE" || self.user_class == b"\x04iPXE"
    }

    /// A relay agent passed it on.
    pub fn is_relayed(&self) -> bool {
        !self.giaddr.is_unspecified()
    }

    /// Link selection (RFC 3527): sub-option 5 of option 82, the subnet that the relay wants an address from.
    pub(crate) fn link_selection(&self) -> Option<Ipv4Addr> {
        self.relay_address(5)
    }

    /// Server identifier override (RFC 5107): sub-option 11 of option 82, by which the relay is the server for its clients, so
    /// that it hears their renewals, too.
    pub(crate) fn server_override(&self) -> Option<Ipv4Addr> {
        let is_of_a_host = |address: &Ipv4Addr| {
            !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast()
        };
        self.relay_address(11)
            .filter(|_| self.is_relayed())
            .filter(is_of_a_host)
    }

    /// By which `server`, whose own address it is, has this client know it (option 54).
    pub(crate) fn server_identifier(&self, server: Ipv4Addr) -> Ipv4Addr {
        self.server_override().unwrap_or(server)
    }

    /// The message names a server (option 54) that is not `server`.
    pub(crate) fn is_for_other(&self, server: Ipv4Addr) -> bool {
        let is_other = |id: Ipv4Addr| id != server && id != self.server_identifier(server);
        self.server_id.is_some_and(is_other)
    }

    /// A sub-option of option 82 that is an address.
    fn relay_address(&self, wanted: u8) -> Option<Ipv4Addr> {
        let mut rest = self.relay_info.as_deref()?;
        while let [code, length, tail @ ..] = rest {
            let (data, next) = tail.split_at_checked(usize::from(*length))?;
            if *code == wanted {
                return <[u8; 4]>::try_from(data).ok().map(Ipv4Addr::from);
            }
            rest = next;
        }
        None
    }
}

fn room(largest: Option<&[u8]>) -> usize {
    let asked = largest.and_then(|data| data.try_into().ok());
    let bytes = asked.map_or(LEAST_ROOM, u16::from_be_bytes);
    usize::from(bytes.clamp(LEAST_ROOM, MOST_ROOM) - IP_AND_UDP)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
