//! The account, by the running system of a host: when the box asks it over SSH, and what it makes of the answer. What the answer means
//! for the account is the same as what a ramdisk says.

use std::time::Duration;

use firstlight_api::{
    account::{Ask, Bmc, Order, Outcome, Told},
    status::{HostState, Problem},
};

use super::REST;
use crate::{
    hosts::{
        account::{self, DesiredAccount, Named, WORD},
        event::Call,
        host::Host,
        plan,
    },
    ssh::SshError,
};

/// After an answer by which nothing is left to do: each is a login, and may be a BMC that got another address.
const STEADY: Duration = Duration::from_hours(1);
/// After the first answer by which something is; each next time twice as long.
const SOON: Duration = Duration::from_secs(15);
const LATEST: Duration = Duration::from_hours(6);
/// Doublings from [`SOON`] past [`LATEST`].
const MOST_TRIES: u32 = 11;

/// What was asked of the running system, and what is next.
#[derive(Clone, Debug, Default)]
pub struct Inquiry {
    /// What for; another begins anew.
    wanted: Option<DesiredAccount>,
    call: Call,
    /// Nobody has answered the last call, or written down what came of it.
    is_open: bool,
    next: Ask,
    not_before: Duration,
    tries: u32,
    /// Why it could not be asked.
    trouble: Option<Problem>,
}

impl Inquiry {
    /// Something else runs on the machine now: what an older call says is over.
    pub fn is_over(&mut self) {
        *self = Self {
            call: self.call,
            ..Self::default()
        };
    }

    fn waits(&mut self, pause: Duration, now: Duration) {
        (self.is_open, self.next) = (false, Ask::Look);
        self.not_before = now + pause;
    }

    fn tries_again(&mut self, now: Duration) {
        let pause = SOON.saturating_mul(1 << self.tries.min(MOST_TRIES));
        self.tries += 1;
        self.waits(pause.min(LATEST), now);
    }
}

impl Host {
    /// It was asked, and has not answered yet.
    pub fn is_system_asked(&self) -> bool {
        self.remote.account.asked.is_open
    }

    /// Is its running system to be asked something now?
    pub fn ask_is_due(&mut self, now: Duration) -> bool {
        let wanted = self.desired_account();
        let asked = &mut self.remote.account.asked;
        if asked.wanted != Some(wanted) && !asked.is_open {
            asked.is_over();
            asked.wanted = Some(wanted);
        }
        let rests = asked.is_open || now < asked.not_before;
        !rests && self.may_be_called(wanted, now)
    }

    /// Only a system that the box has installed lets it in, and none is disturbed that is on its way somewhere.
    fn may_be_called(&self, wanted: DesiredAccount, now: Duration) -> bool {
        let named = self.object.as_deref().map(account::named);
        let is_wanted = match wanted {
            DesiredAccount::Nothing => false,
            DesiredAccount::Create => named != Some(Named::Theirs),
            DesiredAccount::Remove => true,
        };
        let runs = |plan: &plan::Plan| plan.state == HostState::Running && plan.restart.is_none();
        is_wanted
            && self.address.is_some()
            && self.plan().is_some_and(runs)
            && self.ledger().written().is_some()
            && self.system.answers(now)
            && self.account_waits().is_none()
    }

    pub fn asks_system(&mut self) -> (Call, Ask) {
        let asked = &mut self.remote.account.asked;
        asked.call += 1;
        asked.is_open = true;
        (asked.call, asked.next)
    }

    /// Is this the call whose answer is waited for?
    pub fn is_last_call(&self, call: Call) -> bool {
        let asked = &self.remote.account.asked;
        asked.is_open && asked.call == call
    }

    /// What it says of its BMC. An error is why it says nothing; then it is asked again.
    pub fn system_told(
        &mut self,
        result: Result<Told, SshError>,
        now: Duration,
    ) -> Option<(Bmc, Outcome)> {
        let trouble = match result {
            Ok(Told {
                bmc: None,
                outcome: Outcome::Ready,
            }) => none(),
            Ok(told) => {
                self.remote.account.asked.trouble = None;
                return Some((told.bmc.unwrap_or_default(), told.outcome));
            }
            Err(error) => {
                if matches!(error, SshError::Refused(_) | SshError::NoKey) {
                    // By itself this does not change.
                    self.remote.account.asked.tries = MOST_TRIES;
                }
                unasked(&error)
            }
        };
        let asked = &mut self.remote.account.asked;
        asked.trouble = Some(trouble);
        asked.tries_again(now);
        None
    }

    /// What follows from that, where nothing is to be written.
    pub fn system_goes_on(&mut self, order: Order, now: Duration) {
        let has_trouble = self.remote.account.trouble.is_some();
        let asked = &mut self.remote.account.asked;
        match order {
            Order::Make => (asked.is_open, asked.next) = (false, Ask::Make),
            Order::Remove => (asked.is_open, asked.next) = (false, Ask::Remove),
            Order::Rest { seconds } if seconds >= REST && !has_trouble => {
                asked.tries = 0;
                asked.waits(STEADY, now);
            }
            // A password that could not be kept is nobody's: another one is made.
            Order::Rest { .. } | Order::Repeat { .. } | Order::Again => asked.tries_again(now),
        }
    }

    /// Why its system could not be asked, as far as that matters.
    pub(super) fn system_trouble(&self) -> Option<&Problem> {
        let trouble = self.remote.account.asked.trouble.as_ref()?;
        let has_none = *trouble == none();
        let word = self.object.as_ref()?.metadata.annotations.get(WORD);
        // A rule is for servers of a kind; whoever means this one wants to know.
        (!has_none || word.is_some_and(|word| word == "create")).then_some(trouble)
    }
}

fn none() -> Problem {
    Problem {
        what: "its system sees no BMC: the driver ipmi_si finds none".to_owned(),
        next: "if it has one, switch it on in the server's firmware, or name it in `spec.bmc`"
            .to_owned(),
    }
}

fn unasked(error: &SshError) -> Problem {
    let next = match error {
        SshError::Refused(_) | SshError::NoKey => {
            "its image has no login of the box that may do this, or an older version installed it: the account is made when the \
             server runs its ramdisk the next time; or name the BMC in `spec.bmc`"
        }
        SshError::HostKeyMismatch { .. } => "the box asks again once the host key fits",
        _ => "the box asks again by itself, each time twice as long after",
    };
    Problem {
        what: format!("its running system could not be asked for its BMC: {error}"),
        next: next.to_owned(),
    }
}
