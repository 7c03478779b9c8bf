#![allow(clippy::unwrap_used)]

use super::*;
use crate::deploy::testing::{disk_with, fixture, read};

const MIB: u64 = 1 << 20;

#[test]
fn after_erasing_metadata_a_disk_counts_as_blank() {
    for name in [
        "gpt",
        "gpt-backup",
        "gpt-moved",
        "dos",
        "ext4",
        "xfs",
        "btrfs",
        "ntfs",
        "vfat32",
        "luks2",
        "iso9660",
    ] {
        let (_image, disk) = fixture(name);
        metadata(&disk, None).unwrap();
        assert_eq!(
            signatures::find(&disk).unwrap(),
            Vec::<String>::new(),
            "{name}"
        );
    }
}

#[test]
fn file_systems_inside_partitions_go_too_and_other_data_stays() {
    let (_gpt_image, source) = fixture("gpt-moved");
    let head = read(&source, 0, MIB);
    let (start, end) = (MIB, 16 * MIB - 33 * 512);
    let (_image, disk) = disk_with(
        200 * MIB,
        &[
            (0, &head),
            (start, b"XFSB"),
            (end - 8192, b"\xfc\x4e\x2b\xa9"),
            (8 * MIB, b"content"),
        ],
    );
    metadata(&disk, None).unwrap();
    assert_eq!(read(&disk, start, 4), [0; 4]);
    assert_eq!(read(&disk, end - 8192, 4), [0; 4]);
    assert_eq!(read(&disk, 8 * MIB, 7), b"content");
}

#[test]
fn erasing_everything_leaves_zeros_and_tells_how_far_it_is() {
    let (_image, disk) = disk_with(600 * MIB, &[(8 * MIB, b"content"), (599 * MIB, b"more")]);
    let steps = std::cell::RefCell::new(Vec::new());
    everything(&disk, &Cancel::default(), &|done, total| {
        steps.borrow_mut().push((done, total));
    })
    .unwrap();
    let size = 600 * MIB;
    assert_eq!(
        steps.into_inner(),
        [(256 * MIB, size), (512 * MIB, size), (size, size)]
    );
    assert!(read(&disk, 0, size).iter().all(|b| *b == 0));
}

#[test]
fn erasing_can_be_called_off() {
    let (_image, disk) = disk_with(600 * MIB, &[(8 * MIB, b"content")]);
    let cancel = Cancel::default();
    cancel.raise();
    assert!(matches!(
        everything(&disk, &cancel, &|_, _| ()),
        Err(EraseError::Cancelled)
    ));
    assert_eq!(read(&disk, 8 * MIB, 7), b"content");
}

#[test]
fn a_damaged_table_does_not_lead_astray() {
    let (_gpt_image, source) = fixture("gpt");
    let mut head = read(&source, 0, MIB);
    // The only partition claims to end far behind the disk.
    head[1024 + 40..1024 + 48].copy_from_slice(&u64::MAX.to_le_bytes());
    let sum = crc32fast::hash(&head[1024..1024 + 16384]);
    head[600..604].copy_from_slice(&sum.to_le_bytes());
    head[528..532].fill(0);
    let sum = crc32fast::hash(&head[512..604]);
    head[528..532].copy_from_slice(&sum.to_le_bytes());
    let (_image, disk) = disk_with(16 * MIB, &[(0, &head)]);
    metadata(&disk, None).unwrap();
    assert_eq!(signatures::find(&disk).unwrap(), Vec::<String>::new());
}

/// Passes on what is durable: the writes before the flush at which the power failed.
struct PowerCut {
    disk: crate::deploy::device::FileDisk,
    flushes: std::sync::atomic::AtomicUsize,
}

impl BlockDevice for PowerCut {
    fn name(&self) -> &str {
        self.disk.name()
    }
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn sector(&self) -> u64 {
        self.disk.sector()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write_at(offset, data)
    }
    fn write_bulk(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write_bulk(offset, data)
    }
    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.zero(offset, length)
    }
    fn discard(&self) -> io::Result<()> {
        self.disk.discard()
    }
    fn flush(&self) -> io::Result<()> {
        use std::sync::atomic::Ordering;
        let left = self.flushes.fetch_sub(1, Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other("no power"));
        }
        Ok(())
    }
    fn reread_partitions(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_whose_erasing_was_cut_short_is_still_ours_or_blank() {
    use firstlight_api::order::{DeploymentId, Mark};
    use firstlight_client::key::Key;
    let deployment = DeploymentId::new([7; 16]);
    let key = Key::new().unwrap();
    let maker = Maker { deployment, key };
    for flushes in 0..3 {
        let (_image, disk) = fixture("gpt");
        let cut = PowerCut {
            disk,
            flushes: flushes.into(),
        };
        assert!(metadata(&cut, Some(&maker)).is_err());
        let found = signatures::look(&cut.disk).unwrap();
        let ours = found.mark == Some(Mark::Unfinished { deployment });
        assert!(ours || found.signatures.is_empty(), "{flushes}: {found:?}");
        metadata(&cut.disk, Some(&maker)).unwrap();
        assert!(signatures::find(&cut.disk).unwrap().is_empty());
    }
}
