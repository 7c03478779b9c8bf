#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use fatfs::FatType;
use firstlight_efi::load_option::{self, PartitionId};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::deploy::device::FileDisk;
use crate::deploy::gpt::{ESP_TYPE, Gpt};
use crate::deploy::image::is_zero;
use crate::deploy::testing::{disk_with, fixture, read};

const MIB: u64 = 1 << 20;

/// A disk whose only partition is an ESP with these files.
fn disk_with_esp(files: &[&str]) -> (tempfile::NamedTempFile, FileDisk) {
    let (_gpt_image, source) = fixture("gpt-moved");
    let mut head = read(&source, 0, MIB);
    head[1024..1040].copy_from_slice(&ESP_TYPE.to_bytes_le());
    let sum = crc32fast::hash(&head[1024..1024 + 16384]);
    head[600..604].copy_from_slice(&sum.to_le_bytes());
    head[528..532].fill(0);
    let sum = crc32fast::hash(&head[512..604]);
    head[528..532].copy_from_slice(&sum.to_le_bytes());
    let partition = Gpt::parse(&head, 512).unwrap().unwrap().partitions()[0].clone();
    let length = (partition.last_lba + 1 - partition.first_lba) * 512;
    let mut volume = std::io::Cursor::new(vec![0; usize::try_from(length).unwrap()]);
    fatfs::format_volume(&mut volume, fatfs::FormatVolumeOptions::new()).unwrap();
    {
        let fs = fatfs::FileSystem::new(&mut volume, fatfs::FsOptions::new()).unwrap();
        for file in files {
            let parts: Vec<&str> = file.trim_start_matches('\\').split('\\').collect();
            let (name, dirs) = parts.split_last().unwrap();
            let mut dir = fs.root_dir();
            for part in dirs {
                dir = dir.create_dir(part).unwrap();
            }
            dir.create_file(name).unwrap().write_all(b"MZ").unwrap();
        }
    }
    disk_with(
        200 * MIB,
        &[
            (0, &head),
            (partition.first_lba * 512, &volume.into_inner()),
        ],
    )
}

/// A firmware that knows no disk.
fn firmware(dir: &Path) -> EfiVars {
    let order = dir.join("BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c");
    std::fs::write(order, 7_u32.to_le_bytes()).unwrap();
    EfiVars::open(dir).unwrap()
}

#[test]
fn the_entry_is_of_the_best_loader_on_the_disks_esp() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    let (_image, disk) = disk_with_esp(&[REMOVABLE, r"\EFI\debian\shimx64.efi"]);
    assert_eq!(install(&disk, &vars).unwrap(), Installed::Entry(0));
    assert_eq!(vars.read("BootOrder").unwrap(), [0, 0]);
    let esp = finish::find_esp(&disk).unwrap().unwrap();
    assert_eq!(
        esp.drive.id,
        PartitionId::Gpt(Uuid::parse_str("6FE59A7E-F1A0-4E2B-9C3D-010203040506").unwrap())
    );
    let wanted = load_option::encode("Firstlight", &esp.drive, r"\EFI\debian\shimx64.efi");
    assert_eq!(vars.read("Boot0000").unwrap(), wanted);
}

#[test]
fn a_firmware_that_takes_nothing_is_a_sentence_if_the_removable_path_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    // In the place of a variable is a directory: writing it fails, as with a full or locked NVRAM.
    vars.remove("BootOrder").unwrap();
    std::fs::create_dir(
        dir.path()
            .join("BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c"),
    )
    .unwrap();
    let (_image, disk) = disk_with_esp(&[REMOVABLE]);
    assert!(matches!(
        install(&disk, &vars),
        Ok(Installed::RemovablePath(_))
    ));
    let (_image, disk) = disk_with_esp(&[r"\EFI\debian\shimx64.efi"]);
    assert!(matches!(
        install(&disk, &vars),
        Err(BootEntryError::Firmware { .. })
    ));
}

#[test]
fn a_disk_that_no_firmware_can_boot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    let (_image, disk) = disk_with_esp(&[r"\EFI\other\thing.efi"]);
    assert!(matches!(
        install(&disk, &vars),
        Err(BootEntryError::NoLoader(_))
    ));
    let (_image, disk) = fixture("gpt");
    assert!(matches!(
        install(&disk, &vars),
        Err(BootEntryError::NoEsp(_))
    ));
    let (_image, disk) = disk_with(100 * MIB, &[]);
    assert!(matches!(
        install(&disk, &vars),
        Err(BootEntryError::NoEsp(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// An image of a person, or a disk that was damaged since: the first sectors of its EFI system partition say anything.
    #[test]
    fn whatever_an_esp_says_of_itself_it_is_looked_through_and_left(
        large in any::<bool>(),
        changes in proptest::collection::vec((prop_oneof![0..96_usize, 0..40_000_usize], any::<u8>()), 1..6),
    ) {
        static VOLUMES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [volume(4 * MIB, FatType::Fat12), volume(40 * MIB, FatType::Fat32)]);
        let mut volume = VOLUMES[usize::from(large)].clone();
        for (at, value) in changes {
            volume[at] = value;
        }
        let (_image, disk, range) = disk_of(&volume);
        if let Ok(found) = loaders(&disk, range) {
            prop_assert!(found.iter().all(|path| LOADERS.contains(path)));
        }
    }
}

/// A disk with nothing but this file system on it.
fn disk_of(volume: &[u8]) -> (tempfile::NamedTempFile, FileDisk, Range) {
    let length = volume.len() as u64;
    let blocks = (0_u64..).step_by(4096).zip(volume.chunks(4096));
    let places: Vec<_> = blocks.filter(|(_, block)| !is_zero(block)).collect();
    let (image, disk) = disk_with(length, &places);
    (image, disk, Range { start: 0, length })
}

/// A file system with a loader and a folder of some length.
fn volume(length: u64, kind: FatType) -> Vec<u8> {
    let mut volume = std::io::Cursor::new(vec![0; usize::try_from(length).unwrap()]);
    let options = fatfs::FormatVolumeOptions::new().fat_type(kind);
    let options = match kind {
        FatType::Fat32 => options.bytes_per_cluster(512),
        _ => options,
    };
    fatfs::format_volume(&mut volume, options).unwrap();
    {
        let fs = fatfs::FileSystem::new(&mut volume, fatfs::FsOptions::new()).unwrap();
        let folder = fs.root_dir().create_dir("EFI").unwrap();
        for number in 0..100 {
            folder.create_dir(&format!("a-long-name-{number}")).unwrap();
        }
        let folder = folder.create_dir("BOOT").unwrap();
        folder
            .create_file("BOOTX64.EFI")
            .unwrap()
            .write_all(b"MZ")
            .unwrap();
    }
    volume.into_inner()
}

#[test]
fn a_folder_that_leads_in_a_circle_is_left() {
    let mut volume = volume(40 * MIB, FatType::Fat32);
    let reserved = u16::from_le_bytes([volume[14], volume[15]]);
    // Of the cluster behind that of the root.
    let entry = usize::from(reserved) * 512 + 4 * 3;
    assert_ne!(volume[entry + 3], 0x0F, "EFI goes on");
    volume[entry..entry + 4].copy_from_slice(&3_u32.to_le_bytes());
    let (_image, disk, range) = disk_of(&volume);
    let error = loaders(&disk, range).unwrap_err();
    assert!(error.to_string().contains("circle"), "{error}");
}
