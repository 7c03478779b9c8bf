//! What was offered and not yet requested: one address for a client, one client for an address. Not worth writing to disk.

use std::{collections::BTreeMap, net::Ipv4Addr};

use crate::{AddressRange, MacAddr, Now};

/// So many addresses are gone through for a new one; where more are taken, the search begins behind the last that was offered.
const FEW: usize = 64;
/// Offers that ran out are looked for once there are so many more.
const SWEPT_AFTER: usize = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Offers {
    by_address: BTreeMap<Ipv4Addr, (MacAddr, Now)>,
    by_mac: BTreeMap<MacAddr, Ipv4Addr>,
    /// How many were left by the last look.
    swept: usize,
    last: Option<Ipv4Addr>,
}

impl Offers {
    /// `mac` is offered `address` until then, and nothing else.
    pub fn offer(&mut self, mac: MacAddr, address: Ipv4Addr, until: Now, now: Now) {
        if self.by_address.len() >= self.swept + SWEPT_AFTER {
            self.by_address.retain(|_, (_, until)| now < *until);
            let left = &self.by_address;
            self.by_mac.retain(|_, address| left.contains_key(address));
            self.swept = self.by_address.len();
        }
        self.forget(mac);
        if let Some((other, _)) = self.by_address.insert(address, (mac, until)) {
            self.by_mac.remove(&other);
        }
        self.by_mac.insert(mac, address);
        self.last = Some(address);
    }

    /// Behind the one that was offered last, while an offer is open and beside it `known` addresses are taken: one that nobody takes
    /// would have every search go through all that was leased behind it.
    pub fn next_in(&self, range: AddressRange, known: usize) -> Option<Ipv4Addr> {
        let next = Ipv4Addr::from_bits(self.last?.to_bits().checked_add(1)?);
        let is_long = self.len() > 0 && self.len() + known > FEW;
        (is_long && range.contains(next)).then_some(next)
    }

    /// Whatever `mac` was offered.
    pub fn forget(&mut self, mac: MacAddr) {
        if let Some(address) = self.by_mac.remove(&mac) {
            self.by_address.remove(&address);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// The address that `mac` was offered, if that still holds.
    pub fn of(&self, mac: MacAddr, now: Now) -> Option<Ipv4Addr> {
        let address = *self.by_mac.get(&mac)?;
        let (_, until) = self.by_address.get(&address)?;
        (now < *until).then_some(address)
    }

    /// Whether `mac` was offered `address`, lately or not.
    pub fn was(&self, mac: MacAddr, address: Ipv4Addr) -> bool {
        self.by_mac.get(&mac) == Some(&address)
    }

    /// Whether somebody else is offered `address`.
    pub fn is_others(&self, address: Ipv4Addr, mac: MacAddr, now: Now) -> bool {
        let offer = self.by_address.get(&address);
        offer.is_some_and(|(other, until)| *other != mac && now < *until)
    }

    /// Addresses of `range` that others are offered, in their order.
    pub fn others(
        &self,
        range: AddressRange,
        mac: MacAddr,
        now: Now,
    ) -> impl Iterator<Item = Ipv4Addr> {
        let offers = self.by_address.range(range.first()..=range.last());
        offers
            .filter(move |(_, (other, until))| *other != mac && now < *until)
            .map(|(address, _)| *address)
    }
}
