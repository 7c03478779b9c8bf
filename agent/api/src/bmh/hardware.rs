//! What a host is made of, read from the inventory that its ramdisk reports (ironic-python-agent's field names).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bounded::{Excess, list, number, string as text};

/// Of one host. Each count is well above that of the largest servers.
const MOST_NICS: usize = 64;
const MOST_DISKS: usize = crate::report::MOST_DISKS;
const MOST_FLAGS: usize = 512;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HardwareDetails {
    pub system_vendor: HardwareSystemVendor,
    pub firmware: Firmware,
    pub ram_mebibytes: u64,
    pub nics: Vec<Nic>,
    pub storage: Vec<Storage>,
    pub cpu: Cpu,
    pub hostname: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HardwareSystemVendor {
    pub manufacturer: String,
    pub product_name: String,
    pub serial_number: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Firmware {
    pub bios: Bios,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bios {
    pub date: String,
    pub vendor: String,
    pub version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nic {
    pub name: String,
    /// Vendor and product, `0x1af4 0x1000`.
    pub model: String,
    pub mac: String,
    pub ip: String,
    pub speed_gbps: u64,
    pub pxe: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<Vlan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lldp: Option<Lldp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pci_address: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Vlan {
    pub id: u16,
    pub name: String,
}

/// What the switch says of itself on this port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lldp {
    #[serde(rename = "switchID")]
    pub switch_id: String,
    #[serde(rename = "portID")]
    pub port_id: String,
    pub switch_system_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Storage {
    pub name: String,
    /// `HDD`, `SSD` or `NVME`.
    #[serde(rename = "type")]
    pub kind: String,
    pub rotational: bool,
    pub size_bytes: u64,
    pub vendor: String,
    pub model: String,
    pub serial_number: String,
    pub wwn: String,
    pub hctl: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternate_names: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wwn_vendor_extension: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wwn_with_extension: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cpu {
    pub arch: String,
    pub model: String,
    pub clock_megahertz: f64,
    pub flags: Vec<String>,
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

/// The inventory has it as a number in a string, `2904.0`.
fn megahertz(value: &Value) -> f64 {
    value
        .as_f64()
        .or_else(|| value.as_str()?.parse().ok())
        .filter(|megahertz| megahertz.is_finite() && *megahertz >= 0.0)
        .unwrap_or(0.0)
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
            wwn_vendor_extension: text(&disk["wwn_vendor_extension"]),
            wwn_with_extension: text(&disk["wwn_with_extension"]),
            ..Self::default()
        }
    }
}
