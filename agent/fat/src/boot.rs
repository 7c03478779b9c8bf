//! The sectors before the tables: what says that this is a file system, and how large.

use crate::geometry::{Geometry, Kind, TABLES};
use crate::{Label, Volume};

/// Of the first two sectors, in FAT32.
const BACKUP: usize = 6;
const SIGNATURE: [u8; 2] = [0x55, 0xaa];
const NO_NAME: [u8; 11] = *b"NO NAME    ";
/// Whoever starts from this partition by mistake comes to a stop, not to random code.
const STOP: [u8; 3] = [0xf4, 0xeb, 0xfd];

/// All of them. `table`: what has the next free cluster behind it.
pub fn reserved(volume: &Volume, geometry: &Geometry, table: &[u32]) -> Vec<u8> {
    let sector = usize::from(volume.sector.bytes());
    let sectors = if geometry.kind == Kind::Fat32 { 32 } else { 1 };
    let mut bytes = vec![0; sectors * sector];
    let boot = boot_sector(volume, geometry);
    bytes[..boot.len()].copy_from_slice(&boot);
    if geometry.kind == Kind::Fat32 {
        let information = information_sector(geometry, table);
        bytes[sector..][..information.len()].copy_from_slice(&information);
        bytes.copy_within(..2 * sector, BACKUP * sector);
    }
    bytes
}

/// Numbers that do not fit where FAT12 and FAT16 have them stand elsewhere, and 0 there.
fn boot_sector(volume: &Volume, geometry: &Geometry) -> [u8; 512] {
    let mut boot = [0; 512];
    let mut field =
        |offset: usize, data: &[u8]| boot[offset..offset + data.len()].copy_from_slice(data);
    let small = |number: u64| u16::try_from(number).unwrap_or(0);
    let wide = |number: u64| u32::try_from(number).unwrap_or(0);
    field(3, b"MSWIN4.1");
    field(11, &volume.sector.bytes().to_le_bytes());
    field(13, &[u8::try_from(geometry.cluster).unwrap_or(0)]);
    field(14, &small(geometry.kind.reserved()).to_le_bytes());
    field(16, &[u8::try_from(TABLES).unwrap_or(0)]);
    field(17, &small(geometry.root_entries).to_le_bytes());
    field(21, &[0xf8]);
    // Sectors of a track, and heads, for whoever still asks.
    field(24, &63u16.to_le_bytes());
    field(26, &255u16.to_le_bytes());
    let Label(label) = volume.label;
    let extended = |kind: &[u8; 8]| {
        let id = volume.id.to_le_bytes();
        let label = label.unwrap_or(NO_NAME);
        [&[0x80, 0, 0x29][..], &id, &label, kind].concat()
    };
    let short_count = if geometry.kind == Kind::Fat32 {
        0
    } else {
        small(geometry.sectors)
    };
    field(19, &short_count.to_le_bytes());
    if short_count == 0 {
        field(32, &wide(geometry.sectors).to_le_bytes());
    }
    match geometry.kind {
        Kind::Fat32 => {
            field(0, &[0xeb, 0x58, 0x90]);
            field(36, &wide(geometry.table).to_le_bytes());
            field(44, &2u32.to_le_bytes());
            field(48, &1u16.to_le_bytes());
            field(50, &small(BACKUP as u64).to_le_bytes());
            field(64, &extended(b"FAT32   "));
            field(90, &STOP);
        }
        Kind::Fat16 | Kind::Fat12 => {
            let name = if geometry.kind == Kind::Fat16 {
                b"FAT16   "
            } else {
                b"FAT12   "
            };
            field(0, &[0xeb, 0x3c, 0x90]);
            field(22, &small(geometry.table).to_le_bytes());
            field(36, &extended(name));
            field(62, &STOP);
        }
    }
    field(510, &SIGNATURE);
    boot
}

fn information_sector(geometry: &Geometry, table: &[u32]) -> [u8; 512] {
    let mut sector = [0; 512];
    let used = table.iter().skip(2).filter(|next| **next != 0).count() as u64;
    let free = u32::try_from(geometry.clusters - used).unwrap_or(u32::MAX);
    // Where to look for a free one; all ones: unknown.
    let next = table.len() as u64;
    let next = if next < geometry.clusters + 2 {
        u32::try_from(next).unwrap_or(u32::MAX)
    } else {
        u32::MAX
    };
    let mut field =
        |offset: usize, data: &[u8]| sector[offset..offset + data.len()].copy_from_slice(data);
    field(0, b"RRaA");
    field(484, b"rrAa");
    field(488, &free.to_le_bytes());
    field(492, &next.to_le_bytes());
    field(510, &SIGNATURE);
    sector
}
