//! What a host is made of, read from the inventory that its ramdisk reports (ironic-python-agent's field names).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bounded::{Excess, list, number, string as text};

/// Of one host. Each count is well above that of the largest servers.
const MOST_NICS: usize = 64;
const MOST_DISKS: usize = crate::report::MOST_DISKS;
const MOST_FLAGS: usize = 512;

/// Upstream's `HardwareDetails`. Texts have at most 256 characters; what nobody said is empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HardwareDetails {
    /// Of the inventory's `system_vendor`: what the firmware says of the machine (SMBIOS).
    pub system_vendor: HardwareSystemVendor,
    /// Of `system_vendor.firmware`.
    pub firmware: Firmware,
    /// MiB that are built in, of `memory.physical_mb`.
    pub ram_mebibytes: u64,
    /// Of `interfaces`, 64 at most.
    pub nics: Vec<Nic>,
    /// Of `disks`, [`crate::report::MOST_DISKS`] at most.
    pub storage: Vec<Storage>,
    /// Of `cpu`.
    pub cpu: Cpu,
    /// How the machine was called while it was inspected.
    pub hostname: String,
}

/// Upstream's `HardwareSystemVendor`: SMBIOS, type 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HardwareSystemVendor {
    /// As the firmware says.
    pub manufacturer: String,
    /// As the firmware says.
    pub product_name: String,
    /// Of the machine, as the firmware says; by no means unique.
    pub serial_number: String,
}

/// Upstream's `Firmware`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Firmware {
    /// UEFI as well: SMBIOS has one place for both.
    pub bios: Bios,
}

/// Upstream's `BIOS`: SMBIOS, type 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bios {
    /// Of `build_date`, as the vendor writes dates: `04/01/2014`.
    pub date: String,
    /// Who made the firmware.
    pub vendor: String,
    /// In the vendor's own way of counting.
    pub version: String,
}

/// Upstream's `NIC`: one Ethernet interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nic {
    /// The ramdisk's kernel's, `enp1s0`.
    pub name: String,
    /// Vendor and product, `0x1af4 0x1000`.
    pub model: String,
    /// As the inventory has it: lower case with colons.
    pub mac: String,
    /// IPv4 address while it was inspected; empty if it had none.
    pub ip: String,
    /// Gbit/s, rounded down; 0 also without a link.
    pub speed_gbps: u64,
    /// The machine booted from it.
    pub pxe: bool,
    /// Upstream's; our ramdisk reports none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<Vlan>,
    /// Upstream's, untagged VLAN; our ramdisk reports none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<u16>,
    /// Upstream's; our ramdisk reports none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lldp: Option<Lldp>,
    /// `0000:00:02.0`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pci_address: String,
}

/// Upstream's `VLAN`: one that the switch offers on this port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Vlan {
    /// 0 to 4094.
    pub id: u16,
    /// As the switch calls it.
    pub name: String,
}

/// What the switch says of itself on this port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lldp {
    /// `switchID`: the chassis ID, often a MAC address.
    #[serde(rename = "switchID")]
    pub switch_id: String,
    /// `portID`: the port at the switch's end.
    #[serde(rename = "portID")]
    pub port_id: String,
    /// The name that somebody gave the switch.
    pub switch_system_name: String,
}

/// Upstream's `Storage`: one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Storage {
    /// The ramdisk's kernel's, `/dev/vda`, and so not the same at each start.
    pub name: String,
    /// `HDD`, `SSD` or `NVME`.
    #[serde(rename = "type")]
    pub kind: String,
    /// It spins, as the kernel thinks.
    pub rotational: bool,
    /// Of the whole disk.
    pub size_bytes: u64,
    /// As the disk says.
    pub vendor: String,
    /// As the disk says.
    pub model: String,
    /// As the disk says; empty if it says none.
    pub serial_number: String,
    /// World Wide Name, `0x5000c5…`; empty if it has none.
    pub wwn: String,
    /// SCSI address, `0:0:0:0`; empty for other disks.
    pub hctl: String,
    /// Further names below `/dev`: where it is plugged in, `/dev/disk/by-path/…`, if that can be told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternate_names: Vec<String>,
    /// The second 64 bits of a long WWN.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wwn_vendor_extension: String,
    /// Both halves of a long WWN.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wwn_with_extension: String,
}

/// Upstream's `CPU`: all processors are thought to be alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cpu {
    /// `x86_64`.
    pub arch: String,
    /// As the processor calls itself.
    pub model: String,
    /// MHz, to the kHz; 0 if nobody said, or said what no processor has.
    pub clock_megahertz: f64,
    /// As in `/proc/cpuinfo`, 512 at most.
    pub flags: Vec<String>,
    /// Logical ones: each thread of each core.
    pub count: u64,
}

impl HardwareDetails {
    /// Whatever the inventory does not say stays empty.
    pub fn from_inventory(inventory: &Value) -> Result<Self, Excess> {
        let (vendor, cpu) = (&inventory["system_vendor"], &inventory["cpu"]);
        let bios = &vendor["firmware"];
        let pxe = inventory["boot"]["pxe_interface"].as_str();
        Ok(Self {
            system_vendor: HardwareSystemVendor {
                manufacturer: text(&vendor["manufacturer"]),
                product_name: text(&vendor["product_name"]),
                serial_number: text(&vendor["serial_number"]),
            },
            firmware: Firmware {
                bios: Bios {
                    date: text(&bios["build_date"]),
                    vendor: text(&bios["vendor"]),
                    version: text(&bios["version"]),
                },
            },
            ram_mebibytes: number(&inventory["memory"]["physical_mb"]),
            nics: list("interfaces", &inventory["interfaces"], MOST_NICS)?
                .iter()
                .map(|nic| Nic::from_inventory(nic, pxe))
                .collect(),
            storage: list("disks", &inventory["disks"], MOST_DISKS)?
                .iter()
                .map(Storage::from_inventory)
                .collect(),
            cpu: Cpu {
                arch: text(&cpu["architecture"]),
                model: text(&cpu["model_name"]),
                clock_megahertz: megahertz(&cpu["frequency"]),
                flags: list("CPU flags", &cpu["flags"], MOST_FLAGS)?
                    .iter()
                    .map(text)
                    .collect(),
                count: number(&cpu["count"]),
            },
            hostname: text(&inventory["hostname"]),
        })
    }
}

/// No processor is faster.
const MOST_MEGAHERTZ: f64 = 1e6;

/// The inventory has it as a number in a string, `2904.0`. To the kilohertz, as the kernel tells it: JSON carries so few
/// digits unchanged.
fn megahertz(value: &Value) -> f64 {
    let said = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let said = said.filter(|megahertz| (0.0..=MOST_MEGAHERTZ).contains(megahertz));
    said.map_or(0.0, |megahertz| (megahertz * 1000.0).round() / 1000.0)
}

impl Nic {
    fn from_inventory(nic: &Value, pxe: Option<&str>) -> Self {
        let mac = text(&nic["mac_address"]);
        let ids = [text(&nic["vendor"]), text(&nic["product"])];
        Self {
            name: text(&nic["name"]),
            model: ids.join(" ").trim().to_owned(),
            pxe: pxe.is_some_and(|pxe| {
                pxe.to_lowercase()
                    .replace('-', ":")
                    .ends_with(&mac.to_lowercase())
            }),
            mac,
            ip: text(&nic["ipv4_address"]),
            speed_gbps: number(&nic["speed_mbps"]) / 1000,
            pci_address: text(&nic["pci_address"]),
            ..Self::default()
        }
    }
}

impl Storage {
    fn from_inventory(disk: &Value) -> Self {
        let name = text(&disk["name"]);
        let rotational = disk["rotational"].as_bool().unwrap_or(false);
        let kind = match (name.contains("/nvme"), rotational) {
            (true, _) => "NVME",
            (false, true) => "HDD",
            (false, false) => "SSD",
        };
        Self {
            name,
            kind: kind.to_owned(),
            rotational,
            size_bytes: number(&disk["size"]),
            vendor: text(&disk["vendor"]),
            model: text(&disk["model"]),
            serial_number: text(&disk["serial"]),
            wwn: text(&disk["wwn"]),
            hctl: text(&disk["hctl"]),
            alternate_names: Some(text(&disk["by_path"]))
                .into_iter()
                .filter(|name| !name.is_empty())
                .collect(),
            wwn_vendor_extension: text(&disk["wwn_vendor_extension"]),
            wwn_with_extension: text(&disk["wwn_with_extension"]),
        }
    }
}

/// In JSON it is what is in it: most of what is known of a host, and several have it.
pub(super) mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::HardwareDetails;

    #[expect(clippy::ref_option, reason = "as serde calls it")]
    pub fn serialize<S: Serializer>(
        hardware: &Option<Arc<HardwareDetails>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        hardware.as_deref().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<HardwareDetails>>, D::Error> {
        let hardware = Option::<HardwareDetails>::deserialize(deserializer)?;
        Ok(hardware.map(Arc::new))
    }
}
