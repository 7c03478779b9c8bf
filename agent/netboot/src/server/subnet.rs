//! Which subnet a client is on, and where its answer goes.

use std::net::Ipv4Addr;

use dhcproto::v4::CLIENT_PORT;

use super::{Case, Origin, Reason, Server};
use crate::config::SubnetSpec;
use crate::packet::{MessageType, Request};
use crate::reply::{self, Destination};

impl Server {
    /// The subnet that the client is on: by the relay's choice (RFC 3527), the client's (RFC 3011), the relay's address, or
    /// the box's own. Who has an address and unicasts is believed without its relay (RFC 2131 section 4.3.2, RENEWING); who
    /// broadcasts (REBINDING) is on the box's own segment, whatever it has.
    pub(super) fn subnet_for(
        &self,
        request: &Request,
        origin: Origin,
    ) -> Result<SubnetSpec, Reason> {
        let selected = request.subnet_selection;
        if request.is_relayed() {
            let link = request.link_selection().or(selected);
            let (relay, link) = (request.giaddr, link.unwrap_or(request.giaddr));
            let found = self.subnet_of(link).cloned();
            return found.ok_or(Reason::UnknownRelay { relay, link });
        }
        let is_renewal = matches!(
            request.message_type,
            MessageType::Request | MessageType::Inform | MessageType::Release
        );
        let is_unicast = origin.destination == self.config.spec().server;
        if let Some(own) = self.subnet_of(request.ciaddr)
            && is_renewal
            && is_unicast
        {
            return Ok(own.clone());
        }
        match selected {
            Some(selected) => {
                let found = self.subnet_of(selected).cloned();
                found.ok_or(Reason::UnknownSubnet { selected })
            }
            None => Ok(self.config.local_subnet().clone()),
        }
    }

    fn subnet_of(&self, address: Ipv4Addr) -> Option<&SubnetSpec> {
        let mut subnets = self.config.spec().subnets.iter();
        subnets.find(|s| s.subnet.network() <= address && address <= s.subnet.broadcast())
    }

    /// A client without an address is on the segment even where its address will be elsewhere, and so is no neighbour there.
    pub(super) fn destination(&self, case: &Case, yours: Ipv4Addr) -> Destination {
        let is_elsewhere = case.subnet != *self.config.local_subnet();
        match reply::destination(case.request, yours) {
            Destination::Hardware { .. } if is_elsewhere => {
                Destination::Broadcast { port: CLIENT_PORT }
            }
            destination => destination,
        }
    }
}
