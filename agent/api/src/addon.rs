//! `Addon` (`firstlight.internal/v1alpha1`): a Helm chart or manifests on a workload cluster.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::object::{Condition, Object};

pub const GROUP: &str = "firstlight.internal";
pub const VERSION: &str = "v1alpha1";
pub const KIND: &str = "Addon";
pub const PLURAL: &str = "addons";
/// Kept until Helm has removed what it installed.
pub const FINALIZER: &str = "firstlight.internal/addon";

pub type Addon = Object<AddonSpec, AddonStatus>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddonSpec {
    pub cluster: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Chart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifests: Option<String>,
    #[serde(default)]
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chart {
    pub name: String,
    pub version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddonStatus {
    #[serde(default)]
    pub state: AddonState,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub chart: String,
    #[serde(default)]
    pub installed: String,
    #[serde(default)]
    pub observed_generation: i64,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddonState {
    /// It waits for something that it names.
    #[default]
    Pending,
    Installing,
    Ready,
    Failed,
    Removing,
}

impl AddonState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Installing => "Installing",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
            Self::Removing => "Removing",
        }
    }
}
