//! The table of states: from what is known of one host to what is shown, what it boots, what its ramdisk is told, and the
//! one thing to do next. Pure, and safe to ask again at any time: after a restart it says the same.

#[cfg(test)]
mod tests;

use std::time::Duration;

use firstlight_api::{
    report::{Directive, LookupState, Phase, Report},
    site::InstallPolicy,
    status::{HostState, Problem},
};
use firstlight_ironic::{Node, ProvisionState};
use firstlight_netboot::BootTarget;

use super::{
    image::NodeImage,
    policy::{self, Verdict},
};

/// Deployments of one host before a person is asked.
pub const MOST_ATTEMPTS: u64 = 3;
const MOST_INSPECTIONS: u32 = 3;
/// After the first, the second failed deployment.
const PAUSES: [Duration; 2] = [Duration::from_secs(20), Duration::from_mins(1)];
const PAUSE: Duration = Duration::from_secs(10);
/// A ramdisk reports every 30 s while it is registered.
const SILENT: Duration = Duration::from_secs(100);

/// Marks in the node's `extra`: they outlive a restart.
pub const EXTRA_MAC: &str = "firstlight_mac";
pub const EXTRA_ATTEMPT: &str = "firstlight_attempt";
pub const EXTRA_DISKS: &str = "firstlight_disks";

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
    pub name: &'a str,
    pub policy: InstallPolicy,
    /// The ramdisk's last report, and when it came.
    pub report: Option<(&'a Report, Duration)>,
    /// Where the ramdisk of that report is.
    pub phase: Option<&'a Phase>,
    pub ironic: Ironic<'a>,
    /// Since when the node has been in its state.
    pub node_since: Duration,
    /// The `BareMetalHost` object says that it was installed.
    pub object_says_installed: bool,
    pub ssh_answers: bool,
    pub image: Result<&'a NodeImage, &'a Problem>,
    pub inspections: u32,
    /// The boot of the ramdisk at which we gave up; the next one is a person's word to try again.
    pub gave_up: Option<&'a str>,
}

/// One thing to do on Ironic. Each may be done twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Node, ports, `manage`.
    Register,
    PowerOn,
    Inspect,
    Provide,
    /// Image and marks, then `active`.
    Deploy {
        attempt: u64,
        disks: String,
    },
    /// A recorded reboot, so that the ramdisk gets a new token.
    ForgetToken,
    Manage,
    Abort,
    /// End a deployment that waits for a ramdisk that is gone.
    Release,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub state: HostState,
    /// What is happening, as a sentence without a full stop.
    pub step: String,
    pub percent: Option<u8>,
    pub problem: Option<Problem>,
    pub directive: Directive,
    pub boot: BootTarget,
    pub action: Option<Action>,
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
            boot: BootTarget::Ramdisk,
            action: None,
        }
    }

    fn act(mut self, action: Action) -> Self {
        self.action = Some(action);
        self
    }

    fn lookup(mut self) -> Self {
        self.directive = Directive::Lookup;
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

    fn lost_token(&self) -> bool {
        self.ramdisk()
            .is_some_and(|report| report.lookup == LookupState::TokenLost)
    }

    /// It was switched on again since we gave up.
    fn tries_anew(&self, report: &Report) -> bool {
        self.gave_up.is_some_and(|boot| boot != report.boot_id)
    }

    fn rests(&self, pause: Duration) -> bool {
        self.now.saturating_sub(self.node_since) < pause
    }
}

pub fn plan(o: &Observed) -> Plan {
    match o.ironic {
        Ironic::Unknown if o.object_says_installed => installed(o),
        Ironic::Unknown => {
            let waiting = "waiting for Ironic to come up";
            match o.phase {
                // The box was restarted in the middle; the ramdisk went on.
                Some(phase) => writing(o, phase, Plan::new(HostState::Provisioning, waiting)),
                None => Plan::new(HostState::Discovered, waiting),
            }
        }
        Ironic::Absent => unregistered(o),
        Ironic::Node(node) if node.maintenance => Plan::new(HostState::Failed, "in maintenance")
            .problem(Problem {
                what: "somebody put the Ironic node into maintenance".to_owned(),
                next: "take it out again to go on".to_owned(),
            }),
        Ironic::Node(node) => registered(o, node),
    }
}

fn unregistered(o: &Observed) -> Plan {
    let Some(report) = o.ramdisk() else {
        return Plan::new(
            HostState::Discovered,
            "seen on the network; its ramdisk has not reported",
        );
    };
    if let Err(problem) = o.image {
        return Plan::new(HostState::Discovered, "cannot be installed").problem(problem.clone());
    }
    match policy::judge(o.policy, report, o.name) {
        Verdict::LeaveAlone(problem) => {
            Plan::new(HostState::Discovered, "left alone").problem(problem)
        }
        Verdict::Install => {
            Plan::new(HostState::Registering, "registering with Ironic").act(Action::Register)
        }
    }
}

fn registered(o: &Observed, node: &Node) -> Plan {
    use ProvisionState as S;
    match &node.provision_state {
        S::Enroll if o.ramdisk().is_none() => {
            Plan::new(HostState::Registering, "waiting for its ramdisk")
        }
        S::Enroll if node.last_error.is_some() && o.rests(PAUSE) => {
            Plan::new(HostState::Registering, "trying again soon")
        }
        S::Enroll => {
            Plan::new(HostState::Registering, "registering with Ironic").act(Action::Register)
        }
        S::Verifying => Plan::new(HostState::Registering, "Ironic checks the node"),
        S::Manageable => manageable(o, node),
        S::Inspecting => Plan::new(HostState::Inspecting, "Ironic works on the inventory"),
        S::InspectWait => Plan::new(HostState::Inspecting, "waiting for the inventory").lookup(),
        S::InspectFailed => inspect_failed(o, node),
        S::Cleaning => Plan::new(HostState::Registering, "making it available").lookup(),
        S::CleanWait if o.lost_token() => Plan::new(HostState::Registering, "starting over")
            .lookup()
            .act(Action::Abort),
        S::CleanWait => Plan::new(HostState::Registering, "erasing metadata").lookup(),
        S::CleanFailed if o.rests(PAUSE) => Plan::new(HostState::Registering, "trying again soon"),
        S::CleanFailed => Plan::new(HostState::Registering, "starting over").act(Action::Manage),
        S::Available => available(o, node),
        S::Deploying | S::DeployWait => deploying(o, node),
        S::DeployFailed => deploy_failed(o, node),
        S::Active => installed(o),
        S::Deleting => Plan::new(HostState::Provisioning, "ending the deployment before"),
        S::Error if o.rests(PAUSE) => Plan::new(HostState::Provisioning, "trying again soon"),
        S::Error => Plan::new(HostState::Provisioning, "starting over").act(Action::Release),
        S::Other(state) => Plan::new(
            HostState::Available,
            format!("Ironic says `{state}`; left to whoever did that"),
        ),
    }
}

fn manageable(o: &Observed, node: &Node) -> Plan {
    let plan = |step: &str| Plan::new(HostState::Inspecting, step);
    if node.inspection_finished_at.is_none() {
        return match o.ramdisk() {
            Some(_) => plan("inspecting").act(Action::Inspect),
            None => plan("waiting for its ramdisk"),
        };
    }
    if node.power_state.as_deref() != Some("power on") {
        return plan("recording that it is switched on").act(Action::PowerOn);
    }
    plan("making it available").lookup().act(Action::Provide)
}

fn inspect_failed(o: &Observed, node: &Node) -> Plan {
    let anew = o.ramdisk().is_some_and(|report| o.tries_anew(report));
    if o.inspections >= MOST_INSPECTIONS && !anew {
        return failed("inspection", node);
    }
    if o.rests(PAUSE) {
        return Plan::new(
            HostState::Inspecting,
            "inspection failed, trying again soon",
        );
    }
    Plan::new(HostState::Inspecting, "inspecting again").act(Action::Manage)
}

fn failed(what: &str, node: &Node) -> Plan {
    let reason = node
        .last_error
        .as_deref()
        .unwrap_or("Ironic gives no reason");
    Plan::new(HostState::Failed, format!("{what} failed")).problem(Problem {
        what: format!("{what} failed several times: {reason}"),
        next: "mend what the reason names, then restart the server: it is tried again at its next network boot".to_owned(),
    })
}

fn attempts(node: &Node) -> u64 {
    node.extra[EXTRA_ATTEMPT].as_u64().unwrap_or(0)
}

/// The next deployment, if this machine may be written to, is there, and has attempts left.
fn deploy(o: &Observed, node: &Node, waits: HostState) -> Plan {
    let Some(report) = o.ramdisk() else {
        let plan = Plan::new(waits, "waiting for its ramdisk");
        return Plan {
            problem: o.report.is_none().then(|| Problem {
                what: "its ramdisk has not reported since the box started".to_owned(),
                next: "start the server from the network".to_owned(),
            }),
            ..plan
        };
    };
    if let Err(problem) = o.image {
        return Plan::new(waits, "cannot be installed").problem(problem.clone());
    }
    let disks = policy::fingerprint(&report.disks, &report.inventory);
    // Disks that were judged before may hold our own half-written image; any others are judged now.
    if node.extra[EXTRA_DISKS] != disks.as_str()
        && let Verdict::LeaveAlone(problem) = policy::judge(o.policy, report, o.name)
    {
        return Plan::new(waits, "left alone").problem(problem);
    }
    let attempt = if o.tries_anew(report) {
        1
    } else {
        attempts(node) + 1
    };
    if attempt > MOST_ATTEMPTS {
        return failed("installation", node);
    }
    Plan::new(
        HostState::Provisioning,
        format!("starting installation, attempt {attempt}"),
    )
    .act(Action::Deploy { attempt, disks })
}

fn available(o: &Observed, node: &Node) -> Plan {
    let plan = deploy(o, node, HostState::Available);
    if !matches!(plan.action, Some(Action::Deploy { .. })) {
        return plan;
    }
    match o.ramdisk().map(|report| report.lookup) {
        Some(LookupState::Registered) => plan,
        Some(LookupState::TokenLost) => {
            Plan::new(HostState::Available, "giving its ramdisk a new token")
                .lookup()
                .act(Action::ForgetToken)
        }
        // Ironic takes a fast way when the ramdisk is there already.
        _ => Plan::new(HostState::Available, "waiting for its ramdisk to register").lookup(),
    }
}

fn deploying(o: &Observed, node: &Node) -> Plan {
    let plan = Plan::new(HostState::Provisioning, "waiting for its ramdisk").lookup();
    if let Some(phase @ Phase::Rebooting) = o.phase {
        return writing(o, phase, plan);
    }
    if o.lost_token() && node.provision_state == ProvisionState::DeployWait {
        return Plan {
            step: "its ramdisk was restarted, starting over".to_owned(),
            ..plan.act(Action::Release)
        };
    }
    if o.ramdisk().is_none() && o.report.is_some() {
        let problem = Problem {
            what: "its ramdisk has been silent for more than 100 s".to_owned(),
            next: "look at the server's screen, or switch it off and on: the installation starts again".to_owned(),
        };
        return Plan {
            problem: Some(problem),
            ..plan
        };
    }
    match o.phase {
        Some(phase) => writing(o, phase, plan),
        None if node.has_agent() => Plan {
            step: "preparing".to_owned(),
            ..plan
        },
        None => plan,
    }
}

/// What the ramdisk says that it does.
fn writing(o: &Observed, phase: &Phase, plan: Plan) -> Plan {
    let (step, percent) = match phase {
        Phase::Writing { bytes, total } => {
            let file = o
                .image
                .map_or_else(|_| "the image".to_owned(), NodeImage::file);
            match percent(*bytes, *total) {
                Some(percent) => (format!("writing {file}, {percent} %"), Some(percent)),
                None => (format!("writing {file}"), None),
            }
        }
        Phase::Retrying { reason } => (format!("the download broke and goes on: {reason}"), None),
        Phase::ConfigDrive => ("writing the config drive".to_owned(), None),
        Phase::BootEntry => ("setting the boot entry".to_owned(), None),
        // The image is on the disk; Ironic says `active` only after the ramdisk is gone.
        Phase::Rebooting => {
            return Plan {
                step: "restarting from its disk".to_owned(),
                boot: BootTarget::Disk,
                ..plan
            };
        }
        Phase::Failed { reason } => (format!("failed: {reason}"), None),
    };
    Plan {
        step,
        percent,
        ..plan
    }
}

fn percent(bytes: u64, total: u64) -> Option<u8> {
    let percent = bytes.min(total).checked_mul(100)?.checked_div(total)?;
    u8::try_from(percent).ok()
}

fn deploy_failed(o: &Observed, node: &Node) -> Plan {
    let plan = deploy(o, node, HostState::Provisioning);
    if !matches!(plan.action, Some(Action::Deploy { .. })) {
        return plan;
    }
    let before = usize::try_from(attempts(node)).unwrap_or(0);
    let pause = PAUSES[before.saturating_sub(1).min(PAUSES.len() - 1)];
    if o.rests(pause) {
        let reason = node.last_error.clone().unwrap_or_default();
        return Plan::new(
            HostState::Provisioning,
            format!("attempt {before} failed, trying again soon"),
        )
        .problem(Problem {
            what: reason,
            next: "nothing yet: it is tried again".to_owned(),
        });
    }
    plan
}

fn installed(o: &Observed) -> Plan {
    let plan = if o.ssh_answers {
        Plan::new(HostState::Running, "its operating system answers")
    } else if o.ramdisk().is_some() && o.phase.is_none() {
        Plan::new(
            HostState::Provisioned,
            "in the ramdisk; told to start from its disk",
        )
    } else {
        Plan::new(HostState::Provisioned, "starting from its disk")
    };
    plan.boot_disk()
}
