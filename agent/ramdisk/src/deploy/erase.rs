//! Erasing disks: their signatures, or every byte.

use std::io;

use super::cancel::Cancel;
use super::device::BlockDevice;
use super::gpt::Gpt;
use super::mbr::Mbr;
use super::signatures;

/// Zeroed at both ends of a disk and of each partition.
const END: u64 = 1 << 20;
/// Between two looks at the flag and two lines of progress.
const STEP: u64 = 256 << 20;
/// Copies of btrfs's superblock beyond the first MiB.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

#[derive(Debug, thiserror::Error)]
pub enum EraseError {
    #[error("erasing {disk} at byte {offset}")]
    Write {
        disk: String,
        offset: u64,
        source: io::Error,
    },
    #[error("reading {disk}")]
    Read { disk: String, source: io::Error },
    #[error(
        "{disk} still shows {left} after it was erased; the disk may be failing or write-protected"
    )]
    Left { disk: String, left: String },
    #[error("the work was called off")]
    Cancelled,
}

/// Removes partition tables and signatures, those inside the partitions too, and looks that none is left.
pub fn metadata(device: &dyn BlockDevice) -> Result<(), EraseError> {
    let size = device.size();
    let mut ranges: Vec<(u64, u64)> = partitions(device)?
        .into_iter()
        // A damaged table may name anything.
        .filter(|(start, end)| start < end && *end <= size)
        .flat_map(|(start, end)| {
            [
                (start, (start + END).min(end)),
                (end.saturating_sub(END).max(start), end),
            ]
        })
        .collect();
    ranges.extend(
        BTRFS_COPIES
            .iter()
            .map(|at| (*at, at + 4096))
            .filter(|(_, end)| *end <= size),
    );
    // Structures of virtual machine and RAID systems sit in the first and last MiB too; VMFS in the two after.
    ranges.push((0, (4 * END).min(size)));
    ranges.push((size.saturating_sub(2 * END), size));
    for (start, end) in ranges {
        zero(device, start, end)?;
    }
    flush(device)?;
    let left = signatures::find(device).map_err(|source| EraseError::Read {
        disk: device.name().to_owned(),
        source,
    })?;
    if !left.is_empty() {
        return Err(EraseError::Left {
            disk: device.name().to_owned(),
            left: left.join(", "),
        });
    }
    reread(device);
    Ok(())
}

/// Zeroes every byte. A flash disk is first told that nothing is needed, which also frees what it keeps in reserve.
pub fn everything(
    device: &dyn BlockDevice,
    cancel: &Cancel,
    progress: &dyn Fn(u64, u64),
) -> Result<(), EraseError> {
    discard(device);
    let size = device.size();
    let mut offset = 0;
    while offset < size {
        if cancel.is_raised() {
            return Err(EraseError::Cancelled);
        }
        let end = (offset + STEP).min(size);
        zero(device, offset, end)?;
        offset = end;
        progress(offset, size);
    }
    flush(device)?;
    reread(device);
    Ok(())
}

/// Discards, and removes the signatures that a disk without discard still has.
pub fn express(device: &dyn BlockDevice) -> Result<(), EraseError> {
    // The table must be read before it is gone.
    metadata(device)?;
    discard(device);
    metadata(device)
}

/// Most disks that are not flash refuse: they are zeroed like all others.
fn discard(device: &dyn BlockDevice) {
    if let Err(error) = device.discard() {
        tracing::debug!(disk = device.name(), %error, "the disk does not discard");
    }
}

fn partitions(device: &dyn BlockDevice) -> Result<Vec<(u64, u64)>, EraseError> {
    let mut head = vec![0; usize::try_from(END.min(device.size())).unwrap_or(0)];
    device
        .read_at(0, &mut head)
        .map_err(|source| EraseError::Read {
            disk: device.name().to_owned(),
            source,
        })?;
    let sector = device.sector();
    if let Ok(Some(gpt)) = Gpt::parse(&head, sector) {
        let range = |first: u64, last: u64| {
            (
                first.saturating_mul(sector),
                last.saturating_add(1).saturating_mul(sector),
            )
        };
        return Ok(gpt
            .partitions()
            .iter()
            .map(|p| range(p.first_lba, p.last_lba))
            .collect());
    }
    let entries = Mbr::parse(&head).map(|mbr| mbr.entries).unwrap_or_default();
    Ok(entries
        .iter()
        .map(|e| {
            (
                u64::from(e.first_lba) * sector,
                (u64::from(e.first_lba) + u64::from(e.sectors)) * sector,
            )
        })
        .collect())
}

fn zero(device: &dyn BlockDevice, start: u64, end: u64) -> Result<(), EraseError> {
    device
        .zero(start, end - start)
        .map_err(|source| EraseError::Write {
            disk: device.name().to_owned(),
            offset: start,
            source,
        })
}

fn flush(device: &dyn BlockDevice) -> Result<(), EraseError> {
    device.flush().map_err(|source| EraseError::Write {
        disk: device.name().to_owned(),
        offset: 0,
        source,
    })
}

fn reread(device: &dyn BlockDevice) {
    if let Err(error) = device.reread_partitions() {
        tracing::debug!(disk = device.name(), %error, "the kernel keeps the old partition table until the next boot");
    }
}

#[cfg(test)]
mod tests;
