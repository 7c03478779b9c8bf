//! How much is done for one client, for all strangers together, and to the disk. A client is what its packets say, so no
//! limit is for ever, and what one is remembered by is bounded.

use std::collections::BTreeMap;

use crate::{Guard, MacAddr, Now};

/// A quantity that may be used up and grows again.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    per_minute: u32,
}

/// Firmware, boot loader, ramdisk and system of one NIC send about twenty messages, in two minutes.
const OF_ONE_MAC: Rate = Rate {
    burst: 40,
    per_minute: 60,
};
/// Racks that are switched on at once.
const OF_STRANGERS: Rate = Rate {
    burst: 1024,
    per_minute: 6000,
};
/// Writes to the stick that are not for a server with a lease.
const CHANGES: Rate = Rate {
    burst: 512,
    per_minute: 300,
};
/// Clients that are remembered; a stranger beyond only counts among all strangers.
const REMEMBERED: usize = 4096;

/// Sixtieths, as the rates are per minute and the time is in seconds.
const ONE: u32 = 60;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    sixtieths: u32,
    at: Now,
}

impl Bucket {
    fn full(rate: Rate, now: Now) -> Self {
        Self {
            sixtieths: rate.burst * ONE,
            at: now,
        }
    }

    fn level(&self, rate: Rate, now: Now) -> u32 {
        let seconds = now.unix_seconds().saturating_sub(self.at.unix_seconds());
        let grown = u32::try_from(seconds)
            .unwrap_or(u32::MAX)
            .saturating_mul(rate.per_minute);
        self.sixtieths.saturating_add(grown).min(rate.burst * ONE)
    }

    fn take(&mut self, rate: Rate, now: Now) -> bool {
        let level = self.level(rate, now);
        let left = level.checked_sub(ONE);
        *self = Self {
            sixtieths: left.unwrap_or(level),
            at: now,
        };
        left.is_some()
    }
}

/// What the server knows of a client before it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Holds a lease, or has an address reserved.
    Known,
    /// A stranger whose firmware or boot loader asks.
    Boots,
    Stranger,
}

/// Which limit was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// One MAC sent more messages than a client does.
    Client,
    /// All unknown clients together sent too many messages.
    Strangers,
    /// Unknown clients together took or gave back too many leases: each is a write to the disk.
    Changes,
    /// Too many addresses were declined: more of it would empty the range.
    Declines,
}

#[derive(Clone, Debug)]
pub(crate) struct Limits {
    clients: BTreeMap<MacAddr, Bucket>,
    swept: Now,
    strangers: Bucket,
    changes: Bucket,
    guard: Guard,
}

impl Limits {
    pub fn new(guard: Guard) -> Self {
        let start = Now::default();
        Self {
            clients: BTreeMap::new(),
            swept: start,
            strangers: Bucket::full(OF_STRANGERS, start),
            changes: Bucket::full(CHANGES, start),
            guard,
        }
    }

    /// One message of `mac`.
    pub fn message(&mut self, mac: MacAddr, standing: Standing, now: Now) -> Result<(), Limit> {
        if self.guard == Guard::Down {
            return Ok(());
        }
        if self.clients.len() >= REMEMBERED && self.swept != now {
            self.swept = now;
            self.clients
                .retain(|_, bucket| bucket.level(OF_ONE_MAC, now) < OF_ONE_MAC.burst * ONE);
        }
        let room = self.clients.len() < REMEMBERED || standing == Standing::Known;
        if room || self.clients.contains_key(&mac) {
            let bucket = self
                .clients
                .entry(mac)
                .or_insert_with(|| Bucket::full(OF_ONE_MAC, now));
            if !bucket.take(OF_ONE_MAC, now) {
                return Err(Limit::Client);
            }
        }
        if standing != Standing::Known && !self.strangers.take(OF_STRANGERS, now) {
            return Err(Limit::Strangers);
        }
        Ok(())
    }

    /// One write to the disk.
    pub fn change(&mut self, standing: Standing, now: Now) -> Result<(), Limit> {
        let counts = self.guard == Guard::Up && standing != Standing::Known;
        if counts && !self.changes.take(CHANGES, now) {
            return Err(Limit::Changes);
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.clients.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
