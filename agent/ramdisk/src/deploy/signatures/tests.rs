#![allow(clippy::unwrap_used)]

use std::io::Write;

use firstlight_api::order::DeploymentId;

use super::*;
use crate::deploy::device::FileDisk;
use crate::deploy::testing::{disk_with, fixture};

/// What the real tools wrote is found under the name that blkid gives it.
#[test]
fn disks_made_by_the_real_tools() {
    for (name, wanted) in [
        ("gpt", "gpt"),
        ("gpt-backup", "gpt"),
        ("dos", "dos"),
        ("ext2", "ext2"),
        ("ext3", "ext3"),
        ("ext4", "ext4"),
        ("xfs", "xfs"),
        ("btrfs", "btrfs"),
        ("ntfs", "ntfs"),
        ("exfat", "exfat"),
        ("vfat12", "vfat"),
        ("vfat32", "vfat"),
        ("f2fs", "f2fs"),
        ("jfs", "jfs"),
        ("nilfs2", "nilfs2"),
        ("reiserfs", "reiserfs"),
        ("udf", "udf"),
        ("swap", "swap"),
        ("luks1", "crypto_LUKS"),
        ("luks2", "crypto_LUKS"),
        ("bcache", "bcache"),
        ("iso9660", "iso9660"),
        ("squashfs", "squashfs"),
        ("erofs", "erofs"),
    ] {
        let (_image, disk) = fixture(name);
        assert_eq!(find(&disk).unwrap(), [wanted], "{name}");
    }
}

/// Formats whose tools need a kernel's block device, or another operating system: their bytes by their documentation.
#[test]
fn disks_of_volume_managers_and_hypervisors() {
    const SIZE: u64 = 300 << 20;
    let rows: [(&str, u64, &[u8]); 14] = [
        ("LVM2_member", 512, b"LABELONE"),
        ("linux_raid_member", 0, b"\xfc\x4e\x2b\xa9"),
        ("linux_raid_member", 4096, b"\xfc\x4e\x2b\xa9"),
        // Version 0.90 in the last whole 64 KiB, version 1.0 at 8 KiB before the end.
        ("linux_raid_member", SIZE - 65536, b"\xfc\x4e\x2b\xa9"),
        ("linux_raid_member", SIZE - 8192, b"\xfc\x4e\x2b\xa9"),
        (
            "isw_raid_member",
            SIZE - 1024,
            b"Intel Raid ISM Cfg Sig. 1.3.00",
        ),
        ("ddf_raid_member", SIZE - 512, b"\xde\x11\xde\x11"),
        ("zfs_member", 128 << 10, b"\x0c\xb1\xba\0\0\0\0\0"),
        ("zfs_member", SIZE - (64 << 10), b"\x0c\xb1\xba\0\0\0\0\0"),
        ("VMFS_volume_member", 1 << 20, b"\x0d\xd0\x01\xc0"),
        ("btrfs", (64 << 20) + 64, b"_BHRfS_M"),
        ("BitLocker", 3, b"-FVE-FS-"),
        ("ReFS", 0, b"\0\0\0ReFS\0"),
        ("ceph_bluestore", 0, b"bluestore block device"),
    ];
    for (wanted, offset, bytes) in rows {
        let (_image, disk) = disk_with(SIZE, &[(offset, bytes)]);
        assert_eq!(find(&disk).unwrap(), [wanted], "{wanted} at {offset}");
    }
}

#[test]
fn an_empty_disk_is_blank_whatever_its_size() {
    for size in [0, 512, 4096, 1 << 20, (1 << 20) + 512, 100 << 20] {
        let (_image, disk) = disk_with(size, &[]);
        assert_eq!(find(&disk).unwrap(), Vec::<String>::new(), "{size}");
    }
}

#[test]
fn one_unknown_byte_at_either_end_is_data() {
    const SIZE: u64 = 100 << 20;
    for offset in [0, 511, 12345, (1 << 20) - 1, SIZE - (1 << 20), SIZE - 1] {
        let (_image, disk) = disk_with(SIZE, &[(offset, b"\x01")]);
        assert_eq!(find(&disk).unwrap(), [UNKNOWN_DATA], "{offset}");
    }
}

#[test]
fn several_kinds_are_all_named() {
    let (_image, disk) = disk_with(
        300 << 20,
        &[(0, b"XFSB"), (512, b"LABELONE"), (510, b"\x55\xaa")],
    );
    assert_eq!(find(&disk).unwrap(), ["dos", "LVM2_member", "xfs"]);
}

#[test]
fn a_disk_that_cannot_be_read_counts_as_one_with_data() {
    let mut image = tempfile::NamedTempFile::new().unwrap();
    image.write_all(&[0; 8192]).unwrap();
    let disk = FileDisk::open(image.path(), 512).unwrap();
    // The disk lost its end after it was opened.
    image.as_file().set_len(4096).unwrap();
    assert_eq!(look_or_suspect(&disk), Content::unreadable());
}

#[test]
fn looking_changes_nothing() {
    let (image, disk) = fixture("ext4");
    let before = std::fs::read(image.path()).unwrap();
    find(&disk).unwrap();
    assert!(before == std::fs::read(image.path()).unwrap());
}

const ID: DeploymentId = DeploymentId::new([7; 16]);

fn maker() -> mark::Maker {
    mark::Maker {
        deployment: ID,
        key: Key::new().unwrap(),
    }
}

fn marked(places: &[(u64, &[u8])]) -> (tempfile::NamedTempFile, FileDisk) {
    let (image, disk) = disk_with(300 << 20, places);
    mark::begin(&disk, &maker()).unwrap();
    (image, disk)
}

#[test]
fn our_half_written_image_is_a_kind_of_its_own_whatever_of_it_is_there() {
    const SIZE: u64 = 300 << 20;
    let (_gpt, source) = fixture("gpt");
    let mut backup = vec![0; 512];
    source.read_at(source.size() - 512, &mut backup).unwrap();
    for places in [
        &[][..],
        &[(1 << 20, b"\x0d\xd0\x01\xc0".as_slice())],
        &[((64 << 20) + 64, b"_BHRfS_M")],
        &[(SIZE - 512, &backup)],
        &[(SIZE - 70_000, b"the image's end")],
    ] {
        let (_image, disk) = marked(places);
        let found = look(&disk).unwrap();
        assert_eq!(found.signatures, [UNFINISHED], "{places:?}");
        assert_eq!(found.mark, Some(Mark::Unfinished { deployment: ID }));
        assert!(found.key.is_some());
    }
}

#[test]
fn a_mark_beside_anything_else_is_data_without_a_mark() {
    const SIZE: u64 = 300 << 20;
    for (offset, bytes, kind) in [
        (510, b"\x55\xaa".as_slice(), "dos"),
        (1024 + 56, b"\x53\xef", "ext2"),
        (4096 + 24, b"anything", UNKNOWN_DATA),
        (mark::PLACE + 512, b"x", UNKNOWN_DATA),
        (SIZE - 512, b"\xde\x11\xde\x11", "ddf_raid_member"),
        (SIZE - 8192, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
    ] {
        let (_image, disk) = marked(&[(offset, bytes)]);
        let content = look(&disk).unwrap();
        assert_eq!(
            (content.mark, content.signatures),
            (None, vec![kind.to_owned()])
        );
    }
    let (_image, disk) = marked(&[]);
    disk.write_at(mark::PLACE + 60, b"?").unwrap();
    assert_eq!(
        find(&disk).unwrap(),
        [UNKNOWN_DATA],
        "a damaged mark is none"
    );
}

#[test]
fn a_complete_image_says_who_wrote_it_until_the_disk_is_partitioned_anew() {
    let (_image, disk) = fixture("gpt");
    assert_eq!(look(&disk).unwrap().mark, None);
    let mut head = vec![0; 1 << 20];
    disk.read_at(0, &mut head).unwrap();
    let (_, end) = mark::partitions(&head, 512)[0];
    let maker = maker();
    mark::complete(&disk, end, &maker).unwrap();
    let found = look(&disk).unwrap();
    assert_eq!(found.signatures, ["gpt"]);
    let deployment = Some(ID);
    assert_eq!(found.mark, Some(Mark::Installed { deployment }));
    assert_eq!(found.key, Some(maker.key));
    // As an older ramdisk left it, and damaged: who wrote it, without the key; nobody knows.
    let last = end - mark::LENGTH as u64;
    let mut bytes = [0; mark::LENGTH];
    disk.read_at(last, &mut bytes).unwrap();
    let line = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for (rest, mark) in [
        (b"".as_slice(), found.mark),
        (b"key AAAA\n", None),
        (b"key", None),
    ] {
        bytes[line..].fill(0);
        bytes[line..line + rest.len()].copy_from_slice(rest);
        disk.write_at(last, &bytes).unwrap();
        let found = look(&disk).unwrap();
        assert_eq!((found.mark, found.key), (mark, None));
    }
    disk.zero(512, 512).unwrap();
    assert_eq!(look(&disk).unwrap().mark, None);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever a disk holds: no panic, and one byte at its ends is never blank.
    #[test]
    fn any_bytes_at_the_ends_of_a_disk_are_read(
        head in proptest::collection::vec(proptest::prelude::any::<u8>(), 1..3000),
        at in proptest::prop_oneof![0_u64..3000, (512_u64 << 10) - 600..(513 << 10)],
        table in proptest::prelude::any::<bool>(),
    ) {
        let mut places = vec![(at, head.as_slice())];
        if table {
            places.push((510, b"\x55\xaa"));
            places.push((512, b"EFI PART"));
        }
        let (_image, disk) = disk_with(8 << 20, &places);
        let content = look(&disk).unwrap();
        let blank = !table && head.iter().all(|byte| *byte == 0);
        proptest::prop_assert_eq!(content.signatures.is_empty(), blank);
    }
}
