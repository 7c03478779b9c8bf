//! Which disk of a host gets an image, said before a byte is written.

use firstlight_api::{
    order::DiskPolicy,
    status::{HostState, Problem, RootDiskState, RootDiskStatus},
};

use super::Host;
use crate::hosts::{
    policy::{self, Verdict},
    root_disk::{self, Choice},
};

impl Host {
    /// `None` while nobody knows its disks.
    pub(super) fn root_disk(&self) -> Option<RootDiskStatus> {
        let ledger = self.ledger();
        let state = self.plan().map(|plan| plan.state).unwrap_or_default();
        if state == HostState::External {
            return Some(RootDiskStatus {
                state: RootDiskState::Nothing,
                says: "writes no disk".to_owned(),
                problem: Some(Problem {
                    what: "it carries a system that nobody here installed".to_owned(),
                    next: "nothing; to have it installed, take `externallyProvisioned` out of its spec"
                        .to_owned(),
                }),
            });
        }
        let (does, held) = match (&ledger.deployment, &ledger.gives_back) {
            (Some(held), _) if held.written => (RootDiskState::Wrote, held),
            (Some(held), _) if state == HostState::Provisioning => (RootDiskState::Writes, held),
            (None, Some(held)) => (RootDiskState::Wrote, held),
            _ => return self.would_write(),
        };
        let said = said(does, held.root.as_ref()?);
        // One that is given back is erased, whatever it has lost.
        let state = self.mirror_state();
        Some(RootDiskStatus {
            problem: state.and_then(|state| state.problem),
            ..said
        })
    }

    fn would_write(&self) -> Option<RootDiskStatus> {
        let report = self.ramdisk.report()?;
        let (wanted, under_way) = (&self.wanted().root, self.ledger().under_way());
        let policy = self.rules.policy;
        let problem = match policy::judge(policy, report, wanted, under_way, &self.called) {
            Verdict::Install(judgement) => {
                return Some(said(RootDiskState::Would, &judgement.root));
            }
            Verdict::LeaveAlone(problem) => problem,
        };
        // Whoever thinks of giving its data up reads here which.
        let wiped = root_disk::choose(report, DiskPolicy::Wipe, wanted, under_way);
        let says = match wiped {
            Ok(root) => format!(
                "writes no disk; `install: wipe` {}",
                said(RootDiskState::Would, &root).says
            ),
            Err(_) => "writes no disk".to_owned(),
        };
        Some(RootDiskStatus {
            state: RootDiskState::Nothing,
            says,
            problem: Some(problem),
        })
    }
}

fn said(state: RootDiskState, root: &Choice) -> RootDiskStatus {
    let does = match state {
        RootDiskState::Nothing | RootDiskState::Would => "would write",
        RootDiskState::Writes => "writes",
        RootDiskState::Wrote => "wrote",
    };
    RootDiskStatus {
        state,
        says: format!("{does} {root}: {}", root.why),
        problem: None,
    }
}
