//! A host as a `BareMetalHost`: what a person who knows Metal3 expects to read.

use std::net::Ipv4Addr;

use firstlight_api::{
    bmh::{
        BareMetalHost, BareMetalHostStatus, BootMode, Condition, ConditionStatus,
        CredentialsStatus, ErrorType, FINALIZER, Image, MIRROR, OperationHistory, OperationMetric,
        OperationalStatus, ProvisionStatus, ProvisioningState, ROOT_DISK, SPEC_HONOURED, TRUSTED,
    },
    site::Gives,
    status::{HostState, HostStatus, RootDiskState},
};
use firstlight_ironic::Node;

use super::{
    honoured::ignored,
    host::Host,
    intent::{Data, DesiredState},
    made,
    objects::{Leave, ObjectTarget},
    plan::{EXTRA_BMC, Remote},
    root_disk::WantedDisks,
};

/// The object as it should be: its times stay, and what it knows that we forgot. `now` is RFC 3339.
pub fn desired(host: &Host, gives: &Gives, now: &str) -> ObjectTarget {
    let old = host.object.as_deref();
    let boot_mode = boot_mode(host).or_else(|| old?.spec.boot_mode);
    let spec = made::spec(host.mac.to_string(), boot_mode);
    let mut object = BareMetalHost::new(&host.name, &host.namespace, spec);
    object.metadata.finalizers.push(FINALIZER.to_owned());
    made::by_site(&mut object, gives);
    object.status = Some(status(host, boot_mode, now));
    // In the spec before the status tells of it. An object that got lost is made again around what the disk holds.
    let image = own_image(host).or_else(|| held_image(host));
    object.spec.image = image.or(object.spec.image);
    let plan = host.plan();
    ObjectTarget {
        host: object,
        image: own_image(host),
        overdue: host.ruled.overdue().cloned().map(Box::new),
        // What was noted of them is on the disk first.
        forget: plan
            .filter(|_| host.memory.is_kept())
            .map(|plan| plan.forget.clone())
            .unwrap_or_default(),
        refused: host.refused().clone(),
        bmc_goes: host.account_goes(),
        leave: leave(host),
        paused: host.wanted().paused.is_some(),
        stray: false,
    }
}

fn leave(host: &Host) -> Leave {
    let object = host.object.as_deref();
    let is_deleted = object.is_none_or(BareMetalHost::is_deleted);
    if host.ledger().passing && host.memory.is_kept() && !is_deleted {
        Leave::Unmissed
    } else if host.work.removed {
        Leave::Deleted
    } else {
        Leave::No
    }
}

/// What the site's rule installs is shown as if a person had asked for it.
fn own_image(host: &Host) -> Option<Image> {
    let state = host.plan()?.state;
    let installing = state == HostState::Provisioning || is_installed(state);
    match &host.wanted().desired {
        Ok(DesiredState::Install(install)) if install.data == Data::Site && installing => {
            Some(install.image.clone()).filter(|_| !was_shown(host))
        }
        _ => None,
    }
}

/// It was in the spec already: whoever takes it away means that.
fn was_shown(host: &Host) -> bool {
    let deployment = host.ledger().deployment.as_ref();
    deployment.is_some_and(|deployment| deployment.shown)
}

fn held_image(host: &Host) -> Option<Image> {
    let deployment = host.ledger().written()?;
    (!deployment.is_staged()).then(|| deployment.image.clone())
}

fn status(host: &Host, boot_mode: Option<BootMode>, now: &str) -> BareMetalHostStatus {
    let old = host.object.as_deref();
    let shown = host.status();
    let before = old.and_then(|old| old.status.clone()).unwrap_or_default();
    let problem = shown.problem.as_ref();
    let failed = shown.state == HostState::Failed;
    let fault = host.plan().and_then(|plan| plan.fault);
    let error = problem
        .map(|problem| format!("{}; {}", problem.what, problem.next))
        .unwrap_or_default();
    let state = provisioning(shown.state, before.provisioning.state);
    let report = host.ramdisk.report();
    let hardware = report.map(|report| report.inventory.hardware.clone());
    let (good_credentials, tried_credentials) = credentials(host, &before);
    let (provisioning_fail_count, last_attempted_image) = match &host.ledger().deployment {
        Some(deployment) if deployment.written => (0, None),
        Some(deployment) => (error_count(host), Some(deployment.image.clone())),
        None => (
            before.provisioning_fail_count,
            before.last_attempted_image.clone(),
        ),
    };
    let mut new = BareMetalHostStatus {
        operational_status: if fault.is_some() {
            OperationalStatus::Error
        } else {
            operational(shown.state)
        },
        error_type: fault.or_else(|| failed.then(|| error_type(host))),
        conditions: conditions(host, &shown, &error, &before.conditions, now),
        error_message: error,
        error_count: error_count(host),
        provisioning_fail_count,
        last_attempted_image,
        powered_on: !host.node.as_ref().is_some_and(Node::is_off),
        provisioning: provision_status(host, shown.state, state, &before, boot_mode),
        hardware: hardware.or(before.hardware),
        operation_history: history(
            before.operation_history,
            before.provisioning.state,
            state,
            now,
        ),
        last_updated: before.last_updated,
        hardware_profile: before.hardware_profile,
        good_credentials,
        tried_credentials,
    };
    // A changed time alone is no reason to write.
    if host_status_differs(old, &new) {
        new.last_updated = Some(now.to_owned());
    }
    new
}

/// Those with which its BMC answered last, and those of now.
fn credentials(
    host: &Host,
    before: &BareMetalHostStatus,
) -> (Option<CredentialsStatus>, Option<CredentialsStatus>) {
    let old = before.good_credentials.clone();
    match host.remote.seen() {
        Remote::Unknown => (old, before.tried_credentials.clone()),
        Remote::None | Remote::Unusable(_) => (None, None),
        Remote::Named(bmc) => {
            let now = host.remote.credentials().cloned();
            let node = host.node.as_ref();
            let answered = node.is_some_and(|node| node.extra[EXTRA_BMC] == *bmc.mark);
            let good = now.clone().filter(|_| answered).or(old);
            (good, now)
        }
    }
}

fn provision_status(
    host: &Host,
    shown: HostState,
    state: ProvisioningState,
    before: &BareMetalHostStatus,
    boot_mode: Option<BootMode>,
) -> ProvisionStatus {
    let before = before.provisioning.clone();
    // Also of a free host: machines choose the one that carries their image already.
    let holds =
        is_installed(shown) || matches!(shown, HostState::Deprovisioning | HostState::Staged);
    let image = host
        .ledger()
        .deployment
        .as_ref()
        .map(|deployment| deployment.image.clone());
    let spec = host.object.as_ref().map(|object| &object.spec);
    // As upstream: what the spec says while it waits to be installed stays when it is.
    let is_taken = shown == HostState::Available
        || state == ProvisioningState::Provisioning && before.state != state;
    let is_external = state == ProvisioningState::ExternallyProvisioned;
    ProvisionStatus {
        state,
        id: host
            .node
            .as_ref()
            .map_or(before.id, |node| node.uuid.clone()),
        image: image.or(before.image).filter(|_| holds),
        root_device_hints: match spec {
            _ if is_external && !is_taken => None,
            Some(spec) if is_taken => spec.root_device_hints.clone(),
            None if is_taken => None,
            _ => before.root_device_hints,
        },
        boot_mode,
        raid: match spec {
            _ if is_external && !is_taken => None,
            Some(spec) if is_taken => spec
                .raid
                .clone()
                .filter(|_| WantedDisks::of(spec).mirror.is_some()),
            None if is_taken => None,
            _ => before.raid,
        },
        firmware: before.firmware,
        custom_deploy: before.custom_deploy,
    }
}

/// Metal3's conditions of a host, as far as they mean something here, each with the sentence of the page.
fn conditions(
    host: &Host,
    shown: &HostStatus,
    error: &str,
    before: &[Condition],
    now: &str,
) -> Vec<Condition> {
    let (state, step) = (shown.state, shown.step.as_str());
    let free = matches!(state, HostState::Available | HostState::Staged) && error.is_empty();
    let (reason, installed) = match state {
        _ if is_installed(state) => ("Provisioned", true),
        HostState::Provisioning => ("Provisioning", false),
        HostState::Deprovisioning => ("Deprovisioning", false),
        _ => ("NotProvisioned", false),
    };
    let ready = match state {
        HostState::Failed => "Error",
        HostState::Detached => "Detached",
        _ if !error.is_empty() => "NeedsAttention",
        _ if free => "Available",
        _ => reason,
    };
    let is_ready = error.is_empty() && (free || installed || state == HostState::External);
    let message = if error.is_empty() { step } else { error };
    // A step that counts percent would be a write a second.
    let message = message
        .split(", ")
        .next()
        .filter(|_| error.is_empty())
        .unwrap_or(message);
    let condition = |kind, holds: bool, reason| {
        Condition::new(
            kind,
            ConditionStatus::from(holds),
            reason,
            message,
            before,
            now,
        )
    };
    let conditions = [
        condition("Ready", is_ready, ready),
        condition("Provisioned", installed, reason),
        condition(
            "AvailableForProvisioning",
            free,
            if free { "Available" } else { "NotAvailable" },
        ),
        trusted(host, before, now),
        honoured(host, before, now),
        root_disk(shown, before, now),
    ];
    conditions
        .into_iter()
        .chain(mirror(host, before, now))
        .collect()
}

/// Of a host whose system is on a mirror. After a restart of the box what was seen stays until somebody has looked again.
fn mirror(host: &Host, before: &[Condition], now: &str) -> Option<Condition> {
    let state = host.mirror_state()?;
    let old = before.iter().find(|old| old.kind == MIRROR);
    if state.status == ConditionStatus::Unknown && old.is_some() {
        return old.cloned();
    }
    let (status, reason) = (state.status, state.reason);
    Some(Condition::new(
        MIRROR,
        status,
        reason,
        &state.says,
        before,
        now,
    ))
}

/// Which disk gets the image, and why. After a restart of the box what was said stays until the ramdisk reports.
fn root_disk(shown: &HostStatus, before: &[Condition], now: &str) -> Condition {
    let Some(root) = &shown.root_disk else {
        let old = before.iter().find(|old| old.kind == ROOT_DISK);
        let unknown = || {
            let nobody = "its ramdisk has not reported";
            let status = ConditionStatus::Unknown;
            Condition::new(ROOT_DISK, status, "NotReported", nobody, before, now)
        };
        return old.cloned().unwrap_or_else(unknown);
    };
    let (holds, reason) = match root.state {
        RootDiskState::Nothing => (false, "NoneChosen"),
        RootDiskState::Would => (true, "Chosen"),
        RootDiskState::Writes => (true, "Writing"),
        RootDiskState::Wrote => (true, "Written"),
    };
    let problem = root.problem.as_ref();
    let message = problem.map_or_else(
        || root.says.clone(),
        |problem| format!("{}: {}; {}", root.says, problem.what, problem.next),
    );
    let status = ConditionStatus::from(holds);
    Condition::new(ROOT_DISK, status, reason, message, before, now)
}

/// Does the box do all that the object says?
fn honoured(host: &Host, before: &[Condition], now: &str) -> Condition {
    let object = host.object.as_ref();
    let mut ignored = object.map_or_else(Vec::new, |object| ignored(object, boot_mode(host)));
    ignored.extend(host.account_notes());
    let (status, reason) = if ignored.is_empty() {
        (ConditionStatus::True, "Honoured")
    } else {
        (ConditionStatus::False, "Ignored")
    };
    Condition::new(
        SPEC_HONOURED,
        status,
        reason,
        ignored.join("; "),
        before,
        now,
    )
}

/// Who gets the private keys of a cluster.
fn trusted(host: &Host, before: &[Condition], now: &str) -> Condition {
    let candidate = host.candidate();
    let trust = candidate.trust();
    let message = trust.lack().map_or_else(String::new, |lack| {
        format!(
            "{lack}; it is no control plane until a person says so: {}",
            candidate.how_to_approve()
        )
    });
    let status = ConditionStatus::from(trust.holds());
    Condition::new(TRUSTED, status, trust.reason(), &message, before, now)
}

fn host_status_differs(old: Option<&BareMetalHost>, new: &BareMetalHostStatus) -> bool {
    old.and_then(|old| old.status.as_ref()) != Some(new)
}

fn is_installed(state: HostState) -> bool {
    matches!(state, HostState::Provisioned | HostState::Running)
}

fn boot_mode(host: &Host) -> Option<BootMode> {
    let report = host.ramdisk.report()?;
    match report.inventory.boot_mode.as_str() {
        "uefi" => Some(BootMode::Uefi),
        "bios" => Some(BootMode::Legacy),
        _ => None,
    }
}

fn operational(state: HostState) -> OperationalStatus {
    match state {
        HostState::Discovered => OperationalStatus::Discovered,
        HostState::Failed => OperationalStatus::Error,
        HostState::Detached => OperationalStatus::Detached,
        _ => OperationalStatus::Ok,
    }
}

fn provisioning(state: HostState, before: ProvisioningState) -> ProvisioningState {
    match state {
        HostState::Discovered => ProvisioningState::Unmanaged,
        HostState::Registering => ProvisioningState::Registering,
        HostState::Inspecting => ProvisioningState::Inspecting,
        // Nobody has claimed it, whatever is on its disk already.
        HostState::Available | HostState::Staged => ProvisioningState::Available,
        HostState::Provisioning => ProvisioningState::Provisioning,
        HostState::Provisioned | HostState::Running => ProvisioningState::Provisioned,
        HostState::External => ProvisioningState::ExternallyProvisioned,
        HostState::Deprovisioning => ProvisioningState::Deprovisioning,
        HostState::Deleting => ProvisioningState::Deleting,
        HostState::Failed | HostState::Detached => before,
    }
}

fn error_type(host: &Host) -> ErrorType {
    use firstlight_ironic::ProvisionState as S;
    match host.node.as_ref().map(|node| &node.provision_state) {
        None | Some(S::Enroll | S::Verifying) => ErrorType::Registration,
        Some(S::Manageable | S::Inspecting | S::InspectWait | S::InspectFailed) => {
            ErrorType::Inspection
        }
        Some(S::Cleaning | S::CleanWait | S::CleanFailed) => ErrorType::Preparation,
        Some(_) => ErrorType::Provisioning,
    }
}

/// Failed attempts so far: the one under way has not failed.
fn error_count(host: &Host) -> u32 {
    use firstlight_ironic::ProvisionState as S;
    let Some(node) = &host.node else { return 0 };
    let attempts = node.extra[super::plan::EXTRA_ATTEMPT].as_u64().unwrap_or(0);
    let failed = match node.provision_state {
        S::DeployFailed => attempts,
        S::Deploying | S::DeployWait => attempts.saturating_sub(1),
        _ => 0,
    };
    u32::try_from(failed).unwrap_or(u32::MAX)
}

/// Begins the operation that the new state belongs to and ends the one before, at the change.
fn history(
    mut history: OperationHistory,
    before: ProvisioningState,
    after: ProvisioningState,
    now: &str,
) -> OperationHistory {
    if after == before {
        return history;
    }
    if let Some(metric) = operation(&mut history, before).filter(|metric| metric.start.is_some()) {
        metric.end = Some(now.to_owned());
    }
    if let Some(metric) = operation(&mut history, after) {
        *metric = OperationMetric {
            start: Some(now.to_owned()),
            end: None,
        };
    }
    history
}

fn operation(
    history: &mut OperationHistory,
    state: ProvisioningState,
) -> Option<&mut OperationMetric> {
    match state {
        ProvisioningState::Registering => Some(&mut history.register),
        ProvisioningState::Inspecting => Some(&mut history.inspect),
        ProvisioningState::Provisioning => Some(&mut history.provision),
        ProvisioningState::Deprovisioning => Some(&mut history.deprovision),
        _ => None,
    }
}

/// The address that the host had when its ramdisk last reported.
pub fn known_address(object: &BareMetalHost) -> Option<Ipv4Addr> {
    let nics = &object.status.as_ref()?.hardware.as_ref()?.nics;
    nics.iter().find(|nic| nic.pxe)?.ip.parse().ok()
}

/// A changed `lastUpdated` alone is no reason to write.
pub fn same_but_for_times(old: &ObjectTarget, new: &mut ObjectTarget) -> bool {
    let stamp = |desired: &mut ObjectTarget, time| {
        let status = desired.host.status.as_mut()?;
        std::mem::replace(&mut status.last_updated, time)
    };
    let status = old.host.status.as_ref();
    let now = stamp(new, status.and_then(|status| status.last_updated.clone()));
    let same = old == new;
    stamp(new, now);
    same
}
