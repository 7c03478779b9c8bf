//! Whether this server leases addresses: what its questions to the segment found, and when it asks again.
//!
//! Only an answer to an own question ([`ForeignProbe`](crate::ForeignProbe)) changes the mode: what is overheard is a reason
//! to ask, because anybody can say it.

use std::time::Duration;

use crate::{ForeignServer, Now};

/// Between two questions. Boxes differ by their NICs, lest two of them give way to each other again and again.
const AGAIN: Duration = Duration::from_mins(5);
const STAGGER: u8 = 60;
/// The least time between two questions, whatever is overheard.
const GAP: Duration = Duration::from_secs(30);
/// A question without an answer after this time was lost with the task that asked it.
const LOST: Duration = Duration::from_secs(30);

/// What the server does on its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nobody has asked the segment yet: nothing is answered.
    Asking,
    /// Leases addresses and gives boot information.
    Serve,
    /// Somebody else leases addresses here: boot information, and the leases that there are.
    Proxy(ForeignServer),
}

/// What follows for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeStep {
    /// Run a [`ForeignProbe`](crate::ForeignProbe) and hand its result in.
    Ask,
    /// The server does this from now on; worth a line in the log and on the page.
    Switch(Mode),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Due(Now),
    Open { since: Now },
}

/// The mode and the next question.
#[derive(Clone, Debug)]
pub(crate) struct ModeWatch {
    pub mode: Mode,
    question: Question,
    asked: Option<Now>,
    again: Duration,
}

impl ModeWatch {
    /// `spread`: any number that differs between boxes.
    pub fn new(spread: u8) -> Self {
        Self {
            mode: Mode::Asking,
            question: Question::Due(Now::default()),
            asked: None,
            again: AGAIN + Duration::from_secs(u64::from(spread % STAGGER)),
        }
    }

    /// Whether it is time to ask.
    pub fn ask(&mut self, now: Now) -> Option<ModeStep> {
        let is_time = match self.question {
            Question::Due(at) => at <= now,
            Question::Open { since } => since.plus(LOST) <= now,
        };
        is_time.then(|| {
            self.question = Question::Open { since: now };
            self.asked = Some(now);
            ModeStep::Ask
        })
    }

    /// Something suspicious was heard: asks soon.
    pub fn suspect(&mut self, now: Now) -> Option<ModeStep> {
        if let Question::Due(at) = self.question {
            let soon = self.asked.map_or(now, |asked| asked.plus(GAP).max(now));
            self.question = Question::Due(at.min(soon));
        }
        self.ask(now)
    }

    /// The question was answered, by nobody if `found` is `None`.
    pub fn answered(&mut self, found: Option<ForeignServer>, now: Now) -> Option<ModeStep> {
        self.question = Question::Due(now.plus(self.again));
        let mode = match (self.mode, found) {
            (Mode::Proxy(old), Some(found)) if old.server == found.server => self.mode,
            (_, Some(found)) => Mode::Proxy(found),
            (_, None) => Mode::Serve,
        };
        let changed = mode != self.mode;
        self.mode = mode;
        changed.then_some(ModeStep::Switch(mode))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
