//! Kubernetes Events about a host: what `kubectl describe bmh` shows below its status. Pure. The reasons are Metal3's.

use std::collections::BTreeMap;

use firstlight_api::bmh::{BareMetalHostStatus, ErrorType, ProvisioningState};

use crate::hosts::store::HostEvent;

/// What lies between two statuses; without an old one nothing has happened before.
pub fn between(old: Option<&BareMetalHostStatus>, new: &BareMetalHostStatus) -> Vec<HostEvent> {
    let nothing = BareMetalHostStatus::default();
    let old = old.unwrap_or(&nothing);
    let mut events = Vec::new();
    let (before, after) = (old.provisioning.state, new.provisioning.state);
    if before != after {
        let ended = ended(before, after).map(|reason| (reason, old));
        let begun = begun(after).map(|reason| (reason, new));
        events.extend(
            ended
                .into_iter()
                .chain(begun)
                .map(|(reason, status)| HostEvent {
                    is_warning: false,
                    reason,
                    note: note(reason, status, new),
                }),
        );
    }
    if !new.error_message.is_empty() && new.error_message != old.error_message {
        events.push(HostEvent {
            is_warning: true,
            reason: trouble(new.error_type),
            note: new.error_message.clone(),
        });
    }
    events
}

/// Of annotations that go, those that were not acted on.
pub fn refused(gone: &[String], refused: &BTreeMap<&'static str, String>) -> Vec<HostEvent> {
    let refused = refused
        .iter()
        .filter(|(name, _)| gone.iter().any(|gone| gone == *name));
    refused
        .map(|(name, why)| HostEvent {
            is_warning: true,
            reason: "Refused",
            note: format!("{name} was not done: {why}"),
        })
        .collect()
}

fn ended(before: ProvisioningState, after: ProvisioningState) -> Option<&'static str> {
    use ProvisioningState as S;
    match (before, after) {
        (_, S::Unmanaged | S::Deleting) => None,
        (S::Registering, _) => Some("Registered"),
        (S::Inspecting, _) => Some("InspectionComplete"),
        (S::Provisioning, S::Provisioned) => Some("ProvisioningComplete"),
        (S::Deprovisioning, _) => Some("DeprovisioningComplete"),
        _ => None,
    }
}

fn begun(after: ProvisioningState) -> Option<&'static str> {
    use ProvisioningState as S;
    match after {
        S::Inspecting => Some("InspectionStarted"),
        S::Provisioning => Some("ProvisioningStarted"),
        S::Deprovisioning => Some("DeprovisioningStarted"),
        S::ExternallyProvisioned => Some("ExternallyProvisioned"),
        _ => None,
    }
}

fn note(reason: &str, of: &BareMetalHostStatus, new: &BareMetalHostStatus) -> String {
    let image = new
        .provisioning
        .image
        .as_ref()
        .or(of.provisioning.image.as_ref());
    let image = image.map_or("its image", |image| &image.url);
    match reason {
        "Registered" => "Ironic knows the server".to_owned(),
        "InspectionStarted" => "its ramdisk looks at its hardware".to_owned(),
        "InspectionComplete" => "what it is made of is in status.hardware".to_owned(),
        "ProvisioningStarted" => "an image is being written to its disk".to_owned(),
        "ProvisioningComplete" => format!("{image} is on its disk"),
        "DeprovisioningStarted" => "it is being given back".to_owned(),
        "DeprovisioningComplete" => "it is free again".to_owned(),
        _ => "it carries a system that nobody here installed".to_owned(),
    }
}

fn trouble(kind: Option<ErrorType>) -> &'static str {
    match kind {
        Some(ErrorType::Registration | ErrorType::ProvisionedRegistration) => "RegistrationError",
        Some(ErrorType::Inspection) => "InspectionError",
        Some(ErrorType::Preparation) => "PreparationError",
        Some(ErrorType::Provisioning) => "ProvisioningError",
        Some(ErrorType::PowerManagement) => "PowerManagementError",
        _ => "NeedsAttention",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: ProvisioningState, error: &str) -> BareMetalHostStatus {
        let mut status = BareMetalHostStatus {
            error_message: error.to_owned(),
            ..BareMetalHostStatus::default()
        };
        status.provisioning.state = state;
        status
    }

    #[test]
    fn each_step_of_a_host_and_each_new_trouble_is_told_once() {
        use ProvisioningState as S;
        let way = [
            (S::Registering, "", vec![]),
            (S::Inspecting, "", vec!["Registered", "InspectionStarted"]),
            (S::Inspecting, "no disk", vec!["NeedsAttention"]),
            (S::Inspecting, "no disk", vec![]),
            (S::Available, "", vec!["InspectionComplete"]),
            (S::Provisioning, "", vec!["ProvisioningStarted"]),
            (S::Available, "", vec![]),
            (S::Provisioning, "", vec!["ProvisioningStarted"]),
            (S::Provisioned, "", vec!["ProvisioningComplete"]),
            (S::Deprovisioning, "", vec!["DeprovisioningStarted"]),
            (S::Available, "", vec!["DeprovisioningComplete"]),
            (S::Deleting, "", vec![]),
        ];
        let mut old = None;
        for (state, error, reasons) in way {
            let new = status(state, error);
            let told = between(old.as_ref(), &new);
            let found: Vec<_> = told.iter().map(|event| event.reason).collect();
            assert_eq!(found, reasons, "{state:?} {error}");
            assert!(
                told.iter()
                    .all(|event| event.is_warning == (event.note == error))
            );
            old = Some(new);
        }
    }
}
