//! The DHCP server's decisions (RFC 2131 section 4.3): a request, the state and the time in, a [`Decision`] out.
//!
//! The caller's duties: write and fsync what a decision persists before sending its reply, or any later one; answer a
//! [`Decision::Probe`] with [`Server::probed`] and then hand the same request in again; now and then probe what
//! [`Server::probe_ahead`] names, so that nobody has to wait for a probe; ask the segment when a [`ModeStep`] says so.

mod allocation;
mod decision;
mod inform;
mod offers;
mod proxy;
mod segment;
mod subnet;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::v4::{DhcpOption, Message, MessageType as WireType};

use self::allocation::Allocation;
pub use self::decision::{Counters, Decision, Event, Listener, Origin, ProbeResult, Reason};
use self::offers::Offers;
use self::segment::Part;
use crate::boot_offer::{BootOffer, Side};
use crate::config::{Authority, DhcpConfig, SubnetSpec};
use crate::limits::{Limits, Standing};
use crate::mode::ModeWatch;
use crate::packet::{MessageType, Request};
use crate::reply::{BOOTP_LENGTH, Reply, bootp_for, message_for, nak};
use crate::{LeaseChange, LeaseTable, Limit, MacAddr, Now, PacketError};

/// How long an address is kept for a client that was offered it.
const OFFER_HOLDS: Duration = Duration::from_mins(1);
/// How long nobody gets an address that a client, or a probe, found in use.
const QUARANTINE: Duration = Duration::from_hours(1);
/// How many addresses one client may have in quarantine at once.
const DECLINES: usize = 2;
/// All clients together may put one part in so many of a range into quarantine.
const QUARANTINED_PART: usize = 4;

/// The server of one segment and the subnets that relay agents bring to it.
#[derive(Clone, Debug)]
pub struct Server {
    config: DhcpConfig,
    mode: ModeWatch,
    leases: LeaseTable,
    offers: Offers,
    /// By the first address of a range: all that are lower have a lease, so nobody looks for a fresh one there.
    fresh: BTreeMap<Ipv4Addr, Ipv4Addr>,
    /// The last probe of an address, and when.
    probes: BTreeMap<Ipv4Addr, (ProbeResult, Now)>,
    /// Who declined the addresses that are in quarantine, and until when they are.
    declined: BTreeMap<Ipv4Addr, (MacAddr, Now)>,
    limits: Limits,
    counters: Counters,
}

/// A request with what is known of it before anything is decided.
struct Case<'a> {
    request: &'a Request,
    source: Ipv4Addr,
    standing: Standing,
    boot: BootOffer,
    subnet: SubnetSpec,
}

impl Server {
    /// Nothing is answered until the segment was asked: see [`Self::ask`].
    pub fn new(config: DhcpConfig, leases: LeaseTable) -> Self {
        let limits = Limits::new(config.spec().guard);
        let spread = config.spec().nic.map_or(0, |nic| nic.octets()[5]);
        Self {
            config,
            mode: ModeWatch::new(spread),
            leases,
            offers: Offers::default(),
            fresh: BTreeMap::new(),
            probes: BTreeMap::new(),
            declined: BTreeMap::new(),
            limits,
            counters: Counters::default(),
        }
    }

    /// The settings of now.
    pub fn config(&self) -> &DhcpConfig {
        &self.config
    }

    /// New settings, from now on. Leases stay; one that no longer fits is refused when its client asks to renew it.
    pub fn set_config(&mut self, config: DhcpConfig) {
        self.config = config;
        self.offers.clear();
    }

    /// Everything promised, expired leases included: for the page, and to be written by [`compact`](crate::compact).
    pub fn leases(&self) -> &LeaseTable {
        &self.leases
    }

    /// For metrics; they only rise.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Decides about one message.
    pub fn handle_request(&mut self, request: &Request, origin: Origin, now: Now) -> Decision {
        let decision = self
            .decide(request, origin, now)
            .unwrap_or_else(Decision::Ignore);
        self.counters.count(&decision);
        decision
    }

    fn decide(&mut self, request: &Request, origin: Origin, now: Now) -> Result<Decision, Reason> {
        if self.config.spec().nic == Some(request.mac) {
            return Err(Reason::OwnQuestion);
        }
        if !request.is_relayed() {
            self.mode.heard(now);
        }
        let standing = self.standing(request);
        self.limits
            .message(request.mac, standing, now)
            .map_err(Reason::Limited)?;
        let boot = BootOffer::choose(request, self.config.spec().http);
        let part = self.part(request, now)?;
        if origin.listener == Listener::Pxe {
            return proxy::boot_server(&self.config, request, boot);
        }
        if part == Part::Boot {
            return proxy::offer(&self.config, request, boot);
        }
        let case = Case {
            request,
            source: origin.source,
            standing,
            boot,
            subnet: self.subnet_for(request, origin)?,
        };
        match request.message_type {
            MessageType::Discover => self.discover(&case, now),
            MessageType::Request => self.request(&case, now),
            MessageType::Decline => self.decline(&case, now),
            MessageType::Release => self.release(&case, now),
            MessageType::Inform => self.inform(&case),
            MessageType::Bootp => self.bootp(&case, now),
            MessageType::Offer | MessageType::Ack | MessageType::Nak => {
                Err(Reason::Malformed(PacketError::WrongDirection))
            }
        }
    }

    fn standing(&self, request: &Request) -> Standing {
        let has_address = self.leases.of_mac(request.mac).is_some()
            || self.config.spec().reservations.contains_key(&request.mac);
        if has_address {
            Standing::Known
        } else if request.is_pxe() || request.is_http_boot() || request.is_ipxe() {
            Standing::Boots
        } else {
            Standing::Stranger
        }
    }

    fn discover(&mut self, case: &Case, now: Now) -> Result<Decision, Reason> {
        let request = case.request;
        let address = match self.allocate(case, now) {
            Allocation::Address(address) => address,
            Allocation::Probe(address) => return Ok(Decision::Probe { address }),
            Allocation::Exhausted => {
                let range = case.subnet.range;
                return Err(Reason::Exhausted { range });
            }
        };
        let rapid =
            request.rapid_commit && self.config.spec().authority == Authority::Authoritative;
        if rapid {
            let mut reply = self.acknowledge(case, address, now)?;
            reply.message.opts_mut().insert(DhcpOption::RapidCommit);
            return Ok(Decision::Reply(reply));
        }
        let until = now.plus(OFFER_HOLDS);
        self.offers.offer(request.mac, address, until, now);
        Ok(Decision::Reply(self.lease_reply(
            case,
            WireType::Offer,
            address,
        )))
    }

    /// RFC 2131 section 4.3.2, whose four cases differ in what the client fills in.
    fn request(&mut self, case: &Case, now: Now) -> Result<Decision, Reason> {
        let request = case.request;
        let server = self.config.spec().server;
        let selected = match request.server_id {
            Some(other) if request.is_for_other(server) => {
                self.offers.forget(request.mac);
                if !request.is_relayed() {
                    self.mode.suspicious(now);
                }
                return Err(Reason::ChoseOtherServer { server: other });
            }
            selected => selected.is_some(),
        };
        let wanted = request.wanted_address().ok_or(Reason::NoAddressRequested)?;
        let has_lease = self
            .leases
            .of_mac(request.mac)
            .is_some_and(|l| l.address == wanted);
        let was_offered = self.offers.was(request.mac, wanted);
        let authoritative = self.config.spec().authority == Authority::Authoritative;
        // Whoever leased this client something knows that it has nothing else.
        let knows = self
            .leases
            .of_mac(request.mac)
            .is_some_and(|lease| now < lease.expires);
        if self.is_usable(wanted, request.mac, &case.subnet, now)
            && (has_lease || was_offered || (self.is_fresh(wanted) && self.is_room_for(case, now)))
            && (has_lease || selected || authoritative)
        {
            return self.acknowledge(case, wanted, now).map(Decision::Reply);
        }
        if selected || authoritative || knows {
            let why = format!("{wanted} is not available to {}", request.mac);
            return Ok(Decision::Reply(nak(request, server, &why)));
        }
        Err(Reason::UnknownClient { wanted })
    }

    /// A promise that the lease file has already, because it has it for longer than the last one, is not written again.
    fn acknowledge(&mut self, case: &Case, address: Ipv4Addr, now: Now) -> Result<Reply, Reason> {
        let mac = case.request.mac;
        let time = self.config.spec().lease_time;
        let promised = now.plus(time);
        let holds = self
            .leases
            .of_mac(mac)
            .is_some_and(|lease| lease.address == address && promised <= lease.expires);
        let mut persist = Vec::new();
        if !holds {
            self.limits
                .change(case.standing, now)
                .map_err(Reason::Limited)?;
            let expires = promised.plus(time / 2);
            persist.push(LeaseChange::Leased {
                mac,
                address,
                expires,
            });
        }
        let before = self.leases.of_mac(mac).map(|lease| lease.address);
        for change in &persist {
            self.leases.apply(change);
        }
        self.note_leased(
            case.subnet.range,
            before.filter(|before| *before != address),
        );
        self.offers.forget(mac);
        // Somebody is there from now on.
        self.probes.remove(&address);
        let mut reply = self.lease_reply(case, WireType::Ack, address);
        reply.message.set_ciaddr(case.request.ciaddr);
        reply.persist = persist;
        Ok(reply)
    }

    /// The client found that somebody else uses the address (RFC 2131 section 4.3.3).
    fn decline(&mut self, case: &Case, now: Now) -> Result<Decision, Reason> {
        let mac = case.request.mac;
        let address = case.request.requested.ok_or(Reason::NoAddressRequested)?;
        let is_its_own = self
            .leases
            .of_mac(mac)
            .is_some_and(|l| l.address == address)
            || self.offers.was(mac, address);
        if !is_its_own || case.request.is_for_other(self.config.spec().server) {
            return Err(Reason::NotItsLease { address });
        }
        self.offers.forget(mac);
        self.declined.retain(|_, (_, until)| now < *until);
        let of_client = self.declined.values().filter(|(m, _)| *m == mac).count();
        let most = usize::try_from(case.subnet.range.size())
            .map_or(usize::MAX, |size| (size / QUARANTINED_PART).max(1));
        if of_client >= DECLINES || self.leases.quarantines(now) >= most {
            return Err(Reason::Limited(Limit::Declines));
        }
        let until = now.plus(QUARANTINE);
        let change = LeaseChange::Quarantined { address, until };
        self.leases.apply(&change);
        self.fresh.clear();
        self.declined.insert(address, (mac, until));
        Ok(Decision::Record {
            persist: vec![change],
            event: Event::Declined { mac, address },
        })
    }

    /// From the holder only. Not to hear it costs nothing but time, so it is heard rarely enough for the disk.
    fn release(&mut self, case: &Case, now: Now) -> Result<Decision, Reason> {
        let (mac, address) = (case.request.mac, case.request.ciaddr);
        let other = case.request.is_for_other(self.config.spec().server);
        // To the relay, if that is the server by RFC 5107.
        let is_from_it = case.source == address || case.request.server_override().is_some();
        let holds = self
            .leases
            .of_mac(mac)
            .is_some_and(|l| l.address == address);
        if !holds || other || !is_from_it {
            return Err(Reason::NotItsLease { address });
        }
        self.limits
            .change(Standing::Stranger, now)
            .map_err(Reason::Limited)?;
        let change = LeaseChange::Released { mac, at: now };
        self.leases.apply(&change);
        Ok(Decision::Record {
            persist: vec![change],
            event: Event::Released { mac, address },
        })
    }

    /// RFC 1534 section 2: a BOOTP client never says that it is gone, so that its address must be its own for ever.
    fn bootp(&self, case: &Case, now: Now) -> Result<Decision, Reason> {
        let (request, spec) = (case.request, self.config.spec());
        let reserved = spec.reservations.get(&request.mac).map(|r| r.address);
        let address = reserved
            .filter(|address| self.is_usable(*address, request.mac, &case.subnet, now))
            .ok_or(Reason::NotReserved)?;
        let mut message = bootp_for(request);
        message.set_yiaddr(address).set_siaddr(spec.server);
        message.set_ciaddr(request.ciaddr);
        self.write_settings(&mut message, case);
        Ok(Decision::Reply(Reply {
            persist: Vec::new(),
            message,
            relay_info: request.relay_info.clone(),
            destination: self.destination(case, address),
            room: BOOTP_LENGTH,
            boot: BootOffer::NotAsked,
        }))
    }

    fn lease_reply(&self, case: &Case, kind: WireType, address: Ipv4Addr) -> Reply {
        let (request, spec) = (case.request, self.config.spec());
        let mut message = message_for(request, kind, spec.server);
        message.set_yiaddr(address).set_siaddr(spec.server);
        self.write_settings(&mut message, case);
        let seconds = u32::try_from(spec.lease_time.as_secs())
            .expect("at most 30 days, checked by DhcpConfig");
        let options = message.opts_mut();
        options.insert(DhcpOption::AddressLeaseTime(seconds));
        options.insert(DhcpOption::Renewal(seconds / 2));
        options.insert(DhcpOption::Rebinding(seconds / 8 * 7));
        case.boot
            .write(&mut message, request, spec.server, Side::Lease);
        Reply {
            persist: Vec::new(),
            message,
            relay_info: request.relay_info.clone(),
            destination: self.destination(case, address),
            room: request.room,
            boot: case.boot.clone(),
        }
    }

    fn write_settings(&self, message: &mut Message, case: &Case) {
        let spec = self.config.spec();
        let subnet = &case.subnet;
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
        let reservation = spec.reservations.get(&case.request.mac);
        if let Some(name) = reservation.and_then(|r| r.host_name.as_ref()) {
            options.insert(DhcpOption::Hostname(name.as_str().to_owned()));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
