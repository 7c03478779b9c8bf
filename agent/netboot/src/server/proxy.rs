//! proxyDHCP (Intel PXE 2.1 section 2.2.2): boot information beside a server that leases the addresses.

use std::net::Ipv4Addr;

use dhcproto::v4::MessageType as WireType;

use super::{Decision, Reason};
use crate::boot_offer::BootOffer;
use crate::config::{DhcpConfig, Mode};
use crate::packet::{MessageType, Request};
use crate::reply::{Destination, Reply, destination, message_for};

/// An offer without an address, to PXE and HTTP boot clients only.
pub(super) fn offer(config: &DhcpConfig, request: &Request) -> Decision {
    if request.message_type != MessageType::Discover {
        return Decision::Ignore(Reason::ProxyOnly);
    }
    match BootOffer::choose(request, config.spec().http) {
        BootOffer::NotAsked => Decision::Ignore(Reason::ProxyOnly),
        boot if !boot.is_bootable() => Decision::Ignore(Reason::NothingToBoot),
        boot => {
            let destination = destination(request, Ipv4Addr::UNSPECIFIED);
            Decision::Reply(reply(config, request, WireType::Offer, boot, destination))
        }
    }
}

/// The boot server on port 4011: the same information again, for clients that ask for it there.
pub(super) fn boot_server(config: &DhcpConfig, request: &Request) -> Decision {
    let asks = matches!(
        request.message_type,
        MessageType::Request | MessageType::Inform
    );
    match BootOffer::choose(request, config.spec().http) {
        boot if asks && boot.is_bootable() => Decision::Reply(reply(
            config,
            request,
            WireType::Ack,
            boot,
            Destination::Sender,
        )),
        _ => Decision::Ignore(Reason::NothingToBoot),
    }
}

fn reply(
    config: &DhcpConfig,
    request: &Request,
    kind: WireType,
    boot: BootOffer,
    destination: Destination,
) -> Reply {
    let server = config.spec().server;
    let mut message = message_for(request, kind, server);
    message.set_ciaddr(request.ciaddr);
    boot.write(&mut message, request, server, Mode::Proxy);
    Reply {
        persist: Vec::new(),
        message,
        relay_info: request.relay_info.clone(),
        destination,
        boot,
    }
}
