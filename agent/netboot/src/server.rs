//! The DHCP server's decisions (RFC 2131 section 4.3): a datagram, the state and the time in, a [`Decision`] out.
//!
//! The caller's duties: write and fsync what a decision persists before sending its reply; answer a [`Decision::Probe`] with
//! [`Server::probed`] and then hand the same datagram in again; now and then probe what [`Server::probe_ahead`] names, so
//! that nobody has to wait for a probe.

mod allocation;
mod decision;
mod proxy;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::v4::{DhcpOption, Message, MessageType as WireType};

use self::allocation::Allocation;
pub use self::decision::{Decision, Event, Listener, ProbeResult, Reason};
use crate::boot_offer::BootOffer;
use crate::config::{Authority, DhcpConfig, SubnetSpec};
use crate::packet::{MessageType, Request};
use crate::reply::{Reply, destination, message_for, nak};
use crate::{LeaseChange, LeaseTable, MacAddr, Mode, Now};

/// How long an address is kept for a client that was offered it.
const OFFER_HOLDS: Duration = Duration::from_mins(1);
/// How long nobody gets an address that a client, or a probe, found in use.
const QUARANTINE: Duration = Duration::from_hours(1);

/// The server of one segment and the subnets that relay agents bring to it.
#[derive(Clone, Debug)]
pub struct Server {
    config: DhcpConfig,
    leases: LeaseTable,
    /// What was offered and not yet requested: not worth writing to disk.
    offers: BTreeMap<Ipv4Addr, (MacAddr, Now)>,
    /// The last probe of an address, and when.
    probes: BTreeMap<Ipv4Addr, (ProbeResult, Now)>,
}

impl Server {
    pub fn new(config: DhcpConfig, leases: LeaseTable) -> Self {
        Self {
            config,
            leases,
            offers: BTreeMap::new(),
            probes: BTreeMap::new(),
        }
    }

    pub fn config(&self) -> &DhcpConfig {
        &self.config
    }

    /// New settings, from now on. Leases stay; one that no longer fits is refused when its client asks to renew it.
    pub fn set_config(&mut self, config: DhcpConfig) {
        self.config = config;
        self.offers.clear();
    }

    pub fn leases(&self) -> &LeaseTable {
        &self.leases
    }

    /// Decides about one datagram that came to `listener`.
    pub fn handle(&mut self, datagram: &[u8], listener: Listener, now: Now) -> Decision {
        let request = match Request::parse(datagram) {
            Ok(request) => request,
            Err(error) => return Decision::Ignore(Reason::Malformed(error)),
        };
        self.handle_request(&request, listener, now)
    }

    /// The same for a message that is parsed already.
    pub fn handle_request(&mut self, request: &Request, listener: Listener, now: Now) -> Decision {
        if listener == Listener::Pxe {
            return proxy::boot_server(&self.config, request);
        }
        if self.config.spec().mode == Mode::Proxy {
            return proxy::offer(&self.config, request);
        }
        let subnet = match self.subnet_for(request) {
            Ok(subnet) => subnet,
            Err(reason) => return Decision::Ignore(reason),
        };
        match request.message_type {
            MessageType::Discover => self.discover(request, &subnet, now),
            MessageType::Request => self.request(request, &subnet, now),
            MessageType::Decline => self.decline(request, now),
            MessageType::Release => self.release(request, now),
            MessageType::Inform => self.inform(request, &subnet),
            MessageType::Offer | MessageType::Ack | MessageType::Nak => {
                Decision::Ignore(Reason::Malformed(crate::PacketError::WrongDirection))
            }
        }
    }

    /// The subnet that the client is on, by the relay's choice (RFC 3527) or address, or the box's own.
    fn subnet_for(&self, request: &Request) -> Result<SubnetSpec, Reason> {
        if request.giaddr.is_unspecified() {
            return Ok(self.config.local_subnet().clone());
        }
        let link = request.link_selection().unwrap_or(request.giaddr);
        let found = self
            .config
            .spec()
            .subnets
            .iter()
            .find(|s| s.subnet.network() <= link && link <= s.subnet.broadcast());
        found.cloned().ok_or(Reason::UnknownRelay {
            relay: request.giaddr,
            link,
        })
    }

    fn discover(&mut self, request: &Request, subnet: &SubnetSpec, now: Now) -> Decision {
        let address = match self.allocate(request.mac, request.requested, subnet, now) {
            Allocation::Address(address) => address,
            Allocation::Probe(address) => return Decision::Probe { address },
            Allocation::Exhausted => {
                return Decision::Ignore(Reason::Exhausted {
                    range: subnet.range,
                });
            }
        };
        let rapid =
            request.rapid_commit && self.config.spec().authority == Authority::Authoritative;
        if rapid {
            let mut reply = self.acknowledge(request, subnet, address, now);
            reply.message.opts_mut().insert(DhcpOption::RapidCommit);
            return Decision::Reply(reply);
        }
        self.offers
            .retain(|_, (mac, until)| *mac != request.mac && now < *until);
        self.offers
            .insert(address, (request.mac, now.plus(OFFER_HOLDS)));
        Decision::Reply(self.lease_reply(request, subnet, WireType::Offer, address))
    }

    /// RFC 2131 section 4.3.2, whose four cases differ in what the client fills in.
    fn request(&mut self, request: &Request, subnet: &SubnetSpec, now: Now) -> Decision {
        let server = self.config.spec().server;
        let selected = match request.server_id {
            Some(other) if other != server => {
                self.offers.retain(|_, (mac, _)| *mac != request.mac);
                return Decision::Ignore(Reason::ChoseOtherServer { server: other });
            }
            selected => selected.is_some(),
        };
        // RENEWING and REBINDING fill in ciaddr, SELECTING and INIT-REBOOT option 50.
        let wanted = match (request.ciaddr.is_unspecified(), request.requested) {
            (false, _) => request.ciaddr,
            (true, Some(requested)) => requested,
            (true, None) => return Decision::Ignore(Reason::NoAddressRequested),
        };
        let has_lease = self
            .leases
            .of_mac(request.mac)
            .is_some_and(|l| l.address == wanted);
        let was_offered = self
            .offers
            .get(&wanted)
            .is_some_and(|(mac, _)| *mac == request.mac);
        if self.is_usable(wanted, request.mac, subnet, now)
            && (has_lease || was_offered || self.is_never_leased(wanted))
            && (has_lease || selected || self.config.spec().authority == Authority::Authoritative)
        {
            return Decision::Reply(self.acknowledge(request, subnet, wanted, now));
        }
        if selected || self.config.spec().authority == Authority::Authoritative {
            let why = format!("{wanted} is not available to {}", request.mac);
            return Decision::Reply(nak(request, server, &why));
        }
        Decision::Ignore(Reason::UnknownClient { wanted })
    }

    fn acknowledge(
        &mut self,
        request: &Request,
        subnet: &SubnetSpec,
        address: Ipv4Addr,
        now: Now,
    ) -> Reply {
        let change = LeaseChange::Leased {
            mac: request.mac,
            address,
            expires: now.plus(self.config.spec().lease_time),
        };
        self.leases.apply(&change);
        self.offers.retain(|_, (mac, _)| *mac != request.mac);
        let mut reply = self.lease_reply(request, subnet, WireType::Ack, address);
        reply.message.set_ciaddr(request.ciaddr);
        reply.persist.push(change);
        reply
    }

    /// The client found that somebody else uses the address (RFC 2131 section 4.3.3).
    fn decline(&mut self, request: &Request, now: Now) -> Decision {
        let Some(address) = request.requested else {
            return Decision::Ignore(Reason::NoAddressRequested);
        };
        let its_own = self
            .leases
            .of_mac(request.mac)
            .is_some_and(|l| l.address == address)
            || self
                .offers
                .get(&address)
                .is_some_and(|(mac, _)| *mac == request.mac);
        if !its_own
            || request
                .server_id
                .is_some_and(|id| id != self.config.spec().server)
        {
            return Decision::Ignore(Reason::NotItsLease { address });
        }
        let until = now.plus(QUARANTINE);
        let change = LeaseChange::Quarantined { address, until };
        self.leases.apply(&change);
        self.offers.remove(&address);
        Decision::Record {
            persist: vec![change],
            event: Event::Declined {
                mac: request.mac,
                address,
            },
        }
    }

    fn release(&mut self, request: &Request, now: Now) -> Decision {
        let address = request.ciaddr;
        if self
            .leases
            .of_mac(request.mac)
            .is_none_or(|l| l.address != address)
        {
            return Decision::Ignore(Reason::NotItsLease { address });
        }
        let change = LeaseChange::Released {
            mac: request.mac,
            at: now,
        };
        self.leases.apply(&change);
        Decision::Record {
            persist: vec![change],
            event: Event::Released {
                mac: request.mac,
                address,
            },
        }
    }

    /// Settings for a host that has its address already (RFC 2131 section 4.3.5): no lease times, no `yiaddr`.
    fn inform(&self, request: &Request, subnet: &SubnetSpec) -> Decision {
        let spec = self.config.spec();
        if !subnet.subnet.has_host(request.ciaddr) {
            return Decision::Ignore(Reason::NotItsLease {
                address: request.ciaddr,
            });
        }
        let boot = BootOffer::choose(request, spec.http);
        let mut message = message_for(request, WireType::Ack, spec.server);
        message.set_ciaddr(request.ciaddr);
        self.write_settings(&mut message, request, subnet);
        boot.write(&mut message, request, spec.server, spec.mode);
        Decision::Reply(Reply {
            persist: Vec::new(),
            message,
            relay_info: request.relay_info.clone(),
            destination: destination(request, Ipv4Addr::UNSPECIFIED),
            boot,
        })
    }

    fn lease_reply(
        &self,
        request: &Request,
        subnet: &SubnetSpec,
        kind: WireType,
        address: Ipv4Addr,
    ) -> Reply {
        let spec = self.config.spec();
        let boot = BootOffer::choose(request, spec.http);
        let mut message = message_for(request, kind, spec.server);
        message.set_yiaddr(address).set_siaddr(spec.server);
        self.write_settings(&mut message, request, subnet);
        let seconds = u32::try_from(spec.lease_time.as_secs())
            .expect("at most 30 days, checked by DhcpConfig");
        let options = message.opts_mut();
        options.insert(DhcpOption::AddressLeaseTime(seconds));
        options.insert(DhcpOption::Renewal(seconds / 2));
        options.insert(DhcpOption::Rebinding(seconds / 8 * 7));
        boot.write(&mut message, request, spec.server, spec.mode);
        Reply {
            persist: Vec::new(),
            message,
            relay_info: request.relay_info.clone(),
            destination: destination(request, address),
            boot,
        }
    }

    fn write_settings(&self, message: &mut Message, request: &Request, subnet: &SubnetSpec) {
        let spec = self.config.spec();
        let options = message.opts_mut();
        options.insert(DhcpOption::SubnetMask(subnet.subnet.netmask()));
        options.insert(DhcpOption::BroadcastAddr(subnet.subnet.broadcast()));
        if let Some(router) = subnet.router {
            options.insert(DhcpOption::Router(vec![router]));
        }
        if !spec.dns.is_empty() {
            options.insert(DhcpOption::DomainNameServer(spec.dns.clone()));
        }
        if !spec.ntp.is_empty() {
            options.insert(DhcpOption::NtpServers(spec.ntp.clone()));
        }
        if let Some(domain) = &spec.domain {
            options.insert(DhcpOption::DomainName(domain.clone()));
        }
        let reservation = spec.reservations.get(&request.mac);
        if let Some(name) = reservation.and_then(|r| r.host_name.as_ref()) {
            options.insert(DhcpOption::Hostname(name.as_str().to_owned()));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
