//! The installed system of a host, as it is met from outside: it asks at the bootstrap endpoint, its SSH answers, and it may be told to
//! restart over SSH.

use std::time::Duration;

use crate::{
    hosts::plan::{self, RestartOrders},
    ssh::Towards,
};

/// After this without an answer an installed host does not count as running any more.
const SSH_GONE: Duration = Duration::from_mins(2);

#[derive(Clone, Debug, Default)]
pub struct System {
    /// When it asked the bootstrap endpoint last.
    pub polled: Option<Duration>,
    /// When SSH was tried last, and when it answered last.
    tried: Option<Duration>,
    answered: Option<Duration>,
    orders: Orders,
    /// Since when a ramdisk is waited for that it was to start by itself.
    pub returns_since: Option<Duration>,
}

/// Orders over SSH to restart.
#[derive(Clone, Debug, Default)]
struct Orders {
    under_way: bool,
    tried: Option<Duration>,
    accepted: Option<Duration>,
    failed: u32,
    error: Option<String>,
    /// It is being told to start the ramdisk by itself.
    direct: bool,
    /// Why it did not.
    refused: Option<String>,
}

impl System {
    /// Something else runs on the machine now.
    pub fn is_down(&mut self) {
        self.answered = None;
    }

    pub fn answered(&mut self, now: Duration) {
        self.answered = Some(now);
    }

    pub fn answers(&self, now: Duration) -> bool {
        let answered = self.answered;
        answered.is_some_and(|at| now.saturating_sub(at) < SSH_GONE)
    }

    /// Is it time to see whether SSH answers? Once each `pause`.
    pub fn probe_due(&mut self, now: Duration, pause: Duration) -> bool {
        let tried = self.tried;
        let due = tried.is_none_or(|at| now.saturating_sub(at) >= pause);
        if due {
            self.tried = Some(now);
        }
        due
    }

    /// Is an order to restart due? Once each `pause`, one at a time.
    pub fn restart_due(&mut self, now: Duration, pause: Duration) -> bool {
        let tried = self.orders.tried;
        let rested = tried.is_none_or(|at| now.saturating_sub(at) >= pause);
        let due = rested && !self.orders.under_way;
        if due {
            (self.orders.under_way, self.orders.tried) = (true, Some(now));
        }
        due
    }

    /// True if every restart that was asked for has happened by it.
    pub fn ordered(&mut self, into: Towards, result: Result<(), String>, now: Duration) -> bool {
        self.orders.under_way = false;
        match result {
            Ok(()) => {
                (self.orders.accepted, self.orders.failed) = (Some(now), 0);
                into == Towards::Disk
            }
            Err(error) => {
                self.orders.failed += 1;
                self.orders.error = Some(error);
                false
            }
        }
    }

    pub fn starts_ramdisk(&mut self) {
        self.orders.direct = true;
    }

    /// What comes of starting the ramdisk by itself has been seen. True if nobody had.
    pub fn stops_ramdisk(&mut self) -> bool {
        std::mem::take(&mut self.orders.direct)
    }

    /// It was told to start the ramdisk by itself. If it did not, it is told to restart, at once.
    pub fn started_ramdisk(&mut self, result: Result<(), String>, now: Duration) {
        self.orders.under_way = false;
        match result {
            Ok(()) => (self.orders.accepted, self.orders.failed) = (Some(now), 0),
            Err(error) => (self.orders.refused, self.orders.tried) = (Some(error), None),
        }
    }

    /// It answers, and nobody has told it to start the ramdisk by itself.
    pub fn may_start_ramdisk(&self, now: Duration) -> bool {
        self.orders.refused.is_none() && self.orders.accepted.is_none() && self.answers(now)
    }

    /// No restart is wanted.
    pub fn forget_orders(&mut self) {
        self.orders = Orders {
            under_way: self.orders.under_way,
            direct: self.orders.direct,
            ..Orders::default()
        };
    }

    pub fn seen(&self, now: Duration) -> plan::System<'_> {
        plan::System {
            ssh_answers: self.answers(now),
            polled: self.polled,
            restarts: RestartOrders {
                accepted: self.orders.accepted,
                failed: self.orders.failed,
                error: self.orders.error.as_deref(),
                refused: self.orders.refused.as_deref(),
            },
        }
    }
}
