//! Back to available, and away: a host without BMC has to come into the ramdisk for that, and its system has to be asked.

use std::time::Duration;

use firstlight_api::{
    account::USER,
    bmh::{AutomatedCleaningMode, annotations::DetachedDelete},
    verb::{CONFIRM_ANNOTATION, DEPARTURE_WINDOW_S, MOST_DEPARTURES},
};

use super::{
    super::{account::WORD, intent::DesiredState, policy},
    Action, HostState, Ironic, MOST_TRIES, Node, Observed, PAUSE, Plan, Problem,
    ProvisionState as S, Restart, Towards, failed, installed, power, registered,
};

/// From the moment in which nothing else is to be done for a deleted host.
const ACCOUNT_STAYS: Duration = Duration::from_mins(30);
/// A ramdisk that runs has done it by then.
const SOON: Duration = Duration::from_mins(3);

/// What is on the disk, or on its way there, is not wanted any more.
pub(super) fn come_back(o: &Observed, node: &Node) -> Plan {
    let state = HostState::Deprovisioning;
    let in_use = o.ledger.written().filter(|held| !held.is_staged());
    if in_use.is_some() && !o.ledger.may_leave() {
        return held(o);
    }
    if let Some(report) = o.ramdisk() {
        let held = o.ledger.deployment.as_ref();
        let held = held.or(o.ledger.gives_back.as_ref());
        let clean = match o.wanted.cleaning {
            AutomatedCleaningMode::Disabled => None,
            AutomatedCleaningMode::Metadata => {
                match policy::give_back(o.policy, report, held, o.clean, o.called) {
                    Ok(order) => Some(order),
                    Err(problem) => {
                        return Plan::new(state, "its disks are not as they were installed")
                            .problem(problem);
                    }
                }
            }
        };
        return Plan::new(state, "its system is taken away").act(Action::TearDown { clean });
    }
    if node.provision_state != S::Active {
        return waiting(o, node, state);
    }
    let staged = o
        .ledger
        .deployment
        .as_ref()
        .is_some_and(super::super::ledger::Deployment::is_staged);
    let boots = |at| o.now.saturating_sub(at) < installed::BOOTS;
    if staged && o.system.polled.is_some_and(boots) {
        let plan = Plan::new(state, "its system is told to restart from the network");
        return Plan {
            restart: Some(Restart::Endpoint),
            ..plan
        };
    }
    if o.system.restarts.accepted.is_some_and(boots) {
        let plan = if o.ledger.returns {
            Plan::new(state, "its system ends, and starts the ramdisk (kexec)")
        } else {
            Plan::new(state, "its system restarts from the network")
        };
        return Plan {
            restart: Some(Restart::Taken),
            ..plan
        };
    }
    let plan = Plan {
        restart: Some(Restart::Ssh(Towards::Network)),
        ..Plan::new(state, asks(o))
    };
    let plan = if o.system.restarts.failed == 0 {
        plan
    } else {
        plan.problem(ask(o))
    };
    power::summon(o, node, plan)
}

/// More hosts than one error may take are to be given back: this one keeps its system until somebody lets it go.
fn held(o: &Observed) -> Plan {
    let plan = installed::installed(o);
    let name = o.called;
    let bare = name.split(' ').next().unwrap_or(name);
    let problem = Problem {
        what: format!(
            "it shall be given back, and keeps its system until a person says its name: more than {MOST_DEPARTURES} hosts within {} minutes may be a \
             mistake",
            DEPARTURE_WINDOW_S / 60
        ),
        next: format!(
            "if it is meant, run `firstlight hosts give-back {bare} --yes-all-of {bare}`, or `kubectl annotate bmh {name} {CONFIRM_ANNOTATION}={bare}`; \
             otherwise give it its image back (docs/hosts.md)"
        ),
    };
    let step = "it shall be given back, and waits for its name".to_owned();
    let held = true;
    Plan {
        step,
        held,
        ..plan.problem(problem).boot_disk()
    }
}

/// In states in which Ironic itself waits for the ramdisk, and lets nobody switch the power.
fn waiting(o: &Observed, node: &Node, state: HostState) -> Plan {
    let plan = Plan::new(state, "waiting for its ramdisk");
    match node.provision_state {
        S::DeployFailed => power::summon(o, node, plan),
        S::DeployWait if o.has_power(node) => plan.act(Action::Release),
        _ => plan,
    }
}

fn asks(o: &Observed) -> String {
    let asks = "its system is asked over SSH to restart from the network";
    match o.system.restarts.refused {
        Some(reason) => format!("{asks}, for kexec does not do here: {reason}"),
        None => asks.to_owned(),
    }
}

fn ask(o: &Observed) -> Problem {
    let reason = match (o.system.restarts.error, o.system.restarts.accepted) {
        (_, Some(_)) => "it took the order and did not come back",
        (Some(error), None) => error,
        (None, None) => "nothing answers",
    };
    Problem {
        what: format!(
            "it has to start from the network, and its system could not be brought to it: {reason}"
        ),
        next: format!(
            "switch the server off and on and choose network boot; if it is gone for good, run `kubectl annotate bmh {} \
             baremetalhost.metal3.io/detached='{{\"force\": true}}'`, then delete it",
            o.called
        ),
    }
}

pub(super) fn cleaning(o: &Observed, node: &Node, state: HostState) -> Plan {
    let gone = o.ramdisk().is_none() && o.has_power(node) && o.is_long_silent();
    if o.lost_token() || gone {
        return Plan::new(state, "starting over")
            .lookup(o)
            .act(Action::Abort);
    }
    let plan = Plan::new(state, "erasing metadata").lookup(o);
    if o.ramdisk().is_some() || o.report.is_none() {
        return plan;
    }
    plan.problem(Problem {
        what: "its ramdisk has been silent for more than 100 s while its disks were cleaned"
            .to_owned(),
        next: "look at the server's screen, or switch it off and on: the cleaning starts again"
            .to_owned(),
    })
}

pub(super) fn clean_failed(o: &Observed, node: &Node, state: HostState) -> Plan {
    if o.ledger.cleanings >= MOST_TRIES && !o.tries_anew() {
        return failed(o, "cleaning", node);
    }
    if o.rests(PAUSE) {
        return Plan::new(state, "cleaning failed, trying again soon");
    }
    Plan::new(state, "starting over").act(Action::Manage)
}

/// Its object was deleted: it leaves clean, unless that is switched off, and then for good.
pub(super) fn deleted(o: &Observed) -> Plan {
    let deleting = |step: &str| Plan::new(HostState::Deleting, step);
    let node = match o.ironic {
        Ironic::Unknown => return deleting("waiting for Ironic to come up"),
        Ironic::Absent if o.waits_for_account() => {
            let plan = Plan {
                ends_account: true,
                ..deleting("its account is taken out of its BMC")
            };
            let is_at_work = o.ramdisk().is_some() && o.is_within(SOON);
            return if is_at_work {
                plan
            } else {
                plan.problem(account_stays(o))
            };
        }
        Ironic::Absent => {
            return Plan {
                release: true,
                ..deleting("forgotten")
            };
        }
        Ironic::Node(node) => node,
    };
    let kept = o.wanted.cleaning == AutomatedCleaningMode::Disabled;
    let busy = node.reservation.is_some();
    let idle = matches!(
        node.provision_state,
        S::Enroll | S::Manageable | S::Available | S::AdoptFailed | S::InspectFailed
    );
    let empty =
        o.ledger.written().is_none() && !(o.ledger.leaving && node.provision_state != S::Available);
    if (kept || (idle && empty)) && !busy {
        let plan = deleting("Ironic is told to forget it").act(Action::Unregister);
        return if kept { plan.keep_disk(o) } else { plan };
    }
    match node.provision_state {
        S::InspectWait => deleting("ending the inspection").act(Action::Abort),
        S::Inspecting | S::Verifying | S::Enroll => deleting("waiting for Ironic"),
        _ => registered(o, node),
    }
}

impl Observed<'_> {
    /// For so long a deleted object is kept for the account in its BMC, of a server that nobody leaves as it is.
    fn waits_for_account(&self) -> bool {
        let is_left = self.wanted.cleaning == AutomatedCleaningMode::Disabled;
        self.owes_account && !is_left && self.is_within(ACCOUNT_STAYS)
    }

    /// Of its state.
    fn is_within(&self, time: Duration) -> bool {
        self.now.saturating_sub(self.since) < time
    }
}

fn account_stays(o: &Observed) -> Problem {
    let (minutes, name) = (ACCOUNT_STAYS.as_secs() / 60, o.called);
    Problem {
        what: "the box's account is still in its BMC, and only its ramdisk can take it out"
            .to_owned(),
        next: format!(
            "start the server from the network; if it is gone, or the account shall stay, run `kubectl annotate --overwrite bmh {name} {WORD}=leave`. \
             After {minutes} minutes the object goes, and the account `{USER}` stays in the BMC: take it out on the BMC's own page"
        ),
    }
}

/// Ironic forgets it, and nobody disturbs the host. In the middle of an operation only if that is forced.
pub(super) fn detached(o: &Observed) -> Option<Plan> {
    let detached = o.wanted.detached?;
    let plan = Plan::new(
        HostState::Detached,
        "detached: it goes on by itself, and nothing is done to it",
    )
    .keep_disk(o);
    let gone = o.wanted.desired == Ok(DesiredState::Gone);
    match o.ironic {
        Ironic::Unknown => Some(plan),
        Ironic::Absent => Some(Plan {
            release: gone && detached.delete_action == DetachedDelete::Delete,
            ..plan
        }),
        Ironic::Node(node) => {
            let calm = matches!(
                node.provision_state,
                S::Active | S::Available | S::Manageable
            );
            (calm || detached.force).then(|| plan.act(Action::Unregister))
        }
    }
}

/// Its object was moved to another management cluster, whose server it is now.
pub(super) fn moved(o: &Observed) -> Plan {
    let step = "moved to another management cluster: nothing is done to it";
    let plan = Plan::new(HostState::Detached, step);
    let plan = match o.ironic {
        Ironic::Node(_) => plan.act(Action::Unregister),
        Ironic::Unknown | Ironic::Absent => plan.problem(Problem {
            what: "its BareMetalHost was moved to another management cluster".to_owned(),
            next:
                "nothing, if its server is run from there; to take it back, apply the object here"
                    .to_owned(),
        }),
    };
    plan.keep_disk(o)
}

impl Plan {
    /// It boots whatever it has.
    fn keep_disk(self, o: &Observed) -> Self {
        if o.ledger.written().is_some() || o.wanted.desired == Ok(DesiredState::External) {
            return self.boot_disk();
        }
        self
    }
}
