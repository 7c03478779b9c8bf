//! Partition tables of the stick and of the node image.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use firstlight_api::names::NODE_DISK;
use gpt::partition::Partition;
use gpt::partition_types::{OperatingSystem, Type};
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub const SECTOR: u64 = 512;
/// Partitions start at multiples of 1 MiB.
const ALIGN: u64 = 2048;
/// Sectors behind the last partition that the backup table needs, rounded up.
const TAIL: u64 = ALIGN;
const MIB: u64 = 1024 * 1024 / SECTOR;
/// Sectors of a disk, far beyond any.
const LARGEST: u64 = i64::MAX.unsigned_abs() / SECTOR;

pub const BIOS_BOOT: Uuid = Uuid::from_u128(0x2168_6148_6449_6e6f_744e_6565_6445_4649);
pub const ESP: Uuid = Uuid::from_u128(0xc12a_7328_f81f_11d2_ba4b_00a0_c93e_c93b);
pub const BASIC_DATA: Uuid = Uuid::from_u128(0xebd0_a0a2_b9e5_4433_87c0_68b6_b726_99c7);
pub const SYSTEM: Uuid = Uuid::from_u128(0x5f1a_57e0_0b0c_4a5e_8d1e_f125_7116_a7a0);
pub const STATE: Uuid = Uuid::from_u128(0x5f1a_57e0_0b0c_4a5e_8d1e_f125_7116_a7b0);
/// Root of an x86-64 Linux, from the Discoverable Partitions Specification.
pub const LINUX_ROOT: Uuid = Uuid::from_u128(0x4f68_bce3_e8cd_4db1_96e7_fbca_f984_b709);

/// GRUB's core image for BIOS starts here in both layouts; `grub::BIOS_BOOT_LBA` patches say so.
pub const BIOS_BOOT_LBA: u64 = 2048;

/// What it has there on a stick.
pub const BIOS_BOOT_BYTES: u64 = MIB * SECTOR;

/// One entry of a table, in sectors of 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionPlan {
    pub number: u32,
    pub name: String,
    pub kind: Uuid,
    pub id: Uuid,
    pub first: u64,
    pub sectors: u64,
}

impl PartitionPlan {
    pub fn offset(&self) -> u64 {
        self.first * SECTOR
    }

    pub fn bytes(&self) -> u64 {
        self.sectors * SECTOR
    }
}

/// A whole table, in the order in which the partitions lie on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    pub id: Uuid,
    pub partitions: Vec<PartitionPlan>,
}

impl DiskPlan {
    /// Size of the image file.
    pub fn bytes(&self) -> u64 {
        let end = self
            .partitions
            .iter()
            .map(|plan| plan.first + plan.sectors)
            .max()
            .unwrap_or(ALIGN);
        (end + TAIL) * SECTOR
    }

    /// The partition with this name.
    pub fn partition(&self, name: &str) -> Result<&PartitionPlan> {
        self.partitions
            .iter()
            .find(|plan| plan.name == name)
            .with_context(|| format!("no partition {name} in the plan"))
    }
}

/// The stick. FIRSTLIGHT has entry number 1, though it is not the first on disk: older Windows shows only that one.
///
/// GUIDs are made from `content`, so that the same content gives the same bytes and another stick gets others.
pub fn plan_stick(content: &str, system_bytes: u64) -> DiskPlan {
    let parts = [
        (3, "bios-boot", BIOS_BOOT, MIB),
        (2, "ESP", ESP, 128 * MIB),
        (1, "FIRSTLIGHT", BASIC_DATA, 64 * MIB),
        (4, "system-a", SYSTEM, sectors(system_bytes)),
    ];
    lay_out(content, &parts)
}

/// The node image: the root file system comes last, so that it can grow. Its GUIDs are replaced on each disk it is written to.
pub fn plan_node(content: &str, esp_bytes: u64, root_bytes: u64) -> DiskPlan {
    let parts = [
        (1, "bios-boot", BIOS_BOOT, MIB),
        (2, "ESP", ESP, sectors(esp_bytes)),
        (3, "root", LINUX_ROOT, sectors(root_bytes)),
    ];
    DiskPlan {
        id: Uuid::from_u128(NODE_DISK),
        ..lay_out(content, &parts)
    }
}

fn lay_out(content: &str, parts: &[(u32, &str, Uuid, u64)]) -> DiskPlan {
    let mut first = BIOS_BOOT_LBA;
    let mut partitions = Vec::new();
    for (number, name, kind, sectors) in parts {
        let id = derive_id(content, name);
        partitions.push(PartitionPlan {
            number: *number,
            name: (*name).to_owned(),
            kind: *kind,
            id,
            first,
            sectors: *sectors,
        });
        first += sectors.next_multiple_of(ALIGN);
    }
    DiskPlan {
        id: derive_id(content, "disk"),
        partitions,
    }
}

fn sectors(bytes: u64) -> u64 {
    bytes.div_ceil(SECTOR).next_multiple_of(ALIGN)
}

/// A GUID that is the same for the same content and role.
pub fn derive_id(content: &str, role: &str) -> Uuid {
    let digest = Sha256::digest(format!("firstlight {role}\n{content}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Writes protective MBR and both tables into `disk`, which has its full size already.
pub fn write_table(disk: &mut File, plan: &DiskPlan) -> Result<()> {
    let last = u32::try_from(plan.bytes() / SECTOR - 1).unwrap_or(u32::MAX);
    gpt::mbr::ProtectiveMBR::with_lb_size(last)
        .overwrite_lba0(disk)
        .context("writing the protective MBR")?;
    let config = gpt::GptConfig::new().writable(true);
    let mut table = config
        .create_from_device(&mut *disk, Some(plan.id))
        .context("creating the partition table")?;
    let mut entries = BTreeMap::new();
    for part in &plan.partitions {
        let entry = Partition {
            part_type_guid: Type {
                guid: part.kind,
                os: OperatingSystem::None,
            },
            part_guid: part.id,
            first_lba: part.first,
            last_lba: part.first + part.sectors - 1,
            flags: 0,
            name: part.name.clone(),
        };
        ensure!(
            entries.insert(part.number, entry).is_none(),
            "partition number {} is used twice",
            part.number
        );
    }
    table
        .update_partitions(entries)
        .context("filling the partition table")?;
    table.write().context("writing the partition table")?;
    Ok(())
}

/// Reads the table of an image or a device.
pub fn load_table(path: &Path) -> Result<DiskPlan> {
    let disk = gpt::GptConfig::new()
        .writable(false)
        .open(path)
        .with_context(|| {
            format!(
                "{} has no readable GPT: not an image that `firstlight build` made, or cut short",
                path.display()
            )
        })?;
    let used = || {
        disk.partitions()
            .iter()
            .filter(|(_, entry)| entry.is_used())
    };
    for (number, entry) in used() {
        ensure!(
            entry.first_lba <= entry.last_lba && entry.last_lba < LARGEST,
            "partition {number} of {} lies outside of every disk: the table is damaged",
            path.display()
        );
    }
    let mut partitions: Vec<PartitionPlan> = used()
        .map(|(number, entry)| PartitionPlan {
            number: *number,
            name: entry.name.clone(),
            kind: entry.part_type_guid.guid,
            id: entry.part_guid,
            first: entry.first_lba,
            sectors: entry.last_lba + 1 - entry.first_lba,
        })
        .collect();
    partitions.sort_by_key(|plan| plan.first);
    Ok(DiskPlan {
        id: *disk.guid(),
        partitions,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_written_table_reads_back_as_planned() {
        let plan = plan_stick("some content", 10_000_001);
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(plan.bytes()).unwrap();
        write_table(&mut file.as_file().try_clone().unwrap(), &plan).unwrap();
        assert_eq!(load_table(file.path()).unwrap(), plan);
    }

    #[test]
    fn partitions_do_not_overlap_and_start_at_megabytes() {
        for plan in [
            plan_stick("x", 1),
            plan_stick("x", 900 << 20),
            plan_node("x", 34 << 20, 1 << 30),
        ] {
            for pair in plan.partitions.windows(2) {
                assert!(pair[0].first + pair[0].sectors <= pair[1].first, "{pair:?}");
            }
            assert!(
                plan.partitions
                    .iter()
                    .all(|part| part.first % ALIGN == 0 && part.sectors > 0)
            );
        }
    }

    #[test]
    fn guids_follow_the_content() {
        assert_eq!(plan_stick("a", 5), plan_stick("a", 5));
        assert_ne!(
            plan_stick("a", 5).partition("system-a").unwrap().id,
            plan_stick("b", 5).partition("system-a").unwrap().id
        );
    }
}
