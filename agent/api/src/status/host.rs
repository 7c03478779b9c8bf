//! One server, as the page lists it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Problem;
use crate::bmh::{HardwareDetails, Nic, Storage};

const GB: u64 = 1_000_000_000;

/// One server other than the box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostStatus {
    /// Of the host: out of `site.yaml`, or made of its MAC address.
    pub name: String,
    /// Of its `BareMetalHost`.
    #[serde(default = "usual_namespace")]
    pub namespace: String,
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
    /// The entry of `rules` in site.yaml that it takes, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// Why it takes none of them, if there are any and it is known what it is made of; a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub no_rule: String,
    /// Which disk gets the image. Absent until its ramdisk has reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_disk: Option<RootDiskStatus>,
    /// What its verbs depend on ([`crate::verb`]).
    #[serde(default)]
    pub control: HostControl,
    /// Absent until its ramdisk has reported.
    pub hardware: Option<HardwareSummary>,
    /// Finished states with their times, oldest first.
    pub history: Vec<HostEvent>,
}

impl HostStatus {
    /// Which of the rules of site.yaml it takes, for people; empty where there is nothing to say.
    pub fn rule_line(&self) -> String {
        match self.rule {
            Some(number) => format!("rule {number} of site.yaml"),
            None => self.no_rule.clone(),
        }
    }

    /// What is remembered of its model, for people; empty where there is nothing to say.
    pub fn kexec_line(&self) -> String {
        if !self.control.no_kexec {
            return String::new();
        }
        format!(
            "a server of its model did not come up by kexec: with `start: auto` such servers are restarted, until `firstlight hosts allow-kexec {}`",
            self.name
        )
    }
}

/// Who has a host, and what may be done to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that hold or do not, each by itself"
)]
pub struct HostControl {
    /// `KIND NAME` of the object that has claimed it; empty if none has.
    pub consumer: String,
    /// Who asked for hands off; empty if nobody did.
    pub paused: String,
    /// No machine claims it, as an annotation asks.
    pub spare: bool,
    /// The one of the site's clusters that it is for; empty if nothing was said.
    pub cluster: String,
    /// Its spec names an image.
    pub image: bool,
    /// It shall be given back, and waits for a person to say its name.
    pub held: bool,
    /// Who switches it.
    pub power: HostPower,
    /// What the box has on its disk, or is doing to it.
    pub disk: DiskUse,
    /// A system on a server of its model did not come up by kexec: with `start: auto` such servers are restarted by their firmware.
    pub no_kexec: bool,
    /// The step that failed and waits for its next try, or for a person.
    pub failed: Option<FailedStep>,
}

/// Power, and who can switch it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HostPower {
    /// A person: its object names no BMC.
    #[default]
    Manual,
    /// A BMC, which has not said yet how it is.
    Unknown,
    /// A BMC says so.
    On,
    /// A BMC says so.
    Off,
}

/// What the box knows of a host's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DiskUse {
    /// Nothing of the box's is on it.
    #[default]
    Free,
    /// Its ramdisk writes an image.
    Writing,
    /// An image without data: its system waits to be claimed.
    Staged,
    /// The system that was asked for.
    Installed,
    /// Its ramdisk cleans it.
    Erasing,
}

/// A step of a host that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FailedStep {
    /// Ironic, or the BMC, does not take it.
    Registration,
    /// No inventory came.
    Inspection,
    /// The image is not on its disk.
    Installation,
    /// Its disks are not clean.
    Cleaning,
    /// Ironic does not know what is on its disk.
    Adoption,
}

impl FailedStep {
    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Registration => "registration",
            Self::Inspection => "inspection",
            Self::Installation => "installation",
            Self::Cleaning => "cleaning",
            Self::Adoption => "adoption",
        }
    }
}

fn usual_namespace() -> String {
    "default".to_owned()
}

/// Where a host is on its way from its first sign of life to its own system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
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

/// Which disk of a server gets the image, or got it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootDiskStatus {
    /// Whether it has been written.
    pub state: RootDiskState,
    /// `would write /dev/sda (480 GB, serial S1): the smallest of 3 disks`
    pub says: String,
    /// Why no disk is written; or what its mirror has lost since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// What is done to a [`RootDiskStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RootDiskState {
    /// No disk is written, for a reason.
    Nothing,
    /// It would be written, if somebody wanted an image there.
    Would,
    /// It is being written.
    Writes,
    /// The image is on it.
    Wrote,
}

/// A state that a host has left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareSummary {
    /// Manufacturer and product, as its firmware names them.
    pub product: String,
    /// The manufacturer alone.
    #[serde(default)]
    pub vendor: String,
    /// The product alone.
    #[serde(default)]
    pub model: String,
    /// Of the machine, as the firmware says; by no means unique.
    #[serde(default)]
    pub serial: String,
    /// Logical ones, as the ramdisk's kernel counts them.
    pub cpus: u32,
    /// MiB.
    pub memory_mib: u64,
    /// Ethernet cards.
    #[serde(default)]
    pub nics: u64,
    /// Gbit/s of the fastest of them that has a link, rounded down.
    #[serde(default)]
    pub nic_gbps: u64,
    /// 10^9 bytes of the largest disk.
    #[serde(default)]
    pub disk_gb: u64,
    /// All of them.
    #[serde(default)]
    pub disks: Vec<DiskSummary>,
    /// Its Ethernet cards.
    #[serde(default)]
    pub interfaces: Vec<NicSummary>,
    /// `uefi` or `bios`.
    pub boot_mode: String,
    /// What is known of its TPM.
    #[serde(default)]
    pub tpm: TpmStatus,
    /// How it was started.
    #[serde(default)]
    pub measured_boot: MeasuredBootStatus,
}

impl HardwareSummary {
    /// `/dev/vda 10 GB, /dev/vdb 2 GB`
    pub fn disks_line(&self) -> String {
        let disks: Vec<_> = self.disks.iter().map(ToString::to_string).collect();
        disks.join(", ")
    }
}

impl From<&HardwareDetails> for HardwareSummary {
    /// Its firmware's mode and its TPM are not in them.
    fn from(details: &HardwareDetails) -> Self {
        let vendor = &details.system_vendor;
        let product = format!("{} {}", vendor.manufacturer, vendor.product_name);
        let sizes = details.storage.iter().map(|disk| disk.size_bytes);
        let speeds = details.nics.iter().map(|nic| nic.speed_gbps);
        Self {
            product: product.trim().to_owned(),
            vendor: vendor.manufacturer.clone(),
            model: vendor.product_name.clone(),
            serial: vendor.serial_number.clone(),
            cpus: u32::try_from(details.cpu.count).unwrap_or(u32::MAX),
            memory_mib: details.ram_mebibytes,
            nics: details.nics.len() as u64,
            nic_gbps: speeds.max().unwrap_or(0),
            disk_gb: sizes.max().unwrap_or(0) / GB,
            disks: details.storage.iter().map(DiskSummary::from).collect(),
            interfaces: details.nics.iter().map(NicSummary::from).collect(),
            ..Self::default()
        }
    }
}

/// One disk of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskSummary {
    /// The ramdisk's kernel's, `/dev/vda`, and so not the same at each start.
    pub name: String,
    /// `HDD`, `SSD` or `NVME`.
    pub kind: String,
    /// Of the whole disk.
    pub size_bytes: u64,
    /// Vendor and model, as the disk says.
    pub model: String,
    /// As the disk says; empty if it says none.
    pub serial: String,
    /// What was on it when its server's ramdisk looked: `gpt`, `ext4`; empty = blank.
    pub found: Vec<String>,
}

impl From<&Storage> for DiskSummary {
    /// What is on it is not in there.
    fn from(disk: &Storage) -> Self {
        Self {
            name: disk.name.clone(),
            kind: disk.kind.clone(),
            size_bytes: disk.size_bytes,
            model: format!("{} {}", disk.vendor, disk.model).trim().to_owned(),
            serial: disk.serial_number.clone(),
            found: Vec::new(),
        }
    }
}

/// `/dev/vda 10 GB`, in units of 10^9 bytes.
impl fmt::Display for DiskSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} GB", self.name, self.size_bytes / GB)
    }
}

/// One Ethernet card of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NicSummary {
    /// The ramdisk's kernel's, `enp1s0`.
    pub name: String,
    /// Lower case with colons.
    pub mac: String,
    /// Vendor and product, `0x1af4 0x1000`.
    pub model: String,
    /// Gbit/s, rounded down; 0 also without a link.
    pub speed_gbps: u64,
    /// While its ramdisk ran; empty if it had none.
    pub address: String,
    /// The machine booted from it.
    pub boots: bool,
    /// What the switch at its other end calls itself; empty if it says nothing.
    pub switch: String,
    /// The switch's port.
    pub port: String,
}

impl From<&Nic> for NicSummary {
    fn from(nic: &Nic) -> Self {
        let told = nic.lldp.clone().unwrap_or_default();
        let named = !told.switch_system_name.is_empty();
        Self {
            name: nic.name.clone(),
            mac: nic.mac.clone(),
            model: nic.model.clone(),
            speed_gbps: nic.speed_gbps,
            address: nic.ip.clone(),
            boots: nic.pxe,
            switch: if named {
                told.switch_system_name
            } else {
                told.switch_id
            },
            port: told.port_id,
        }
    }
}

/// How a server was started, as far as its TPM vouches for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum MeasuredBootStatus {
    /// Nobody has said anything.
    #[default]
    Unknown,
    /// By what this box serves and nothing else.
    #[serde(rename_all = "camelCase")]
    Measured {
        /// Was Secure Boot on?
        secure_boot: bool,
    },
    /// Nothing vouches for it.
    Unmeasured {
        /// Half a sentence.
        reason: String,
    },
    /// By something else; shown only where site.yaml says `measuredBoot: ignore`, for others are not believed.
    Altered {
        /// Half a sentence.
        what: String,
    },
}

/// The TPM of a server, as its ramdisk says or has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
