#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::deploy::testing::{fixture, read};

const MIB: u64 = 1 << 20;

fn small() -> Vec<u8> {
    let (_image, disk) = fixture("gpt");
    read(&disk, 0, MIB)
}

/// `sgdisk -e` on the same disk, byte for byte.
#[test]
fn a_table_moved_to_a_larger_disk_is_what_sgdisk_writes() {
    let mut head = small();
    let mut gpt = Gpt::parse(&head, 512).unwrap().unwrap();
    gpt.resize(200 * MIB).unwrap();
    gpt.write_head(&mut head);
    let (_image, moved) = fixture("gpt-moved");
    let backup = gpt.backup();
    assert!(
        head[512..] == read(&moved, 512, MIB - 512),
        "the primary table"
    );
    assert!(
        backup == read(&moved, 200 * MIB - backup.len() as u64, backup.len() as u64),
        "the backup"
    );
    // sgdisk leaves the protective MBR at the old size; it must cover the disk (UEFI 2.10, table 5.4).
    assert_eq!(head[458..462], (200_u32 * 2048 - 1).to_le_bytes());
}

#[test]
fn the_partition_that_sgdisk_made_is_read() {
    let gpt = Gpt::parse(&small(), 512).unwrap().unwrap();
    let wanted = Partition {
        number: 1,
        kind: LINUX_TYPE,
        id: Uuid::parse_str("6FE59A7E-F1A0-4E2B-9C3D-010203040506").unwrap(),
        first_lba: 2048,
        last_lba: 16 * 2048 - 34,
        name: String::new(),
    };
    assert_eq!(gpt.partitions(), [wanted]);
    assert_eq!(
        gpt.disk_id(),
        Uuid::parse_str("0F0E0D0C-0B0A-4908-8706-050403020100").unwrap()
    );
}

#[test]
fn a_partition_is_added_at_the_end_at_a_whole_mebibyte() {
    let mut head = small();
    let mut gpt = Gpt::parse(&head, 512).unwrap().unwrap();
    gpt.resize(200 * MIB).unwrap();
    let id = Uuid::from_u128(7);
    let added = gpt.append(64 * MIB, "config-2", id).unwrap();
    assert_eq!((added.number, added.first_lba), (2, 135 * 2048));
    assert_eq!(added.last_lba - added.first_lba + 1, 64 * 2048);
    gpt.write_head(&mut head);
    let again = Gpt::parse(&head, 512).unwrap().unwrap();
    assert_eq!(again.partitions()[1], added);
    assert_eq!(again, Gpt::parse(&head, 512).unwrap().unwrap());
}

#[test]
fn what_does_not_fit_is_said() {
    let mut gpt = Gpt::parse(&small(), 512).unwrap().unwrap();
    assert_eq!(gpt.resize(8 * MIB), Err(GptError::Small));
    gpt.resize(20 * MIB).unwrap();
    assert!(matches!(
        gpt.append(64 * MIB, "config-2", Uuid::from_u128(7)),
        Err(GptError::NoRoom { .. })
    ));
}

#[test]
fn damage_is_found() {
    let head = small();
    let broken = |at: usize| {
        let mut head = head.clone();
        head[at] ^= 1;
        Gpt::parse(&head, 512)
    };
    assert_eq!(broken(512 + 40), Err(GptError::Header("its checksum")));
    assert_eq!(broken(1024 + 32), Err(GptError::Entries));
    assert_eq!(broken(512), Ok(None));
    assert_eq!(Gpt::parse(&head, 4096), Ok(None));
    assert_eq!(Gpt::parse(&head[..600], 512), Ok(None));
    assert_eq!(Gpt::parse(&head[..2048], 512), Err(GptError::Place));
}

#[test]
fn entries_that_lie_over_the_header_are_no_table() {
    for (lba, is_placed) in [(0_u64, false), (1, false), (2, true)] {
        let mut head = small();
        head[512 + 72..512 + 80].copy_from_slice(&lba.to_le_bytes());
        head[528..532].fill(0);
        let sum = crc32fast::hash(&head[512..512 + HEADER]);
        head[528..532].copy_from_slice(&sum.to_le_bytes());
        let is_there = Gpt::parse(&head, 512) != Err(GptError::Place);
        assert_eq!(is_there, is_placed, "{lba}");
    }
}

proptest! {
    /// A table whose checksums are right may still hold any numbers.
    #[test]
    fn any_header_and_entry_can_be_read_and_moved(
        fields in proptest::collection::vec((prop::sample::select(vec![24_usize, 32, 40, 48, 72, 80, 84]), any::<u64>()), 0..4),
        entry in proptest::collection::vec(any::<u8>(), 128),
        place in proptest::option::of((0..400_000_u64, 0..400_000_u64)),
        size in prop_oneof![any::<u64>(), 0..300 * MIB],
    ) {
        let mut head = small();
        head[1024..1152].copy_from_slice(&entry);
        // Otherwise hardly any entry lies on a disk.
        if let Some((first, count)) = place {
            head[1056..1064].copy_from_slice(&first.to_le_bytes());
            head[1064..1072].copy_from_slice(&(first + count).to_le_bytes());
        }
        let entries = crc32fast::hash(&head[1024..1024 + 16384]);
        head[600..604].copy_from_slice(&entries.to_le_bytes());
        for (at, value) in fields {
            head[512 + at..520 + at].copy_from_slice(&value.to_le_bytes());
        }
        head[528..532].fill(0);
        let sum = crc32fast::hash(&head[512..512 + HEADER]);
        head[528..532].copy_from_slice(&sum.to_le_bytes());
        if let Ok(Some(mut gpt)) = Gpt::parse(&head, 512)
            && gpt.resize(size).is_ok()
        {
            let _ = gpt.append(64 * MIB, "config-2", Uuid::from_u128(1));
            gpt.write_head(&mut head);
            gpt.backup();
        }
    }
}
