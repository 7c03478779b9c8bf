//! A FAT16 file system of three short names, all files in one piece ("FAT32 File System Specification" 1.03, which has FAT16, too).
//! The crate `fatfs` gives `.` and `..` long names, which not every firmware may like.

use std::ops::Range;

use super::{MEDIUM_CONFIG, MediumError, SECTOR as CD_SECTOR};

const SECTOR: usize = 512;
/// Below this number of clusters a file system is FAT12 by definition; the specification wants some distance.
const FEWEST: usize = 4085 + 16;
const MOST: usize = 65_535;
const ROOT_ENTRIES: u16 = 512;
const ENTRY: usize = 32;
const DIRECTORY: u8 = 0x10;
const VOLUME: u8 = 0x08;
const READ_ONLY: u8 = 0x01;
/// 2026-11-01
const DATE: u16 = ((2026 - 1980) << 9) | (11 << 5) | 1;
const LABEL: &[u8; 11] = b"FIRSTLIGHT ";
/// Of the directories; the root has no cluster.
const EFI: u16 = 2;
const BOOT: u16 = 3;
const GRUB: u16 = 4;
const LAST_DIRECTORY: usize = 4;

pub struct Volume {
    pub bytes: Vec<u8>,
    /// Where GRUB's configuration is; line breaks for now. It begins with a sector of the CD, so that the CD itself can have the same file.
    pub config: Range<usize>,
}

/// `\EFI\BOOT` as firmware looks for it on removable media, and `/grub` where the network image of GRUB looks.
pub fn volume(shim: &[u8], grub: &[u8]) -> Result<Volume, MediumError> {
    let config = [b'\n'; MEDIUM_CONFIG];
    let files: [&[u8]; 3] = [&config, shim, grub];
    let clusters = |file: &[u8]| file.len().div_ceil(SECTOR).max(1);
    // With room for the configuration to begin where it likes.
    let used = LAST_DIRECTORY + CD_SECTOR / SECTOR;
    let used = used + files.iter().map(|file| clusters(file)).sum::<usize>();
    let count = used.max(FEWEST);
    let table = (2 * (count + 2)).div_ceil(SECTOR);
    let root = usize::from(ROOT_ENTRIES) * ENTRY;
    let before = SECTOR + 2 * table * SECTOR + root;
    let sectors = before / SECTOR + count;
    let too_large = || MediumError::Loaders(shim.len().saturating_add(grub.len()));
    if sectors > MOST {
        return Err(too_large());
    }
    let sectors = u16::try_from(sectors).map_err(|_| too_large())?;
    let table_sectors = u16::try_from(table).map_err(|_| too_large())?;
    let mut bytes = vec![0; usize::from(sectors) * SECTOR];
    bytes[..SECTOR].copy_from_slice(&boot_sector(sectors, table_sectors));

    let mut chains = Chains(vec![0; 2 * table * SECTOR], table * SECTOR);
    chains.set(0, 0xfff8);
    chains.set(1, 0xffff);
    for directory in [EFI, BOOT, GRUB] {
        chains.set(usize::from(directory), 0xffff);
    }
    let data = |cluster: usize| before + (cluster - 2) * SECTOR;
    let mut next = LAST_DIRECTORY + 1;
    while !data(next).is_multiple_of(CD_SECTOR) {
        next += 1;
    }
    let firsts = files.map(|file| {
        let first = next;
        for cluster in first..first + clusters(file) {
            let last = cluster + 1 == first + clusters(file);
            let after = u16::try_from(cluster + 1).expect("fewer clusters than sectors");
            chains.set(cluster, if last { 0xffff } else { after });
        }
        bytes[data(first)..data(first) + file.len()].copy_from_slice(file);
        next += clusters(file);
        (
            u16::try_from(first).expect("fewer clusters than sectors"),
            file.len(),
        )
    });
    bytes[SECTOR..][..chains.0.len()].copy_from_slice(&chains.0);

    let [(config, _), _, _] = firsts;
    let file = |name, (first, size): (u16, usize)| entry(name, READ_ONLY, first, size);
    let directory = |name, first| entry(name, DIRECTORY, first, 0);
    let dots = |own, parent| {
        [
            directory(b".          ", own),
            directory(b"..         ", parent),
        ]
    };
    let mut put = |at: usize, entries: &[[u8; ENTRY]]| {
        let entries = entries.concat();
        bytes[at..at + entries.len()].copy_from_slice(&entries);
    };
    put(
        SECTOR + 2 * table * SECTOR,
        &[
            entry(LABEL, VOLUME, 0, 0),
            directory(b"EFI        ", EFI),
            directory(b"GRUB       ", GRUB),
        ],
    );
    let [own, parent] = dots(EFI, 0);
    put(
        data(EFI.into()),
        &[own, parent, directory(b"BOOT       ", BOOT)],
    );
    let [own, parent] = dots(BOOT, EFI);
    let shim = file(b"BOOTX64 EFI", firsts[1]);
    let grub = file(b"GRUBX64 EFI", firsts[2]);
    put(data(BOOT.into()), &[own, parent, shim, grub]);
    let [own, parent] = dots(GRUB, 0);
    put(
        data(GRUB.into()),
        &[own, parent, file(b"GRUB    CFG", firsts[0])],
    );
    let at = data(config.into());
    Ok(Volume {
        bytes,
        config: at..at + MEDIUM_CONFIG,
    })
}

/// Both tables.
struct Chains(Vec<u8>, usize);

impl Chains {
    fn set(&mut self, cluster: usize, next: u16) {
        for table in [0, self.1] {
            self.0[table + 2 * cluster..][..2].copy_from_slice(&next.to_le_bytes());
        }
    }
}

fn boot_sector(sectors: u16, table: u16) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    let mut put = |at: usize, bytes: &[u8]| sector[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xeb, 0x3c, 0x90]);
    put(3, b"FIRSTLIT");
    put(11, &512_u16.to_le_bytes());
    // Sectors of a cluster, reserved sectors, tables.
    put(13, &[1, 1, 0, 2]);
    put(17, &ROOT_ENTRIES.to_le_bytes());
    put(19, &sectors.to_le_bytes());
    put(21, &[0xf8]);
    put(22, &table.to_le_bytes());
    // Sectors of a track, and heads: what a CD of that size is taken for.
    put(24, &32_u16.to_le_bytes());
    put(26, &64_u16.to_le_bytes());
    put(36, &[0x80, 0, 0x29]);
    put(39, &0x5f1a_57e0_u32.to_le_bytes());
    put(43, LABEL);
    put(54, b"FAT16   ");
    put(510, &[0x55, 0xaa]);
    sector
}

fn entry(name: &[u8; 11], attributes: u8, first: u16, size: usize) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..11].copy_from_slice(name);
    entry[11] = attributes;
    for at in [16, 18, 24] {
        entry[at..at + 2].copy_from_slice(&DATE.to_le_bytes());
    }
    entry[26..28].copy_from_slice(&first.to_le_bytes());
    let size = u32::try_from(size).expect("less than 32 MiB");
    entry[28..].copy_from_slice(&size.to_le_bytes());
    entry
}
