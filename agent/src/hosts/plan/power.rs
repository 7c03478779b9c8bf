//! Remote power, for hosts whose object names a BMC: Ironic is told of it, it brings the server into the ramdisk, and it keeps the
//! server on or off.

use firstlight_api::bmh::ErrorType;
use firstlight_ironic::PowerTarget;

use super::{
    super::{
        bmc::{Start, explained, explained_of_heard},
        intent::Power,
    },
    Action, Bmc, DesiredState, EXTRA_BMC, EXTRA_CD, HostState, Ironic, Maintenance, Node, Observed,
    PAUSE, Plan, Problem, ProvisionState as S, Remote, annotations,
    installed::{self, BOOTS},
};

impl Bmc<'_> {
    /// What Ironic says of it.
    pub fn explained(&self, error: &str) -> Problem {
        if self.heard {
            explained_of_heard(error)
        } else {
            explained(error)
        }
    }
}

impl Remote<'_> {
    pub(super) fn is_named(&self) -> bool {
        matches!(self, Self::Unusable(_) | Self::Named(_))
    }
}

impl<'a> Observed<'a> {
    /// The BMC, if Ironic has been told of it as it is named now.
    fn bmc(&self, node: &Node) -> Option<Bmc<'a>> {
        match self.remote {
            Remote::Named(bmc) if node.extra[EXTRA_BMC] == *bmc.mark => Some(bmc),
            _ => None,
        }
    }

    /// The same while Ironic can speak to it.
    fn power(&self, node: &Node) -> Option<Bmc<'a>> {
        self.bmc(node).filter(|_| !is_lost(node))
    }

    /// Ironic knows nothing of CDs when it starts a server by itself.
    pub(super) fn starts_from_cd(&self, node: &Node) -> bool {
        self.power(node).is_some_and(|bmc| bmc.start == Start::Cd)
    }

    /// Somebody but the server itself and people can switch it on.
    pub(super) fn has_power(&self, node: &Node) -> bool {
        self.power(node).is_some()
    }
}

/// Its BMC has not answered Ironic for a while.
fn is_lost(node: &Node) -> bool {
    Maintenance::of(node) == Maintenance::Silent
}

/// `plan` with what the BMC needs first, or has in its way.
pub(super) fn with_bmc(o: &Observed, node: &Node, mut plan: Plan) -> Plan {
    let lost = is_lost(node);
    match Maintenance::of(node) {
        // Whatever is to be done waits for the end of it, which a registration comes to by itself.
        Maintenance::Ours => {
            let registers = plan.action.filter(|action| *action == Action::Register);
            plan.action = registers.or(Some(Action::EndMaintenance));
            plan.restart = None;
        }
        Maintenance::Silent => (plan.action, plan.restart) = (None, None),
        Maintenance::None | Maintenance::Failed | Maintenance::Somebodys => {}
    }
    let action = match o.remote {
        Remote::None if node.has_bmc() => Some(Action::Disconnect),
        Remote::Named(_) if o.bmc(node).is_none() => Some(Action::Connect),
        // A deployment has changed it whose ramdisk starts the system.
        Remote::Named(_) if !lost && node.disable_power_off == Some(!o.wanted.stays_on) => {
            Some(Action::Connect)
        }
        _ => None,
    };
    if let Some(action) = action.filter(|_| takes_driver(node)) {
        plan = plan.act(action);
        plan.restart = None;
    }
    match o.remote {
        Remote::Unusable(problem) => plan.fails(ErrorType::Registration, problem.clone()),
        Remote::Named(bmc) if let Some(problem) = bmc.failed => {
            let is_new = o.bmc(node).is_none() || node.provision_state == S::Enroll;
            let kind = if is_new {
                ErrorType::Registration
            } else {
                ErrorType::PowerManagement
            };
            plan.fails(kind, problem.clone())
        }
        _ if lost => plan.fails(ErrorType::PowerManagement, silent(node)),
        _ => plan,
    }
}

/// Not in the middle of something that the ramdisk does by the driver that there was when it began.
fn takes_driver(node: &Node) -> bool {
    let calm = matches!(
        node.provision_state,
        S::Manageable
            | S::Available
            | S::Active
            | S::InspectFailed
            | S::CleanFailed
            | S::DeployFailed
            | S::AdoptFailed
            | S::Error
    );
    let is_ours = Maintenance::of(node) != Maintenance::Somebodys;
    calm && is_ours && node.reservation.is_none()
}

fn silent(node: &Node) -> Problem {
    explained(node.last_error.as_deref().unwrap_or("it is silent"))
}

/// Until Ironic has spoken to the BMC the first time.
pub(super) fn registering(o: &Observed, node: &Node, plan: Plan) -> Plan {
    let Some(error) = node.last_error.as_deref() else {
        return plan;
    };
    match o.remote {
        Remote::Named(bmc) => plan
            .fails_as(bmc)
            .fails(ErrorType::Registration, bmc.explained(error)),
        _ => plan,
    }
}

/// The server is to come into the ramdisk; `plan` is what becomes of it where nobody can switch it on.
pub(super) fn summon(o: &Observed, node: &Node, plan: Plan) -> Plan {
    let Some(bmc) = o.power(node) else {
        return plan;
    };
    let mut plan = plan;
    plan.problem = None;
    // While the BMC refuses, its system may do it.
    plan.restart = plan.restart.filter(|_| bmc.failed.is_some());
    if node.target_power_state.is_some() {
        "its BMC restarts it".clone_into(&mut plan.step);
        return plan;
    }
    let Some(at) = bmc.summoned else {
        plan.step = format!("its BMC is told to start it from {}", bmc.start.named());
        return plan.act(Action::Summon);
    };
    plan.step = format!(
        "its BMC has started it from {}; waiting for its ramdisk",
        bmc.start.named()
    );
    if o.now.saturating_sub(at) < BOOTS {
        return plan;
    }
    plan.fails(ErrorType::PowerManagement, no_ramdisk(bmc.start))
        .act(Action::Summon)
}

/// As far as its BMC is known.
pub(super) fn missing_ramdisk(o: &Observed, node: &Node) -> Option<Problem> {
    let bmc = o.power(node).filter(|_| o.ramdisk().is_none())?;
    Some(no_ramdisk(bmc.start))
}

fn no_ramdisk(start: Start) -> Problem {
    let minutes = BOOTS.as_secs() / 60;
    let next = match start {
        Start::Network => {
            "is network boot switched on in its firmware, for the NIC of `bootMACAddress`?"
        }
        Start::Cd => {
            "is its firmware set to UEFI, and does it get an address from the box, on the NIC of `bootMACAddress`?"
        }
    };
    Problem {
        what: format!(
            "its BMC has started it from {}, and no ramdisk has reported for {minutes} minutes",
            start.named()
        ),
        next: format!("look at the server's screen: {next}"),
    }
}

/// For a host that stays as it is: on or off, as is wanted, and without a CD from which it could start into the ramdisk again.
pub(super) fn keep(o: &Observed, node: &Node, plan: Plan) -> Plan {
    let plan = switched(o, node, plan);
    let is_its_owners = o.wanted.desired == Ok(DesiredState::External);
    let has_cd =
        node.extra[EXTRA_CD] == true && (is_its_owners || node.provision_state == S::Active);
    let is_free = plan.action.is_none() && node.target_power_state.is_none();
    if has_cd && is_free && o.has_power(node) && node.speaks_redfish() {
        return plan.act(Action::Eject);
    }
    plan
}

fn switched(o: &Observed, node: &Node, mut plan: Plan) -> Plan {
    let Some(bmc) = o.power(node) else {
        return plan;
    };
    plan.restart = None;
    let reboot = annotations::REBOOT.to_owned();
    if o.ledger.done.contains(&reboot) && !plan.forget.contains(&reboot) {
        plan.forget.push(reboot);
    }
    if plan.action.is_some() || node.target_power_state.is_some() {
        return plan;
    }
    let is_on = node.power_state.as_deref() == Some("power on");
    if is_on && installed::hangs(o) {
        plan.problem = None;
        "its BMC restarts it: its kernel was started without a restart (kexec), and its system has not answered"
            .clone_into(&mut plan.step);
        return plan.act(Action::Switch(PowerTarget::Reboot));
    }
    if let Some(asked) = o.wanted.restarts.first()
        && o.wanted.stays_on
        && is_on
    {
        plan.step = format!("its BMC is told to restart it, as `{asked}` asks");
        return plan.act(Action::Switch(PowerTarget::Reboot));
    }
    let off = Some(&o.wanted.power).filter(|_| !o.wanted.stays_on);
    let Some(Power::Off { hard, why }) = off else {
        if is_on {
            return plan;
        }
        "its BMC is told to switch it on".clone_into(&mut plan.step);
        return plan.act(Action::Switch(PowerTarget::On));
    };
    if !is_on {
        plan.step = format!("switched off, as {why} asks");
        return plan;
    }
    plan.step = format!("its BMC is told to switch it off, as {why} asks");
    // Whose system does not end by itself is switched off at once.
    let target = if *hard || bmc.asked_to_end {
        PowerTarget::Off
    } else {
        PowerTarget::SoftOff
    };
    plan.act(Action::Switch(target))
}

/// It carries a system of its owner's; only its power is ours.
pub(super) fn of_external(o: &Observed, plan: Plan) -> Plan {
    let node = match (o.ironic, o.remote) {
        (Ironic::Node(node), _) => node,
        (Ironic::Absent, Remote::Named(bmc)) => {
            return plan.fails_as(bmc).act(Action::Register).boot_disk();
        }
        (Ironic::Absent, Remote::Unusable(problem)) => {
            return plan
                .fails(ErrorType::Registration, problem.clone())
                .boot_disk();
        }
        _ => return plan,
    };
    let plan = match &node.provision_state {
        S::Enroll if !o.remote.is_named() => plan,
        S::Enroll if o.rests(PAUSE) && node.last_error.is_some() => registering(o, node, plan),
        S::Enroll => registering(o, node, plan).act(Action::Register),
        S::Manageable | S::Available | S::Active => keep(o, node, plan),
        _ => plan,
    };
    with_bmc(o, node, plan).boot_disk()
}

impl Plan {
    /// What the BMC, or its Secret, was in the way of when the host was to be registered.
    fn fails_as(self, bmc: Bmc) -> Self {
        match bmc.failed {
            Some(problem) => self.fails(ErrorType::Registration, problem.clone()),
            None => self,
        }
    }

    /// A problem of this kind; what is worse keeps its place.
    pub(super) fn fails(mut self, kind: ErrorType, problem: Problem) -> Self {
        self.fault = Some(kind);
        self.problem.get_or_insert(problem);
        self
    }
}

impl Action {
    /// Somebody speaks to the BMC for it.
    pub fn is_of_bmc(&self) -> bool {
        matches!(
            self,
            Self::Register | Self::Connect | Self::Summon | Self::Eject | Self::Switch(_)
        )
    }
}

/// Of a host that is not registered yet: its BMC is enough to begin with.
pub(super) fn unregistered(o: &Observed) -> Option<Plan> {
    match o.remote {
        Remote::Unknown | Remote::None => None,
        Remote::Unusable(problem) => Some(
            Plan::new(HostState::Registering, "its BMC cannot be used")
                .fails(ErrorType::Registration, problem.clone()),
        ),
        Remote::Named(bmc) => {
            let plan = Plan::new(HostState::Registering, "registering with Ironic");
            Some(plan.fails_as(bmc).act(Action::Register))
        }
    }
}
