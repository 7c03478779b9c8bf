//! What the agent says of a host.

use serde::{Deserialize, Serialize};

use super::{
    BootMode, Condition, CustomDeploy, FirmwareConfig, HardwareDetails, Image, RaidConfig,
    RootDeviceHints, SecretReference,
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHostStatus {
    pub operational_status: OperationalStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<ErrorType>,
    pub error_message: String,
    #[serde(default)]
    pub error_count: u32,
    pub powered_on: bool,
    pub provisioning: ProvisionStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareDetails>,
    #[serde(default)]
    pub operation_history: OperationHistory,
    /// RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
    /// Of old; means nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hardware_profile: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_credentials: Option<CredentialsStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried_credentials: Option<CredentialsStatus>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretReference>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub credentials_version: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationalStatus {
    #[default]
    #[serde(rename = "")]
    None,
    #[serde(rename = "OK")]
    Ok,
    /// Known, and not managed: nobody may write to it yet.
    #[serde(rename = "discovered")]
    Discovered,
    #[serde(rename = "error")]
    Error,
    #[serde(rename = "delayed")]
    Delayed,
    #[serde(rename = "detached")]
    Detached,
    #[serde(rename = "servicing")]
    Servicing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorType {
    #[serde(rename = "provisioned registration error")]
    ProvisionedRegistration,
    #[serde(rename = "registration error")]
    Registration,
    #[serde(rename = "inspection error")]
    Inspection,
    #[serde(rename = "preparation error")]
    Preparation,
    #[serde(rename = "provisioning error")]
    Provisioning,
    #[serde(rename = "power management error")]
    PowerManagement,
    #[serde(rename = "detach error")]
    Detach,
    #[serde(rename = "servicing error")]
    Servicing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProvisioningState {
    #[default]
    #[serde(rename = "")]
    None,
    #[serde(rename = "unmanaged")]
    Unmanaged,
    #[serde(rename = "registering")]
    Registering,
    #[serde(rename = "match profile")]
    MatchProfile,
    #[serde(rename = "preparing")]
    Preparing,
    #[serde(rename = "ready")]
    Ready,
    #[serde(rename = "available")]
    Available,
    #[serde(rename = "provisioning")]
    Provisioning,
    #[serde(rename = "provisioned")]
    Provisioned,
    #[serde(rename = "externally provisioned")]
    ExternallyProvisioned,
    #[serde(rename = "deprovisioning")]
    Deprovisioning,
    #[serde(rename = "inspecting")]
    Inspecting,
    #[serde(rename = "powering off before delete")]
    PoweringOffBeforeDelete,
    #[serde(rename = "deleting")]
    Deleting,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionStatus {
    pub state: ProvisioningState,
    /// UUID of the Ironic node.
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_device_hints: Option<RootDeviceHints>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<BootMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<RaidConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationHistory {
    #[serde(default)]
    pub register: OperationMetric,
    #[serde(default)]
    pub inspect: OperationMetric,
    #[serde(default)]
    pub provision: OperationMetric,
    #[serde(default)]
    pub deprovision: OperationMetric,
}

/// RFC 3339, UTC; absent while it has not happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationMetric {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}
