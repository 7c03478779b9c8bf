//! Leases as a value, and the changes it is made of. A table is exactly the sum of its changes, so a log of changes is
//! a complete copy of it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::{AddressRange, MacAddr, Now};

/// An address and until when nobody else gets it, which is at least as long as it was promised: so most renewals change
/// nothing. The binding stays after that, so that a host gets its old address again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Whose it is.
    pub mac: MacAddr,
    /// Nobody else's in the same table.
    pub address: Ipv4Addr,
    /// Not before the end of what the client was promised.
    pub expires: Now,
}

/// One change of a [`LeaseTable`], in the form that is written to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum LeaseChange {
    /// `mac` has `address`; whoever had it before has none.
    Leased {
        /// Whose it is now.
        mac: MacAddr,
        /// Leaves quarantine with this.
        address: Ipv4Addr,
        /// As in [`Lease::expires`].
        expires: Now,
    },
    /// `mac` gave its address back at `at`.
    Released {
        /// Of the lease that ends.
        mac: MacAddr,
        /// Its new expiry, unless that was earlier.
        at: Now,
    },
    /// Somebody unknown uses `address`: nobody gets it until then.
    Quarantined {
        /// Whose lease, if there was one, is gone.
        address: Ipv4Addr,
        /// From then on it may be leased again.
        until: Now,
    },
}

/// All leases, one for a MAC and one for an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseTable {
    by_mac: BTreeMap<MacAddr, Lease>,
    by_address: BTreeMap<Ipv4Addr, MacAddr>,
    quarantined: BTreeMap<Ipv4Addr, Now>,
}

impl LeaseTable {
    /// Makes one change. Any order of changes is a table; the later one wins.
    pub fn apply(&mut self, change: &LeaseChange) {
        match *change {
            LeaseChange::Leased {
                mac,
                address,
                expires,
            } => {
                if let Some(old) = self.by_mac.remove(&mac) {
                    self.by_address.remove(&old.address);
                }
                if let Some(former) = self.by_address.insert(address, mac) {
                    self.by_mac.remove(&former);
                }
                self.by_mac.insert(
                    mac,
                    Lease {
                        mac,
                        address,
                        expires,
                    },
                );
                self.quarantined.remove(&address);
            }
            LeaseChange::Released { mac, at } => {
                if let Some(lease) = self.by_mac.get_mut(&mac) {
                    lease.expires = lease.expires.min(at);
                }
            }
            LeaseChange::Quarantined { address, until } => {
                if let Some(mac) = self.by_address.remove(&address) {
                    self.by_mac.remove(&mac);
                }
                self.quarantined.insert(address, until);
            }
        }
    }

    /// The lease of `mac`, whether expired or not.
    pub fn of_mac(&self, mac: MacAddr) -> Option<&Lease> {
        self.by_mac.get(&mac)
    }

    /// The last lease of `address`, whether expired or not.
    pub fn of_address(&self, address: Ipv4Addr) -> Option<&Lease> {
        self.by_address
            .get(&address)
            .and_then(|mac| self.by_mac.get(mac))
    }

    /// Whether somebody unknown was seen to use `address` a short time ago.
    pub fn is_quarantined(&self, address: Ipv4Addr, now: Now) -> bool {
        self.quarantined
            .get(&address)
            .is_some_and(|until| now < *until)
    }

    /// Addresses of `range` that no lease is known of, not even an expired one.
    pub fn unleased(&self, range: AddressRange) -> impl Iterator<Item = Ipv4Addr> {
        let leased = self.by_address.range(range.first()..=range.last());
        let mut leased = leased.map(|(address, _)| *address).peekable();
        range
            .iter()
            .filter(move |address| leased.next_if_eq(address).is_none())
    }

    /// Addresses that a lease or a quarantine is known of.
    pub fn known(&self) -> usize {
        self.by_address.len() + self.quarantined.len()
    }

    /// Addresses that somebody unknown was seen to use, and that nobody was leased since.
    pub fn contested(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.quarantined.keys().copied()
    }

    /// Whether `address` is one of [`Self::contested`].
    pub fn was_contested(&self, address: Ipv4Addr) -> bool {
        self.quarantined.contains_key(&address)
    }

    /// How many addresses are in quarantine at `now`.
    pub fn quarantines(&self, now: Now) -> usize {
        self.quarantined
            .values()
            .filter(|until| now < **until)
            .count()
    }

    /// All bindings by MAC, expired ones included.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.by_mac.values()
    }

    /// How many leases hold at `now`.
    pub fn active(&self, now: Now) -> usize {
        self.iter().filter(|lease| now < lease.expires).count()
    }

    /// The fewest changes that make this table from an empty one, without quarantines that are over.
    pub fn as_changes(&self, now: Now) -> impl Iterator<Item = LeaseChange> {
        let leases = self.iter().map(
            |&Lease {
                 mac,
                 address,
                 expires,
             }| LeaseChange::Leased {
                mac,
                address,
                expires,
            },
        );
        let quarantines = self
            .quarantined
            .iter()
            .filter(move |(_, until)| now < **until)
            .map(|(&address, &until)| LeaseChange::Quarantined { address, until });
        leases.chain(quarantines)
    }
}
