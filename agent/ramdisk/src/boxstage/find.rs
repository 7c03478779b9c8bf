//! Finding the partition of the slot among the disks that appear.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::gpt::{Entry, parse_entries, parse_header};

/// Type GUID of the state partition, made at first boot (docs/reference.md, "The stick").
const STATE_TYPE: &str = "5f1a57e0-0b0c-4a5e-8d1e-f1257116a7b0";
/// How often a person hears what is being waited for.
const REMINDER: Duration = Duration::from_secs(10);

/// A partition with the PARTUUID asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// The disk has no state partition: it has never booted. Sorts after one that has.
    fresh: bool,
    /// Not on USB; sorts after the sticks.
    internal: bool,
    /// Kernel name, e.g. `sda4`.
    pub name: String,
    /// `8:4`
    pub number: String,
    pub bytes: u64,
    /// Logical block size of the disk.
    pub sector_bytes: u32,
}

impl Slot {
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }
}

/// Waits for the partition, however long it takes. Two sticks written from one image carry the same PARTUUID: among those
/// that are there at that moment, one that has booted before (it has a state partition) wins over one that has not, a
/// stick over an inner disk, and the first name over the rest.
pub fn wait_for_slot(partuuid: &str, blocks: &Receiver<String>) -> Result<Slot> {
    let mut seen = Vec::new();
    loop {
        match blocks.recv_timeout(REMINDER) {
            Ok(name) => {
                let waiting = std::iter::once(name).chain(blocks.try_iter());
                let mut slots: Vec<Slot> = waiting
                    .filter_map(|name| inspect(&name, partuuid, &mut seen))
                    .collect();
                slots.sort_unstable();
                slots.dedup();
                if let [other, ..] = slots.get(1..).unwrap_or_default() {
                    tracing::warn!(
                        chosen = slots[0].name,
                        other = other.name,
                        "two disks carry this stick's identity; remove one of them"
                    );
                }
                if let Some(slot) = slots.into_iter().next() {
                    return Ok(slot);
                }
            }
            Err(RecvTimeoutError::Timeout) => tracing::warn!(
                partuuid,
                disks = seen.join(" "),
                "still waiting for the stick's system partition; pull the stick out and put it in again, or try another USB port"
            ),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the kernel sends no more news of devices")
            }
        }
    }
}

/// Looks at one block device; disks, and partitions of other numbers, give nothing.
fn inspect(name: &str, partuuid: &str, seen: &mut Vec<String>) -> Option<Slot> {
    let sys = fs::canonicalize(Path::new("/sys/class/block").join(name)).ok()?;
    let number: u32 = read_value(&sys.join("partition"))?;
    let disk = sys.parent()?;
    let disk_name = disk.file_name()?.to_string_lossy().into_owned();
    if !seen.contains(&disk_name) {
        seen.push(disk_name.clone());
    }
    let sector_bytes: u32 = read_value(&disk.join("queue/logical_block_size"))?;
    let disk_bytes = read_value::<u64>(&disk.join("size"))?.checked_mul(512)?;
    let entries = match load_gpt(
        &Path::new("/dev").join(&disk_name),
        u64::from(sector_bytes),
        disk_bytes,
    ) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::debug!(
                disk = disk_name,
                error = format!("{error:#}"),
                "no partition table to read"
            );
            return None;
        }
    };
    entries
        .iter()
        .find(|entry| entry.number == number && entry.guid == partuuid)?;
    Some(Slot {
        fresh: !entries.iter().any(|entry| entry.type_guid == STATE_TYPE),
        internal: !sys.to_string_lossy().contains("/usb"),
        name: name.to_owned(),
        number: fs::read_to_string(sys.join("dev")).ok()?.trim().to_owned(),
        bytes: read_value::<u64>(&sys.join("size"))?.checked_mul(512)?,
        sector_bytes,
    })
}

/// Reads the GPT of a disk: the primary one, or the backup in the last sector.
fn load_gpt(disk: &Path, sector_bytes: u64, disk_bytes: u64) -> Result<Vec<Entry>> {
    let file = File::open(disk).with_context(|| format!("opening {}", disk.display()))?;
    let mut sector = vec![0; usize::try_from(sector_bytes)?];
    for at in [sector_bytes, disk_bytes.saturating_sub(sector_bytes)] {
        file.read_exact_at(&mut sector, at)?;
        let Some(table) = parse_header(&sector, sector_bytes) else {
            continue;
        };
        let mut bytes = vec![0; table.bytes()];
        file.read_exact_at(&mut bytes, table.offset)?;
        if let Some(entries) = parse_entries(&table, &bytes) {
            return Ok(entries);
        }
    }
    bail!("no valid GPT")
}

fn read_value<T: std::str::FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
