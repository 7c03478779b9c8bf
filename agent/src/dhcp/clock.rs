//! The time of leases and questions.

use firstlight_netboot::Now;

use crate::clock;

/// One clock for leases and questions: it starts as the wall clock, which leases in the file are told by, and is not moved
/// afterwards.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    at_boot: u64,
}

impl Clock {
    pub fn start() -> Self {
        let wall = u64::try_from(clock::wall_seconds()).unwrap_or(0);
        Self {
            at_boot: wall.saturating_sub(clock::uptime().as_secs()),
        }
    }

    pub fn now(self) -> Now {
        Now::from_unix_seconds(self.at_boot + clock::uptime().as_secs())
    }
}
