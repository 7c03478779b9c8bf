//! From available until the image is on the disk.

use std::time::Duration;

use firstlight_api::start::Start;

use super::{
    super::{
        intent::Power,
        policy::{self, Verdict},
        root_disk::Choice,
    },
    Action, BootTarget, DesiredState, EXTRA_ATTEMPT, HostState, Inspection, Install, LookupState,
    MOST_ATTEMPTS, Node, Observed, Phase, Plan, Problem, ProvisionState, failed, power,
};

/// After the first, the second failed deployment.
const PAUSES: [Duration; 2] = [Duration::from_secs(20), Duration::from_mins(1)];

/// Ironic's word for what its own restart has interrupted.
const INTERRUPTED: &str = "can't be resumed by conductor";

fn attempts(node: &Node) -> u64 {
    node.extra[EXTRA_ATTEMPT].as_u64().unwrap_or(0)
}

/// Of [`MOST_ATTEMPTS`]: one that a restart of the box has ended says nothing about the host.
fn spent(node: &Node) -> u64 {
    let error = node.last_error.as_deref().unwrap_or_default();
    attempts(node).saturating_sub(u64::from(error.contains(INTERRUPTED)))
}

/// The next deployment, if this machine may be written to, is there, and has attempts left.
fn deploy(o: &Observed, node: &Node, waits: HostState, install: &Install) -> Plan {
    let Some(report) = o.ramdisk() else {
        let plan = Plan::new(waits, "waiting for its ramdisk");
        let plan = Plan {
            problem: o.report.is_none().then(|| Problem {
                what: "its ramdisk has not reported since the box started".to_owned(),
                next: "start the server from the network".to_owned(),
            }),
            ..plan
        };
        return power::summon(o, node, plan);
    };
    if let Some(problem) = o.barred {
        return Plan::new(waits, "left alone").problem(problem.clone());
    }
    // Our own half-written image is no reason to stop, as long as its deployment is under way and nothing else is there.
    let judgement = match policy::judge(
        o.policy,
        report,
        &o.wanted.root,
        o.ledger.under_way(),
        o.called,
    ) {
        Verdict::Install(judgement) => judgement,
        Verdict::LeaveAlone(problem) => {
            return Plan::new(waits, "left alone").problem(problem);
        }
    };
    if let Some(problem) = too_small(o, install, &judgement.root) {
        return Plan::new(waits, "left alone").problem(problem);
    }
    let attempt = if o.tries_anew() { 1 } else { spent(node) + 1 };
    if attempt > MOST_ATTEMPTS {
        return failed(o, "installation", node);
    }
    Plan::new(
        HostState::Provisioning,
        format!("starting installation, attempt {attempt}"),
    )
    .act(Action::Deploy {
        attempt,
        judgement,
        install: Box::new(install.clone()),
    })
}

/// Of other images the ramdisk finds out, as late as when it writes them.
fn too_small(o: &Observed, install: &Install, root: &Choice) -> Option<Problem> {
    let image = o.image.ok()?;
    let is_it = install.image.checksum.eq_ignore_ascii_case(&image.sha256);
    let (needs, has) = (image.raw_bytes, root.size_bytes());
    (is_it && needs > has).then(|| Problem {
        what: format!(
            "the image needs {} MB, and {root} has {} MB",
            needs.div_ceil(1_000_000),
            has / 1_000_000
        ),
        next: format!(
            "name a larger disk by `rootDeviceHints` in its BareMetalHost: `kubectl edit bmh {}`",
            o.called
        ),
    })
}

pub(super) fn available(o: &Observed, node: &Node) -> Plan {
    let idle = |step: &str| Plan::new(HostState::Available, step).lookup(o);
    if o.wanted.inspection == Inspection::Again {
        return idle("to be inspected again").act(Action::Manage);
    }
    let install = match &o.wanted.desired {
        Err(problem) => {
            let plan = Plan::new(HostState::Available, "cannot be installed");
            return power::keep(o, node, plan.problem(problem.clone()));
        }
        Ok(DesiredState::Unknown) => {
            return idle("waiting for Kubernetes to say what is wanted of it");
        }
        Ok(desired) => match desired.install() {
            Some(install) => install,
            None => return power::keep(o, node, unwanted(o)),
        },
    };
    // A fence holds here, too.
    if o.wanted.power != Power::On && o.has_power(node) {
        return power::keep(o, node, idle("not installed while it shall be off"));
    }
    let plan = deploy(o, node, HostState::Available, install);
    if !matches!(plan.action, Some(Action::Deploy { .. })) {
        return power::keep(o, node, plan);
    }
    match o.ramdisk().map(|report| report.lookup) {
        Some(LookupState::Registered) if o.is_unheard(node) => Plan::new(
            HostState::Provisioning,
            "waiting for the first heartbeat of its ramdisk",
        )
        .lookup(o),
        Some(LookupState::Registered) => plan,
        Some(LookupState::TokenLost) => {
            Plan::new(HostState::Available, "giving its ramdisk a new token")
                .lookup(o)
                .act(Action::ForgetToken)
        }
        _ => Plan::new(HostState::Available, "waiting for its ramdisk to register").lookup(o),
    }
}

pub(super) fn deploying(o: &Observed, node: &Node) -> Plan {
    let plan = Plan::new(HostState::Provisioning, "waiting for its ramdisk").lookup(o);
    if let Some(phase @ Phase::Rebooting { .. }) = o.phase {
        return writing(o, phase, plan);
    }
    if o.lost_token() && node.provision_state == ProvisionState::DeployWait {
        return Plan {
            step: "its ramdisk was restarted, starting over".to_owned(),
            ..plan.act(Action::Release)
        };
    }
    if o.ramdisk().is_none() && o.has_power(node) && o.is_long_silent() {
        return Plan {
            step: "its ramdisk has been silent for minutes, starting over".to_owned(),
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
        None if node.agent().is_some() => Plan {
            step: "preparing".to_owned(),
            ..plan
        },
        None => plan,
    }
}

/// What the ramdisk says that it does.
pub(super) fn writing(o: &Observed, phase: &Phase, plan: Plan) -> Plan {
    let (step, percent) = match phase {
        Phase::Writing { bytes, total } => {
            let url = o.ledger.deployment.as_ref().map(|it| &it.image.url);
            let file = url.and_then(|url| url.rsplit('/').next());
            let file = file.filter(|file| !file.is_empty()).unwrap_or("the image");
            match percent(*bytes, *total) {
                Some(percent) => (format!("writing {file}, {percent} %"), Some(percent)),
                None => (format!("writing {file}"), None),
            }
        }
        Phase::Retrying { reason } => (format!("the download broke and goes on: {reason}"), None),
        Phase::ConfigDrive => ("writing the config drive".to_owned(), None),
        Phase::BootEntry => ("setting the boot entry".to_owned(), None),
        Phase::Written { .. } => (
            "its image is on the disk; Ironic ends the installation".to_owned(),
            None,
        ),
        // Ironic says `active` only after the ramdisk is gone.
        Phase::Rebooting { start } => {
            return Plan {
                step: match start {
                    Start::Kexec => "its kernel is started without a restart (kexec)".to_owned(),
                    Start::Restart { reason } if reason.is_empty() => {
                        "restarting from its disk".to_owned()
                    }
                    Start::Restart { reason } => {
                        format!("restarting from its disk, for kexec does not do here: {reason}")
                    }
                },
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

pub(super) fn deploy_failed(o: &Observed, node: &Node) -> Plan {
    let install = match &o.wanted.desired {
        Ok(desired) => desired.install(),
        Err(problem) => {
            return Plan::new(HostState::Provisioning, "cannot be installed")
                .problem(problem.clone());
        }
    };
    let Some(install) = install else {
        return Plan::new(
            HostState::Provisioning,
            "waiting for Kubernetes to say what is wanted of it",
        );
    };
    let plan = deploy(o, node, HostState::Provisioning, install);
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

/// Nothing is asked of it.
fn unwanted(o: &Observed) -> Plan {
    if let Err(problem) = o.image {
        return Plan::new(HostState::Available, "cannot be installed").problem(problem.clone());
    }
    let plan = Plan::new(
        HostState::Available,
        "free: give it an image, or let a cluster claim it",
    );
    plan.lookup(o)
}
