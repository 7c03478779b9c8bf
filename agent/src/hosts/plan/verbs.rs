//! What decides which verbs a host takes now: the step that failed, and what is on its disk or happens to it.

use firstlight_api::{
    bmh::ErrorType,
    verb::{CONFIRM_ANNOTATION, KEXEC_ANNOTATION, RETRY_ANNOTATION},
};

use super::{Action, DiskUse, FailedStep, Ironic, Observed, Plan, ProvisionState as S};

pub(super) fn add(o: &Observed, plan: &mut Plan) {
    let refused = plan.action.as_ref().filter(|_| o.refused);
    let unregistered = plan.fault == Some(ErrorType::Registration);
    plan.failed = failed(o)
        .or_else(|| step_of(refused?))
        .or_else(|| unregistered.then_some(FailedStep::Registration));
    plan.disk = disk(o);
    for taken in [RETRY_ANNOTATION, KEXEC_ANNOTATION] {
        if o.ledger.done.contains(taken) {
            plan.forget.push(taken.to_owned());
        }
    }
    if o.wanted.confirmed && o.ledger.may_leave() {
        plan.forget.push(CONFIRM_ANNOTATION.to_owned());
    }
}

/// By the state of Ironic's node.
fn failed(o: &Observed) -> Option<FailedStep> {
    let Ironic::Node(node) = o.ironic else {
        return None;
    };
    let is_written = o.ledger.written().is_some();
    let erred = node.last_error.is_some();
    match &node.provision_state {
        S::Enroll if erred => Some(FailedStep::Registration),
        S::InspectFailed => Some(FailedStep::Inspection),
        S::DeployFailed if o.keeps() && !is_written => Some(FailedStep::Installation),
        S::CleanFailed | S::Error => Some(FailedStep::Cleaning),
        S::AdoptFailed => Some(FailedStep::Adoption),
        S::Manageable if is_written && erred => Some(FailedStep::Adoption),
        _ => None,
    }
}

/// To which step an action belongs that Ironic did not take.
fn step_of(action: &Action) -> Option<FailedStep> {
    match action {
        Action::Register | Action::Connect | Action::Disconnect => Some(FailedStep::Registration),
        Action::Inspect => Some(FailedStep::Inspection),
        Action::Deploy { .. } | Action::Release => Some(FailedStep::Installation),
        Action::Provide { .. } | Action::TearDown { .. } => Some(FailedStep::Cleaning),
        Action::Adopt | Action::Retract => Some(FailedStep::Adoption),
        _ => None,
    }
}

impl Action {
    /// A step that failed has begun again with it.
    pub fn begins_step(&self) -> bool {
        matches!(
            self,
            Self::Register
                | Self::Manage
                | Self::Inspect
                | Self::Deploy { .. }
                | Self::Release
                | Self::Provide { .. }
                | Self::TearDown { .. }
                | Self::Adopt
                | Self::Retract
        )
    }
}

/// Who is silent does nothing any more.
fn disk(o: &Observed) -> DiskUse {
    let works = o.ramdisk().is_some();
    let written = o.ledger.written();
    match o.ironic {
        Ironic::Unknown if works && o.phase.is_some() && written.is_none() => {
            return DiskUse::Writing;
        }
        Ironic::Node(node) if works => match &node.provision_state {
            S::Deploying | S::DeployWait if written.is_none() => return DiskUse::Writing,
            S::Deleting | S::Cleaning | S::CleanWait if o.ledger.leaving => {
                return DiskUse::Erasing;
            }
            _ => {}
        },
        _ => {}
    }
    match written {
        Some(deployment) if deployment.is_staged() => DiskUse::Staged,
        Some(_) => DiskUse::Installed,
        None => DiskUse::Free,
    }
}
