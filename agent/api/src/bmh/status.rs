//! What the agent says of a host.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::object::is_zero;

use super::{
    BootMode, Condition, CustomDeploy, FirmwareConfig, HardwareDetails, Image, RaidConfig,
    RootDeviceHints, SecretReference, hardware::shared,
};

/// Upstream's `BareMetalHostStatus`, every field of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BareMetalHostStatus {
    /// Whether all is well.
    pub operational_status: OperationalStatus,
    /// Where in its life it failed; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<ErrorType>,
    /// What is wrong, or why the host is left alone or waits, and what to do next; empty if all is well.
    pub error_message: String,
    /// Attempts at the installation under way that failed; 0 once it has succeeded.
    #[serde(default)]
    pub error_count: u32,
    /// Installations of [`last_attempted_image`](Self::last_attempted_image) that failed; 0 once it is there.
    #[serde(skip_serializing_if = "is_zero")]
    pub provisioning_fail_count: u32,
    /// What is being installed, or could not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_attempted_image: Option<Image>,
    /// As its BMC says; `true` without one.
    pub powered_on: bool,
    /// Where in its life the host is, and what it holds.
    pub provisioning: ProvisionStatus,
    /// As of its last report; absent until there is one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared")]
    pub hardware: Option<Arc<HardwareDetails>>,
    /// When each kind of operation took place last.
    #[serde(default)]
    pub operation_history: OperationHistory,
    /// RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
    /// Of old; means nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hardware_profile: String,
    /// Those with which its BMC answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_credentials: Option<CredentialsStatus>,
    /// Those of its Secret as it is now: they are tried, or were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried_credentials: Option<CredentialsStatus>,
    /// `Ready`, `Provisioned`, `AvailableForProvisioning`, [`TRUSTED`](super::TRUSTED),
    /// [`SPEC_HONOURED`](super::SPEC_HONOURED) and [`ROOT_DISK`](super::ROOT_DISK).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Upstream's `CredentialsStatus`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsStatus {
    /// Secret with `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretReference>,
    /// The `resourceVersion` that the Secret had then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub credentials_version: String,
}

/// Upstream's `OperationalStatus`. The agent says `OK`, `discovered`, `error` and `detached`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationalStatus {
    /// Nobody has looked at the object yet.
    #[default]
    #[serde(rename = "")]
    None,
    /// All is well, or its work is going on.
    #[serde(rename = "OK")]
    Ok,
    /// Known, and not managed: nobody may write to it yet.
    #[serde(rename = "discovered")]
    Discovered,
    /// It failed; the message says what to do.
    #[serde(rename = "error")]
    Error,
    /// Upstream's: too many others are being installed.
    #[serde(rename = "delayed")]
    Delayed,
    /// Ironic does not know it, by [`annotations::DETACHED`](super::annotations::DETACHED).
    #[serde(rename = "detached")]
    Detached,
    /// Upstream's: firmware of an installed host is being changed.
    #[serde(rename = "servicing")]
    Servicing,
}

/// Upstream's `ErrorType`. The agent says `registration error`, `inspection error`, `preparation error` and `provisioning error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorType {
    /// Upstream's: an installed host could not be registered again.
    #[serde(rename = "provisioned registration error")]
    ProvisionedRegistration,
    /// Ironic does not know it, or does not manage it yet.
    #[serde(rename = "registration error")]
    Registration,
    /// Ironic has no inventory of it.
    #[serde(rename = "inspection error")]
    Inspection,
    /// Its disks could not be cleaned.
    #[serde(rename = "preparation error")]
    Preparation,
    /// The image could not be written, or taken off again.
    #[serde(rename = "provisioning error")]
    Provisioning,
    /// Upstream's: it could not be switched on or off.
    #[serde(rename = "power management error")]
    PowerManagement,
    /// Upstream's: Ironic could not be made to forget it.
    #[serde(rename = "detach error")]
    Detach,
    /// Upstream's: its firmware could not be changed.
    #[serde(rename = "servicing error")]
    Servicing,
}

/// Upstream's `ProvisioningState`. A host that failed or is detached keeps the one that it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProvisioningState {
    /// Nobody has looked at the object yet.
    #[default]
    #[serde(rename = "")]
    None,
    /// Listed and left alone: no node of Ironic is made for it.
    #[serde(rename = "unmanaged")]
    Unmanaged,
    /// Ironic gets to know it.
    #[serde(rename = "registering")]
    Registering,
    /// Upstream's, of old.
    #[serde(rename = "match profile")]
    MatchProfile,
    /// Upstream's: RAID and firmware are being set up.
    #[serde(rename = "preparing")]
    Preparing,
    /// Upstream's, of old: [`Available`](ProvisioningState::Available).
    #[serde(rename = "ready")]
    Ready,
    /// Nobody uses it, whatever is on its disk already.
    #[serde(rename = "available")]
    Available,
    /// The image is being written.
    #[serde(rename = "provisioning")]
    Provisioning,
    /// The image is on its disk; its own system runs, or is about to.
    #[serde(rename = "provisioned")]
    Provisioned,
    /// It carries a system that nobody here installed.
    #[serde(rename = "externally provisioned")]
    ExternallyProvisioned,
    /// The image is being taken off again.
    #[serde(rename = "deprovisioning")]
    Deprovisioning,
    /// Its hardware is being looked at.
    #[serde(rename = "inspecting")]
    Inspecting,
    /// Upstream's: the host is switched off before Ironic forgets it.
    #[serde(rename = "powering off before delete")]
    PoweringOffBeforeDelete,
    /// It was deleted: it is cleaned, and Ironic forgets it.
    #[serde(rename = "deleting")]
    Deleting,
}

/// Upstream's `ProvisionStatus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisionStatus {
    /// On the page there are finer ones: [`crate::status::HostState`].
    pub state: ProvisioningState,
    /// UUID of the Ironic node.
    #[serde(rename = "ID")]
    pub id: String,
    /// What its disk holds, also on a free host that carries it ahead of a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Those of the last installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_device_hints: Option<RootDeviceHints>,
    /// As the ramdisk was started last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<BootMode>,
    /// Upstream's: kept as found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<RaidConfig>,
    /// Upstream's: kept as found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareConfig>,
    /// Upstream's: kept as found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
}

/// Upstream's `OperationHistory`: the last time of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationHistory {
    /// `registering`.
    #[serde(default)]
    pub register: OperationMetric,
    /// `inspecting`.
    #[serde(default)]
    pub inspect: OperationMetric,
    /// `provisioning`.
    #[serde(default)]
    pub provision: OperationMetric,
    /// `deprovisioning`.
    #[serde(default)]
    pub deprovision: OperationMetric,
}

/// RFC 3339, UTC; absent while it has not happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationMetric {
    /// When its state began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// When its state ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}
