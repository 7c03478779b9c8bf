use serde::{Deserialize, Serialize};

use crate::object::Object;

/// One unhealthy machine whose server is to be restarted. Cluster API's `MachineHealthCheck` makes it out of a
/// `Metal3RemediationTemplate`, named as the `Machine`.
pub type Metal3Remediation = Object<RemediationSpec, RemediationStatus>;

/// Upstream's `Metal3RemediationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemediationSpec {
    /// Absent: as with nothing said in it.
    #[serde(default)]
    pub strategy: RemediationStrategy,
}

/// Upstream's `RemediationStrategy`; restarting is the only one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemediationStrategy {
    /// Restarts after the first one that did not help.
    pub retry_limit: u32,
    /// That the server has after each restart.
    pub timeout_seconds: u32,
}

impl Default for RemediationStrategy {
    fn default() -> Self {
        Self {
            retry_limit: 1,
            timeout_seconds: 600,
        }
    }
}

/// Upstream's `Metal3RemediationStatus`, written by `remediation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemediationStatus {
    /// Absent: nothing was done yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RemediationPhase>,
    /// Restarts after the first one; 0 is not written.
    #[serde(default, skip_serializing_if = "crate::object::is_zero")]
    pub retry_count: u32,
    /// RFC 3339: when the attempt began, or its server could start again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_remediated: Option<String>,
}

/// Upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemediationPhase {
    /// The server is being switched off.
    Running,
    /// It may start again.
    Waiting,
    /// That did not help: the machine's owner may replace it.
    #[serde(rename = "Deleting machine")]
    DeletingMachine,
    /// A person keeps the server off.
    Failed,
}
