//! Erasing disks: their signatures, or every byte.

use std::io;

use super::cancel::Cancel;
use super::device::BlockDevice;
use super::mark::{self, Maker};
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

/// Removes partition tables and signatures, those inside the partitions too, and looks that none is left. With a
/// `maker` a disk that loses its power on the way is still known as one of ours.
pub fn metadata(device: &dyn BlockDevice, maker: Option<&Maker>) -> Result<(), EraseError> {
    let size = device.size();
    let partitions = partitions(device)?;
    // Structures of virtual machine and RAID systems sit in the first and last MiB; VMFS in the two after.
    zero(device, 0, (4 * END).min(size))?;
    zero(device, size.saturating_sub(2 * END), size)?;
    if let Some(maker) = maker.filter(|_| size > END) {
        written(device, mark::PLACE, mark::begin(device, maker))?;
    }
    flush(device)?;
    // What a damaged table names may be outside; the first MiB is done.
    let inner = partitions
        .into_iter()
        .filter(|(_, end)| *end <= size)
        .flat_map(|(start, end)| {
            [
                (start.max(END), (start + END).min(end)),
                (end.saturating_sub(END).max(start).max(END), end),
            ]
        });
    let copies = BTRFS_COPIES.iter().map(|at| (*at, at + 4096));
    for (start, end) in inner.chain(copies.filter(|(_, end)| *end <= size)) {
        if start < end {
            zero(device, start, end)?;
        }
    }
    flush(device)?;
    if size > END {
        written(device, mark::PLACE, mark::end(device))?;
        flush(device)?;
    }
    look(device)?;
    reread(device);
    Ok(())
}

fn look(device: &dyn BlockDevice) -> Result<(), EraseError> {
    let left = signatures::find(device).map_err(|source| EraseError::Read {
        disk: device.name().to_owned(),
        source,
    })?;
    if left.is_empty() {
        return Ok(());
    }
    Err(EraseError::Left {
        disk: device.name().to_owned(),
        left: left.join(", "),
    })
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
pub fn express(device: &dyn BlockDevice, maker: Option<&Maker>) -> Result<(), EraseError> {
    // The table must be read before it is gone.
    metadata(device, maker)?;
    discard(device);
    metadata(device, maker)
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
    Ok(mark::partitions(&head, device.sector()))
}

fn zero(device: &dyn BlockDevice, start: u64, end: u64) -> Result<(), EraseError> {
    written(device, start, device.zero(start, end - start))
}

fn flush(device: &dyn BlockDevice) -> Result<(), EraseError> {
    written(device, 0, device.flush())
}

fn written(
    device: &dyn BlockDevice,
    offset: u64,
    result: io::Result<()>,
) -> Result<(), EraseError> {
    result.map_err(|source| EraseError::Write {
        disk: device.name().to_owned(),
        offset,
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
