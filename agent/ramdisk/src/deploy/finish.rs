//! The last part of a write: partition table fitted to the disk, config drive, and then the bytes that make it boot.
//!
//! The first MiB is written last. Whenever the power fails before, the disk has no partition table.

use std::io;

use firstlight_api::digest::Sha256Digest;
use firstlight_api::names::NODE_DISK;
use firstlight_efi::load_option::{HardDrive, PartitionId};
use uuid::Uuid;

use super::config_drive;
use super::device::{BlockDevice, Extent};
use super::gpt::{ESP_TYPE, Gpt, GptError};
use super::image::Held;
use super::large_sectors::{self, LARGE, LargeSectorsError};
use super::mark::{self, Maker};
use super::mbr::{self, Mbr, MbrError};

#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    #[error(
        "the image has no partition table; a whole-disk image with GPT or a DOS table is needed"
    )]
    NoTable,
    #[error(
        "the image was made for 512-byte sectors, {disk} has 4096-byte sectors, and it cannot be fitted to them; choose another disk, or use an image made for 4096-byte sectors"
    )]
    SectorSize {
        disk: String,
        source: LargeSectorsError,
    },
    #[error(
        "{0} has 4096-byte sectors, and the image's DOS partition table does not say for which size it was made; use an image with GPT"
    )]
    DosTable(String),
    #[error(transparent)]
    Gpt(#[from] GptError),
    #[error(transparent)]
    Mbr(#[from] MbrError),
    #[error(
        "the config drive of {needed} bytes does not fit the image's config-2 partition of {there} bytes"
    )]
    ConfigDriveRoom { needed: u64, there: u64 },
    #[error("writing {what} to {disk}")]
    Write {
        what: &'static str,
        disk: String,
        source: io::Error,
    },
    #[error("reading {disk}")]
    Read { disk: String, source: io::Error },
}

/// A range of the disk in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub length: u64,
}

/// Where the firmware finds the boot loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Esp {
    pub drive: HardDrive,
    pub range: Range,
}

/// A disk that lacks its first MiB alone.
#[derive(Debug)]
pub struct Prepared {
    /// The first MiB.
    pub head: Vec<u8>,
    /// Of the config drive, as it is on the disk.
    pub config_drive: Option<Sha256Digest>,
}

/// Finishes a disk; behind its config drive it says who the `maker` is. A new partition for the config drive gets a new
/// GUID, and so does everything in the table of a node image: two disks that it was written to differ. Returns the digest of the config
/// drive.
pub fn finish(
    device: &dyn BlockDevice,
    held: Held,
    config_drive: Option<&[u8]>,
    maker: Option<&Maker>,
    new_id: &mut dyn FnMut() -> Uuid,
) -> Result<Option<Sha256Digest>, FinishError> {
    let prepared = prepare(device, held, config_drive, maker, new_id)?;
    make_bootable(device, &prepared.head)?;
    Ok(prepared.config_drive)
}

/// All of that but the first MiB, which comes back.
pub fn prepare(
    device: &dyn BlockDevice,
    mut held: Held,
    config_drive: Option<&[u8]>,
    maker: Option<&Maker>,
    new_id: &mut dyn FnMut() -> Uuid,
) -> Result<Prepared, FinishError> {
    let sector = device.sector();
    let mut tail = std::mem::take(&mut held.tail);
    let mut gpt = Gpt::parse(&held.head, sector)?;
    let mut fitted = None;
    if sector == LARGE {
        let not_fitted = |source| FinishError::SectorSize {
            disk: device.name().to_owned(),
            source,
        };
        if gpt.is_none() {
            gpt = large_sectors::adapt(device, &mut held).map_err(not_fitted)?;
        }
        let drive = config_drive.map(large_sectors::config_drive);
        fitted = drive.transpose().map_err(not_fitted)?;
    }
    let config_drive = fitted.as_deref().or(config_drive);
    let place = if let Some(mut gpt) = gpt {
        if gpt.partitions().is_empty() {
            return Err(FinishError::NoTable);
        }
        gpt.resize(device.size())?;
        if gpt.disk_id() == Uuid::from_u128(NODE_DISK) {
            gpt.renew_ids(new_id);
        }
        let place = match config_drive {
            Some(_) => Some(gpt_place(device, &held, &mut gpt, new_id)?),
            None => None,
        };
        gpt.write_head(&mut held.head);
        let backup = gpt.backup();
        // The backup ends with the last whole sector of the disk.
        let end = tail.len() - usize::try_from(device.size() % sector).unwrap_or(0);
        tail[end - backup.len()..end].copy_from_slice(&backup);
        place
    } else {
        let mut mbr = Mbr::parse(&held.head).ok_or(FinishError::NoTable)?;
        if mbr.entries.iter().any(|e| e.kind == mbr::GPT_KIND) {
            return Err(FinishError::NoTable);
        }
        if sector == LARGE {
            return Err(FinishError::DosTable(device.name().to_owned()));
        }
        match config_drive {
            Some(_) => Some(mbr_place(device, &mut held, &mut mbr)?),
            None => None,
        }
    };
    let tail_start = device.size() - tail.len() as u64;
    write(device, "the end of the image", tail_start, &tail)?;
    if let (Some(place), Some(bytes)) = (place, config_drive) {
        write_config_drive(device, place, bytes)?;
        if let Some(maker) = maker.filter(|_| has_room(place, bytes)) {
            mark::complete(device, place.start + place.length, maker).map_err(|source| {
                FinishError::Write {
                    what: "the mark behind the config drive",
                    disk: device.name().to_owned(),
                    source,
                }
            })?;
        }
    }
    flush(device)?;
    Ok(Prepared {
        head: held.head,
        config_drive: config_drive.map(Sha256Digest::of),
    })
}

/// The last write.
pub fn make_bootable(device: &dyn BlockDevice, head: &[u8]) -> Result<(), FinishError> {
    write(device, "the start of the image", 0, head)?;
    flush(device)
}

/// What the table in the first MiB names.
pub fn places(head: &[u8], sector: u64) -> Result<Vec<Extent>, FinishError> {
    let place = |number, first: u64, sectors: u64| Extent {
        number,
        start: first * sector,
        length: sectors * sector,
    };
    if let Some(gpt) = Gpt::parse(head, sector)? {
        let all = gpt.partitions().into_iter();
        return Ok(all
            .map(|p| place(p.number, p.first_lba, p.last_lba + 1 - p.first_lba))
            .collect());
    }
    let mbr = Mbr::parse(head).ok_or(FinishError::NoTable)?;
    let all = mbr.plain();
    Ok(all
        .map(|e| place(e.number, e.first_lba.into(), e.sectors.into()))
        .collect())
}

/// Finds the EFI system partition of a finished disk.
pub fn find_esp(device: &dyn BlockDevice) -> Result<Option<Esp>, FinishError> {
    let mut head = vec![0; 1 << 20];
    device
        .read_at(0, &mut head)
        .map_err(|source| FinishError::Read {
            disk: device.name().to_owned(),
            source,
        })?;
    let sector = device.sector();
    let esp = |number, first_lba, sectors, id| Esp {
        drive: HardDrive {
            number,
            first_lba,
            sectors,
            id,
        },
        range: Range {
            start: first_lba * sector,
            length: sectors * sector,
        },
    };
    if let Some(gpt) = Gpt::parse(&head, sector)? {
        let partition = gpt.partitions().into_iter().find(|p| p.kind == ESP_TYPE);
        return Ok(partition.map(|p| {
            esp(
                p.number,
                p.first_lba,
                p.last_lba + 1 - p.first_lba,
                PartitionId::Gpt(p.id),
            )
        }));
    }
    let mbr = Mbr::parse(&head);
    let entry = mbr
        .as_ref()
        .and_then(|m| m.entries.iter().find(|e| e.kind == mbr::ESP_KIND));
    Ok(mbr.as_ref().zip(entry).map(|(m, e)| {
        esp(
            e.number,
            e.first_lba.into(),
            e.sectors.into(),
            PartitionId::Mbr(m.disk_id),
        )
    }))
}

fn gpt_place(
    device: &dyn BlockDevice,
    held: &Held,
    gpt: &mut Gpt,
    new_id: &mut dyn FnMut() -> Uuid,
) -> Result<Range, FinishError> {
    let sector = device.sector();
    let range = |first: u64, last: u64| Range {
        start: first * sector,
        length: (last + 1 - first) * sector,
    };
    for partition in gpt.partitions() {
        let place = range(partition.first_lba, partition.last_lba);
        if partition.name == "config-2" || has_config_label(device, held, place)? {
            return Ok(place);
        }
    }
    let partition = gpt.append(config_drive::LENGTH, "config-2", new_id())?;
    Ok(range(partition.first_lba, partition.last_lba))
}

fn mbr_place(
    device: &dyn BlockDevice,
    held: &mut Held,
    mbr: &mut Mbr,
) -> Result<Range, FinishError> {
    let sector = device.sector();
    let range = |e: &mbr::Entry| Range {
        start: u64::from(e.first_lba) * sector,
        length: u64::from(e.sectors) * sector,
    };
    for place in mbr.plain().map(range).collect::<Vec<_>>() {
        if has_config_label(device, held, place)? {
            return Ok(place);
        }
    }
    let entry = mbr.append(&mut held.head, sector, device.size(), config_drive::LENGTH)?;
    Ok(range(&entry))
}

/// Whether the partition holds an ISO 9660 or FAT file system labelled `config-2`.
fn has_config_label(
    device: &dyn BlockDevice,
    held: &Held,
    place: Range,
) -> Result<bool, FinishError> {
    const ISO: u64 = 32768;
    let is_label = |bytes: &[u8]| bytes.trim_ascii_end().eq_ignore_ascii_case(b"config-2");
    let end = held.length.min(place.start.saturating_add(place.length));
    // What is held back is not on the disk: no file system that somebody made begins there.
    if place.start < held.head.len() as u64 || place.start + ISO + 2048 > end {
        return Ok(false);
    }
    let read = |offset: u64, buffer: &mut [u8]| {
        device
            .read_at(offset, buffer)
            .map_err(|source| FinishError::Read {
                disk: device.name().to_owned(),
                source,
            })
    };
    let mut boot = [0; 512];
    read(place.start, &mut boot)?;
    let mut volume = [0; 72];
    read(place.start + ISO, &mut volume)?;
    let iso = &volume[1..6] == b"CD001" && is_label(&volume[40..72]);
    let fat32 = &boot[82..87] == b"FAT32" && is_label(&boot[71..82]);
    let fat16 = &boot[54..57] == b"FAT" && is_label(&boot[43..54]);
    Ok(iso || fat32 || fat16)
}

/// For the mark behind a config drive.
fn has_room(place: Range, config_drive: &[u8]) -> bool {
    config_drive.len() as u64 + mark::LENGTH as u64 <= place.length
}

fn write_config_drive(
    device: &dyn BlockDevice,
    place: Range,
    bytes: &[u8],
) -> Result<(), FinishError> {
    let needed = bytes.len() as u64;
    if needed > place.length {
        return Err(FinishError::ConfigDriveRoom {
            needed,
            there: place.length,
        });
    }
    write(device, "the config drive", place.start, bytes)?;
    let rest = needed.next_multiple_of(device.sector()).min(place.length);
    device
        .zero(place.start + rest, place.length - rest)
        .map_err(|source| FinishError::Write {
            what: "the config drive",
            disk: device.name().to_owned(),
            source,
        })
}

fn write(
    device: &dyn BlockDevice,
    what: &'static str,
    offset: u64,
    bytes: &[u8],
) -> Result<(), FinishError> {
    device
        .write_at(offset, bytes)
        .map_err(|source| FinishError::Write {
            what,
            disk: device.name().to_owned(),
            source,
        })
}

fn flush(device: &dyn BlockDevice) -> Result<(), FinishError> {
    device.flush().map_err(|source| FinishError::Write {
        what: "the last blocks",
        disk: device.name().to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
