//! DHCPINFORM: settings for a host that has its address already.

use std::net::Ipv4Addr;

use dhcproto::v4::{CLIENT_PORT, Flags, MessageType as WireType, SERVER_PORT};

use super::{Case, Decision, Reason, Server};
use crate::boot_offer::Side;
use crate::reply::{Destination, Reply, message_for};

impl Server {
    /// RFC 2131 section 4.3.5: no lease times, no `yiaddr`, and to the host's address even if a relay passed it on. Some hosts
    /// say it in the IP packet only; through a relay that is the relay's own, which then has to find the host.
    pub(super) fn inform(&self, case: &Case) -> Result<Decision, Reason> {
        let (request, spec) = (case.request, self.config.spec());
        let mut message = message_for(request, WireType::Ack, spec.server);
        let address = match request.ciaddr {
            Ipv4Addr::UNSPECIFIED => case.source,
            address => address,
        };
        let destination = if request.is_relayed() && request.ciaddr.is_unspecified() {
            message.set_flags(Flags::default().set_broadcast());
            Destination::Relay {
                address: request.giaddr,
                port: SERVER_PORT,
            }
        } else if case.subnet.subnet.has_host(address) {
            Destination::Unicast {
                address,
                port: CLIENT_PORT,
            }
        } else {
            return Err(Reason::NotItsLease { address });
        };
        message.set_ciaddr(request.ciaddr);
        self.write_settings(&mut message, case);
        case.boot
            .write(&mut message, request, spec.server, Side::Lease);
        Ok(Decision::Reply(Reply {
            persist: Vec::new(),
            message,
            relay_info: request.relay_info.clone(),
            destination,
            room: request.room,
            boot: case.boot.clone(),
        }))
    }
}
