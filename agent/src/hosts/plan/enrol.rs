//! Until a host is available: discovery, registration, inspection.

use super::{
    super::policy::{self, Verdict},
    Action, BootTarget, DesiredState, Directive, HostState, Inspection, MOST_TRIES, Node, Observed,
    PAUSE, Plan, PowerTarget, Problem, annotations, failed, power,
};

pub(super) fn unregistered(o: &Observed) -> Plan {
    // Ironic lost its memory, or the host was detached: what is on the disk is ours and stays.
    if o.ledger.written().is_some() {
        return Plan {
            boot: BootTarget::Disk,
            directive: Directive::BootDisk,
            ..Plan::new(HostState::Registering, "registering with Ironic").act(Action::Register)
        };
    }
    if o.ledger.removed {
        return removed(o);
    }
    if let Some(plan) = power::unregistered(o) {
        return plan;
    }
    let Some(report) = o.ramdisk() else {
        return Plan::new(
            HostState::Discovered,
            "seen on the network; its ramdisk has not reported",
        );
    };
    if let Some(problem) = o.barred {
        return Plan::new(HostState::Discovered, "left alone").problem(problem.clone());
    }
    if let (Err(problem), Ok(DesiredState::Idle)) = (o.image, &o.wanted.desired) {
        return Plan::new(HostState::Discovered, "cannot be installed").problem(problem.clone());
    }
    match policy::judge(
        o.policy,
        report,
        &o.wanted.root,
        o.ledger.under_way(),
        o.called,
    ) {
        Verdict::LeaveAlone(problem) => {
            Plan::new(HostState::Discovered, "left alone").problem(problem)
        }
        Verdict::Install(_) => {
            Plan::new(HostState::Registering, "registering with Ironic").act(Action::Register)
        }
    }
}

fn removed(o: &Observed) -> Plan {
    Plan::new(HostState::Discovered, "left alone").problem(Problem {
        what: "left alone: a person removed this host".to_owned(),
        next: format!(
            "nothing, if it shall stay away; to take it back, run `kubectl annotate bmh {} firstlight.internal/install=blank`",
            o.called
        ),
    })
}

/// The wish for another inspection is being granted.
pub(super) fn inspecting(o: &Observed, step: &str) -> Plan {
    let mut plan = Plan::new(HostState::Inspecting, step);
    if o.wanted.inspection == Inspection::Again {
        plan.forget.push(annotations::INSPECT.to_owned());
    }
    plan
}

pub(super) fn waiting(o: &Observed, node: &Node) -> Plan {
    let plan = inspecting(o, "waiting for the inventory").lookup(o);
    if o.wanted.inspection == Inspection::Never {
        return plan.act(Action::Abort);
    }
    if o.ramdisk().is_some() || !o.has_power(node) {
        return plan;
    }
    if o.is_long_silent() {
        return plan.act(Action::Abort);
    }
    // Whom Ironic inspects it has started from the network.
    if o.starts_from_cd(node) {
        return power::summon(o, node, plan);
    }
    plan
}

pub(super) fn manageable(o: &Observed, node: &Node) -> Plan {
    let plan = |step: &str| Plan::new(HostState::Inspecting, step);
    let due = match o.wanted.inspection {
        Inspection::Never => false,
        Inspection::Again => true,
        Inspection::Once => node.inspection_finished_at.is_none(),
    };
    if due && !o.ledger.leaving {
        return if o.ramdisk().is_some() || o.has_power(node) {
            plan("inspecting").act(Action::Inspect)
        } else {
            plan("waiting for its ramdisk")
        };
    }
    if !node.has_bmc() && node.power_state.as_deref() != Some("power on") {
        return plan("recording that it is switched on").act(Action::Switch(PowerTarget::On));
    }
    if o.is_unheard(node) {
        return plan("waiting for the first heartbeat of its ramdisk").lookup(o);
    }
    plan("making it available").lookup(o).act(Action::Provide {
        clean: o.ledger.leaving,
    })
}

pub(super) fn inspect_failed(o: &Observed, node: &Node) -> Plan {
    if o.wanted.inspection == Inspection::Never {
        return Plan::new(HostState::Inspecting, "its inspection is left out").act(Action::Manage);
    }
    if o.ledger.inspections >= MOST_TRIES && !o.tries_anew() {
        let plan = failed(o, "inspection", node);
        return match power::missing_ramdisk(o, node) {
            Some(problem) => plan.problem(problem),
            None => plan,
        };
    }
    if o.rests(PAUSE) {
        return Plan::new(
            HostState::Inspecting,
            "inspection failed, trying again soon",
        );
    }
    Plan::new(HostState::Inspecting, "inspecting again").act(Action::Manage)
}
