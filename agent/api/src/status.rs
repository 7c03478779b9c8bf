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
    /// All servers that the box has heard of.
    pub hosts: Vec<HostStatus>,
    /// Workload clusters that Cluster API knows.
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
    /// Why it looked.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateEnd {
    /// Name of the `Cluster`.
    pub cluster: String,
    /// Seconds since 1970.
    pub end: i64,
}

/// One `Addon`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// One `Software`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What is wrong, with its cause.
    pub what: String,
    /// What a person can do, or what the box does by itself.
    pub next: String,
}

/// The provisioning network and what the box does there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// It leases addresses: those of the range, and those that `hosts` of `site.yaml` names.
    Serving,
    /// `server` leases addresses here: the agent gives boot information only.
    Proxy {
        /// Address of the other server.
        server: String,
    },
}

/// One server other than the box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostStatus {
    /// Of the host: out of `site.yaml`, or made of its MAC address.
    pub name: String,
    /// Of the NIC that it boots from, lower case with colons.
    pub mac: String,
    /// Address on the provisioning network, empty while unknown.
    pub address: String,
    /// Of its key; its screen shows the same. Empty while unknown.
    #[serde(default)]
    pub code: String,
    /// Of a machine that says it is this server and cannot show its TPM. It is not believed, but a person may approve it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub other_code: String,
    /// Where it is on its way.
    pub state: HostState,
    /// What is happening now, as a sentence, e.g. `writing node.raw.zst, 41 %`.
    pub step: String,
    /// Percent of the current step where it is known.
    pub percent: Option<u8>,
    /// Uptime seconds at which `state` began.
    pub since: f64,
    /// The most urgent one that a person should know.
    pub problem: Option<Problem>,
    /// Absent until its ramdisk has reported.
    pub hardware: Option<HardwareSummary>,
    /// Finished states with their times, oldest first.
    pub history: Vec<HostEvent>,
}

/// Where a host is on its way from its first sign of life to its own system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostState {
    /// Seen by DHCP or reported by its ramdisk, and left alone.
    #[default]
    Discovered,
    /// Ironic gets to know it.
    Registering,
    /// Ironic waits for its inventory.
    Inspecting,
    /// Nobody uses it.
    Available,
    /// Available, with the image of its later use on the disk already.
    Staged,
    /// The image is being written.
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
    /// It needs a person, or waits before it is tried again; `problem` says why.
    Failed,
}

impl HostState {
    /// From the beginning to the end of a host's way, then what is beside it.
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

/// A state that a host has left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostEvent {
    /// The one that it was in.
    pub state: HostState,
    /// Uptime seconds.
    pub started: f64,
    /// Uptime seconds.
    pub ended: f64,
}

/// A host's hardware, in what fits into a line of the page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareSummary {
    /// Manufacturer and product, as its firmware names them.
    pub product: String,
    /// Logical ones, as the ramdisk's kernel counts them.
    pub cpus: u32,
    /// MiB.
    pub memory_mib: u64,
    /// `/dev/vda 10 GB` each, in units of 10^9 bytes.
    pub disks: Vec<String>,
    /// `uefi` or `bios`.
    pub boot_mode: String,
    /// What is known of its TPM.
    #[serde(default)]
    pub tpm: TpmStatus,
}

/// The TPM of a server, as its ramdisk says or has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum TpmStatus {
    /// Its ramdisk says nothing of TPMs.
    #[default]
    Unknown,
    /// It has none, or it is switched off.
    Absent,
    /// It has not answered yet.
    Asked,
    /// It does not answer, or refuses.
    Silent {
        /// In the words of the ramdisk.
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
    /// Of the `Cluster`.
    pub name: String,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
