//! The mirror that the system of a host runs on: when that system is looked at over SSH, and what is told of a disk that is lost. Who does
//! not answer says nothing: what was seen stays.

use std::time::Duration;

use firstlight_api::{
    bmh::ConditionStatus,
    mirror::{Mirror, Told},
    order::{DeploymentId, DiskId, RootDisk},
    status::{HostState, Problem},
};

use super::Host;
use crate::{
    hosts::{event::Call, ledger::Deployment},
    ssh::SshError,
};

/// Each look is a login.
const PAUSE: Duration = Duration::from_mins(10);
/// After one from which nothing came: a system that an older version installed cannot answer.
const LONG_PAUSE: Duration = Duration::from_hours(1);

/// What is known of it.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    call: Call,
    is_open: bool,
    not_before: Duration,
    /// As its system said last, and of which deployment.
    seen: Option<(Option<DeploymentId>, Mirror)>,
}

/// How it is.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorState {
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub says: String,
    pub problem: Option<Problem>,
}

impl Host {
    /// Both disks of the mirror that its system is installed on.
    fn halves(&self) -> Option<(&Deployment, [&RootDisk; 2])> {
        let held = self.ledger().written()?;
        let root = held.root.as_ref()?;
        Some((held, [&root.disk, root.mirror.as_deref()?]))
    }

    /// Its system is being looked at.
    pub fn is_mirror_asked(&self) -> bool {
        self.mirror.is_open
    }

    pub fn mirror_is_due(&self, now: Duration) -> bool {
        let runs = self
            .plan()
            .is_some_and(|plan| plan.state == HostState::Running && plan.restart.is_none());
        !self.mirror.is_open
            && now >= self.mirror.not_before
            && runs
            && self.system.answers(now)
            && self.halves().is_some()
    }

    pub fn asks_mirror(&mut self) -> Call {
        self.mirror.call += 1;
        self.mirror.is_open = true;
        self.mirror.call
    }

    /// True if it was asked that and has not answered.
    pub fn mirror_told(
        &mut self,
        call: Call,
        result: Result<Told, SshError>,
        now: Duration,
    ) -> bool {
        if !self.mirror.is_open || self.mirror.call != call {
            return false;
        }
        self.mirror.is_open = false;
        let id = self.halves().map(|(held, _)| held.id);
        let told = result.ok().and_then(|told| told.mirror);
        self.mirror.not_before = now + if told.is_some() { PAUSE } else { LONG_PAUSE };
        if let Some((id, mirror)) = id.zip(told) {
            self.mirror.seen = Some((id, mirror));
        }
        true
    }

    /// `None`: its system is on none.
    pub fn mirror_state(&self) -> Option<MirrorState> {
        let (held, halves) = self.halves()?;
        let seen = self.mirror.seen.as_ref().filter(|(of, _)| *of == held.id);
        Some(match seen {
            None => MirrorState {
                status: ConditionStatus::Unknown,
                reason: "NotSeen",
                says: "its running system has not said how its mirror is".to_owned(),
                problem: None,
            },
            Some((_, mirror)) => judge(mirror, halves),
        })
    }
}

fn judge(mirror: &Mirror, halves: [&RootDisk; 2]) -> MirrorState {
    if mirror.whole.len() >= halves.len() {
        return MirrorState {
            status: ConditionStatus::True,
            reason: "Whole",
            says: "both disks of its mirror hold its system".to_owned(),
            problem: None,
        };
    }
    let holds = |half: &&RootDisk| mirror.whole.iter().any(|disk| is_same(disk, &half.disk));
    let lost: Vec<&RootDisk> = halves.into_iter().filter(|half| !holds(half)).collect();
    let which = match lost[..] {
        [one] => format!("{one}, as it was called when it was written"),
        // Nothing tells its disks apart, or both were replaced.
        _ => "one of its disks".to_owned(),
    };
    let (reason, problem) = match mirror.filled {
        Some(percent) => (
            "Filling",
            Problem {
                what: format!("its mirror gets another disk in the place of {which}: {percent} % is filled"),
                next: "nothing; its system is on one disk until that is done".to_owned(),
            },
        ),
        None => (
            "DiskLost",
            Problem {
                what: format!("its mirror has lost {which}: its system runs on one disk"),
                next: "put in another disk that is as large, and run `sudo mdadm /dev/md127 --add /dev/sdX` on the server, with the name that the disk \
                       has there (docs/disks.md)"
                    .to_owned(),
            },
        ),
    };
    MirrorState {
        status: ConditionStatus::False,
        reason,
        says: format!("{}; {}", problem.what, problem.next),
        problem: Some(problem),
    }
}

/// Both sides read them in the same way; a driver of another kernel may know less.
fn is_same(one: &DiskId, other: &DiskId) -> bool {
    match (&one.serial, &other.serial, &one.wwn, &other.wwn) {
        (Some(one), Some(other), ..) | (_, _, Some(one), Some(other)) => one == other,
        _ => one.size_bytes == other.size_bytes,
    }
}
