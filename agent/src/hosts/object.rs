//! A host as a `BareMetalHost`: what a person who knows Metal3 expects to read.

use std::net::Ipv4Addr;

use firstlight_api::{
    bmh::{
        BareMetalHost, BareMetalHostSpec, BareMetalHostStatus, BootMode, ChecksumType, ErrorType,
        HardwareDetails, Image, OperationHistory, OperationMetric, OperationalStatus,
        ProvisionStatus, ProvisioningState,
    },
    status::HostState,
};

use super::{image::NodeImage, record::Record};

/// Where `kubectl get bmh` looks without being told.
pub const NAMESPACE: &str = "default";

/// The object as it should be. `old` is the one in the API: its times stay, and what it knows that we forgot.
/// `now` is RFC 3339.
pub fn desired(record: &Record, image: Option<(&NodeImage, &str)>, now: &str) -> BareMetalHost {
    let old = record.object.as_ref();
    let status = record.status();
    let image = image
        .filter(|_| is_installing(status.state))
        .map(|(image, box_http)| Image {
            url: image.url(box_http),
            checksum: image.sha256.clone(),
            checksum_type: Some(ChecksumType::Sha256),
            format: Some("raw".to_owned()),
            ..Image::default()
        });
    let boot_mode = boot_mode(record).or_else(|| old?.spec.boot_mode);
    let spec = BareMetalHostSpec {
        online: true,
        boot_mac_address: status.mac.clone(),
        boot_mode,
        image: image.clone().or_else(|| old?.spec.image.clone()),
        architecture: "x86_64".to_owned(),
        disable_power_off: true,
        ..BareMetalHostSpec::default()
    };
    let mut host = BareMetalHost::new(&record.name, NAMESPACE, spec);
    let before = old.and_then(|old| old.status.clone()).unwrap_or_default();
    let hardware = record
        .report
        .as_ref()
        .map(|(report, _)| HardwareDetails::from_inventory(&report.inventory));
    let failed = status.state == HostState::Failed;
    let problem = status.problem.as_ref();
    let mut new = BareMetalHostStatus {
        operational_status: operational(status.state),
        error_type: failed.then(|| error_type(record)),
        error_message: problem
            .map(|problem| format!("{}; {}", problem.what, problem.next))
            .unwrap_or_default(),
        error_count: error_count(record),
        powered_on: true,
        provisioning: ProvisionStatus {
            state: provisioning(status.state, before.provisioning.state),
            id: record
                .node
                .as_ref()
                .map_or(before.provisioning.id, |node| node.uuid.clone()),
            image: image
                .filter(|_| is_installed(status.state))
                .or(before.provisioning.image),
            boot_mode,
            ..ProvisionStatus::default()
        },
        hardware: hardware.or(before.hardware),
        operation_history: history(
            before.operation_history,
            before.provisioning.state,
            status.state,
            now,
        ),
        last_updated: before.last_updated,
        ..BareMetalHostStatus::default()
    };
    // A changed time alone is no reason to write.
    if host_status_differs(old, &new) {
        new.last_updated = Some(now.to_owned());
    }
    host.status = Some(new);
    host
}

fn host_status_differs(old: Option<&BareMetalHost>, new: &BareMetalHostStatus) -> bool {
    old.and_then(|old| old.status.as_ref()) != Some(new)
}

fn is_installed(state: HostState) -> bool {
    matches!(state, HostState::Provisioned | HostState::Running)
}

fn is_installing(state: HostState) -> bool {
    state == HostState::Provisioning || is_installed(state)
}

fn boot_mode(record: &Record) -> Option<BootMode> {
    let (report, _) = record.report.as_ref()?;
    match report.inventory["boot"]["current_boot_mode"].as_str()? {
        "uefi" => Some(BootMode::Uefi),
        "bios" => Some(BootMode::Legacy),
        _ => None,
    }
}

fn operational(state: HostState) -> OperationalStatus {
    match state {
        HostState::Discovered => OperationalStatus::Discovered,
        HostState::Failed => OperationalStatus::Error,
        _ => OperationalStatus::Ok,
    }
}

fn provisioning(state: HostState, before: ProvisioningState) -> ProvisioningState {
    match state {
        HostState::Discovered => ProvisioningState::Unmanaged,
        HostState::Registering => ProvisioningState::Registering,
        HostState::Inspecting => ProvisioningState::Inspecting,
        HostState::Available => ProvisioningState::Available,
        HostState::Provisioning => ProvisioningState::Provisioning,
        HostState::Provisioned | HostState::Running => ProvisioningState::Provisioned,
        // The error type says that it failed; the state stays where that happened.
        HostState::Failed => before,
    }
}

fn error_type(record: &Record) -> ErrorType {
    use firstlight_ironic::ProvisionState as S;
    match record.node.as_ref().map(|node| &node.provision_state) {
        None | Some(S::Enroll | S::Verifying) => ErrorType::Registration,
        Some(S::Manageable | S::Inspecting | S::InspectWait | S::InspectFailed) => {
            ErrorType::Inspection
        }
        Some(S::Cleaning | S::CleanWait | S::CleanFailed) => ErrorType::Preparation,
        Some(_) => ErrorType::Provisioning,
    }
}

/// Failed attempts so far: the one under way has not failed.
fn error_count(record: &Record) -> u32 {
    use firstlight_ironic::ProvisionState as S;
    let Some(node) = &record.node else { return 0 };
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
    state: HostState,
    now: &str,
) -> OperationHistory {
    let after = provisioning(state, before);
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
        _ => None,
    }
}

/// The address that the host had when its ramdisk last reported.
pub fn known_address(object: &BareMetalHost) -> Option<Ipv4Addr> {
    let nics = &object.status.as_ref()?.hardware.as_ref()?.nics;
    nics.iter().find(|nic| nic.pxe)?.ip.parse().ok()
}

/// A changed `lastUpdated` alone is no reason to write.
pub fn same_but_for_times(old: &[BareMetalHost], new: &[BareMetalHost]) -> bool {
    let timeless = |host: &BareMetalHost| {
        let mut host = host.clone();
        if let Some(status) = &mut host.status {
            status.last_updated = None;
        }
        host
    };
    old.len() == new.len()
        && old
            .iter()
            .zip(new)
            .all(|(old, new)| timeless(old) == timeless(new))
}
