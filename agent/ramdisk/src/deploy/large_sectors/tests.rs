#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::sync::LazyLock;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::deploy::device::FileDisk;
use crate::deploy::finish::{FinishError, find_esp, finish};
use crate::deploy::gpt::ESP_TYPE;
use crate::deploy::testing::{disk_of_sectors, fixture, read};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 200 * MIB;
/// Places of two partitions, in small sectors.
const ESP: (u64, u64) = (2048, 16 * 2048);
const ROOT: (u64, u64) = (32 * 2048, 16 * 2048);

static CONFIG_DRIVE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let (_image, disk) = fixture("config-drive");
    read(&disk, 0, MIB)
});

/// The first MiB of an image with these partitions.
fn head(partitions: &[(Uuid, (u64, u64))]) -> Vec<u8> {
    let (_image, disk) = fixture("gpt");
    let mut head = read(&disk, 0, MIB);
    for (number, (kind, (first, count))) in partitions.iter().enumerate() {
        let entry = &mut head[1024 + number * 128..][..128];
        entry[..16].copy_from_slice(&kind.to_bytes_le());
        entry[16..32].copy_from_slice(&Uuid::from_u128(7).to_bytes_le());
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&(first + count - 1).to_le_bytes());
    }
    let sum = crc32fast::hash(&head[1024..1024 + 16384]);
    head[600..604].copy_from_slice(&sum.to_le_bytes());
    head[528..532].fill(0);
    let sum = crc32fast::hash(&head[512..604]);
    head[528..532].copy_from_slice(&sum.to_le_bytes());
    head
}

fn esp() -> Vec<u8> {
    let length = usize::try_from(ESP.1 * 512).unwrap();
    let mut volume = Cursor::new(vec![0; length]);
    let options = fatfs::FormatVolumeOptions::new()
        .volume_label(*b"ESP        ")
        .volume_id(0x1234_5678);
    fatfs::format_volume(&mut volume, options).unwrap();
    {
        let system = fatfs::FileSystem::new(&mut volume, fatfs::FsOptions::new()).unwrap();
        let folder = system.root_dir().create_dir("EFI").unwrap();
        let folder = folder.create_dir("BOOT").unwrap();
        let mut file = folder.create_file("BOOTX64.EFI").unwrap();
        file.write_all(&b"MZ loader ".repeat(20_000)).unwrap();
        let mut file = folder.create_file("a name that is long.cfg").unwrap();
        file.write_all(b"search").unwrap();
    }
    volume.into_inner()
}

/// A disk of large sectors on which everything but the first MiB is written.
fn written(
    partitions: &[(Uuid, (u64, u64))],
    content: &[(u64, &[u8])],
) -> (tempfile::NamedTempFile, FileDisk, Held) {
    let (image, disk) = disk_of_sectors(LARGE, SIZE, content);
    let held = Held {
        head: head(partitions),
        tail: vec![0; 1 << 20],
        length: 64 * MIB,
    };
    (image, disk, held)
}

fn read_file(disk: &FileDisk, range: Range, path: &str) -> Vec<u8> {
    let volume = Volume::to_read(disk, range, u64::MAX);
    let system = fatfs::FileSystem::new(volume, fatfs::FsOptions::new()).unwrap();
    let mut content = Vec::new();
    let mut file = system.root_dir().open_file(path).unwrap();
    file.read_to_end(&mut content).unwrap();
    content
}

#[test]
fn an_image_for_small_sectors_is_fitted_with_its_loaders_and_config_drive() {
    let root = Uuid::from_u128(3);
    let ext4 = {
        // Blocks of 4096 bytes.
        let mut start = vec![0; 4096];
        start[1080..1082].copy_from_slice(&[0x53, 0xEF]);
        start[1048] = 2;
        start
    };
    let places = [(ESP.0 * 512, esp()), (ROOT.0 * 512, ext4.clone())];
    let content: Vec<(u64, &[u8])> = places.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
    let (_image, disk, held) = written(&[(ESP_TYPE, ESP), (root, ROOT)], &content);
    finish(&disk, held, Some(&CONFIG_DRIVE), None, &mut Uuid::new_v4).unwrap();

    let start = read(&disk, 0, MIB);
    assert_eq!(Gpt::parse(&start, SMALL), Ok(None));
    let table = Gpt::parse(&start, LARGE).unwrap().unwrap();
    let partitions = table.partitions();
    let places: Vec<Range> = partitions.iter().map(|p| range_of(p, LARGE)).collect();
    assert_eq!((places[0].start, places[0].length), (MIB, 16 * MIB));
    assert_eq!((places[1].start, places[1].length), (32 * MIB, 16 * MIB));
    assert_eq!(partitions[2].name, "config-2");
    let backup = table.backup();
    let end = SIZE - backup.len() as u64;
    assert!(read(&disk, end, backup.len() as u64) == backup);

    let found = find_esp(&disk).unwrap().unwrap();
    assert_eq!((found.drive.first_lba, found.drive.sectors), (256, 4096));
    let start = read(&disk, MIB, 512);
    assert_eq!(start[11..13], 4096_u16.to_le_bytes());
    let loader = read_file(&disk, found.range, "EFI/BOOT/BOOTX64.EFI");
    assert!(loader == b"MZ loader ".repeat(20_000));
    let config = read_file(&disk, found.range, "EFI/BOOT/a name that is long.cfg");
    assert_eq!(config, b"search");
    let (_, label) = tree::read(Volume::to_read(&disk, found.range, u64::MAX)).unwrap();
    assert!(label == Label::new("ESP", 0x1234_5678));
    assert!(read(&disk, 32 * MIB, 4096) == ext4, "the root is as it was");

    let lines = read_file(&disk, places[2], "openstack/latest/user_data");
    assert!(lines.starts_with(b"1\n2\n") && lines.ends_with(b"\n2000\n"));
    let meta_data = read_file(&disk, places[2], "openstack/latest/meta_data.json");
    assert_eq!(meta_data, b"{\"name\": \"n1\"}\n");
    let (tree, label) = tree::read(Volume::to_read(&disk, places[2], u64::MAX)).unwrap();
    assert!(label == Label::new("config-2", CONFIG_DRIVE_ID));
    assert!(tree == joliet::read(&CONFIG_DRIVE).unwrap(), "nothing else");
}

#[test]
fn what_cannot_be_fitted_is_refused_with_its_partition_and_does_not_boot() {
    let block_1024 = {
        let mut start = vec![0; 4096];
        start[1080..1082].copy_from_slice(&[0x53, 0xEF]);
        start
    };
    let mut xfs = vec![0; 4096];
    xfs[..4].copy_from_slice(b"XFSB");
    xfs[102..104].copy_from_slice(&512_u16.to_be_bytes());
    let root = Uuid::from_u128(3);
    let odd = (ROOT.0 + 1, ROOT.1);
    for (place, bytes, said) in [
        (odd, vec![0], "partition 1 does not begin at"),
        ((34, 100), vec![0], "the first partition begins where"),
        (ROOT, block_1024, "partition 1 has blocks of 1024 bytes"),
        (ROOT, xfs, "partition 1 has sectors of 512 bytes"),
    ] {
        let content: [(u64, &[u8]); 1] = [(ROOT.0 * 512, &bytes)];
        let (_image, disk, held) = written(&[(root, place)], &content);
        let error = finish(&disk, held, None, None, &mut Uuid::new_v4).unwrap_err();
        let FinishError::SectorSize { source, .. } = error else {
            panic!("{error}");
        };
        assert!(source.to_string().contains(said), "{source}");
        assert!(read(&disk, 0, MIB).iter().all(|byte| *byte == 0));
    }
    let drive = finish_with_drive(b"neither ISO 9660 nor FAT");
    assert!(drive.contains("cannot be fitted"), "{drive}");
}

fn finish_with_drive(drive: &[u8]) -> String {
    let (_image, disk, held) = written(&[(ESP_TYPE, ROOT)], &[]);
    let error = finish(&disk, held, Some(drive), None, &mut Uuid::new_v4).unwrap_err();
    error.to_string()
}

#[test]
fn a_drive_without_long_names_says_which_option_is_missing() {
    let (_image, disk) = fixture("iso9660");
    let error = config_drive(&read(&disk, 0, MIB)).unwrap_err();
    let LargeSectorsError::ConfigDrive(source) = error else {
        panic!("{error}");
    };
    assert!(source.to_string().contains("xorrisofs -J"), "{source}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A drive with damage anywhere in what is not file content.
    #[test]
    fn a_damaged_drive_is_read_or_refused(
        damage in proptest::collection::vec((0x8000..0x18000_usize, any::<u8>()), 0..40),
        cut in 0..=1_usize << 20,
    ) {
        let mut drive = CONFIG_DRIVE.clone();
        for (at, byte) in damage {
            drive[at] = byte;
        }
        drive.truncate(cut);
        drop(config_drive(&drive));
    }

    #[test]
    fn a_damaged_system_partition_is_made_anew_or_refused(
        damage in proptest::collection::vec((0..0x4000_usize, any::<u8>()), 0..20),
    ) {
        static SOUND: LazyLock<Vec<u8>> = LazyLock::new(esp);
        let mut esp = SOUND.clone();
        for (at, byte) in damage {
            esp[at] = byte;
        }
        let content: [(u64, &[u8]); 1] = [(ESP.0 * 512, &esp)];
        let (_image, disk, mut held) = written(&[(ESP_TYPE, ESP)], &content);
        if let Ok(table) = adapt(&disk, &mut held) {
            prop_assert_eq!(table.unwrap().partitions().len(), 1);
        }
        prop_assert!(read(&disk, 0, MIB).iter().all(|byte| *byte == 0));
        prop_assert!(read(&disk, 17 * MIB, MIB).iter().all(|byte| *byte == 0));
    }
}
