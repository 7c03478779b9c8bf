//! What must outlive a power cut of one host: as it is on the disk, as it is known by now, and what waits until that is on the disk.
//! Pure: somebody else writes, and says how it went.
//!
//! What was seen ([`Memory::note`]) counts at once and is written soon. What must be written *before* something happens is a
//! [`Step`]: it goes on when its ledger is on the disk, and has never been if that could not be written.

use std::time::Duration;

use firstlight_api::status::Problem;

use super::{
    intent::Data,
    ledger::{Deployment, Ledger},
    plan::Action,
    token::Token,
};

/// Which answer belongs to which question.
pub type Ticket = u64;

/// After a failed write the next one waits: a disk that is full or broken is so for longer.
const PAUSE: Duration = Duration::from_secs(5);

/// Something that happens once it is written down.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The action begins.
    Act {
        action: Action,
        /// Public key, in base64, of the ramdisk that is to act.
        key: Option<String>,
        /// Made for this action, whether it is used or not.
        token: Token,
        /// The box had given up, and a person's word begins anew.
        anew: bool,
    },
    /// The deleted object goes: a person removed this host.
    Remove,
    /// Its bootstrap data were handed out for good.
    Delivered {
        token: Option<String>,
        ticket: Ticket,
    },
}

impl Step {
    fn note(&self, ledger: &mut Ledger) {
        match self {
            Self::Act {
                action,
                key,
                token,
                anew,
            } => begin(ledger, action, key.as_ref(), token, *anew),
            Self::Remove if ledger.passing => {
                *ledger = Ledger {
                    passing: true,
                    ..Ledger::default()
                };
            }
            Self::Remove => *ledger = ledger.once_removed(),
            Self::Delivered { token, .. } => {
                let current = ledger.deployment.as_mut();
                if let Some(deployment) = current.filter(|current| current.token == *token) {
                    deployment.delivered = true;
                    ledger.served = true;
                }
            }
        }
    }
}

/// What must be on the disk before `action` begins.
fn begin(ledger: &mut Ledger, action: &Action, key: Option<&String>, token: &Token, anew: bool) {
    match action {
        Action::Inspect => ledger.inspections += 1,
        Action::Manage if anew => (ledger.inspections, ledger.cleanings) = (0, 0),
        Action::Provide { .. } if ledger.leaving => ledger.cleanings += 1,
        Action::TearDown { clean } => {
            (ledger.released, ledger.leaving) = (true, true);
            // After a power cut before Ironic heard of it, it is told so again.
            if let Some(held) = ledger.deployment.take() {
                ledger.gives_back = Some(held);
            }
            ledger.cleanings += u32::from(clean.is_some());
        }
        Action::Deploy {
            install, judgement, ..
        } => {
            let (before, hash) = (ledger.deployment.take(), token.hash());
            (ledger.leaving, ledger.gives_back) = (false, None);
            ledger.deployment = Some(Deployment {
                key: key.cloned(),
                token: (install.data == Data::Endpoint).then(|| hash.clone()),
                root: Some(judgement.root.clone()),
                ..Deployment::next(before, &install.image, &judgement.free, &hash)
            });
        }
        _ => {}
    }
}

#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// On the disk.
    durable: Ledger,
    /// What is known.
    known: Ledger,
    queued: Vec<Step>,
    /// On its way to the disk.
    writing: Option<(Ledger, Vec<Step>)>,
    not_before: Duration,
    /// Why the last write failed.
    problem: Option<Problem>,
}

/// What is to be done about it now.
#[derive(Debug, PartialEq)]
pub enum Next {
    Nothing,
    Write(Box<Ledger>),
    /// What these wait for is on the disk already.
    Go(Vec<Step>),
}

impl Memory {
    /// As it was found on the disk.
    pub fn of(durable: Ledger) -> Self {
        Self {
            known: durable.clone(),
            durable,
            ..Self::default()
        }
    }

    pub fn known(&self) -> &Ledger {
        &self.known
    }

    pub fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// Who waits for an answer until something is on the disk.
    pub fn questions(&self) -> Vec<Ticket> {
        let written = self.writing.iter().flat_map(|(_, steps)| steps);
        let steps = written.chain(&self.queued);
        steps
            .filter_map(|step| match step {
                Step::Delivered { ticket, .. } => Some(*ticket),
                Step::Act { .. } | Step::Remove => None,
            })
            .collect()
    }

    /// All that is known is on the disk.
    pub fn is_kept(&self) -> bool {
        self.known == self.durable && self.writing.is_none()
    }

    /// The disk took nothing a moment ago.
    pub fn rests(&self, now: Duration) -> bool {
        now < self.not_before
    }

    /// Something was seen to be so.
    pub fn note(&mut self, seen: impl FnOnce(&mut Ledger)) {
        seen(&mut self.known);
    }

    /// Once: the same step is not queued twice.
    pub fn queue(&mut self, step: Step) {
        let writing = self.writing.iter().flat_map(|(_, steps)| steps);
        if !self
            .queued
            .iter()
            .chain(writing)
            .any(|known| *known == step)
        {
            self.queued.push(step);
        }
    }

    pub fn next(&mut self, now: Duration) -> Next {
        if self.writing.is_some() {
            return Next::Nothing;
        }
        let mut target = self.known.clone();
        for step in &self.queued {
            step.note(&mut target);
        }
        if target == self.durable {
            self.known = target;
            return match std::mem::take(&mut self.queued) {
                none if none.is_empty() => Next::Nothing,
                steps => Next::Go(steps),
            };
        }
        if self.queued.is_empty() && self.rests(now) {
            return Next::Nothing;
        }
        self.writing = Some((target.clone(), std::mem::take(&mut self.queued)));
        Next::Write(Box::new(target))
    }

    /// How the write of [`Next::Write`] went: the steps that go on, or that have failed.
    pub fn wrote(
        &mut self,
        result: Result<(), String>,
        now: Duration,
    ) -> Result<Vec<Step>, Vec<Step>> {
        let Some((ledger, steps)) = self.writing.take() else {
            return Ok(Vec::new());
        };
        match result {
            Ok(()) => {
                // More may have been seen meanwhile.
                for step in &steps {
                    step.note(&mut self.known);
                }
                (self.durable, self.problem) = (ledger, None);
                Ok(steps)
            }
            Err(error) => {
                self.not_before = now + PAUSE;
                self.problem = Some(unwritten(&error));
                Err(steps)
            }
        }
    }
}

fn unwritten(error: &str) -> Problem {
    Problem {
        what: format!("the state partition does not take what must outlive a power cut: {error}"),
        next: "the box tries again; if the partition is full or worn out, write the image to another stick".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn act(action: Action) -> Step {
        Step::Act {
            action,
            key: None,
            token: Token::of("token".into()),
            anew: false,
        }
    }

    /// Of a host whose system has the token with this hash.
    fn waiting_with(token: Option<&str>) -> Memory {
        Memory::of(Ledger {
            deployment: Some(Deployment {
                token: token.map(str::to_owned),
                ..Deployment::default()
            }),
            ..Ledger::default()
        })
    }

    fn written(next: Next) -> Ledger {
        match next {
            Next::Write(ledger) => *ledger,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_step_goes_on_when_its_ledger_is_on_the_disk_and_not_before() {
        let mut memory = Memory::default();
        memory.queue(act(Action::Inspect));
        let ledger = written(memory.next(NOW));
        assert_eq!(ledger.inspections, 1);
        assert_eq!(memory.known().inspections, 0, "it has not begun");
        assert_eq!(memory.next(NOW), Next::Nothing, "one write at a time");
        assert_eq!(memory.wrote(Ok(()), NOW), Ok(vec![act(Action::Inspect)]));
        assert_eq!(memory.known().inspections, 1);
        assert!(memory.is_kept());
    }

    #[test]
    fn a_step_whose_ledger_could_not_be_written_has_not_been() {
        let mut memory = Memory::default();
        memory.queue(act(Action::Inspect));
        written(memory.next(NOW));
        let failed = memory.wrote(Err("full".into()), NOW);
        assert_eq!(failed, Err(vec![act(Action::Inspect)]));
        assert!(memory.problem().unwrap().what.ends_with("cut: full"));
        assert_eq!(memory.next(NOW), Next::Nothing);
        assert_eq!(memory.known(), &Ledger::default());
    }

    #[test]
    fn what_changes_nothing_goes_on_at_once() {
        let mut memory = Memory::default();
        memory.queue(act(Action::Register));
        assert_eq!(memory.next(NOW), Next::Go(vec![act(Action::Register)]));
    }

    #[test]
    fn what_was_seen_while_something_is_written_is_written_after_it() {
        let mut memory = Memory::default();
        memory.queue(act(Action::Inspect));
        written(memory.next(NOW));
        memory.note(|ledger| ledger.has_object = true);
        memory.wrote(Ok(()), NOW).unwrap();
        assert!(!memory.is_kept());
        let ledger = written(memory.next(NOW));
        assert_eq!((ledger.inspections, ledger.has_object), (1, true));
        memory.wrote(Ok(()), NOW).unwrap();
        assert!(memory.is_kept());
    }

    #[test]
    fn what_was_seen_is_tried_again_after_a_pause() {
        let mut memory = Memory::default();
        memory.note(|ledger| ledger.newcomer = true);
        written(memory.next(NOW));
        memory.wrote(Err("full".into()), NOW).unwrap_err();
        assert!(memory.known().newcomer, "it was seen all the same");
        assert_eq!(memory.next(NOW), Next::Nothing);
        written(memory.next(NOW + PAUSE));
        memory.wrote(Ok(()), NOW + PAUSE).unwrap();
        assert_eq!(memory.problem(), None);
    }

    #[test]
    fn whose_disks_are_given_back_is_known_until_that_is_done() {
        let held = Deployment {
            written: true,
            ..Deployment::default()
        };
        let mut memory = Memory::of(Ledger {
            deployment: Some(held.clone()),
            ..Ledger::default()
        });
        // Twice: the power went before Ironic heard of the first.
        for _ in 0..2 {
            memory.queue(act(Action::TearDown { clean: None }));
            if let Next::Write(_) = memory.next(NOW) {
                memory.wrote(Ok(()), NOW).unwrap();
            }
            let ledger = memory.known();
            assert_eq!((ledger.written(), ledger.leaving), (None, true));
            assert_eq!(ledger.gives_back, Some(held.clone()));
        }
    }

    #[test]
    fn a_token_that_was_replaced_meanwhile_is_not_used_up() {
        let mut memory = waiting_with(Some("new"));
        let (token, ticket) = (Some("old".into()), 1);
        memory.queue(Step::Delivered { token, ticket });
        assert!(matches!(memory.next(NOW), Next::Go(_)));
        assert!(!memory.known().deployment.as_ref().unwrap().delivered);
    }

    #[test]
    fn a_newcomer_that_was_removed_comes_back_as_one() {
        let mut memory = Memory::of(Ledger {
            newcomer: true,
            has_object: true,
            ..Ledger::default()
        });
        memory.queue(Step::Remove);
        assert!(matches!(memory.next(NOW), Next::Write(_)));
        memory.wrote(Ok(()), NOW).unwrap();
        let ledger = memory.known();
        assert!(ledger.removed && ledger.newcomer && !ledger.has_object);
    }

    #[test]
    fn who_waits_for_the_disk_is_known_until_it_is_answered() {
        let token = Some("hash".to_owned());
        let mut memory = waiting_with(token.as_deref());
        let delivered = |ticket| Step::Delivered {
            token: token.clone(),
            ticket,
        };
        memory.queue(delivered(1));
        assert!(matches!(memory.next(NOW), Next::Write(_)));
        memory.queue(delivered(2));
        assert_eq!(memory.questions(), [1, 2], "one is on its way to the disk");
        assert_eq!(memory.wrote(Ok(()), NOW), Ok(vec![delivered(1)]));
        assert_eq!(memory.questions(), [2]);
    }

    #[test]
    fn that_a_cluster_was_there_is_known_after_its_last_host_was_given_back_or_removed() {
        let token = Some("hash".to_owned());
        let mut memory = waiting_with(token.as_deref());
        let steps = [
            Step::Delivered { token, ticket: 1 },
            act(Action::TearDown { clean: None }),
            Step::Remove,
        ];
        assert!(!memory.known().was_served());
        for step in steps {
            memory.queue(step.clone());
            written(memory.next(NOW));
            memory.wrote(Ok(()), NOW).unwrap();
            assert!(memory.known().was_served(), "{step:?}");
        }
    }
}
