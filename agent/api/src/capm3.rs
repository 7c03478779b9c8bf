//! `Metal3Cluster`, `Metal3Machine` and their relatives of `infrastructure.cluster.x-k8s.io/v1beta2`: field names and meanings
//! are those of cluster-api-provider-metal3 1.13 and 1.14.
//!
//! Version v1beta1 is converted to this one and back ([`v1beta1`]).
//! To add a field: here, in the CRD, and in the test in `agent/src/machines` that compares both.

mod cluster;
mod data;
mod machine;
mod pools;
mod remediation;
pub mod v1beta1;

pub use cluster::{FailureDomain, Metal3Cluster, Metal3ClusterSpec, Metal3ClusterStatus};
pub use data::{
    AnnotationOf, BondParameter, DataTemplateSpec, DataTemplateStatus, Dhcp, FromAnnotation,
    FromHostInterface, FromLabel, FromObjectName, IndexEntry, Link, LinkMac, MetaDataTemplate,
    Metal3DataTemplate, NamedIndex, NamedNamespace, NamedString, NetworkDataTemplate, NetworkLinks,
    Networks, ObjectKind, Route,
};
pub use machine::{
    CustomDeploy, HostSelector, Initialization, MachineAddress, MachineImage, Metal3Machine,
    Metal3MachineSpec, Metal3MachineStatus, Metal3MachineTemplate, Metal3MachineTemplateSpec,
    ObjectRef, Operator, Requirement, SecretRef, TemplateResource,
};
pub use pools::{FromPool, Gateway, NetworkServices, PoolChoice, StaticNetwork};
pub use remediation::{
    Metal3Remediation, RemediationPhase, RemediationSpec, RemediationStatus, RemediationStrategy,
};

/// Of all kinds here.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// The only one that is stored.
pub const VERSION: &str = "v1beta2";
/// [`GROUP`] and [`VERSION`], as in a manifest.
pub const API_VERSION: &str = "infrastructure.cluster.x-k8s.io/v1beta2";

/// Holds a deleted `Metal3Cluster` back while it has machines.
pub const CLUSTER_FINALIZER: &str = "metal3cluster.infrastructure.cluster.x-k8s.io";
/// On a claim of an address: a machine uses it, or may still.
pub const DATA_FINALIZER: &str = "metal3data.infrastructure.cluster.x-k8s.io";
/// Holds a deleted `Metal3Machine` back until its host is given back.
pub const MACHINE_FINALIZER: &str = "metal3machine.infrastructure.cluster.x-k8s.io";

/// Holds a deleted `Metal3Remediation` back until its host may be on and its node is as it was.
pub const REMEDIATION_FINALIZER: &str = "metal3remediation.infrastructure.cluster.x-k8s.io";
/// On a host, with the UID of a `Metal3Remediation` behind it: that keeps it off.
pub const REMEDIATION_POWER_OFF: &str = "reboot.metal3.io/metal3-remediation-";

/// On a `Metal3Machine`: `NAMESPACE/NAME` of its host, or of the one that it is about to claim.
pub const HOST_ANNOTATION: &str = "metal3.io/BareMetalHost";
/// On a host: where it stands.
pub const FAILURE_DOMAIN_LABEL: &str = "infrastructure.cluster.x-k8s.io/failure-domain";
/// On a host: the owner whose next machine it is kept for.
pub const NODE_REUSE_LABEL: &str = "infrastructure.cluster.x-k8s.io/node-reuse";
/// On a host: not to be chosen. The second is the older spelling.
pub const UNHEALTHY_ANNOTATIONS: [&str; 2] =
    ["capm3.metal3.io/unhealthy", "capi.metal3.io/unhealthy"];
/// Value of the first of them where a remediation gave up on it.
pub const UNHEALTHY_NODE: &str = "capm3/UnhealthyNode";
/// On a host: left alone by its controller; the value says who wants that.
pub const HOST_PAUSED_ANNOTATION: &str = "baremetalhost.metal3.io/paused";
/// The value by which a pause that followed a cluster's is known again, and taken away with that.
pub const HOST_PAUSED_BY_US: &str = "metal3.io/capm3";
/// On a host: not to be chosen, as Ironic does not know it.
pub const HOST_DETACHED_ANNOTATION: &str = "baremetalhost.metal3.io/detached";
/// `clusterctl move` waits while it is there: until the host is paused, and its status is where it travels.
pub const BLOCK_MOVE_ANNOTATION: &str = "clusterctl.cluster.x-k8s.io/block-move";
/// On a node: the UID of its host, for clusters whose kubelet is not given a provider ID.
pub const NODE_UUID_LABEL: &str = "metal3.io/uuid";
/// On a host: which machines of a cluster it may become, stronger than `site.yaml`.
pub const ROLE_LABEL: &str = "firstlight.internal/role";
/// On a host: the cluster whose machines alone may have it, stronger than `site.yaml`.
pub const FOR_CLUSTER_LABEL: &str = "firstlight.internal/cluster";
/// On a host: UID of the last `Metal3Machine` that gave it back, or gave up claiming it.
pub const GIVEN_UP_ANNOTATION: &str = "firstlight.internal/given-up-by";
/// On a host that a control plane was given to: it gets the keys of its cluster only while it is trusted.
pub const CONTROL_PLANE_ANNOTATION: &str = "firstlight.internal/control-plane";
/// On a `Metal3Machine` that is being deleted: do not wait for its host, which is dead.
pub const FORGET_HOST_ANNOTATION: &str = "firstlight.internal/forget-host";
/// On a `Metal3Remediation`: a sentence that says what it waits for, or why it ended.
pub const REASON_ANNOTATION: &str = "firstlight.internal/reason";
