//! The kernel's side of a disk: direct writes, zeroing, discarding and partitions, on a loop device.
//!
//! Needs root and loop devices (`scripts/test-faults`). The virtual-machine tests
//! install on real drivers.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use firstlight_ramdisk::deploy::cancel::Cancel;
use firstlight_ramdisk::deploy::device::{Aligned, BlockDevice, KernelDisk};
use firstlight_ramdisk::deploy::image::Held;
use firstlight_ramdisk::deploy::mirror::{self, Mirror};
use firstlight_ramdisk::deploy::start::{self, Location, Mounted, Use};
use firstlight_ramdisk::deploy::{erase, finish, signatures};
use uuid::Uuid;

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
            .args(["--find", "--show", "--partscan"])
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

/// A whole-disk image with one partition, which has a system on ext4.
fn image() -> Vec<u8> {
    let packed: &[u8] = include_bytes!("../fixtures/disks/gpt.zst");
    let mut image = zstd::decode_all(packed).unwrap();
    let tree = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("boot/grub/grub.cfg", "linux /vmlinuz root=LABEL=root\n"),
        ("etc/os-release", "ID=debian\n"),
        ("usr/sbin/mdadm", ""),
    ] {
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let system = tempfile::NamedTempFile::new().unwrap();
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-d"])
        .args([tree.path(), system.path()])
        .arg("12m")
        .status();
    assert!(made.unwrap().success());
    let system = fs::read(system.path()).unwrap();
    image[1 << 20..][..system.len()].copy_from_slice(&system);
    image
}

#[test]
#[ignore = "needs root and loop devices: scripts/test-faults"]
fn a_mirror_is_made_of_two_disks_that_the_kernel_mounts_the_first_of_before_it_has_a_table() {
    let devices = [Loop::new(64 * MIB), Loop::new(80 * MIB)];
    let [first, second] = devices
        .each_ref()
        .map(|device| Box::new(KernelDisk::open(device.name.as_ref()).unwrap()));
    // What was there before is known to the kernel, which has to forget it.
    let image = image();
    first.write_at(0, &image).unwrap();
    first.reread_partitions().unwrap();
    let mirror = Mirror::of(first, second, Uuid::new_v4()).unwrap();
    mirror.begin().unwrap();
    mirror.zero(0, MIB).unwrap();
    for at in (1..image.len() >> 20).map(|mib| mib << 20) {
        let mut block = Aligned::new(1 << 20);
        block.copy_from_slice(&image[at..at + (1 << 20)]);
        mirror.write_bulk(at as u64, &block).unwrap();
    }
    let held = Held {
        head: image[..1 << 20].to_vec(),
        tail: vec![0; 1 << 20],
        length: image.len() as u64,
    };
    let prepared = finish::prepare(&mirror, held, None, None, &mut Uuid::new_v4).unwrap();
    let opening = prepared.head;
    mirror.reread_partitions().unwrap();
    let places = finish::places(&opening, 512).unwrap();
    mirror.show_partitions(&places).unwrap();
    let mounted = Mounted::of(mirror.first(), Use::Change, false).unwrap();
    let number = mirror::root(&mounted.system).unwrap();
    let words = mirror.arguments(number);
    start::write_arguments(&mounted.system, &words).unwrap();
    drop(mounted);
    // A reader that was there all the time has the old bytes in its memory.
    let again = KernelDisk::open_to_read(devices[0].name.as_ref()).unwrap();
    mirror
        .follow(&again, image.len() as u64, &Cancel::default())
        .unwrap();
    let cut = KernelDisk::open_to_read(devices[1].name.as_ref()).unwrap();
    let mut start = vec![1; 1 << 20];
    cut.read_at(0, &mut start).unwrap();
    assert!(start.iter().all(|byte| *byte == 0), "nothing starts yet");
    mirror.complete(1, &mut Uuid::new_v4).unwrap();
    finish::make_bootable(&mirror, &opening).unwrap();

    let [one, two] = devices.each_ref().map(|device| {
        let disk = KernelDisk::open_to_read(device.name.as_ref()).unwrap();
        let mut bytes = vec![0; usize::try_from(mirror.size()).unwrap()];
        disk.read_at(0, &mut bytes).unwrap();
        bytes
    });
    assert!(one == two, "both hold the same");
    // The second alone. Not every kernel reads a GPT, so that it is told again.
    let disk = KernelDisk::open(devices[1].name.as_ref()).unwrap();
    disk.show_partitions(&places).unwrap();
    let mounted = Mounted::of(&disk, Use::Read, false).unwrap();
    let config = Location {
        volume: 0,
        path: "/boot/grub/grub.cfg".to_owned(),
    };
    assert_eq!(
        mounted.system.text(&config, 4096).unwrap(),
        format!("linux /vmlinuz root=LABEL=root {words}\n")
    );
}
