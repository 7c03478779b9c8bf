//! Disks that an operating system can be installed on, as a ramdisk finds them, and which of them people mean.
//!
//! Must not: choose. Beside a box `hosts::root_disk` of the agent does; any other Ironic names the disk by [`hints`].

pub mod hints;
pub mod identity;

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::bounded;
use crate::order::{DiskId, RootDisk};

/// One disk in ironic-python-agent's field names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// `/dev/vda`
    pub name: String,
    /// As the disk says.
    pub model: String,
    /// Bytes.
    pub size: u64,
    /// It spins, as the kernel thinks.
    pub rotational: bool,
    /// The first 64 bits.
    pub wwn: Option<String>,
    /// As the disk says.
    pub serial: Option<String>,
    /// As the disk says.
    pub vendor: Option<String>,
    /// All of it.
    pub wwn_with_extension: Option<String>,
    /// What follows the first 64 bits.
    pub wwn_vendor_extension: Option<String>,
    /// SCSI host:channel:target:lun.
    pub hctl: Option<String>,
    /// `/dev/disk/by-path/…`: where it is plugged in.
    pub by_path: Option<String>,
    /// Bytes of a sector, as it is addressed.
    pub logical_sectors: Option<u64>,
    /// Bytes of a sector, as it is written.
    pub physical_sectors: Option<u64>,
    /// How it is attached: `sata`, `sas`, `nvme`, `usb`, `virtio`, `mmc`, `fc`.
    pub tran: Option<String>,
    /// Ours: the place of the first entry in the firmware's boot order that names it, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u64>,
}

impl Disk {
    /// What the ramdisk wrote into its inventory; texts are cut and cleaned, and what it does not say is empty.
    pub fn from_inventory(disk: &Value) -> Self {
        let text = |key: &str| bounded::string(&disk[key]);
        let said = |key: &str| Some(text(key)).filter(|text| !text.is_empty());
        let number = |key: &str| disk[key].as_u64();
        Self {
            name: text("name"),
            model: text("model"),
            size: bounded::number(&disk["size"]),
            rotational: disk["rotational"].as_bool().unwrap_or(false),
            wwn: said("wwn"),
            serial: said("serial"),
            vendor: said("vendor"),
            wwn_with_extension: said("wwn_with_extension"),
            wwn_vendor_extension: said("wwn_vendor_extension"),
            hctl: said("hctl"),
            by_path: said("by_path"),
            logical_sectors: number("logical_sectors"),
            physical_sectors: number("physical_sectors"),
            tran: said("tran"),
            boot_order: number("boot_order"),
        }
    }

    /// What tells it from others.
    pub fn id(&self) -> DiskId {
        let wwn = self.wwn_with_extension.as_deref().or(self.wwn.as_deref());
        DiskId::new(self.serial.as_deref(), wwn, self.size)
    }

    /// As an order names it.
    pub fn named(&self) -> RootDisk {
        RootDisk {
            disk: self.id(),
            name: self.name.clone(),
            by_path: self.by_path.clone(),
        }
    }
}

/// `/dev/nvme0n1 (1000 GB, serial S1)`, in units of 10^9 bytes.
impl fmt::Display for RootDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DiskId {
            serial,
            wwn,
            size_bytes,
        } = &self.disk;
        write!(f, "{} ({} GB, ", self.name, size_bytes / 1_000_000_000)?;
        match (serial, wwn, &self.by_path) {
            (Some(serial), ..) => write!(f, "serial {serial})"),
            (None, Some(wwn), _) => write!(f, "WWN {wwn})"),
            (None, None, Some(by_path)) => write!(f, "{by_path})"),
            (None, None, None) => write!(f, "without a serial number)"),
        }
    }
}
