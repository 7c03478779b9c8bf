//! Cluster API objects (`cluster.x-k8s.io/v1beta2`), as far as the infrastructure provider reads them. The agent makes them
//! as plain values (`agent/src/clusters`); their schema is Cluster API's own.

use serde::{Deserialize, Serialize};

use crate::object::{Condition, Object, is_zero};

pub const GROUP: &str = "cluster.x-k8s.io";
pub const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io";
pub const BOOTSTRAP_GROUP: &str = "bootstrap.cluster.x-k8s.io";
pub const ADDONS_GROUP: &str = "addons.cluster.x-k8s.io";
pub const VERSION: &str = "v1beta2";

/// On every object that belongs to a cluster.
pub const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// On machines of the control plane, without a value.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
pub const CONTROL_PLANE_NAME_LABEL: &str = "cluster.x-k8s.io/control-plane-name";
pub const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";
/// On a machine: the next one to go when its set becomes smaller.
pub const DELETE_MACHINE_ANNOTATION: &str = "cluster.x-k8s.io/delete-machine";
pub const TEMPLATE_NAME_ANNOTATION: &str = "cluster.x-k8s.io/cloned-from-name";

pub type Cluster = Object<ClusterSpec, ClusterStatus>;
pub type Machine = Object<MachineSpec, MachineStatus>;
/// A `KubeadmControlPlane` or a `MachineDeployment`: whatever has machines.
pub type Replicated = Object<ReplicatedSpec, ReplicatedStatus>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    #[serde(default)]
    pub paused: Option<bool>,
    #[serde(default)]
    pub control_plane_endpoint: Endpoint,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub port: u16,
}

impl Endpoint {
    pub fn is_whole(&self) -> bool {
        !self.host.is_empty() && self.port != 0
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    #[serde(default)]
    pub initialization: ClusterInitialization,
    #[serde(default)]
    pub phase: String,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInitialization {
    #[serde(default)]
    pub infrastructure_provisioned: bool,
    #[serde(default)]
    pub control_plane_initialized: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    #[serde(default)]
    pub cluster_name: String,
    #[serde(default)]
    pub bootstrap: Bootstrap,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub failure_domain: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    #[serde(default)]
    pub data_secret_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    #[serde(default)]
    pub node_ref: Option<NodeRef>,
    #[serde(default)]
    pub phase: String,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRef {
    #[serde(default)]
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedSpec {
    #[serde(default)]
    pub replicas: Option<u32>,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub cluster_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedStatus {
    #[serde(default)]
    pub ready_replicas: Option<u32>,
    #[serde(default)]
    pub version: String,
}
