//! The table of states: from what is known of one host to what is shown, what it boots, what its ramdisk is told, and the
//! one thing to do next. Pure, and safe to ask again at any time: after a restart it says the same.
//!
//! [`plan`] goes from what stands above everything (paused, detached, deleted, not ours) to the states of Ironic;
//! `enrol`: until a host is available; `install`: until the image is on its disk; `installed`: from there on;
//! `leave`: back to available, and away; `power`: what a BMC adds to all of them; `verbs`: what people may ask of it now.

mod enrol;
mod install;
mod installed;
mod leave;
mod power;
#[cfg(test)]
mod tests;
mod verbs;

use std::time::Duration;

use firstlight_api::{
    bmh::{
        ErrorType,
        annotations::{self, Inspection},
    },
    order::DiskOrder,
    report::{Directive, LookupState, Phase, Report},
    site::{Clean, InstallPolicy},
    status::{DiskUse, FailedStep, HostState, Problem},
};
use firstlight_ironic::{Node, PowerTarget, ProvisionState};
use firstlight_netboot::BootTarget;

pub use installed::BOOTS;

use super::{
    bmc::Start,
    image::{NodeImage, same_digest},
    intent::{Data, DesiredState, Install, Intent},
    ledger::Ledger,
    policy::Judgement,
};
use crate::ssh::Towards;

/// Deployments, inspections and cleanings of one host before a person is asked.
pub const MOST_ATTEMPTS: u64 = 3;
const MOST_TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(10);
/// The first heartbeat comes a few seconds after the registration.
const HEARD_WITHIN: Duration = Duration::from_secs(20);
/// A ramdisk reports every 30 s while it is registered.
const SILENT: Duration = Duration::from_secs(100);
/// The fault of a node whose BMC is silent.
const POWER_FAILURE: &str = "power failure";
/// The longest that firmware takes until a ramdisk can report.
const LONG_SILENT: Duration = Duration::from_mins(10);

/// Marks in the node's `extra`: they outlive a restart.
pub const EXTRA_MAC: &str = "firstlight_mac";
pub const EXTRA_ATTEMPT: &str = "firstlight_attempt";
/// A CD of ours is, or may be, in the virtual drive of its BMC.
pub const EXTRA_CD: &str = "firstlight_cd";
/// Of the BMC that Ironic has been told of, and has found to be one.
pub const EXTRA_BMC: &str = "firstlight_bmc";

/// What Ironic says of a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ironic<'a> {
    /// It has not been asked yet.
    Unknown,
    Absent,
    Node(&'a Node),
}

/// Everything that is known of one host.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    pub now: Duration,
    /// As `kubectl` is told which host is meant.
    pub called: &'a str,
    pub policy: InstallPolicy,
    pub clean: Option<Clean>,
    /// The ramdisk's last report, and when it came.
    pub report: Option<(&'a Report, Duration)>,
    /// Where the ramdisk of that report is.
    pub phase: Option<&'a Phase>,
    pub ironic: Ironic<'a>,
    /// Since when the node has been in its state.
    pub node_since: Duration,
    /// Since when it has been in the state that is shown.
    pub since: Duration,
    pub wanted: &'a Intent,
    pub ledger: &'a Ledger,
    pub system: System<'a>,
    pub image: Result<&'a NodeImage, &'a Problem>,
    /// The boot of the ramdisk at which we gave up; the next one is a person's word to try again.
    pub gave_up: Option<&'a str>,
    /// Ironic did not take the last action.
    pub refused: bool,
    /// Why it is not taken: what it has keeps, and nothing new is given to it.
    pub barred: Option<&'a Problem>,
    pub remote: Remote<'a>,
    /// An account of the box's is in its BMC, and is to be taken out of it before its object goes.
    pub owes_account: bool,
}

/// Who switches it on and off besides people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Remote<'a> {
    /// Its object has not been seen since the start.
    #[default]
    Unknown,
    /// Nobody; it restarts itself.
    None,
    /// What is named cannot be used.
    Unusable(&'a Problem),
    Named(Bmc<'a>),
}

/// The BMC that its object names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bmc<'a> {
    /// In the node's `extra` once Ironic has been told of it.
    pub mark: &'a str,
    /// Why it did not do what it was told the last time.
    pub failed: Option<&'a Problem>,
    /// It answered the box when Ironic was told of it.
    pub heard: bool,
    /// How it starts the server into the ramdisk.
    pub start: Start,
    /// When it has started it so; no ramdisk has reported since.
    pub summoned: Option<Duration>,
    /// It has asked the system to end.
    pub asked_to_end: bool,
}

/// Its installed system, as it is met from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct System<'a> {
    pub ssh_answers: bool,
    /// When it asked for bootstrap data last.
    pub polled: Option<Duration>,
    pub restarts: RestartOrders<'a>,
}

/// What came of telling its installed system over SSH to restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestartOrders<'a> {
    pub accepted: Option<Duration>,
    pub failed: u32,
    /// Of the last that failed.
    pub error: Option<&'a str>,
    /// Why it did not start the ramdisk by itself.
    pub refused: Option<&'a str>,
}

/// One thing to do on Ironic. Each may be done twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Node, ports, `manage`.
    Register,
    /// Ironic is told of the BMC, which has to answer.
    Connect,
    /// There is no BMC any more.
    Disconnect,
    /// The BMC starts it into the ramdisk, whatever it does.
    Summon,
    /// The BMC lets go of the CD from which the ramdisk was started.
    Eject,
    /// On or off; only recorded where there is no BMC.
    Switch(PowerTarget),
    Inspect,
    /// Cleaned again, if that was not finished, or as it is.
    Provide {
        clean: bool,
    },
    /// Image and marks, then `active`.
    Deploy {
        attempt: u64,
        judgement: Box<Judgement>,
        install: Box<Install>,
    },
    /// `active` for what is on the disk already, without a write.
    Adopt,
    /// Back towards `available`, without a touch of the disk, to be adopted.
    Retract,
    /// Back to `available`, by way of a cleaning of these disks or none.
    TearDown {
        clean: Option<DiskOrder>,
    },
    /// That Ironic itself set after a failed cleaning, or the box for a change of the driver.
    EndMaintenance,
    /// Ironic forgets the host, whatever it is doing.
    Unregister,
    /// A recorded reboot, so that the ramdisk gets a new token.
    ForgetToken,
    Manage,
    Abort,
    /// End a deployment that waits for a ramdisk that is gone.
    Release,
}

/// Who is to tell an installed system to restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The bootstrap endpoint, when the system asks there the next time.
    Endpoint,
    Ssh(Towards),
    /// Nobody: it has taken the order.
    Taken,
}

#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that hold or do not, each by itself"
)]
pub struct Plan {
    pub state: HostState,
    /// What is happening, as a sentence without a full stop.
    pub step: String,
    pub percent: Option<u8>,
    pub problem: Option<Problem>,
    /// What kind of problem that is, if its place among the states does not say so.
    pub fault: Option<ErrorType>,
    pub directive: Directive,
    pub boot: BootTarget,
    pub action: Option<Action>,
    pub restart: Option<Restart>,
    /// Its bootstrap data may be handed out.
    pub deliver: bool,
    /// Its deleted object may go.
    pub release: bool,
    /// Nothing else needs its account any more.
    pub ends_account: bool,
    /// Annotations that were done.
    pub forget: Vec<String>,
    /// The step that failed, and would begin again.
    pub failed: Option<FailedStep>,
    pub disk: DiskUse,
    /// It shall be given back, and nobody has let it go.
    pub held: bool,
}

impl Plan {
    /// Ramdisk, which waits a moment and asks again; nothing to do.
    fn new(state: HostState, step: impl Into<String>) -> Self {
        let step = step.into();
        Self {
            state,
            directive: Directive::Wait {
                seconds: 2,
                reason: step.clone(),
            },
            step,
            percent: None,
            problem: None,
            fault: None,
            boot: BootTarget::Ramdisk,
            action: None,
            restart: None,
            deliver: false,
            release: false,
            ends_account: false,
            forget: Vec::new(),
            failed: None,
            disk: DiskUse::Free,
            held: false,
        }
    }

    fn act(mut self, action: Action) -> Self {
        self.action = Some(action);
        self
    }

    /// The ramdisk asks Ironic for its own node.
    fn lookup(mut self, o: &Observed) -> Self {
        if let Ironic::Node(node) = o.ironic {
            self.directive = Directive::Lookup {
                node: node.uuid.clone(),
            };
        }
        self
    }

    fn problem(mut self, problem: Problem) -> Self {
        self.directive = Directive::Wait {
            seconds: 15,
            reason: problem.what.clone(),
        };
        self.problem = Some(problem);
        self
    }

    fn boot_disk(mut self) -> Self {
        self.directive = Directive::BootDisk;
        self.boot = BootTarget::Disk;
        self
    }
}

impl<'a> Observed<'a> {
    /// The report of a ramdisk that is there now.
    fn ramdisk(&self) -> Option<&'a Report> {
        self.report
            .filter(|(_, at)| self.now.saturating_sub(*at) < SILENT)
            .map(|(report, _)| report)
    }

    /// Whoever can switch it on waits no longer.
    fn is_long_silent(&self) -> bool {
        let heard = self
            .report
            .map_or(self.node_since, |(_, at)| at.max(self.node_since));
        self.now.saturating_sub(heard) > LONG_SILENT
    }

    /// Ironic has not heard the ramdisk that is registered with it, and will in a moment. It takes a fast way with one that it has heard; another
    /// one is switched off for it: it restarts the server for the record, and the token of the ramdisk is void.
    fn is_unheard(&self, node: &Node) -> bool {
        let is_registered = self
            .ramdisk()
            .is_some_and(|report| report.lookup == LookupState::Registered);
        is_registered && node.agent().is_none() && self.rests(HEARD_WITHIN)
    }

    /// Ironic waits in vain: somebody restarted the server before the ramdisk was told to go.
    fn has_left_the_ramdisk(&self) -> bool {
        self.lost_token()
            || self.ramdisk().is_none() && (self.system.ssh_answers || !self.rests(SILENT))
    }

    fn lost_token(&self) -> bool {
        self.ramdisk()
            .is_some_and(|report| report.lookup == LookupState::TokenLost)
    }

    /// A person's word to begin again: it was switched on again since we gave up, or its annotation says so.
    fn tries_anew(&self) -> bool {
        let boot = self.ramdisk().map(|report| report.boot_id.as_str());
        self.ledger.retry || boot.is_some() && self.gave_up.is_some_and(|given| Some(given) != boot)
    }

    /// Is what is on the disk, or on its way there, what is wanted?
    fn keeps(&self) -> bool {
        if self.ledger.leaving {
            return false;
        }
        let Some(deployment) = &self.ledger.deployment else {
            return true;
        };
        match &self.wanted.desired {
            // A claim that cannot be understood takes nothing away.
            Err(_) | Ok(DesiredState::Unknown | DesiredState::External | DesiredState::Moved) => {
                true
            }
            Ok(DesiredState::Idle | DesiredState::Gone) => false,
            Ok(DesiredState::Stage(install)) => {
                self.wanted.inspection != Inspection::Again
                    && deployment.is_staged()
                    && same_digest(&install.image, &deployment.image)
            }
            Ok(DesiredState::Install(install)) => same_digest(&install.image, &deployment.image),
        }
    }

    fn rests(&self, pause: Duration) -> bool {
        !self.ledger.retry && self.now.saturating_sub(self.node_since) < pause
    }
}

pub fn plan(o: &Observed) -> Plan {
    let mut plan = decide(o);
    verbs::add(o, &mut plan);
    if let Some(by) = &o.wanted.paused {
        (plan.action, plan.restart, plan.release) = (None, None, false);
        plan.forget = Vec::new();
        plan.held = false;
        (plan.problem, plan.fault) = (None, None);
        plan.step = format!("paused by {by}; was: {}", plan.step);
    }
    plan
}

fn decide(o: &Observed) -> Plan {
    if let Some(plan) = leave::detached(o) {
        return plan;
    }
    match (&o.wanted.desired, o.ironic) {
        (Ok(DesiredState::Gone), _) => leave::deleted(o),
        (Ok(DesiredState::Moved), _) => leave::moved(o),
        (Ok(DesiredState::External), _) => power::of_external(o, installed::external(o)),
        (_, Ironic::Unknown) => unknown(o),
        (_, Ironic::Absent) => enrol::unregistered(o),
        (_, Ironic::Node(node)) => registered(o, node),
    }
}

/// Ironic has not been asked yet, because the box is still coming up.
fn unknown(o: &Observed) -> Plan {
    let waiting = "waiting for Ironic to come up";
    match (o.phase, o.ledger.written()) {
        // The box was restarted in the middle; the ramdisk went on, and waits for Ironic to end the installation.
        (Some(phase), written)
            if written.is_none() || !matches!(phase, Phase::Rebooting { .. }) =>
        {
            install::writing(o, phase, Plan::new(HostState::Provisioning, waiting))
        }
        (_, Some(_)) => installed::installed(o),
        (_, None) => Plan::new(HostState::Discovered, waiting),
    }
}

fn registered(o: &Observed, node: &Node) -> Plan {
    let plan = match Maintenance::of(node) {
        Maintenance::None | Maintenance::Ours | Maintenance::Silent => by_state(o, node),
        Maintenance::Failed => {
            let state = if o.ledger.leaving {
                HostState::Deprovisioning
            } else {
                HostState::Registering
            };
            Plan::new(state, "ending Ironic's maintenance").act(Action::EndMaintenance)
        }
        Maintenance::Somebodys => Plan::new(HostState::Failed, "in maintenance").problem(Problem {
            what: "somebody put the Ironic node into maintenance".to_owned(),
            next: "take it out again to go on".to_owned(),
        }),
    };
    power::with_bmc(o, node, plan)
}

/// Who has put a node into maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maintenance {
    None,
    /// The box, for a moment; it may have lost its power then.
    Ours,
    /// Ironic, for its BMC is silent. That ends by itself.
    Silent,
    /// Ironic, for a step that failed.
    Failed,
    Somebodys,
}

impl Maintenance {
    fn of(node: &Node) -> Self {
        match node.fault.as_deref() {
            _ if !node.maintenance => Self::None,
            _ if node.is_in_our_maintenance() => Self::Ours,
            Some(POWER_FAILURE) => Self::Silent,
            Some(_) => Self::Failed,
            None => Self::Somebodys,
        }
    }
}

fn by_state(o: &Observed, node: &Node) -> Plan {
    use ProvisionState as S;
    // Whatever Ironic has gone through, this disk holds what we wrote: it is taken over and never written again.
    let adopt = o.ledger.written().is_some();
    let before = if o.ledger.leaving {
        HostState::Deprovisioning
    } else {
        HostState::Registering
    };
    match &node.provision_state {
        S::Enroll if o.ramdisk().is_none() && !o.remote.is_named() && !adopt => {
            Plan::new(HostState::Registering, "waiting for its ramdisk")
        }
        S::Enroll if node.last_error.is_some() && o.rests(PAUSE) => {
            let plan = Plan::new(HostState::Registering, "trying again soon");
            power::registering(o, node, plan)
        }
        S::Enroll => {
            let plan = Plan::new(HostState::Registering, "registering with Ironic");
            power::registering(o, node, plan).act(Action::Register)
        }
        S::Verifying => Plan::new(HostState::Registering, "Ironic checks the node"),
        S::Manageable | S::AdoptFailed if adopt => installed::adopting(o, node, Action::Adopt),
        S::AdoptFailed => Plan::new(before, "starting over").act(Action::Manage),
        S::Manageable => enrol::manageable(o, node),
        S::Inspecting => enrol::inspecting(o, "Ironic works on the inventory"),
        S::InspectWait => enrol::waiting(o, node),
        S::InspectFailed => enrol::inspect_failed(o, node),
        S::Cleaning => Plan::new(before, "making it available").lookup(o),
        S::CleanWait => leave::cleaning(o, node, before),
        S::CleanFailed => leave::clean_failed(o, node, before),
        S::Available if adopt => installed::adopting(o, node, Action::Manage),
        S::Available => install::available(o, node),
        S::DeployWait if adopt && o.has_left_the_ramdisk() => {
            installed::adopting(o, node, Action::Retract)
        }
        S::Deploying | S::DeployWait if o.keeps() || adopt => install::deploying(o, node),
        S::DeployFailed | S::Error if adopt => installed::adopting(o, node, Action::Retract),
        S::DeployFailed if o.keeps() => install::deploy_failed(o, node),
        S::Deploying => Plan::new(HostState::Deprovisioning, "ending the installation"),
        S::Adopting => Plan::new(HostState::Provisioned, "Ironic takes it over").boot_disk(),
        S::Active if o.keeps() => power::keep(o, node, installed::active(o)),
        S::DeployWait | S::DeployFailed | S::Active => leave::come_back(o, node),
        S::Deleting => Plan::new(HostState::Deprovisioning, "ending the deployment before"),
        S::Error if o.rests(PAUSE) => Plan::new(HostState::Deprovisioning, "trying again soon"),
        S::Error => Plan::new(HostState::Deprovisioning, "starting over").act(Action::Release),
        S::Other(state) => Plan::new(
            HostState::Available,
            format!("Ironic says `{state}`; left to whoever did that"),
        ),
    }
}

fn failed(o: &Observed, what: &str, node: &Node) -> Plan {
    let reason = node
        .last_error
        .as_deref()
        .unwrap_or("Ironic gives no reason");
    Plan::new(HostState::Failed, format!("{what} failed")).problem(Problem {
        what: format!("{what} failed several times: {reason}"),
        next: format!(
            "mend what the reason names, then run `firstlight hosts retry {}`, or restart the server: it is tried again at its next \
             network boot",
            o.called
        ),
    })
}
