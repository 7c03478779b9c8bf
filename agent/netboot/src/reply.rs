//! A reply as a value: the message, where it goes, and what must be on disk before it may go.

use std::net::Ipv4Addr;

use dhcproto::Encodable;
use dhcproto::v4::{
    CLIENT_PORT, DhcpOption, Flags, HType, Message, MessageType, Opcode, SERVER_PORT,
};

use crate::boot_offer::BootOffer;
use crate::packet::Request;
use crate::{LeaseChange, MacAddr, layout};

/// BOOTP messages have 300 bytes (RFC 951), and some relays and firmware drop shorter ones.
pub(crate) const BOOTP_LENGTH: usize = 300;

/// Where a reply goes (RFC 2131 section 4.1), always from the port that the request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// 255.255.255.255 on the interface that the request came from.
    Broadcast {
        /// UDP, 68.
        port: u16,
    },
    /// An address that answers ARP.
    Unicast {
        /// The client's own, `ciaddr`.
        address: Ipv4Addr,
        /// UDP, 68.
        port: u16,
    },
    /// A client that does not answer ARP yet: needs a neighbour entry, or else a broadcast, which RFC 2131 allows.
    Hardware {
        /// The one that it is being given.
        address: Ipv4Addr,
        /// For the neighbour entry.
        mac: MacAddr,
        /// UDP, 68.
        port: u16,
    },
    /// The relay agent's server port.
    Relay {
        /// `giaddr`.
        address: Ipv4Addr,
        /// UDP, 67.
        port: u16,
    },
    /// The address and port that the request came from (PXE boot server, port 4011).
    Sender,
}

/// A reply that is ready to go once `persist` is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Write and fsync these BEFORE sending.
    pub persist: Vec<LeaseChange>,
    /// Without option 82; [`Reply::encode`] adds it.
    pub message: Message,
    /// Option 82 as it came, to be last in the reply (RFC 3046 section 2.2).
    pub relay_info: Option<Vec<u8>>,
    /// On UDP, from the socket that the request came to.
    pub destination: Destination,
    /// Bytes that the client takes.
    pub room: usize,
    /// What `message` says about booting, for the page and the log.
    pub boot: BootOffer,
}

impl Reply {
    /// Option 53 of `message`.
    pub fn message_type(&self) -> Option<MessageType> {
        self.message.opts().msg_type()
    }

    /// It promises nothing.
    pub fn is_offer(&self) -> bool {
        self.message_type() == Some(MessageType::Offer)
    }

    /// It gives or confirms an address, or settings.
    pub fn is_acknowledgement(&self) -> bool {
        self.message_type() == Some(MessageType::Ack)
    }

    /// The datagram's payload.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = self
            .message
            .to_vec()
            .expect("file and server name fit their fields, options are split where they are long");
        let mut bytes = layout::fit(bytes, self.relay_info.as_deref(), self.room);
        bytes.resize(bytes.len().max(BOOTP_LENGTH), 0);
        bytes
    }
}

/// The parts of a reply that mirror the request (RFC 2131 table 3).
pub(crate) fn message_for(
    request: &Request,
    message_type: MessageType,
    server: Ipv4Addr,
) -> Message {
    let mut message = bootp_for(request);
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(message_type));
    let server = request.server_identifier(server);
    options.insert(DhcpOption::ServerIdentifier(server));
    if let Some(subnet) = request.subnet_selection {
        options.insert(DhcpOption::SubnetSelection(subnet));
    }
    if let Some(id) = &request.client_id {
        options.insert(DhcpOption::ClientIdentifier(id.clone()));
    }
    message
}

/// The fixed part of a reply, which is all that BOOTP knows.
pub(crate) fn bootp_for(request: &Request) -> Message {
    let unspecified = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(
        request.xid,
        unspecified,
        unspecified,
        unspecified,
        request.giaddr,
        &request.mac.octets(),
    );
    message.set_opcode(Opcode::BootReply).set_htype(HType::Eth);
    if request.broadcast {
        message.set_flags(Flags::default().set_broadcast());
    }
    message
}

/// RFC 2131 section 4.1, for everything but NAK. `yours` is the address in the reply.
pub(crate) fn destination(request: &Request, yours: Ipv4Addr) -> Destination {
    if !request.giaddr.is_unspecified() {
        Destination::Relay {
            address: request.giaddr,
            port: SERVER_PORT,
        }
    } else if !request.ciaddr.is_unspecified() {
        Destination::Unicast {
            address: request.ciaddr,
            port: CLIENT_PORT,
        }
    } else if request.broadcast || yours.is_unspecified() {
        Destination::Broadcast { port: CLIENT_PORT }
    } else {
        Destination::Hardware {
            address: yours,
            mac: request.mac,
            port: CLIENT_PORT,
        }
    }
}

/// A NAK: to whom it may concern, as the client's address is wrong. Through a relay, the relay broadcasts it.
pub(crate) fn nak(request: &Request, server: Ipv4Addr, why: &str) -> Reply {
    let mut message = message_for(request, MessageType::Nak, server);
    message
        .opts_mut()
        .insert(DhcpOption::Message(why.to_owned()));
    let destination = if request.giaddr.is_unspecified() {
        Destination::Broadcast { port: CLIENT_PORT }
    } else {
        message.set_flags(Flags::default().set_broadcast());
        Destination::Relay {
            address: request.giaddr,
            port: SERVER_PORT,
        }
    };
    Reply {
        persist: Vec::new(),
        message,
        relay_info: request.relay_info.clone(),
        destination,
        room: request.room,
        boot: BootOffer::NotAsked,
    }
}
