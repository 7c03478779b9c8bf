//! Which address a client gets.
//!
//! A host must not wait: an address that nobody had yet is offered at once (the client checks it itself and declines it if
//! need be). Only an address that somebody else once had is probed first, and [`Server::probe_ahead`] lets that happen before
//! it is needed. When a flood has taken the whole range, a server that boots gets an address whose holder answers no probe.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{Case, ProbeResult, QUARANTINE, Server};
use crate::config::SubnetSpec;
use crate::limits::Standing;
use crate::{AddressRange, DhcpRole, Lease, MacAddr, Mode, Now};

/// How long a probe's "nobody answered" is believed.
const FREE_HOLDS: Duration = Duration::from_mins(5);
/// How many addresses are kept probed for the next new clients.
const AHEAD: usize = 4;
/// One part in so many of a range is kept for servers that boot.
const KEPT_PART: u32 = 4;

/// A server answers no probe for so long between two stages of its boot.
const BETWEEN_STAGES: Duration = Duration::from_mins(5);

pub(super) enum Allocation {
    Address(Ipv4Addr),
    /// This one, if nobody uses it.
    Probe(Ipv4Addr),
    Exhausted,
}

impl Server {
    /// Reserved address, last address, offered address, wished address, never leased address, longest unused address.
    pub(super) fn allocate(&self, case: &Case, now: Now) -> Allocation {
        let (mac, subnet) = (case.request.mac, &case.subnet);
        let reserved = self.config.spec().reservations.get(&mac).map(|r| r.address);
        let leased = self.leases.of_mac(mac).map(|l| l.address);
        let offered = self.offers.of(mac, now);
        let known = [reserved, leased, offered];
        let usable = |address: &Ipv4Addr| self.is_usable(*address, mac, subnet, now);
        if let Some(address) = known.into_iter().flatten().find(usable) {
            return Allocation::Address(address);
        }
        if !self.is_room_for(case, now) {
            return Allocation::Exhausted;
        }
        let wish = case.request.requested;
        let wished = wish.filter(|address| self.is_fresh(*address) && usable(address));
        let free = wished.or_else(|| self.candidates(mac, subnet, now).next());
        match free.or_else(|| self.deserted(case, now)) {
            None => Allocation::Exhausted,
            Some(address) if self.is_fresh(address) || self.is_found_free(address, now) => {
                Allocation::Address(address)
            }
            Some(address) => Allocation::Probe(address),
        }
    }

    /// Strangers leave a share of the range to servers that boot.
    pub(super) fn is_room_for(&self, case: &Case, now: Now) -> bool {
        case.standing != Standing::Stranger || self.has_room_in(&case.subnet, now)
    }

    /// Whether a stranger would get an address of the subnet with this range.
    pub fn has_room(&self, range: AddressRange, now: Now) -> bool {
        let mut subnets = self.config.spec().subnets.iter();
        let subnet = subnets.find(|subnet| subnet.range == range);
        subnet.is_none_or(|subnet| self.has_room_in(subnet, now))
    }

    fn has_room_in(&self, subnet: &SubnetSpec, now: Now) -> bool {
        let size = usize::try_from(subnet.range.size()).expect("at most 65536");
        let kept = usize::try_from(subnet.range.size() / KEPT_PART).expect("a quarter of that");
        // Nobody looks at each while even these, and the box and a router, leave enough.
        let reservations = self.config.spec().reservations.len();
        let taken = self.leases.known() + self.offers.len() + self.probes.len() + reservations + 2;
        if taken + kept < size {
            return true;
        }
        self.candidates(nobody(), subnet, now).nth(kept).is_some()
    }

    /// The addresses that a client without one would get, best first.
    fn candidates(
        &self,
        mac: MacAddr,
        subnet: &SubnetSpec,
        now: Now,
    ) -> impl Iterator<Item = Ipv4Addr> {
        let range = subnet.range;
        let fresh = self.fresh_of(range);
        let next = self.offers.next_in(fresh, self.leases.known());
        let next = next.unwrap_or(fresh.first());
        let before = Ipv4Addr::from_bits(next.to_bits().saturating_sub(1));
        let parts = [(next, fresh.last()), (fresh.first(), before)];
        let parts = parts.into_iter().filter(|(first, last)| first <= last);
        let parts = parts.filter_map(|(first, last)| AddressRange::new(first, last).ok());
        let fresh = parts.flat_map(move |part| self.unoffered(part, mac, now));
        // Only where no fresh one is left, as it goes through all leases.
        let expired = std::iter::once_with(move || {
            let leases = self.leases.iter();
            let mut expired: Vec<&Lease> = leases
                .filter(|lease| range.contains(lease.address))
                .collect();
            expired.sort_by_key(|lease| (lease.expires, lease.address));
            expired
        });
        let contested = self.leases.contested();
        let contested = contested.filter(|address| subnet.range.contains(*address));
        let subnet = subnet.clone();
        fresh
            .chain(expired.flatten().map(|lease| lease.address))
            .chain(contested)
            .filter(move |address| self.is_usable(*address, mac, &subnet, now))
    }

    /// Addresses of `range` that nobody had, and nobody else is offered.
    fn unoffered(
        &self,
        range: AddressRange,
        mac: MacAddr,
        now: Now,
    ) -> impl Iterator<Item = Ipv4Addr> {
        let mut offered = self.offers.others(range, mac, now).peekable();
        self.leases
            .unleased(range)
            .filter(move |address| {
                while offered.next_if(|offered| offered < address).is_some() {}
                offered.next_if_eq(address).is_none()
            })
            .filter(|address| !self.leases.was_contested(*address))
    }

    /// The part of `range` that is not known to be leased as a whole.
    fn fresh_of(&self, range: AddressRange) -> AddressRange {
        let from = self.fresh.get(&range.first()).copied();
        let from = from.unwrap_or(range.first()).min(range.last());
        AddressRange::new(from, range.last()).expect("a part of a range")
    }

    /// An address of `range` was leased, perhaps instead of `freed`, which any range may hold.
    pub(super) fn note_leased(&mut self, range: AddressRange, freed: Option<Ipv4Addr>) {
        if freed.is_some() {
            self.fresh.clear();
        }
        let first = self.leases.unleased(self.fresh_of(range)).next();
        self.fresh
            .insert(range.first(), first.unwrap_or(range.last()));
    }

    /// An address whose holder may never have been there: whoever invents clients takes every address there is. The newest
    /// first, as servers that are switched off were there before.
    fn deserted(&self, case: &Case, now: Now) -> Option<Ipv4Addr> {
        let mac = case.request.mac;
        if case.standing == Standing::Stranger {
            return None;
        }
        // As `acknowledge` writes it.
        let kept = self.config.spec().lease_time * 3 / 2;
        let settled = now.plus(kept.saturating_sub(BETWEEN_STAGES));
        let held = self
            .leases
            .iter()
            .filter(|lease| lease.mac != mac && lease.expires <= settled)
            .filter(|lease| self.is_open(lease.address, mac, &case.subnet, now))
            .filter(|lease| !self.is_found_in_use(lease.address, now));
        let newest = held.max_by_key(|lease| (lease.expires, lease.address));
        newest.map(|lease| lease.address)
    }

    /// Whether `mac` may have `address`: one of the range or its reserved one, and nobody else's.
    pub(super) fn is_usable(
        &self,
        address: Ipv4Addr,
        mac: MacAddr,
        subnet: &SubnetSpec,
        now: Now,
    ) -> bool {
        let lease = self.leases.of_address(address);
        let lease = lease.filter(|lease| now < lease.expires);
        let is_holder = lease.is_some_and(|lease| lease.mac == mac);
        // The holder may have lost it, because it answers no probe.
        let is_offered = self.offers.of(mac, now) == Some(address);
        self.is_open(address, mac, subnet, now)
            && (lease.is_none() || is_holder || is_offered)
            && (is_holder || !self.is_found_in_use(address, now))
    }

    /// Whoever holds it.
    fn is_open(&self, address: Ipv4Addr, mac: MacAddr, subnet: &SubnetSpec, now: Now) -> bool {
        let reserved_for = self.config.reserved_for(address);
        let belongs = match reserved_for {
            Some(owner) => owner == mac && subnet.subnet.has_host(address),
            None => subnet.range.contains(address),
        };
        let is_infrastructure =
            address == self.config.spec().server || Some(address) == subnet.router;
        let offered_to_other = self.offers.is_others(address, mac, now);
        belongs
            && !is_infrastructure
            && !offered_to_other
            && !self.leases.is_quarantined(address, now)
    }

    /// Nobody had it, and nobody was found to use it.
    pub(super) fn is_fresh(&self, address: Ipv4Addr) -> bool {
        self.leases.of_address(address).is_none() && !self.leases.was_contested(address)
    }

    fn is_found_free(&self, address: Ipv4Addr, now: Now) -> bool {
        self.probes
            .get(&address)
            .is_some_and(|(result, at)| *result == ProbeResult::Free && now < at.plus(FREE_HOLDS))
    }

    fn is_found_in_use(&self, address: Ipv4Addr, now: Now) -> bool {
        self.probes
            .get(&address)
            .is_some_and(|(result, at)| *result == ProbeResult::InUse && now < at.plus(QUARANTINE))
    }

    /// The answer to a probe, asked for by a [`Decision::Probe`](super::Decision::Probe) or by [`Self::probe_ahead`].
    pub fn probed(&mut self, address: Ipv4Addr, result: ProbeResult, now: Now) {
        self.probes.retain(|_, (_, at)| now < at.plus(QUARANTINE));
        self.probes.insert(address, (result, now));
    }

    /// The next few addresses of each subnet that new clients would get and that were not probed lately.
    pub fn probe_ahead(&self, now: Now) -> Vec<Ipv4Addr> {
        // Who leases nothing here needs to know of no address here.
        let own = self.config.spec().role == DhcpRole::Serve && self.mode() == Mode::Alone;
        let ahead = |subnet| {
            let next = self.candidates(nobody(), subnet, now).take(AHEAD);
            next.filter(|address| !self.is_found_free(*address, now))
        };
        let subnets = self.config.spec().subnets.iter();
        subnets.skip(usize::from(!own)).flat_map(ahead).collect()
    }
}

/// A client that has nothing.
fn nobody() -> MacAddr {
    MacAddr::new([2, 0, 0, 0, 0, 0]).expect("a locally administered unicast address")
}
