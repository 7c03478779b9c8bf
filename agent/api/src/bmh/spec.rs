//! What a person, or a controller for them, wants of a host.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Upstream's `BareMetalHostSpec`, every field of it. Those that Firstlight does not act on say so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHostSpec {
    /// For the `Node` that the host becomes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Absent for a host that restarts itself, and is switched on by people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcDetails>,
    /// Acted on as far as it asks for a mirror of two disks for the image (docs/disks.md).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<RaidConfig>,
    /// Not acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareConfig>,
    /// Of old; means nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hardware_profile: String,
    /// Absent: the box chooses (docs/disks.md).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_device_hints: Option<RootDeviceHints>,
    /// Not acted on: a host boots as its firmware is set up. In objects that the agent makes it is how the ramdisk was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<BootMode>,
    /// The NIC that the host boots from.
    #[serde(
        rename = "bootMACAddress",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub boot_mac_address: String,
    /// Should it be on? While it is `false`, nothing is installed; only a BMC can switch it off.
    #[serde(default)]
    pub online: bool,
    /// Who uses the host; others leave it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<ObjectReference>,
    /// What its disk shall hold; taken away, the host is deprovisioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Keys `userData` or `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretReference>,
    /// Not acted on: upstream's Secret with network data for the ramdisk, which gets its address by DHCP here.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub preprovisioning_network_data_name: String,
    /// Keys `networkData` or `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretReference>,
    /// Keys `metaData` or `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretReference>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// It carries a system that nobody here installed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub externally_provisioned: bool,
    /// What happens to the disks between two uses; absent means `metadata`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automated_cleaning_mode: Option<AutomatedCleaningMode>,
    /// Refused while no `image` is given: there is no other way of installing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// `x86_64`
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub architecture: String,
    /// It can be restarted, and not be switched off.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_power_off: bool,
    /// Absent: `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspection_mode: Option<InspectionMode>,
    /// Not acted on: ports of switches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_interfaces: Vec<Value>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// Upstream's `AutomatedCleaningMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AutomatedCleaningMode {
    /// Every signature is removed: partition tables, file systems, RAID and LVM labels.
    #[default]
    Metadata,
    /// The disks stay as they are.
    Disabled,
}

/// Upstream's `InspectionMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InspectionMode {
    /// The ramdisk says what the host is made of.
    Agent,
    /// The host is used without an inventory.
    Disabled,
    /// Upstream's: its BMC says that. Here it is as `agent`.
    Fast,
}

/// As in `core/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// `example.com/gpu`.
    pub key: String,
    /// May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// RFC 3339; only for `NoExecute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// Upstream's `CustomDeploy`: a deploy step in place of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomDeploy {
    /// Name of the step.
    pub method: String,
}

/// Upstream's `FirmwareConfig`. An absent field leaves the setting as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareConfig {
    /// Hardware virtualization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualization_enabled: Option<bool>,
    /// Two threads on a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simultaneous_multithreading_enabled: Option<bool>,
    /// SR-IOV of network cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sriov_enabled: Option<bool>,
}

/// Both lists are written even if they are empty, as published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RaidConfig {
    /// `hardwareRAIDVolumes`; an empty list removes all, `None` (`null`) leaves them.
    #[serde(rename = "hardwareRAIDVolumes", default)]
    pub hardware_raid_volumes: Option<Vec<HardwareRaidVolume>>,
    /// `softwareRAIDVolumes`, two at most, if there are no hardware volumes.
    #[serde(rename = "softwareRAIDVolumes", default)]
    pub software_raid_volumes: Option<Vec<SoftwareRaidVolume>>,
}

impl RaidConfig {
    /// Two disks that the box chooses hold the same, with the image on them.
    pub fn mirror() -> Self {
        Self {
            hardware_raid_volumes: None,
            software_raid_volumes: Some(vec![SoftwareRaidVolume {
                level: "1".to_owned(),
                ..SoftwareRaidVolume::default()
            }]),
        }
    }
}

/// Upstream's `HardwareRAIDVolume`: disks that a controller shows as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareRaidVolume {
    /// GiB; absent: as large as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_gibibytes: Option<u64>,
    /// `0`, `1`, `2`, `5`, `6`, `1+0`, `5+0` or `6+0`.
    pub level: String,
    /// At most 64 characters; empty: made up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Only disks that spin, or only disks that do not; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// At least 1; absent: as few as the level needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_of_physical_disks: Option<u32>,
    /// The one that the disks are at; empty: any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub controller: String,
    /// Names as the controller has them; empty: it chooses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub physical_disks: Vec<String>,
}

/// Upstream's `SoftwareRAIDVolume`: disks that Linux (md) shows as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareRaidVolume {
    /// GiB; absent: as large as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_gibibytes: Option<u64>,
    /// `0`, `1` or `1+0`.
    pub level: String,
    /// The image is installed on this one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub root_volume: bool,
    /// One entry for each disk, two at least; empty: all disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub physical_disks: Vec<RootDeviceHints>,
}

/// Upstream's `BootMode`: how the firmware starts the installed system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootMode {
    /// `UEFI`.
    #[serde(rename = "UEFI")]
    Uefi,
    /// `UEFISecureBoot`: UEFI that takes signed boot loaders only.
    #[serde(rename = "UEFISecureBoot")]
    UefiSecureBoot,
    /// `legacy`: BIOS.
    #[serde(rename = "legacy")]
    Legacy,
}

/// Upstream's `BMCDetails`: who switches the server on and off (docs/power.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BmcDetails {
    /// URL of the BMC, whose scheme says how it is spoken to: `redfish://ADDRESS/redfish/v1/Systems/ID`, `ipmi://ADDRESS`.
    pub address: String,
    /// Secret in the host's namespace with `username` and `password`.
    pub credentials_name: String,
    /// `true`: any certificate of the BMC will do.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_certificate_verification: bool,
}

/// Upstream's `Image`: what is written to a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// HTTP or HTTPS; without `://` it is `NAME` or `NAME:VERSION` of an image on the box.
    pub url: String,
    /// Hex digest of the file as served. An address of a list, which upstream takes, is refused; an image on the box needs none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub checksum: String,
    /// Absent: as the digest's length says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_type: Option<ChecksumType>,
    /// `raw`, `qcow2`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Upstream's, for `oci://` addresses; the agent fetches none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci_auth_secret_name: Option<String>,
}

/// Upstream's `ChecksumType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumType {
    /// 32 hex digits.
    Md5,
    /// 64 hex digits.
    Sha256,
    /// 128 hex digits.
    Sha512,
    /// As the length says.
    Auto,
}

/// `corev1.SecretReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretReference {
    /// Empty: nothing is referred to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Empty: that of the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// `corev1.ObjectReference`. A claim by `machines` has the first four.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// `GROUP/VERSION` of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `Metal3Machine` for machines of Cluster API.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Of the object; mostly empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Of the object; mostly empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// A part of the object; mostly empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

/// Which disk gets the image; all hints that are given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootDeviceHints {
    /// The whole name, `/dev/vda` or `/dev/disk/by-path/pci-0000:00:1f.2-ata-3`; like all texts here, in upper or lower case.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device_name: String,
    /// The whole SCSI address, `0:0:0:0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hctl: String,
    /// A part of the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// A part of the vendor.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vendor: String,
    /// All of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial_number: String,
    /// GiB, in spite of its name: at least so many whole ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_size_gigabytes: Option<u32>,
    /// All of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn: String,
    /// All of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn_with_extension: String,
    /// All of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn_vendor_extension: String,
    /// It spins, or it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
}
