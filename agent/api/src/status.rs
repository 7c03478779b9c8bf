//! The one status value. The page, `/api/v1/status`, `/readyz`, `/metrics`, the console banner and
//! `firstlight boot --follow` all read it; nothing else is allowed to describe the box.
//!
//! Times are seconds since the box's kernel started (`uptime`), because the wall clock may still be wrong.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod host;
mod machine;

pub use host::{
    DiskSummary, DiskUse, FailedStep, HardwareSummary, HostControl, HostEvent, HostPower,
    HostState, HostStatus, MeasuredBootStatus, NicSummary, RootDiskState, RootDiskStatus,
    TpmStatus,
};
pub use machine::{BoxNic, MachineStatus, Space};

use crate::{
    addon::AddonState,
    artifact::Artifact,
    backup::BackupStatus,
    seal::SealStatus,
    software::{NodeStatus, SoftwareState},
    upgrade::UpgradeState,
};

/// Everything a person wants to know about a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteStatus {
    /// [`crate::site::SiteConfig::name`].
    pub site: String,
    /// Of the agent.
    pub version: String,
    /// Seconds since the box's kernel started, when this value was made.
    pub uptime: f64,
    /// Every step of `bring_up` is done.
    pub ready: bool,
    /// In the order in which the page lists them.
    pub bring_up: Vec<Step>,
    /// The provisioning network, as the box has it.
    pub network: NetworkStatus,
    /// What the box runs on.
    #[serde(default)]
    pub machine: MachineStatus,
    /// All servers that the box has heard of.
    pub hosts: Vec<HostStatus>,
    /// Workload clusters that Cluster API knows.
    #[serde(default)]
    pub clusters: Vec<ClusterStatus>,
    /// What runs on clusters besides Kubernetes.
    #[serde(default)]
    pub addons: Vec<AddonLine>,
    /// Ways of clusters to another version, or to other authorities, that are not over.
    #[serde(default)]
    pub upgrades: Vec<UpgradeLine>,
    /// Of the box's own system, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdateStage>,
    /// Packages on installed servers.
    #[serde(default)]
    pub software: Vec<SoftwareLine>,
    /// What people have put on the box.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    /// When the first certificate of each cluster ends.
    #[serde(default)]
    pub certificates: Vec<CertificateEnd>,
    /// What keeps the key of the box's state; `None` on a box that does not run from a stick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<SealStatus>,
    /// Those that the box makes by itself; `None` without `backup` in site.yaml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupStatus>,
    /// The last warnings of the box's programs before it was started this time, oldest first.
    #[serde(default)]
    pub before_start: Vec<String>,
    /// The last round of each controller.
    #[serde(default)]
    pub controllers: Vec<ControllerRound>,
    /// What a person should look at that belongs to no step and no host, e.g. a bad `site.yaml`.
    pub problems: Vec<Problem>,
    /// What the box's metrics say that a person should know of.
    #[serde(default)]
    pub alarms: Vec<Alarm>,
}

/// One rule that holds of the box's metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Alarm {
    /// Of the rule: `StickFull`.
    pub name: String,
    /// What it is, and what to do.
    #[serde(flatten)]
    pub problem: Problem,
}

/// What one of the box's controllers did last: it looked at its objects, planned and wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerRound {
    /// `machines`, `software`, `addons` or `hosts`.
    pub name: String,
    /// Uptime seconds at which it began.
    pub started: f64,
    /// How long it took, in seconds.
    pub took: f64,
    /// Why it looked.
    pub reason: RoundReason,
    /// Objects that could not be read, and steps that failed.
    pub failed: usize,
    /// The first of them, as sentences.
    pub failures: Vec<String>,
}

/// Why a controller looked at its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RoundReason {
    /// The controller was started.
    #[default]
    Start,
    /// Of an object.
    Change,
    /// Something else that it waited for: a task of its own told something, or it is asked for something else.
    News,
    /// Nothing happened for as long as it rests at most.
    Time,
}

/// Of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateEnd {
    /// Name of the `Cluster`.
    pub cluster: String,
    /// Seconds since 1970.
    pub end: i64,
}

/// One `Addon`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonLine {
    /// Of the object.
    pub name: String,
    /// That it is for.
    pub cluster: String,
    /// As in its status.
    pub state: AddonState,
    /// `NAME-VERSION`, once Helm has installed it.
    pub chart: String,
    /// Why it is not ready, with the object that is to blame.
    pub message: String,
}

/// One `ClusterUpgrade`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeLine {
    /// Of the object.
    pub name: String,
    /// That it is about.
    pub cluster: String,
    /// Where it goes: `Kubernetes v1.37.2`, or `other certificate authorities`.
    pub to: String,
    /// As in its status.
    pub state: UpgradeState,
    /// `2/3`: nodes that are there, and all of them.
    pub ready: String,
    /// The node that is worked on, what it waits for, or why it cannot go on and what to do.
    pub message: String,
}

/// What happens with an update of the box's own system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "stage", rename_all = "camelCase")]
pub enum UpdateStage {
    /// It is written beside the running one.
    Writing {
        /// Of writing and of reading back.
        percent: u8,
    },
    /// The running system is new, and goes back by itself unless the site is as well as before ten minutes after the start.
    Tried {
        /// What is not as well yet, as sentences.
        waits: Vec<String>,
    },
}

impl UpdateStage {
    /// For people.
    pub fn sentence(&self) -> String {
        match self {
            Self::Writing { percent } => format!("another system is written beside this one: {percent} %"),
            Self::Tried { waits } if waits.is_empty() => "this system is new, and stays if all is well for another moment; until then no server is installed".to_owned(),
            Self::Tried { waits } => format!(
                "this system is new, and goes back to the one before unless these are mended: {}; until then no server is installed",
                waits.join("; ")
            ),
        }
    }
}

/// One `Software`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareLine {
    /// Of the object.
    pub name: String,
    /// As in its status.
    pub state: SoftwareState,
    /// `2/3`: servers that are ready, and all that are selected.
    pub ready: String,
    /// Why not all is as wanted, and what to do about it.
    pub message: String,
    /// As in its status.
    pub nodes: Vec<NodeStatus>,
}

/// One step of the box's bring-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Fixed name, e.g. `state`, `network`, `pki`, `etcd`, `apiserver`, `node`, `coredns`, `ironic`, `cluster-api`.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// On the wire a key `state`, with the fields of its variant.
    #[serde(flatten)]
    pub state: StepState,
}

/// `started` and `ended` are uptime seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum StepState {
    /// It has not begun.
    Waiting,
    /// For the first time or again.
    Running {
        /// When it began the first time: retries keep it.
        started: f64,
    },
    /// It is as it has to be.
    Done {
        /// When it began the first time.
        started: f64,
        /// When it was done.
        ended: f64,
    },
    /// The last try failed; another one may follow.
    Failed {
        /// When it began the first time.
        started: f64,
        /// When the last try failed.
        ended: f64,
        /// Of the last try.
        problem: Problem,
    },
}

/// A failure as a sentence with its cause, and what to do next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What is wrong, with its cause.
    pub what: String,
    /// What a person can do, or what the box does by itself.
    pub next: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}; {}", self.what, self.next)
    }
}

impl std::error::Error for Problem {}

/// The provisioning network and what the box does there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Kernel name of the provisioning NIC, empty until one is chosen.
    pub interface: String,
    /// Of that NIC, lower case with colons; empty until one is chosen.
    pub mac: String,
    /// Address with prefix length, e.g. `172.22.0.1/24`.
    pub address: String,
    /// Whether it leases addresses.
    pub dhcp: DhcpMode,
    /// Addresses that are leased now.
    pub leases: usize,
    /// Addresses that may be leased to servers without one of their own.
    #[serde(default)]
    pub addresses: u64,
    /// The way to the rest of the network, where `site.yaml` names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<UplinkStatus>,
    /// Requests beyond the limits since the start, by protocol: `dhcp`, `tftp`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
}

/// The box's way to the rest of the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UplinkStatus {
    /// Kernel name of the device that has the address, absent without one.
    pub interface: Option<String>,
    /// Address with prefix length.
    pub address: Option<String>,
    /// Clusters whose API is reached there now, by name, with the port.
    pub clusters: BTreeMap<String, u16>,
}

/// What the agent's DHCP server does on the segment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "mode", rename_all = "camelCase")]
pub enum DhcpMode {
    /// Not started.
    #[default]
    Off,
    /// Asking whether somebody else leases addresses here.
    Probing,
    /// It leases addresses: those of the range, and those that `hosts` of `site.yaml` names.
    Serving,
    /// Another server leases addresses here: the agent renews what it leased before, and answers nothing else.
    Silent {
        /// Address of the other server.
        server: String,
    },
    /// It gives boot information only, as `dhcp` of `site.yaml` says.
    Proxy {
        /// Address of the server that leases, absent while none answers.
        server: Option<String>,
    },
    /// It answers what relay agents forward, as `dhcp` of `site.yaml` says.
    Relay,
}

/// One workload cluster, as Cluster API tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Of the `Cluster`.
    pub name: String,
    /// Of the `Cluster`.
    #[serde(default)]
    pub namespace: String,
    /// `Pending`, `Provisioning`, `Provisioned`, `Deleting`, `Failed`.
    pub phase: String,
    /// Kubernetes version that is wanted.
    pub version: String,
    /// Address and port of its API, empty while unknown.
    pub endpoint: String,
    /// Machines, as Cluster API counts them.
    pub control_planes_ready: u32,
    /// `spec.replicas` of its control plane.
    pub control_planes_wanted: u32,
    /// Machines of all deployments, as Cluster API counts them.
    pub workers_ready: u32,
    /// `spec.replicas` of all deployments together.
    pub workers_wanted: u32,
    /// Why it is not available, empty if it is.
    pub message: String,
    /// Control planes first, then by name.
    pub machines: Vec<ClusterMachine>,
}

/// One machine of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterMachine {
    /// Of the `Machine`.
    pub name: String,
    /// Otherwise it is a worker.
    pub control_plane: bool,
    /// The server that it is on, empty while it waits for one.
    pub host: String,
    /// Its name in the cluster, empty until it has joined.
    pub node: String,
    /// Of Kubernetes, as it is wanted: `v1.34.1`.
    pub version: String,
    /// `Pending`, `Provisioning`, `Provisioned`, `Running`, `Deleting`, `Failed`.
    pub phase: String,
    /// What it waits for, or what went wrong; empty if all is well.
    pub message: String,
}
