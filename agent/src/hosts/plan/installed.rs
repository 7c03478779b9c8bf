//! From the first boot of the installed system on: waiting for a claim, taking its bootstrap data, running.

use std::time::Duration;

use super::{
    Action, Data, DesiredState, HostState, Node, Observed, PAUSE, Plan, Problem, Restart, Towards,
    annotations, failed,
};
use crate::hosts::ledger::Started;

/// An installed system asks every few seconds; a server boots within this time.
pub const BOOTS: Duration = Duration::from_mins(10);
/// It has asked so lately that it will ask again.
const ASKS: Duration = Duration::from_mins(1);

/// The system on the disk is the wanted one.
pub(super) fn active(o: &Observed) -> Plan {
    let staged = o
        .ledger
        .deployment
        .as_ref()
        .is_some_and(super::super::ledger::Deployment::is_staged);
    match &o.wanted.desired {
        Ok(DesiredState::Stage(_)) if staged => waiting(o),
        Ok(DesiredState::Install(install)) if staged => delivering(o, &install.data),
        Err(problem) if staged => waiting(o).problem(problem.clone()).boot_disk(),
        _ => installed(o),
    }
}

pub(super) fn asks(o: &Observed) -> bool {
    o.system
        .polled
        .is_some_and(|at| o.now.saturating_sub(at) < ASKS)
}

fn waiting(o: &Observed) -> Plan {
    let step = if asks(o) {
        "installed ahead of time; its system waits to be claimed"
    } else {
        "installed ahead of time; starting from its disk"
    };
    hung(o, Plan::new(HostState::Staged, step).boot_disk())
}

/// Its kernel was started without the firmware, and nothing was heard of it since.
pub(super) fn hangs(o: &Observed) -> bool {
    let started = o.ledger.written().map(|written| written.started);
    let answers = o.system.ssh_answers || asks(o) || o.ramdisk().is_some();
    started == Some(Started::Failed) && !answers
}

fn hung(o: &Observed, plan: Plan) -> Plan {
    if !hangs(o) {
        return plan;
    }
    let problem = Problem {
        what: format!(
            "its kernel was started without a restart (kexec), and its system has not answered within {} minutes, or not before its \
             firmware ran again",
            BOOTS.as_secs() / 60
        ),
        next: "switch the server off and on: it starts from its disk; other servers of its model are restarted from now on".to_owned(),
    };
    plan.problem(problem).boot_disk()
}

fn delivering(o: &Observed, data: &Data) -> Plan {
    let step = if asks(o) {
        "handing out its bootstrap data"
    } else {
        "claimed; waiting for its system to ask for its bootstrap data"
    };
    let plan = Plan {
        deliver: *data != Data::Drive,
        ..Plan::new(HostState::Provisioning, step).boot_disk()
    };
    if asks(o) || o.now.saturating_sub(o.since) < BOOTS {
        return plan;
    }
    let problem = Problem {
        what: format!(
            "its system has not asked for its bootstrap data for {} minutes",
            o.now.saturating_sub(o.since).as_secs() / 60
        ),
        next: "look at the server's screen; if it hangs, switch it off and on: it starts from its disk".to_owned(),
    };
    plan.problem(problem).boot_disk()
}

pub(super) fn installed(o: &Observed) -> Plan {
    let plan = if o.system.ssh_answers {
        Plan::new(HostState::Running, "its operating system answers")
    } else if o.ramdisk().is_some() && o.phase.is_none() {
        Plan::new(
            HostState::Provisioned,
            "in the ramdisk; told to start from its disk",
        )
    } else {
        Plan::new(HostState::Provisioned, "starting from its disk")
    };
    restarting(o, hung(o, plan.boot_disk()))
}

/// `reboot.metal3.io`: over SSH first, and if that fails by a person.
fn restarting(o: &Observed, mut plan: Plan) -> Plan {
    if o.ledger.done.contains(annotations::REBOOT) {
        plan.forget.push(annotations::REBOOT.to_owned());
    }
    let Some(asked) = o.wanted.restarts.first() else {
        return plan;
    };
    plan.restart = Some(Restart::Ssh(Towards::Disk));
    plan.step = format!("to be restarted, as `{asked}` asks");
    let Some(error) = o
        .system
        .restarts
        .error
        .filter(|_| o.system.restarts.failed > 0)
    else {
        return plan;
    };
    let problem = Problem {
        what: format!("its system could not be told to restart: {error}"),
        next: "switch the server off and on; the box keeps trying until it has seen it start"
            .to_owned(),
    };
    plan.problem(problem).boot_disk()
}

/// A host that carries a system of its owner's: it boots that one, and nothing is asked of it.
pub(super) fn external(o: &Observed) -> Plan {
    let step = if o.system.ssh_answers {
        "carries a system that nobody here installed; it answers"
    } else {
        "carries a system that nobody here installed"
    };
    Plan::new(HostState::External, step).boot_disk()
}

/// The disk holds a verified image, and Ironic does not know: it learns that without a write.
pub(super) fn adopting(o: &Observed, node: &Node, action: Action) -> Plan {
    let again = node.last_error.is_some() && action == Action::Adopt;
    let plan = Plan::new(
        HostState::Provisioned,
        "its image is on the disk; Ironic is told",
    );
    let plan = plan.boot_disk();
    if again && o.rests(PAUSE) {
        return match failed(o, "taking it over", node).problem {
            Some(problem) => plan.problem(problem).boot_disk(),
            None => plan,
        };
    }
    plan.act(action)
}
