#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use firstlight_api::order::DeploymentId;
use firstlight_client::key::Key;

use super::*;
use crate::deploy::device::FileDisk;
use crate::deploy::testing::{disk_of_sectors, disk_with, fixture, read};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 200 * MIB;

/// What the writer holds back of an image that begins with `head`, on a disk of [`SIZE`].
fn held(head: Vec<u8>) -> Held {
    Held {
        head,
        tail: vec![0; 1 << 20],
        length: 16 * MIB,
    }
}

fn head_of(name: &str) -> Vec<u8> {
    let (_image, disk) = fixture(name);
    read(&disk, 0, MIB)
}

fn blank() -> (tempfile::NamedTempFile, FileDisk) {
    disk_with(SIZE, &[])
}

fn nine() -> Uuid {
    Uuid::from_u128(9)
}

#[test]
fn a_gpt_disk_ends_with_its_backup_and_carries_the_config_drive_before_it() {
    let (_image, disk) = blank();
    let drive: Vec<u8> = (1..=255).cycle().take(391_168).collect();
    finish(&disk, held(head_of("gpt")), Some(&drive), None, &mut nine).unwrap();
    let gpt = Gpt::parse(&read(&disk, 0, MIB), 512).unwrap().unwrap();
    let place = &gpt.partitions()[1];
    assert_eq!((place.name.as_str(), place.id), ("config-2", nine()));
    let written = read(&disk, place.first_lba * 512, 64 * MIB);
    assert!(written[..drive.len()] == drive && written[drive.len()..].iter().all(|b| *b == 0));
    let backup = gpt.backup();
    assert!(read(&disk, SIZE - backup.len() as u64, backup.len() as u64) == backup);
}

#[test]
fn without_a_config_drive_no_partition_is_added() {
    let (_image, disk) = blank();
    finish(&disk, held(head_of("gpt")), None, None, &mut nine).unwrap();
    assert_eq!(
        Gpt::parse(&read(&disk, 0, MIB), 512)
            .unwrap()
            .unwrap()
            .partitions()
            .len(),
        1
    );
}

#[test]
fn a_dos_table_gets_a_primary_partition() {
    let (_image, disk) = blank();
    finish(&disk, held(head_of("dos")), Some(b"drive"), None, &mut nine).unwrap();
    let mbr = Mbr::parse(&read(&disk, 0, MIB)).unwrap();
    let place = mbr.entries[1];
    assert_eq!(place.sectors, 64 * 2048);
    assert_eq!(read(&disk, u64::from(place.first_lba) * 512, 5), b"drive");
}

#[test]
fn a_config_partition_that_the_image_brings_is_used() {
    // The image's only partition holds an ISO labelled config-2, as `xorrisofs -V config-2` writes it.
    let (_iso_image, iso) = fixture("iso9660");
    let (_image, disk) = disk_with(SIZE, &[(MIB, &read(&iso, 0, 4 * MIB))]);
    finish(
        &disk,
        held(head_of("gpt")),
        Some(b"new drive"),
        None,
        &mut nine,
    )
    .unwrap();
    assert_eq!(
        Gpt::parse(&read(&disk, 0, MIB), 512)
            .unwrap()
            .unwrap()
            .partitions()
            .len(),
        1
    );
    assert_eq!(read(&disk, MIB, 9), b"new drive");
    assert!(
        read(&disk, MIB + 512, 40 * 1024).iter().all(|b| *b == 0),
        "nothing of the old drive stays"
    );
}

#[test]
fn an_image_without_partitions_never_gets_its_first_sector() {
    for head in [vec![0; 1 << 20], head_of("ext4"), head_of("vfat32")] {
        let (_image, disk) = blank();
        let error = finish(&disk, held(head), Some(b"x"), None, &mut nine).unwrap_err();
        assert!(matches!(error, FinishError::NoTable), "{error}");
        assert!(read(&disk, 0, MIB).iter().all(|b| *b == 0));
    }
}

#[test]
fn a_disk_without_room_for_the_drive_stays_unbootable() {
    let (_image, disk) = disk_with(40 * MIB, &[]);
    let error = finish(&disk, held(head_of("gpt")), Some(b"x"), None, &mut nine).unwrap_err();
    assert!(
        matches!(error, FinishError::Gpt(GptError::NoRoom { .. })),
        "{error}"
    );
    assert!(read(&disk, 0, MIB).iter().all(|b| *b == 0));
}

fn maker() -> Maker {
    Maker {
        deployment: DeploymentId::new([7; 16]),
        key: Key::new().unwrap(),
    }
}

#[test]
fn a_complete_disk_says_which_deployment_it_is_of_with_either_table() {
    use crate::deploy::signatures;
    use firstlight_api::order::Mark;
    let maker = maker();
    let deployment = Some(maker.deployment);
    for table in ["gpt", "dos"] {
        for (drive, found) in [
            (
                Some(b"drive".as_slice()),
                Some(Mark::Installed { deployment }),
            ),
            (None, None),
        ] {
            let (_image, disk) = blank();
            let held = held(head_of(table));
            finish(&disk, held, drive, Some(&maker), &mut nine).unwrap();
            let content = signatures::look(&disk).unwrap();
            assert_eq!(content.key, found.map(|_| maker.key.clone()));
            assert_eq!(
                (content.mark, content.signatures),
                (found, vec![table.to_owned()])
            );
        }
    }
}

#[test]
fn a_config_drive_that_fills_its_partition_leaves_no_mark_and_stays_whole() {
    let (_image, disk) = blank();
    let drive = vec![7; 64 << 20];
    let held = held(head_of("gpt"));
    finish(&disk, held, Some(&drive), Some(&maker()), &mut nine).unwrap();
    let gpt = Gpt::parse(&read(&disk, 0, MIB), 512).unwrap().unwrap();
    let start = gpt.partitions()[1].first_lba * 512;
    assert!(read(&disk, start, 64 * MIB) == drive);
}

/// A table as the build makes it, on `disk_id`.
fn with_disk_id(disk_id: Uuid) -> Vec<u8> {
    let mut head = head_of("gpt");
    let mut first = Some(disk_id);
    let mut gpt = Gpt::parse(&head, 512).unwrap().unwrap();
    gpt.renew_ids(&mut || first.take().unwrap_or_else(nine));
    gpt.write_head(&mut head);
    head
}

#[test]
fn two_disks_with_the_node_image_have_no_guid_in_common_and_other_images_keep_theirs() {
    let install = |disk_id: Uuid| {
        let (_image, disk) = blank();
        let held = held(with_disk_id(disk_id));
        finish(&disk, held, Some(b"drive"), None, &mut Uuid::new_v4).unwrap();
        let gpt = Gpt::parse(&read(&disk, 0, MIB), 512).unwrap().unwrap();
        let backup = gpt.backup();
        assert!(read(&disk, SIZE - backup.len() as u64, backup.len() as u64) == backup);
        let mut ids: Vec<Uuid> = gpt.partitions().iter().map(|p| p.id).collect();
        ids.push(gpt.disk_id());
        ids
    };
    let ours = Uuid::from_u128(NODE_DISK);
    let ids = [install(ours), install(ours), vec![ours, nine()]].concat();
    let different: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!((ids.len(), different.len()), (8, 8), "{ids:?}");
    // Something in it may name them.
    let theirs = install(Uuid::from_u128(5));
    assert_eq!((theirs[0], theirs[2]), (nine(), Uuid::from_u128(5)));
}

proptest! {
    #[test]
    fn any_first_sector_has_an_esp_inside_of_its_numbers_or_none(
        kind in prop_oneof![Just(mbr::ESP_KIND), any::<u8>()],
        first: u32,
        sectors: u32,
        noise in proptest::collection::vec(any::<u8>(), 0..446),
    ) {
        let mut head = vec![0; 512];
        head[..noise.len()].copy_from_slice(&noise);
        head[450] = kind;
        head[454..458].copy_from_slice(&first.to_le_bytes());
        head[458..462].copy_from_slice(&sectors.to_le_bytes());
        head[510..].copy_from_slice(&[0x55, 0xAA]);
        for sector in [512, 4096] {
            let (_image, disk) = disk_of_sectors(sector, MIB, &[(0, &head)]);
            if let Some(esp) = find_esp(&disk).unwrap() {
                let numbers = (u64::from(first) * sector, u64::from(sectors) * sector);
                prop_assert_eq!((esp.range.start, esp.range.length), numbers);
                prop_assert_eq!(kind, mbr::ESP_KIND);
            }
        }
    }

    /// Entries of a table whose checksums are right, on an image that somebody made or damaged.
    #[test]
    fn whatever_an_image_says_of_its_partitions_it_is_finished_or_refused(
        entries in proptest::collection::vec(
            (prop_oneof![Just(ESP_TYPE), any::<u128>().prop_map(Uuid::from_u128)], 0..420_000_u64, 0..420_000_u64, "(config-2)?.{0,3}"),
            0..4,
        ),
        fields in proptest::collection::vec((prop::sample::select(vec![40_usize, 48]), any::<u64>()), 0..2),
        drive in proptest::option::of(0..200_000_usize),
        large: bool,
    ) {
        static HEAD: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| head_of("gpt"));
        let mut head = HEAD.clone();
        for (at, (kind, first, count, name)) in entries.iter().enumerate() {
            let entry = &mut head[1024 + at * 128..][..128];
            entry.fill(0);
            entry[..16].copy_from_slice(&kind.to_bytes_le());
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&(first + count).to_le_bytes());
            for (place, unit) in entry[56..].chunks_exact_mut(2).zip(name.encode_utf16()) {
                place.copy_from_slice(&unit.to_le_bytes());
            }
        }
        for (at, value) in fields {
            head[512 + at..520 + at].copy_from_slice(&value.to_le_bytes());
        }
        let sum = crc32fast::hash(&head[1024..1024 + 16384]);
        head[600..604].copy_from_slice(&sum.to_le_bytes());
        head[528..532].fill(0);
        let sum = crc32fast::hash(&head[512..604]);
        head[528..532].copy_from_slice(&sum.to_le_bytes());
        let (_image, disk) = disk_of_sectors(if large { 4096 } else { 512 }, SIZE, &[]);
        let drive = drive.map(|length| vec![7; length]);
        let maker = maker();
        let finished = finish(&disk, held(head), drive.as_deref(), Some(&maker), &mut || Uuid::from_u128(9));
        // What was written is looked at again by every ramdisk after this one.
        let found = crate::deploy::signatures::look(&disk).unwrap();
        if finished.is_ok() {
            prop_assert!(!found.signatures.is_empty());
            if let Some(esp) = find_esp(&disk).unwrap() {
                prop_assert!(esp.range.start + esp.range.length <= SIZE);
            }
        }
    }
}
