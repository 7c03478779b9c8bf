//! The kernel's side of a disk: direct writes, zeroing, discarding and partitions, on a loop device.
//!
//! Needs root and loop devices (`scripts/test-faults`). The virtual-machine tests
//! install on real drivers.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use firstlight_ramdisk::deploy::device::{Aligned, BlockDevice, KernelDisk};
use firstlight_ramdisk::deploy::{erase, signatures};

const MIB: u64 = 1 << 20;

/// A loop device that goes with the test.
struct Loop {
    name: String,
    _file: tempfile::NamedTempFile,
}

impl Loop {
    fn new(size: u64) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let name = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        Self { name, _file: file }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &self.name])
            .status();
    }
}

#[test]
#[ignore = "needs root and loop devices: scripts/test-faults"]
fn a_loop_device_is_written_zeroed_erased_and_read_again() {
    let device = Loop::new(64 * MIB);
    let disk = KernelDisk::open(device.name.as_ref()).unwrap();
    assert_eq!((disk.size(), disk.sector()), (64 * MIB, 512));
    let mut block = Aligned::new(1 << 20);
    block.fill(0xA5);
    for offset in [0, 8 * MIB, 63 * MIB] {
        disk.write_bulk(offset, &block).unwrap();
    }
    // Part of a buffer, as when a run of zeros lies before it.
    disk.write_bulk(2 * MIB, &block[128 << 10..]).unwrap();
    disk.flush().unwrap();
    let mut read = vec![0; 1 << 20];
    disk.read_at(8 * MIB, &mut read).unwrap();
    assert!(read == *block);
    disk.zero(8 * MIB + 512, MIB - 512).unwrap();
    disk.read_at(8 * MIB, &mut read).unwrap();
    assert!(read[..512] == block[..512] && read[512..].iter().all(|b| *b == 0));
    disk.write_at(100, b"unaligned").unwrap();

    let reader = KernelDisk::open_to_read(device.name.as_ref()).unwrap();
    assert_eq!(
        signatures::find(&reader).unwrap(),
        [signatures::UNKNOWN_DATA]
    );
    assert!(
        reader.write_at(0, b"x").is_err(),
        "a look must not be able to write"
    );
    erase::metadata(&disk, None).unwrap();
    assert!(signatures::find(&reader).unwrap().is_empty());
    disk.read_at(8 * MIB, &mut read).unwrap();
    assert_eq!(read[0], 0xA5, "data between the ends stays");
    erase::express(&disk, None).unwrap();
    assert!(disk.write_at(64 * MIB, b"x").is_err(), "a disk has an end");
}
