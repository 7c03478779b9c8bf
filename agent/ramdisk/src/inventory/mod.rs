//! What this machine is, in ironic-python-agent's field names, read from `/sys`, `/proc` and the firmware's tables.
//!
//! Every reader is a function of a [`SysTree`], so tests run on fixture trees. Must not: open a disk (that is
//! `deploy::signatures`), wait, or fail: what cannot be read is left out.
//! To add a field: its reader in the module of its subject, and a line in a fixture test.

pub mod boot_order;
pub mod disks;
pub mod dmi;
pub mod interfaces;
pub mod processor;
pub mod sys;

use std::net::Ipv4Addr;

use firstlight_api::disk::Disk;
use serde::Serialize;

use dmi::SystemVendor;
use interfaces::Interface;
use processor::Cpu;
use sys::SysTree;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inventory {
    pub interfaces: Vec<Interface>,
    pub cpu: Cpu,
    pub disks: Vec<Disk>,
    pub memory: Memory,
    pub system_vendor: SystemVendor,
    pub boot: Boot,
    pub hostname: String,
    /// IPv4, as the BMC tells its own server.
    pub bmc_address: Option<String>,
    pub bmc_v6address: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Bytes that the kernel has.
    pub total: Option<u64>,
    /// MiB that are installed.
    pub physical_mb: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Boot {
    /// `uefi` or `bios`.
    pub current_boot_mode: String,
    /// MAC address of the NIC that it booted from.
    pub pxe_interface: String,
}

/// The provisioning NIC and its address, which the kernel's files do not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub boot_mac: String,
    pub address: Ipv4Addr,
}

/// Reads everything.
pub fn collect(sys: &SysTree, link: &Link) -> Inventory {
    Inventory {
        interfaces: interfaces::read_interfaces(sys, link),
        cpu: processor::read_cpu(sys),
        disks: disks::read_disks(sys),
        memory: read_memory(sys),
        system_vendor: dmi::read_vendor(sys),
        boot: Boot {
            current_boot_mode: boot_mode(sys).to_owned(),
            pxe_interface: link.boot_mac.clone(),
        },
        hostname: sys
            .text("/proc/sys/kernel/hostname")
            .filter(|name| name != "(none)")
            .unwrap_or_else(|| "localhost".to_owned()),
        bmc_address: None,
        bmc_v6address: None,
    }
}

/// How the firmware started this kernel.
pub fn boot_mode(sys: &SysTree) -> &'static str {
    if sys.exists("/sys/firmware/efi") {
        "uefi"
    } else {
        "bios"
    }
}

fn read_memory(sys: &SysTree) -> Memory {
    let info = sys.text("/proc/meminfo").unwrap_or_default();
    let total = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map(|kib| kib * 1024);
    let installed = sys
        .bytes("/sys/firmware/dmi/tables/DMI")
        .map(|table| dmi::installed_memory_mb(&table))
        .filter(|mb| *mb > 0);
    Memory {
        total,
        // The kernel keeps up to a few per cent for itself; modules come in steps of 128 MiB at least.
        physical_mb: installed.or_else(|| total.map(|bytes| (bytes >> 20).next_multiple_of(128))),
    }
}

#[cfg(test)]
mod tests;
