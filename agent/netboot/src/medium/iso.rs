//! What stands before the files of an ISO 9660 volume: descriptors, the boot catalog, two directories.

use std::ops::Range;

use super::{MediumError, SECTOR};

/// Level 1 of ISO 9660: eight capital letters.
pub const KERNEL: &str = "FLKERNEL";
pub const INITRD: &str = "FLINITRD";
const LOADERS: &str = "FLBOOT";
const CATALOG: u32 = 19;
const PATHS: [u32; 2] = [20, 21];
const ROOT: u32 = 22;
const GRUB: u32 = 23;
const FIRST_FILE: u32 = 24;
const DIRECTORY: u8 = 2;
/// 2026-11-01
const DATE: [u8; 7] = [126, 11, 1, 0, 0, 0, 0];
/// Of root and `/GRUB` in a path table.
const PATHS_SIZE: usize = 10 + 12;

/// All sectors before the FAT, which comes first of the files, and where that is. `config`: where in the FAT GRUB's configuration is, which
/// GRUB looks for on the device that it was loaded from: some firmware says that this is the FAT, other that it is the CD.
pub fn volume(
    fat: &[u8],
    config: &Range<usize>,
    kernel: u64,
    initrd: u64,
) -> Result<(Vec<u8>, usize), MediumError> {
    let small = |size: u64| u32::try_from(size).map_err(|_| MediumError::File(size));
    let sectors = |size: u32| size.div_ceil(u32::try_from(SECTOR).expect("2048"));
    let loaders = small(fat.len() as u64)?;
    let (kernel, initrd) = (small(kernel)?, small(initrd)?);
    let at_kernel = FIRST_FILE + sectors(loaders);
    let at_initrd = at_kernel + sectors(kernel);
    let end = at_initrd + sectors(initrd);
    let sector = u32::try_from(SECTOR).expect("2048");
    let (at_config, config) = (
        small(config.start as u64)? / sector,
        small(config.len() as u64)?,
    );
    let folder = |name: &[u8], at| record(name, at, sector, DIRECTORY);
    let file = |name: &str, at, size| record(format!("{name};1").as_bytes(), at, size, 0);
    let root = [
        folder(&[0], ROOT),
        folder(&[1], ROOT),
        file(&format!("{LOADERS}."), FIRST_FILE, loaders),
        file(&format!("{INITRD}."), at_initrd, initrd),
        file(&format!("{KERNEL}."), at_kernel, kernel),
        folder(b"GRUB", GRUB),
    ];
    let grub = [
        folder(&[0], GRUB),
        folder(&[1], ROOT),
        file("GRUB.CFG", FIRST_FILE + at_config, config),
    ];
    let mut bytes = vec![0; FIRST_FILE as usize * SECTOR];
    let mut put = |at: u32, what: &[u8]| {
        bytes[at as usize * SECTOR..][..what.len()].copy_from_slice(what);
    };
    put(16, &primary(end, &folder(&[0], ROOT)));
    put(17, &boot_record());
    put(18, &descriptor(255));
    put(CATALOG, &catalog(fat.len()));
    put(PATHS[0], &paths(u32::to_le_bytes, 1_u16.to_le_bytes()));
    put(PATHS[1], &paths(u32::to_be_bytes, 1_u16.to_be_bytes()));
    put(ROOT, &root.concat());
    put(GRUB, &grub.concat());
    let at = bytes.len();
    Ok((bytes, at))
}

/// ECMA-119 section 7.3.3.
fn both(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Section 9.1.
fn record(name: &[u8], at: u32, size: u32, flags: u8) -> Vec<u8> {
    let length = (33 + name.len()).next_multiple_of(2);
    let mut record = vec![0; length];
    record[0] = u8::try_from(length).expect("a short name");
    record[2..10].copy_from_slice(&both(at));
    record[10..18].copy_from_slice(&both(size));
    record[18..25].copy_from_slice(&DATE);
    record[25] = flags;
    record[28..32].copy_from_slice(&[1, 0, 0, 1]);
    record[32] = u8::try_from(name.len()).expect("a short name");
    record[33..33 + name.len()].copy_from_slice(name);
    record
}

/// Section 9.4; `first`: the number of the root, which is the parent of both.
fn paths(bytes_of: fn(u32) -> [u8; 4], first: [u8; 2]) -> [u8; PATHS_SIZE] {
    let mut paths = [0; PATHS_SIZE];
    let mut put = |at: usize, what: &[u8]| paths[at..at + what.len()].copy_from_slice(what);
    put(0, &[1]);
    put(2, &bytes_of(ROOT));
    put(6, &first);
    put(10, &[4]);
    put(12, &bytes_of(GRUB));
    put(16, &first);
    put(18, b"GRUB");
    paths
}

fn descriptor(kind: u8) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    bytes[0] = kind;
    bytes[1..6].copy_from_slice(b"CD001");
    bytes[6] = 1;
    bytes
}

/// Section 8.4.
fn primary(sectors: u32, root: &[u8]) -> [u8; SECTOR] {
    let mut bytes = descriptor(1);
    // Texts that nobody wrote are spaces.
    bytes[8..72].fill(b' ');
    bytes[190..813].fill(b' ');
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(40, b"FIRSTLIGHT");
    put(80, &both(sectors));
    // One volume of one, in blocks of 2048 bytes.
    put(120, &[1, 0, 0, 1, 1, 0, 0, 1, 0, 8, 8, 0]);
    put(132, &both(u32::try_from(PATHS_SIZE).expect("a few bytes")));
    put(140, &PATHS[0].to_le_bytes());
    put(148, &PATHS[1].to_be_bytes());
    put(156, root);
    put(813, b"2026110100000000\0");
    put(830, b"2026110100000000\0");
    put(847, b"0000000000000000\0");
    put(864, b"0000000000000000\0");
    put(881, &[1]);
    bytes
}

/// El Torito, figure 7.
fn boot_record() -> [u8; SECTOR] {
    let mut bytes = descriptor(0);
    let name = b"EL TORITO SPECIFICATION";
    bytes[7..7 + name.len()].copy_from_slice(name);
    bytes[71..75].copy_from_slice(&CATALOG.to_le_bytes());
    bytes
}

/// El Torito, figures 2 and 3: one entry, for UEFI, without emulation.
fn catalog(fat: usize) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..2].copy_from_slice(&[1, 0xef]);
    bytes[4..14].copy_from_slice(b"FIRSTLIGHT");
    bytes[30..32].copy_from_slice(&[0x55, 0xaa]);
    let words = bytes[..32].chunks_exact(2);
    let words = words.map(|word| u16::from(word[0]) | u16::from(word[1]) << 8);
    let sum = words.fold(0, u16::wrapping_add);
    bytes[28..30].copy_from_slice(&sum.wrapping_neg().to_le_bytes());
    bytes[32] = 0x88;
    // In sectors of 512 bytes, of which the FAT has 65 535 at most.
    let length = u16::try_from(fat / 512).unwrap_or(u16::MAX);
    bytes[38..40].copy_from_slice(&length.to_le_bytes());
    bytes[40..44].copy_from_slice(&FIRST_FILE.to_le_bytes());
    bytes
}
