//! `Addon` (`firstlight.internal/v1alpha1`): a Helm chart or manifests on a workload cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::object::{Condition, Object};

/// Of the box's own kinds.
pub const GROUP: &str = "firstlight.internal";
/// The only one that is served.
pub const VERSION: &str = "v1alpha1";
/// As in a manifest.
pub const KIND: &str = "Addon";
/// As in the API's URLs.
pub const PLURAL: &str = "addons";
/// Kept until Helm has removed what it installed.
pub const FINALIZER: &str = "firstlight.internal/addon";

/// Its name is that of the Helm release.
pub type Addon = Object<AddonSpec, AddonStatus>;

/// Exactly one of `chart`, `builtin` and `manifests` is set; `crd-addon.yaml` holds that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddonSpec {
    /// Name of the `Cluster`, in the same namespace. It cannot be changed.
    pub cluster: String,
    /// A chart of the box's store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Chart>,
    /// An addon that the stick brings: a folder below `/usr/share/firstlight/addons` of the box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<String>,
    /// Kubernetes objects as YAML documents, installed as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifests: Option<String>,
    /// Where objects go that name no namespace, made if it is not there. It cannot be changed; where it is absent, the API server
    /// writes `default`.
    #[serde(default)]
    pub namespace: String,
    /// Helm's values, over those of the chart.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
    /// What must be ready before: names of Addons of this namespace, or `software/NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

/// What `firstlight push` put into the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chart {
    /// As in its `Chart.yaml`.
    pub name: String,
    /// The exact one, as in its `Chart.yaml`; another one is an upgrade.
    pub version: String,
}

/// Written by the agent's `addons`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddonStatus {
    /// Where it is on its way.
    #[serde(default)]
    pub state: AddonState,
    /// Why it is not ready, with the object that is to blame; empty if it is.
    #[serde(default)]
    pub message: String,
    /// What Helm has installed, as `NAME-VERSION`; empty until it has.
    #[serde(default)]
    pub chart: String,
    /// Digest of the wish that Helm was given last; another one is an upgrade.
    #[serde(default)]
    pub installed: String,
    /// `metadata.generation` of the spec that this is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// `Ready`, for programs.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// Written as here, in upper camel case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AddonState {
    /// It waits for something that it names.
    #[default]
    Pending,
    /// Helm is at work, or an object is not well yet.
    Installing,
    /// All that was installed is well.
    Ready,
    /// Helm refused it, or a pod of it cannot run; it is tried again.
    Failed,
    /// It was deleted, and Helm takes away what it had installed.
    Removing,
}

impl AddonState {
    /// As it is written in objects and on the page.
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
