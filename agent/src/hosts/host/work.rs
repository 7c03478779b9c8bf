//! The one action of a host that is under way at Ironic, and what came of the last.

use std::time::Duration;

use firstlight_api::status::Problem;

#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Since when Ironic's node has been in its state.
    pub node_since: Duration,
    under_way: bool,
    not_before: Duration,
    /// When the last action ended, and whether Ironic has not been read since.
    ended: Duration,
    outdated: bool,
    /// Ironic's answer to the last action, if it was no.
    pub refused: Option<Problem>,
    /// The boot of the ramdisk at which the box gave up.
    pub gave_up: Option<String>,
    /// Why its bootstrap data could not be handed out the last time.
    pub undelivered: Option<Problem>,
    /// Its deleted object may go: that is on the disk.
    pub removed: bool,
}

impl Work {
    pub fn new(now: Duration) -> Self {
        Self {
            node_since: now,
            ..Self::default()
        }
    }

    pub fn begins(&mut self) {
        self.under_way = true;
    }

    /// Ironic has taken it.
    pub fn begun(&mut self, now: Duration) {
        (self.refused, self.not_before) = (None, now);
        self.ends(now);
    }

    /// It was not done; `problem` if that is no passing thing.
    pub fn failed(&mut self, now: Duration, pause: Duration, problem: Option<Problem>) {
        (self.refused, self.not_before) = (problem, now + pause);
        self.ends(now);
    }

    /// It never reached Ironic.
    pub fn never_began(&mut self, now: Duration, pause: Duration) {
        (self.under_way, self.not_before) = (false, now + pause);
    }

    fn ends(&mut self, now: Duration) {
        (self.under_way, self.outdated, self.ended) = (false, true, now);
    }

    /// A look at Ironic that was begun at `asked` shows what came of it.
    pub fn is_shown_by(&self, asked: Duration) -> bool {
        self.ended <= asked
    }

    /// Ironic was read since the last action; true if it had to be.
    pub fn seen(&mut self) -> bool {
        std::mem::take(&mut self.outdated)
    }

    /// A person does not want to wait for the next try.
    pub fn hurries(&mut self) {
        self.not_before = Duration::ZERO;
    }

    /// What is known of Ironic may be older than the last action.
    pub fn is_unclear(&self) -> bool {
        self.under_way || self.outdated
    }

    pub fn may_begin(&self, now: Duration) -> bool {
        !self.is_unclear() && now >= self.not_before
    }
}
