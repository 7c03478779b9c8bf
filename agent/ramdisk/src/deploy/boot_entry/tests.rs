#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::Path;

use firstlight_efi::load_option::{self, PartitionId};
use uuid::Uuid;

use super::*;
use crate::deploy::device::FileDisk;
use crate::deploy::gpt::{ESP_TYPE, Gpt};
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
