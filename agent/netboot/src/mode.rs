//! Whether another server leases addresses on this one's segment: what its questions to the segment found, and when it asks again.
//!
//! Only an answer to an own question ([`ForeignProbe`](crate::ForeignProbe)) says that somebody is there: what is overheard is a reason
//! to ask, because anybody can say it. That nobody answers says little for as long as the switch may keep the port closed (spanning tree):
//! then the question counts only if it was asked after somebody was heard.

use std::time::Duration;

use crate::{ForeignServer, Now};

/// Between two questions. Boxes differ by their NICs, lest two of them give way to each other again and again.
const AGAIN: Duration = Duration::from_mins(5);
const STAGGER: u8 = 60;
/// The least time between two questions, whatever is overheard.
const GAP: Duration = Duration::from_secs(30);
/// A question without an answer after this time was lost with the task that asked it.
const LOST: Duration = Duration::from_secs(30);
/// How long a switch may keep a port closed that has a cable: twice the forward delay of 15 s that IEEE 802.1D begins with, and more.
const SETTLING: Duration = Duration::from_mins(1);
/// Between two questions meanwhile.
const SETTLING_AGAIN: Duration = Duration::from_secs(10);

/// Who leases addresses on the server's own segment, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nobody has asked the segment yet, or not since it could answer.
    Asking,
    /// Nobody else.
    Alone,
    /// This server.
    Beside(ForeignServer),
}

/// What follows for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeStep {
    /// Run a [`ForeignProbe`](crate::ForeignProbe) and hand its result in.
    Ask,
    /// So it is from now on; worth a line in the log and on the page.
    Switch(Mode),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Due(Now),
    /// `early`: the port may have been closed when it was asked.
    Open {
        since: Now,
        early: bool,
    },
}

/// The mode and the next question.
#[derive(Clone, Debug)]
pub(crate) struct ModeWatch {
    pub mode: Mode,
    question: Question,
    asked: Option<Now>,
    again: Duration,
    settling: Option<Settling>,
}

/// The link is up, and its switch may still keep everything back.
#[derive(Clone, Copy, Debug)]
struct Settling {
    until: Now,
    /// Somebody was heard: the port is open.
    heard: bool,
}

impl ModeWatch {
    /// `spread`: any number that differs between boxes.
    pub fn new(spread: u8) -> Self {
        Self {
            mode: Mode::Asking,
            question: Question::Due(Now::default()),
            asked: None,
            again: AGAIN + Duration::from_secs(u64::from(spread % STAGGER)),
            settling: None,
        }
    }

    /// The link has just come up, perhaps to another switch.
    pub fn linked(&mut self, now: Now) {
        self.settling = Some(Settling {
            until: now.plus(SETTLING),
            heard: false,
        });
        self.doubt(now);
    }

    /// Somebody was heard: what was asked before that may have reached nobody.
    pub fn heard(&mut self, now: Now) {
        if let Some(settling) = &mut self.settling
            && !settling.heard
            && now < settling.until
        {
            settling.heard = true;
            self.doubt(now);
        }
    }

    fn doubt(&mut self, now: Now) {
        if self.mode == Mode::Alone {
            self.mode = Mode::Asking;
        }
        match &mut self.question {
            Question::Due(at) => *at = now,
            Question::Open { early, .. } => *early = true,
        }
    }

    /// Whether it is time to ask.
    pub fn ask(&mut self, now: Now) -> Option<ModeStep> {
        let is_time = match self.question {
            Question::Due(at) => at <= now,
            Question::Open { since, .. } => since.plus(LOST) <= now,
        };
        is_time.then(|| {
            self.question = Question::Open {
                since: now,
                early: false,
            };
            self.asked = Some(now);
            ModeStep::Ask
        })
    }

    /// Something suspicious was heard: asks soon.
    pub fn suspect(&mut self, now: Now) -> Option<ModeStep> {
        self.suspicious(now);
        self.ask(now)
    }

    /// The same, where the caller asks [`Self::ask`] next.
    pub fn suspicious(&mut self, now: Now) {
        if let Question::Due(at) = self.question {
            let soon = self.asked.map_or(now, |asked| asked.plus(GAP).max(now));
            self.question = Question::Due(at.min(soon));
        }
    }

    /// The question was answered, by nobody if `found` is `None`.
    pub fn answered(&mut self, found: Option<ForeignServer>, now: Now) -> Option<ModeStep> {
        self.settling = self.settling.filter(|settling| now < settling.until);
        let again = match self.settling {
            Some(_) => SETTLING_AGAIN,
            None => self.again,
        };
        let early = matches!(self.question, Question::Open { early: true, .. });
        self.question = Question::Due(if early { now } else { now.plus(again) });
        let mode = match (self.mode, found) {
            (Mode::Beside(old), Some(found)) if old.server == found.server => self.mode,
            (_, Some(found)) => Mode::Beside(found),
            (_, None) if early => self.mode,
            (_, None) => Mode::Alone,
        };
        let changed = mode != self.mode;
        self.mode = mode;
        if changed {
            return Some(ModeStep::Switch(mode));
        }
        // What was asked too early is asked again at once.
        self.ask(now)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
