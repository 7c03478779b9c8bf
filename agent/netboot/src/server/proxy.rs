//! proxyDHCP (Intel PXE 2.1 section 2.2.2): boot information beside a server that leases the addresses.

use std::net::Ipv4Addr;

use dhcproto::v4::MessageType as WireType;

use super::{Decision, Reason};
use crate::boot_offer::{BootOffer, Side};
use crate::config::DhcpConfig;
use crate::packet::{MessageType, Request};
use crate::reply::{Destination, Reply, destination, message_for};

/// An offer without an address, to PXE and HTTP boot clients only.
pub(super) fn offer(
    config: &DhcpConfig,
    request: &Request,
    boot: BootOffer,
) -> Result<Decision, Reason> {
    if request.message_type != MessageType::Discover || boot == BootOffer::NotAsked {
        return Err(Reason::ProxyOnly);
    }
    let boot = bootable(boot)?;
    let to = destination(request, Ipv4Addr::UNSPECIFIED);
    Ok(reply(config, request, WireType::Offer, boot, to))
}

/// The boot server on port 4011: the same information again, for clients that ask for it there.
pub(super) fn boot_server(
    config: &DhcpConfig,
    request: &Request,
    boot: BootOffer,
) -> Result<Decision, Reason> {
    let asks = matches!(
        request.message_type,
        MessageType::Request | MessageType::Inform
    );
    if !asks {
        return Err(Reason::NotAsked);
    }
    let boot = bootable(boot)?;
    let to = Destination::Sender;
    Ok(reply(config, request, WireType::Ack, boot, to))
}

fn bootable(boot: BootOffer) -> Result<BootOffer, Reason> {
    match boot {
        BootOffer::NotAsked => Err(Reason::NotAsked),
        BootOffer::Unsupported(arch) => Err(Reason::Unsupported(arch)),
        boot => Ok(boot),
    }
}

fn reply(
    config: &DhcpConfig,
    request: &Request,
    kind: WireType,
    boot: BootOffer,
    destination: Destination,
) -> Decision {
    let server = config.spec().server;
    let mut message = message_for(request, kind, server);
    message.set_ciaddr(request.ciaddr);
    boot.write(&mut message, request, server, Side::Proxy);
    Decision::Reply(Reply {
        persist: Vec::new(),
        message,
        relay_info: request.relay_info.clone(),
        destination,
        room: request.room,
        boot,
    })
}
