//! `ClusterUpgrade` (`firstlight.internal/v1alpha1`): a cluster's way to another version of Kubernetes, or to other certificate
//! authorities, in place.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::Object;

/// Of the box's own kinds.
pub const GROUP: &str = "firstlight.internal";
/// The only one that is served.
pub const VERSION: &str = "v1alpha1";
/// As in a manifest.
pub const KIND: &str = "ClusterUpgrade";
/// As in a path of the API.
pub const PLURAL: &str = "clusterupgrades";
/// Kept while Cluster API is held off the cluster's machines.
pub const FINALIZER: &str = "firstlight.internal/upgrade";
/// On the cluster's `KubeadmControlPlane` and `MachineDeployment` objects: who holds them, `NAMESPACE/NAME`.
pub const HELD_ANNOTATION: &str = "firstlight.internal/held-for-upgrade";

/// Deleting one lets Cluster API go on; nodes stay at the version that they have.
pub type ClusterUpgrade = Object<ClusterUpgradeSpec, ClusterUpgradeStatus>;

/// Which cluster, and where it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeSpec {
    /// A `Cluster` of the same namespace.
    #[serde(default)]
    pub cluster: String,
    /// Of Kubernetes, `v1.37.2`: of the same minor version or of the next one. Empty with `rotate_authorities`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// `true`: it keeps its version, and gets other certificate authorities.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rotate_authorities: bool,
    /// `true`: it is planned, and no further node is begun.
    #[serde(default)]
    pub paused: bool,
    /// `true`: it goes on although somebody asks for APIs that the version no longer serves.
    #[serde(default)]
    pub allow_removed_apis: bool,
}

/// Written by the agent's `upgrades`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeStatus {
    /// How far it is.
    #[serde(default)]
    pub state: UpgradeState,
    /// What it waits for, or why it cannot go on and what to do about it.
    #[serde(default)]
    pub message: String,
    /// `2/3`: nodes that are at the version, and all of them.
    #[serde(default)]
    pub ready: String,
    /// `metadata.generation` of the spec that this is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// In the order in which they go: control planes first.
    #[serde(default)]
    pub nodes: Vec<NodeUpgrade>,
}

/// Written as here, in upper camel case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeState {
    /// Nobody has looked yet.
    #[default]
    Pending,
    /// It cannot begin, or go on, for the reason that the message gives; it is looked at again.
    Refused,
    /// It would go on: the spec says `paused`.
    Paused,
    /// Nodes are worked on.
    Upgrading,
    /// A node failed: no further one is touched before it is well. It is tried again.
    Stopped,
    /// All nodes are at the version, and Cluster API knows it.
    Done,
}

impl UpgradeState {
    /// As it is written in objects and on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Refused => "Refused",
            Self::Paused => "Paused",
            Self::Upgrading => "Upgrading",
            Self::Stopped => "Stopped",
            Self::Done => "Done",
        }
    }
}

/// One node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUpgrade {
    /// Its name in the cluster.
    pub name: String,
    /// Its `BareMetalHost`.
    #[serde(default)]
    pub host: String,
    /// Whether it runs the cluster's control plane.
    #[serde(default)]
    pub control_plane: bool,
    /// What its kubelet says: `v1.36.3`.
    #[serde(default)]
    pub version: String,
    /// What is being done with it.
    #[serde(default)]
    pub state: NodeUpgradeState,
    /// What it waits for, or why it failed.
    #[serde(default)]
    pub message: String,
}

/// Written as here, in upper camel case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeUpgradeState {
    /// For its turn.
    #[default]
    Waiting,
    /// kubeadm is at work; its pods run on.
    Upgrading,
    /// Its pods are moved away.
    Draining,
    /// Its kubelet starts as the new version.
    Restarting,
    /// It is at the version.
    Ready,
    /// For the reason in the message.
    Failed,
}

/// Of Kubernetes; the patch number comes last, so that they are in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// `1` of `v1.37.2`.
    pub major: u16,
    /// `37`.
    pub minor: u16,
    /// `2`; 0 where it is not said.
    pub patch: u16,
}

impl Release {
    /// `v1.37.2`, also with something behind it, or `1.37`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split(['-', '+']).next()?;
        let mut numbers = text.split('.').map(str::parse);
        let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let patch = numbers.next().unwrap_or(Ok(0)).ok()?;
        numbers.next().is_none().then_some(Self {
            major,
            minor,
            patch,
        })
    }

    /// Both are of one minor version.
    pub fn is_minor_of(self, other: Self) -> bool {
        (self.major, self.minor) == (other.major, other.minor)
    }

    /// It is of the minor version after the other's.
    pub fn is_next_of(self, other: Self) -> bool {
        self.major == other.major && self.minor == other.minor + 1
    }
}
