//! What the server does on its segment: the questions to it, and what stays while another server leases there.

use super::{Reason, Server};
use crate::packet::{MessageType, Request};
use crate::{DhcpRole, ForeignServer, Mode, ModeStep, Now, Overheard};

/// See [`Server::part`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Addresses and boot information.
    Whole,
    /// Boot information.
    Boot,
}

impl Server {
    /// Who leases addresses on the server's own segment.
    pub fn mode(&self) -> Mode {
        self.mode.mode
    }

    /// The link of the segment has just come up.
    pub fn linked(&mut self, now: Now) {
        self.mode.linked(now);
    }

    /// Whether it is time to ask the segment for other servers.
    pub fn ask(&mut self, now: Now) -> Option<ModeStep> {
        self.mode.ask(now)
    }

    /// An answer to some client was heard. What this server promised itself is its own.
    pub fn overheard(&mut self, heard: &Overheard, now: Now) -> Option<ModeStep> {
        let Overheard { client, found } = *heard;
        let is_known = match self.mode.mode {
            Mode::Beside(other) => other.server == found.server,
            Mode::Asking | Mode::Alone => false,
        };
        let leased = self
            .leases
            .of_mac(client)
            .is_some_and(|lease| lease.address == found.offered);
        let offered = self.offers.was(client, found.offered);
        let is_own = found.server == self.config.spec().server && (leased || offered);
        if is_known || is_own {
            return None;
        }
        self.mode.suspect(now)
    }

    /// Another machine was seen to use the box's own address.
    pub fn contested(&mut self, now: Now) -> Option<ModeStep> {
        self.mode.suspect(now)
    }

    /// A question was answered by another server.
    pub fn foreign_seen(&mut self, found: ForeignServer, now: Now) -> Option<ModeStep> {
        self.answered(Some(found), now)
    }

    /// A question was answered by nobody.
    pub fn silence(&mut self, now: Now) -> Option<ModeStep> {
        self.answered(None, now)
    }

    fn answered(&mut self, found: Option<ForeignServer>, now: Now) -> Option<ModeStep> {
        let step = self.mode.answered(found, now);
        if step.is_some() {
            self.offers.clear();
        }
        step
    }

    /// What the server may do for the client: what it is there for, as long as nobody else leases addresses on its segment. Hosts that run
    /// keep theirs in any case.
    pub(super) fn part(&self, request: &Request, now: Now) -> Result<Part, Reason> {
        if self.is_about_its_lease(request, now) {
            return Ok(Part::Whole);
        }
        match (self.config.spec().role, self.mode()) {
            (DhcpRole::Serve, Mode::Alone) => Ok(Part::Whole),
            (DhcpRole::Serve, Mode::Asking) => Err(Reason::Asking),
            (DhcpRole::Serve, Mode::Beside(ForeignServer { server, .. })) => {
                Err(Reason::OtherServer { server })
            }
            (DhcpRole::Proxy | DhcpRole::Relay, _) if request.is_relayed() => Ok(Part::Whole),
            (DhcpRole::Proxy, _) => Ok(Part::Boot),
            (DhcpRole::Relay, _) => Err(Reason::RelayedOnly),
        }
    }

    /// Whether the client asks for nothing but what it holds.
    fn is_about_its_lease(&self, request: &Request, now: Now) -> bool {
        let Some(lease) = self
            .leases
            .of_mac(request.mac)
            .filter(|lease| now < lease.expires)
        else {
            return false;
        };
        let ours = !request.is_for_other(self.config.spec().server);
        let reserved = self.config.spec().reservations.get(&request.mac);
        match request.message_type {
            MessageType::Discover => {
                reserved.is_none_or(|reserved| reserved.address == lease.address)
                    && self
                        .config
                        .reserved_for(lease.address)
                        .is_none_or(|mac| mac == request.mac)
            }
            MessageType::Request => ours && request.wanted_address() == Some(lease.address),
            MessageType::Decline | MessageType::Release => ours,
            _ => false,
        }
    }
}

#[cfg(test)]
impl Server {
    pub(crate) fn limits(&self) -> &crate::limits::Limits {
        &self.limits
    }
}
