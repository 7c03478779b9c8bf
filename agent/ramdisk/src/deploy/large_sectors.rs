//! Images that were made for sectors of 512 bytes, on disks whose sectors have 4096.
//!
//! A partition table counts in sectors, so it is written anew. FAT says the size of its sectors, and a kernel mounts none with
//! smaller ones than the disk's: such file systems are made anew with the same files. ISO 9660 knows sectors of 2048 bytes only: a
//! config drive becomes FAT. Others are the same on every disk, or they are refused before the disk can boot.

mod joliet;
mod tree;

use std::io::{self, Cursor};

use super::config_drive;
use super::device::BlockDevice;
use super::finish::Range;
use super::gpt::{Gpt, GptError, Partition};
use super::image::Held;
use super::volume::Volume;
use tree::Label;

/// That an image was made for.
const SMALL: u64 = 512;
pub const LARGE: u64 = 4096;
/// In which a sound FAT file system is read: its files, and its tables again and again.
const MOST_READ: u64 = 4 * tree::MOST_BYTES;
/// For `blkid`, which tells two volumes of one name apart by it.
const CONFIG_DRIVE_ID: u32 = 0xC0F1_6002;
/// A cluster for each file and folder, and the tables.
const SPARE: u64 = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub enum LargeSectorsError {
    #[error(transparent)]
    Table(#[from] GptError),
    #[error("partition {0} does not begin at a multiple of 4096 bytes")]
    Place(u32),
    #[error("the file system of partition {partition} has {what}")]
    FileSystem { partition: u32, what: String },
    #[error("the file system of partition {partition} cannot be made anew")]
    Fat { partition: u32, source: io::Error },
    #[error("the config drive cannot be made anew")]
    ConfigDrive(#[source] io::Error),
}

/// The table for a disk of such sectors, if the image has one for small sectors: in `held`, and as a value. Everything that is on
/// the disk already fits it then.
pub fn adapt(device: &dyn BlockDevice, held: &mut Held) -> Result<Option<Gpt>, LargeSectorsError> {
    let Some(small) = Gpt::parse(&held.head, SMALL)? else {
        return Ok(None);
    };
    let large = small.with_sectors_of(LARGE)?;
    for (before, after) in small.partitions().iter().zip(large.partitions()) {
        let range = range_of(&after, LARGE);
        // Its last sector may be a part of a large one, which no file system in blocks of 4096 bytes has in use.
        if range.start != range_of(before, SMALL).start {
            return Err(LargeSectorsError::Place(before.number));
        }
        // What begins in the first MiB is not on the disk yet: a boot loader of a BIOS, which starts from no such disk.
        if range.start >= held.head.len() as u64 && range.start + range.length <= held.length {
            fit(device, before.number, range)?;
        }
    }
    small.erase_head(&mut held.head);
    Ok(Some(large))
}

/// A config drive that the kernel mounts from such a disk.
pub fn config_drive(drive: &[u8]) -> Result<Vec<u8>, LargeSectorsError> {
    let label = Label::new("config-2", CONFIG_DRIVE_ID);
    let make = || -> io::Result<Vec<u8>> {
        let tree = if joliet::is_volume(drive) {
            joliet::read(drive)?
        } else {
            tree::read(Cursor::new(drive.to_vec()))?.0
        };
        let bytes = (tree.bytes(LARGE) + SPARE).min(config_drive::LENGTH);
        let mut made = Cursor::new(vec![0; usize::try_from(bytes).map_err(io::Error::other)?]);
        tree.write(&mut made, bytes, &label)?;
        Ok(made.into_inner())
    };
    make().map_err(LargeSectorsError::ConfigDrive)
}

fn range_of(partition: &Partition, sector: u64) -> Range {
    Range {
        start: partition.first_lba * sector,
        length: (partition.last_lba + 1 - partition.first_lba) * sector,
    }
}

fn fit(device: &dyn BlockDevice, partition: u32, range: Range) -> Result<(), LargeSectorsError> {
    let fat = |source| LargeSectorsError::Fat { partition, source };
    let mut start = [0; 2048];
    if range.length < start.len() as u64 {
        return Ok(());
    }
    device.read_at(range.start, &mut start).map_err(fat)?;
    if let Some(what) = too_small(&start) {
        return Err(LargeSectorsError::FileSystem { partition, what });
    }
    if !tree::is_fat(&start) {
        return Ok(());
    }
    let (tree, label) = tree::read(Volume::to_read(device, range, MOST_READ)).map_err(fat)?;
    tree.write(&mut Volume::to_write(device, range), range.length, &label)
        .map_err(fat)
}

/// What a file system has that no kernel mounts from such a disk.
fn too_small(start: &[u8; 2048]) -> Option<String> {
    let ext = start[1080..1082] == [0x53, 0xEF];
    let ext_block = 1024_u64 << start[1048].min(6);
    if ext && ext_block < LARGE {
        return Some(format!("blocks of {ext_block} bytes"));
    }
    let xfs_sector = u64::from(u16::from_be_bytes([start[102], start[103]]));
    if start.starts_with(b"XFSB") && xfs_sector < LARGE {
        return Some(format!("sectors of {xfs_sector} bytes"));
    }
    None
}

#[cfg(test)]
mod tests;
