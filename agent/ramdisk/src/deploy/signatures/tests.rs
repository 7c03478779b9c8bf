#![allow(clippy::unwrap_used)]

use std::io::Write;

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
    assert_eq!(find_or_suspect(&disk), [UNREADABLE]);
}

#[test]
fn looking_changes_nothing() {
    let (image, disk) = fixture("ext4");
    let before = std::fs::read(image.path()).unwrap();
    find(&disk).unwrap();
    assert!(before == std::fs::read(image.path()).unwrap());
}
