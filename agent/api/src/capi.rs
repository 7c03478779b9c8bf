//! Cluster API objects (`cluster.x-k8s.io/v1beta2`), as far as the infrastructure provider reads them. The agent makes them
//! as plain values (`agent/src/clusters`); their schema is Cluster API's own.

use serde::{Deserialize, Serialize};

use crate::object::{Condition, Object, is_zero};

/// Of `Cluster`, `Machine` and `MachineDeployment`.
pub const GROUP: &str = "cluster.x-k8s.io";
/// Of `KubeadmControlPlane`.
pub const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io";
/// Of `KubeadmConfigTemplate`.
pub const BOOTSTRAP_GROUP: &str = "bootstrap.cluster.x-k8s.io";
/// Of `ClusterResourceSet`.
pub const ADDONS_GROUP: &str = "addons.cluster.x-k8s.io";
/// In which objects of all these groups are read and written.
pub const VERSION: &str = "v1beta2";

/// On every object that belongs to a cluster.
pub const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// On machines of the control plane, without a value.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
/// On machines of a control plane: the name of their `KubeadmControlPlane`.
pub const CONTROL_PLANE_NAME_LABEL: &str = "cluster.x-k8s.io/control-plane-name";
/// On machines of a deployment: the name of their `MachineDeployment`.
pub const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";
/// On any object: its controller leaves it alone, whatever the value.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// On an object of the infrastructure, as annotation or label: another controller looks after it, whatever the value.
pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";
/// On a machine: the next one to go when its set becomes smaller.
pub const DELETE_MACHINE_ANNOTATION: &str = "cluster.x-k8s.io/delete-machine";
/// On a machine: before its drain another node answers for addresses of services; the agent takes it off when that is so.
pub const BALANCER_HOOK: &str =
    "pre-drain.delete.hook.machine.cluster.x-k8s.io/firstlight-load-balancer";
/// On a machine: its pods are left where they are, whatever the value.
pub const NO_DRAIN_ANNOTATION: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// On an object that was cloned from a template: the template's name.
pub const TEMPLATE_NAME_ANNOTATION: &str = "cluster.x-k8s.io/cloned-from-name";

/// `Cluster` of [`GROUP`]. Its spec is `clusters`' or a person's, its status Cluster API's.
pub type Cluster = Object<ClusterSpec, ClusterStatus>;
/// `Machine` of [`GROUP`], made by Cluster API's managers.
pub type Machine = Object<MachineSpec, MachineStatus>;
/// A `KubeadmControlPlane` or a `MachineDeployment`: whatever has machines.
pub type Replicated = Object<ReplicatedSpec, ReplicatedStatus>;

/// Of upstream's `ClusterSpec` what is read here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// `true`: nobody does anything to objects of this cluster.
    #[serde(default)]
    pub paused: Option<bool>,
    /// Where its API is; Cluster API takes it over from the `Metal3Cluster`.
    #[serde(default)]
    pub control_plane_endpoint: Endpoint,
}

/// Upstream's `APIEndpoint`; both fields are absent while nobody knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Address or name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// TCP; 0: not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub port: u16,
}

impl Endpoint {
    /// Both are known.
    pub fn is_whole(&self) -> bool {
        !self.host.is_empty() && self.port != 0
    }
}

/// Of upstream's `ClusterStatus` what is read here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// How far the first machine is.
    #[serde(default)]
    pub initialization: ClusterInitialization,
    /// For people: `Pending`, `Provisioning`, `Provisioned`, `Deleting`, `Failed`.
    #[serde(default)]
    pub phase: String,
    /// `Available` among them, whose message says why a cluster is not.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// What Cluster API says once: neither turns back to `false`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInitialization {
    /// The `Metal3Cluster` is ready, so machines may get hosts.
    #[serde(default)]
    pub infrastructure_provisioned: bool,
    /// The API answered once: other machines may join.
    #[serde(default)]
    pub control_plane_initialized: bool,
}

/// Of upstream's `MachineSpec` what is read here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// The `Cluster` in the machine's namespace that it belongs to.
    #[serde(default)]
    pub cluster_name: String,
    /// What the machine becomes on its first start.
    #[serde(default)]
    pub bootstrap: Bootstrap,
    /// Of Kubernetes, `v1.34.1`; empty where it was not given.
    #[serde(default)]
    pub version: String,
    /// Where the host should stand; preferred, not demanded. Empty: anywhere.
    #[serde(default)]
    pub failure_domain: String,
}

/// Of upstream's `Bootstrap` what is read here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// Secret in the machine's namespace with cloud-init's user data; absent until the bootstrap provider has made it.
    #[serde(default)]
    pub data_secret_name: Option<String>,
}

/// Of upstream's `MachineStatus` what is read here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Its node; absent until it has joined.
    #[serde(default)]
    pub node_ref: Option<NodeRef>,
    /// For people: `Pending`, `Provisioning`, `Provisioned`, `Running`, `Deleting`, `Failed`.
    #[serde(default)]
    pub phase: String,
    /// `Ready` among them, whose message says why a machine is not.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// Upstream's `MachineNodeReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRef {
    /// Of the `Node` in the workload cluster.
    #[serde(default)]
    pub name: String,
}

/// Of either kind's spec what is read here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedSpec {
    /// Machines that are wanted; absent until the API server has set its default.
    #[serde(default)]
    pub replicas: Option<u32>,
    /// Of Kubernetes, `v1.34.1`. Empty for a `MachineDeployment`, which has it in its template.
    #[serde(default)]
    pub version: String,
    /// Empty for a `KubeadmControlPlane`, which has only [`CLUSTER_LABEL`].
    #[serde(default)]
    pub cluster_name: String,
}

/// Of either kind's status what is read here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedStatus {
    /// Machines that are ready, as Cluster API counts them.
    #[serde(default)]
    pub ready_replicas: Option<u32>,
    /// Of Kubernetes: the lowest one among machines of a control plane. Empty for a `MachineDeployment`.
    #[serde(default)]
    pub version: String,
}
