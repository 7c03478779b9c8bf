//! The box's state partition, encrypted: what opens it, as `firstlight-update` tells the agent and the agent tells people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::Problem;

/// In a file below `/run`, and in the status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SealStatus {
    /// What keeps the key of the state partition.
    pub root_of_trust: RootOfTrust,
    /// Why nothing does, as a half sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When the TPM gives the key out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Somebody was given a recovery key.
    #[serde(default)]
    pub recovery_key: bool,
    /// Why it does not open, or why a recovery key was needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl SealStatus {
    /// For people.
    pub fn sentence(&self) -> String {
        match (self.root_of_trust, self.bound, self.recovery_key) {
            (RootOfTrust::None, ..) => format!(
                "What the box remembers is not encrypted: {}. Whoever has the stick can read it (rootOfTrust: none).",
                self.reason
            ),
            (_, Some(Bound::Start), _) => "What the box remembers is encrypted, and sealed to this machine and to what it starts.".to_owned(),
            (_, _, true) => "What the box remembers is encrypted, and sealed to this machine. Its firmware does not measure what it starts.".to_owned(),
            (_, _, false) => "What the box remembers is encrypted, and sealed to this machine. Nobody has a recovery key for the day when the machine dies: `firstlight seal` gives one.".to_owned(),
        }
    }
}

/// Opens the state where the TPM does not; shown once, and kept nowhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryKey(
    /// As a person types it.
    pub String,
);

impl std::fmt::Debug for RecoveryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecoveryKey")
    }
}

/// What keeps the key of the state partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RootOfTrust {
    /// Nothing: whoever has the stick can read it.
    #[default]
    None,
    /// This machine's TPM 2.
    Tpm,
}

/// When a TPM gives the key out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Bound {
    /// On this machine, whatever it has started.
    Machine,
    /// On this machine, after firmware, loader, kernel, initramfs and command line that it was sealed to.
    Start,
}
