//! The one status value. The page, `/api/v1/status`, `/readyz`, `/metrics`, the console banner and
//! `firstlight boot --follow` all read it; nothing else is allowed to describe the box.
//!
//! Times are seconds since the box's kernel started (`uptime`), because the wall clock may still be wrong.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    addon::AddonState,
    artifact::Artifact,
    software::{NodeStatus, SoftwareState},
};

/// Everything a person wants to know about a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SiteStatus {
    pub site: String,
    pub version: String,
    /// Seconds since the box's kernel started, when this value was made.
    pub uptime: f64,
    /// Every step of `bring_up` is done.
    pub ready: bool,
    pub bring_up: Vec<Step>,
    pub network: NetworkStatus,
    pub hosts: Vec<HostStatus>,
    #[serde(default)]
    pub clusters: Vec<ClusterStatus>,
    /// What runs on clusters besides Kubernetes.
    #[serde(default)]
    pub addons: Vec<AddonLine>,
    /// Packages on installed servers.
    #[serde(default)]
    pub software: Vec<SoftwareLine>,
    /// What people have put on the box.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    /// When the first certificate of each cluster ends.
    #[serde(default)]
    pub certificates: Vec<CertificateEnd>,
    /// The last warnings of the box's programs before it was started this time, oldest first.
    #[serde(default)]
    pub before_start: Vec<String>,
    /// The last round of each controller.
    #[serde(default)]
    pub controllers: Vec<ControllerRound>,
    /// What a person should look at that belongs to no step and no host, e.g. a bad `site.yaml`.
    pub problems: Vec<Problem>,
}

/// What one of the box's controllers did last: it looked at its objects, planned and wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerRound {
    /// `machines`, `software`, `addons` or `hosts`.
    pub name: String,
    /// Uptime seconds at which it began.
    pub started: f64,
    /// How long it took, in seconds.
    pub took: f64,
    pub reason: RoundReason,
    /// Objects that could not be read, and steps that failed.
    pub failed: usize,
    /// The first of them, as sentences.
    pub failures: Vec<String>,
}

/// Why a controller looked at its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RoundReason {
    #[default]
    Start,
    /// Of an object.
    Change,
    /// Something else that it waited for: a task of its own told something, or it is asked for something else.
    News,
    Time,
}

/// Of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateEnd {
    pub cluster: String,
    /// Seconds since 1970.
    pub end: i64,
}

/// One `Addon`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddonLine {
    pub name: String,
    pub cluster: String,
    pub state: AddonState,
    /// `NAME-VERSION`, once Helm has installed it.
    pub chart: String,
    /// Why it is not ready, with the object that is to blame.
    pub message: String,
}

/// One `Software`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareLine {
    pub name: String,
    pub state: SoftwareState,
    /// `2/3`: servers that are ready, and all that are selected.
    pub ready: String,
    /// Why not all is as wanted, and what to do about it.
    pub message: String,
    pub nodes: Vec<NodeStatus>,
}

/// One step of the box's bring-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Fixed name, e.g. `state`, `network`, `pki`, `etcd`, `apiserver`, `node`, `coredns`, `ironic`, `cluster-api`.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    #[serde(flatten)]
    pub state: StepState,
}

/// `started` and `ended` are uptime seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum StepState {
    Waiting,
    Running {
        started: f64,
    },
    Done {
        started: f64,
        ended: f64,
    },
    Failed {
        started: f64,
        ended: f64,
        problem: Problem,
    },
}

/// A failure as a sentence with its cause, and what to do next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub what: String,
    pub next: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Kernel name of the provisioning NIC, empty until one is chosen.
    pub interface: String,
    pub mac: String,
    /// Address with prefix length, e.g. `172.22.0.1/24`.
    pub address: String,
    pub dhcp: DhcpMode,
    pub leases: usize,
    /// Requests beyond the limits since the start, by protocol: `dhcp`, `tftp`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
}

/// What the agent's DHCP server does on the segment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "camelCase")]
pub enum DhcpMode {
    /// Not started.
    #[default]
    Off,
    /// Asking whether somebody else leases addresses here.
    Probing,
    Serving,
    /// `server` leases addresses here: the agent gives boot information only.
    Proxy {
        server: String,
    },
}

/// One server other than the box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostStatus {
    pub name: String,
    pub mac: String,
    /// Address on the provisioning network, empty while unknown.
    pub address: String,
    /// Of its key; its screen shows the same. Empty while unknown.
    #[serde(default)]
    pub code: String,
    /// Of a machine that says it is this server and cannot show its TPM. It is not believed, but a person may approve it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub other_code: String,
    pub state: HostState,
    /// What is happening now, as a sentence, e.g. `writing node.raw.zst, 41 %`.
    pub step: String,
    /// Percent of the current step where it is known.
    pub percent: Option<u8>,
    /// Uptime seconds at which `state` began.
    pub since: f64,
    pub problem: Option<Problem>,
    pub hardware: Option<HardwareSummary>,
    /// Finished states with their times, oldest first.
    pub history: Vec<HostEvent>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostState {
    /// Seen by DHCP or reported by its ramdisk, and left alone.
    #[default]
    Discovered,
    Registering,
    Inspecting,
    Available,
    /// Available, with the image of its later use on the disk already.
    Staged,
    Provisioning,
    /// The image is on disk and the host was told to boot it.
    Provisioned,
    /// Its own operating system answers.
    Running,
    /// On its way back to available.
    Deprovisioning,
    /// Its object was deleted.
    Deleting,
    /// Carries a system that nobody here installed.
    External,
    /// Nothing is done to it, as somebody asked.
    Detached,
    Failed,
}

impl HostState {
    pub const ALL: [Self; 13] = [
        Self::Discovered,
        Self::Registering,
        Self::Inspecting,
        Self::Available,
        Self::Staged,
        Self::Provisioning,
        Self::Provisioned,
        Self::Running,
        Self::Deprovisioning,
        Self::Deleting,
        Self::External,
        Self::Detached,
        Self::Failed,
    ];

    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discovered => "discovered",
            Self::Registering => "registering",
            Self::Inspecting => "inspecting",
            Self::Available => "available",
            Self::Staged => "staged",
            Self::Provisioning => "provisioning",
            Self::Provisioned => "provisioned",
            Self::Running => "running",
            Self::Deprovisioning => "deprovisioning",
            Self::Deleting => "deleting",
            Self::External => "external",
            Self::Detached => "detached",
            Self::Failed => "failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostEvent {
    pub state: HostState,
    pub started: f64,
    pub ended: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareSummary {
    pub product: String,
    pub cpus: u32,
    pub memory_mib: u64,
    pub disks: Vec<String>,
    pub boot_mode: String,
    #[serde(default)]
    pub tpm: TpmStatus,
}

/// The TPM of a server, as its ramdisk says or has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum TpmStatus {
    #[default]
    Unknown,
    Absent,
    /// It has not answered yet.
    Asked,
    Silent {
        reason: String,
    },
    /// It was shown, and the server is not bound to it.
    Shown,
    /// Only who shows this TPM is believed to be this server.
    Bound,
}

/// One workload cluster, as Cluster API tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    pub name: String,
    /// `Pending`, `Provisioning`, `Provisioned`, `Deleting`, `Failed`.
    pub phase: String,
    /// Kubernetes version that is wanted.
    pub version: String,
    /// Address and port of its API, empty while unknown.
    pub endpoint: String,
    pub control_planes_ready: u32,
    pub control_planes_wanted: u32,
    pub workers_ready: u32,
    pub workers_wanted: u32,
    /// Why it is not available, empty if it is.
    pub message: String,
    /// Control planes first, then by name.
    pub machines: Vec<ClusterMachine>,
}

/// One machine of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterMachine {
    pub name: String,
    pub control_plane: bool,
    /// The server that it is on, empty while it waits for one.
    pub host: String,
    /// Its name in the cluster, empty until it has joined.
    pub node: String,
    pub version: String,
    /// `Pending`, `Provisioning`, `Provisioned`, `Running`, `Deleting`, `Failed`.
    pub phase: String,
    /// What it waits for, or what went wrong; empty if all is well.
    pub message: String,
}
