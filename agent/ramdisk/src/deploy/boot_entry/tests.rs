#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use fatfs::FatType;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::deploy::device::FileDisk;
use crate::deploy::finish::EspId;
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

/// Variables as an OVMF firmware has them, each with its attributes.
fn firmware(dir: &Path) -> EfiVars {
    let vendor = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
    let put = |name: &str, data: &[u8]| {
        let bytes = [&7_u32.to_le_bytes(), data].concat();
        std::fs::write(dir.join(format!("{name}-{vendor}")), bytes).unwrap();
    };
    let option = |text: &str| {
        let mut data = vec![1, 0, 0, 0, 4, 0];
        data.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        data.extend([0x7F, 0xFF, 4, 0]);
        data
    };
    put("BootOrder", &[0, 0, 1, 0, 3, 0, 5, 0]);
    put("Boot0000", &option("UiApp"));
    put("Boot0001", &option("UEFI PXEv4"));
    put("Boot0003", &option("Firstlight"));
    put("Boot0005", &option("Firstlight"));
    put("BootOptionSupport", &[0; 4]);
    EfiVars::open(dir).unwrap()
}

#[test]
fn the_entry_comes_first_and_stale_ones_go() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    let (_image, disk) = disk_with_esp(&[REMOVABLE, r"\EFI\debian\shimx64.efi"]);
    assert_eq!(install(&disk, &vars).unwrap(), Installed::Entry(3));
    assert_eq!(vars.read("BootOrder").unwrap(), [3, 0, 0, 0, 1, 0]);
    assert_eq!(vars.read("BootNext").unwrap(), [3, 0]);
    assert_eq!(vars.read("Boot0005"), None);
    let esp = finish::find_esp(&disk).unwrap().unwrap();
    assert_eq!(
        esp.id,
        EspId::Gpt(Uuid::parse_str("6FE59A7E-F1A0-4E2B-9C3D-010203040506").unwrap())
    );
    let wanted = load_option::encode("Firstlight", &esp, r"\EFI\debian\shimx64.efi");
    assert_eq!(vars.read("Boot0003").unwrap(), wanted);
    // A second time changes nothing.
    assert_eq!(install(&disk, &vars).unwrap(), Installed::Entry(3));
    assert_eq!(vars.read("Boot0003").unwrap(), wanted);
}

#[test]
fn a_firmware_without_an_entry_of_ours_gets_a_free_number() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    vars.remove("Boot0003").unwrap();
    vars.remove("Boot0005").unwrap();
    let (_image, disk) = disk_with_esp(&[REMOVABLE]);
    assert_eq!(install(&disk, &vars).unwrap(), Installed::Entry(2));
    assert_eq!(
        vars.read("BootOrder").unwrap(),
        [2, 0, 0, 0, 1, 0, 3, 0, 5, 0]
    );
}

#[test]
fn an_installed_disk_can_be_made_the_next_boot() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    assert!(boot_next(&vars).unwrap());
    assert_eq!(vars.read("BootNext").unwrap(), [3, 0]);
    vars.remove("Boot0003").unwrap();
    vars.remove("Boot0005").unwrap();
    assert!(!boot_next(&vars).unwrap());
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

#[test]
fn a_machine_without_variables_has_none_to_open() {
    let dir = tempfile::tempdir().unwrap();
    assert!(EfiVars::open(dir.path()).is_none());
    assert!(EfiVars::open(&dir.path().join("missing")).is_none());
}

/// A load option for the network, as far as it is looked at.
fn network_option(mac: [u8; 6], node: u8) -> Vec<u8> {
    let mut path = vec![3, 11, 10, 0];
    path.extend(mac);
    path.extend([3, node, 4, 0, 0x7F, 0xFF, 4, 0]);
    let mut data = vec![1, 0, 0, 0, 18, 0, b'P', 0, 0, 0];
    data.extend(path);
    data
}

#[test]
fn the_network_entry_of_this_nic_and_of_ipv4_is_taken() {
    const V4: u8 = 12;
    const V6: u8 = 13;
    let (ours, other) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let cases = [
        (vec![(1, other, V4), (2, ours, V6), (6, ours, V4)], Some(6)),
        (vec![(1, other, V6), (2, other, V4)], Some(2)),
        (vec![(5, ours, V4), (1, ours, V4)], Some(1)),
        (vec![], None),
    ];
    for (entries, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let vars = firmware(dir.path());
        for (number, mac, node) in &entries {
            let name = format!("Boot{number:04X}");
            vars.write(&name, &network_option(*mac, *node)).unwrap();
        }
        let told = boot_network_next(&vars, ours).unwrap();
        assert_eq!(told, expected.is_some(), "{entries:?}");
        let next = vars.read("BootNext").map(|data| u16::from(data[0]));
        assert_eq!(next, expected, "{entries:?}");
    }
}

/// The bytes of a variable: some with a meaning, some without.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let option = (any::<bool>(), any::<[u8; 6]>()).prop_map(|(ours, mac)| {
        let text = if ours { DESCRIPTION } else { "Other" };
        let mut option = vec![1, 0, 0, 0, 4, 0];
        option.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        option.extend([0x7F, 0xFF, 4, 0]);
        if ours {
            option
        } else {
            network_option(mac, 12)
        }
    });
    prop_oneof![option, proptest::collection::vec(any::<u8>(), 0..80)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_the_firmware_holds_the_next_boot_is_an_entry_that_is_there(
        entries in proptest::collection::btree_map("000[0-9]|00a[bB]|00A[bB]|[+]0AB|.{0,4}", values(), 1..8),
        order in proptest::collection::vec(any::<u8>(), 0..12),
        mac: [u8; 6],
    ) {
        static INSTALLED: LazyLock<(tempfile::NamedTempFile, FileDisk)> =
            LazyLock::new(|| disk_with_esp(&[REMOVABLE]));
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, data: &[u8]| {
            let path = dir.path().join(format!("{name}-8be4df61-93ca-11d2-aa0d-00e098032b8c"));
            // Not every text is a name of a file.
            let _ = std::fs::write(path, [&[7, 0, 0, 0], data].concat());
        };
        for (digits, data) in &entries {
            put(&format!("Boot{digits}"), data);
        }
        put("BootOrder", &order);
        let vars = EfiVars::open(dir.path()).unwrap();
        let next = || {
            let next = vars.read("BootNext").unwrap();
            entry_name(u16::from_le_bytes([next[0], next[1]]))
        };
        if boot_network_next(&vars, mac).unwrap() {
            let option = vars.read(&next()).unwrap();
            prop_assert!(load_option::network_path(&option).is_some());
        }
        if boot_next(&vars).unwrap() {
            let option = vars.read(&next()).unwrap();
            prop_assert_eq!(load_option::description(&option), Some(DESCRIPTION.to_owned()));
        }
        let Installed::Entry(number) = install(&INSTALLED.1, &vars).unwrap() else {
            panic!("this firmware takes everything");
        };
        prop_assert_eq!(next(), entry_name(number));
        prop_assert_eq!(own_entries(&vars), [number]);
        let order = boot_order(&vars);
        prop_assert_eq!(order[0], number);
        prop_assert!(!order[1..].contains(&number));
    }

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
fn a_variable_in_small_letters_is_no_entry() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    let own = vars.read("Boot0003").unwrap();
    vars.remove("Boot0003").unwrap();
    vars.remove("Boot0005").unwrap();
    vars.write("Boot00ab", &own).unwrap();
    vars.write("Boot00AB", &own).unwrap();
    let (_image, disk) = disk_with_esp(&[REMOVABLE]);
    assert_eq!(install(&disk, &vars).unwrap(), Installed::Entry(0xAB));
    assert!(vars.read("Boot00AB").is_some() && vars.read("Boot00ab").is_some());
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
