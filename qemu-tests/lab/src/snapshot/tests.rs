#![allow(clippy::unwrap_used)]
use std::time::Duration;

use super::*;
use crate::machine::Setting;
use crate::qemu::{BootFirst, Disk, DiskBus, NicModel};

const KEY: &str = "0123456789abcdef";

fn the_box(disk: &Path) -> VmSpec {
    VmSpec {
        name: "box".to_owned(),
        firmware: Firmware::Bios,
        cpus: 2,
        memory_mib: 4096,
        mac: [0x52, 0x54, 0, 0xf1, 0, 0],
        nic: NicModel::Virtio,
        second_nic: None,
        disks: vec![Disk {
            file: disk.to_owned(),
            format: DiskFormat::Qcow2,
            bus: DiskBus::Usb,
            large_sectors: false,
        }],
        cd: None,
        boot: BootFirst::Disk,
        direct: None,
        tpm: false,
        self_test: Duration::ZERO,
        kcs: None,
    }
}

/// A snapshot of a machine that has no state, with `bytes` in it.
fn put(snapshots: &Snapshots, key: &str, bytes: usize) {
    let dir = snapshots.dir.join(key);
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("box.state"), vec![7; bytes]).unwrap();
    let manifest = Manifest {
        time: 0,
        agent: String::new(),
        machines: Vec::new(),
        files: sizes(&dir).unwrap(),
    };
    fs::write(dir.join(MANIFEST), serde_json::to_vec(&manifest).unwrap()).unwrap();
}

fn used(snapshots: &Snapshots, key: &str, seconds: u64) {
    let file = File::options()
        .append(true)
        .open(snapshots.dir.join(key).join(MANIFEST))
        .unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        .unwrap();
}

fn shelf() -> (tempfile::TempDir, Snapshots) {
    let dir = tempfile::tempdir().unwrap();
    let snapshots = Snapshots {
        dir: dir.path().to_owned(),
    };
    (dir, snapshots)
}

#[test]
fn another_stick_qemu_line_or_pace_is_another_snapshot_and_another_place_is_not() {
    let words = ["ready", "aa", "real", "QEMU 7.2"];
    let key = |words, spec: &VmSpec| digest(words, Accel::Tcg, std::slice::from_ref(spec));
    let here = the_box(Path::new("/here/stick.qcow2"));
    let one = key(words, &here);
    assert_eq!(one, key(words, &the_box(Path::new("/there/stick.qcow2"))));
    for place in 0..words.len() {
        let mut other = words;
        other[place] = "another";
        assert_ne!(one, key(other, &here), "{other:?}");
    }
    let larger = VmSpec {
        memory_mib: 8192,
        ..here.clone()
    };
    assert_ne!(one, key(words, &larger));
    assert_ne!(one, digest(words, Accel::Kvm, &[here]));
}

/// QEMU with a firmware that finds nothing to boot.
fn start(dir: &Path, begin: Begin) -> (Vm, std::os::unix::net::UnixStream) {
    let disk = dir.join("disk.qcow2");
    if !disk.exists() {
        disks::blank(&disk, 1).unwrap();
    }
    let spec = VmSpec {
        memory_mib: 64,
        ..the_box(&disk)
    };
    let (wire, peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let setting = Setting {
        accel: Accel::Tcg,
        environment: &[],
        flash: None,
        wire,
        second_wire: None,
        dir,
        begin,
    };
    (Vm::start(&spec, setting).unwrap(), peer)
}

#[test]
fn a_machine_goes_on_in_another_qemu_and_a_damaged_state_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a state's file");
    let (mut vm, _wire) = start(dir.path(), Begin::PowerOn(OffsetDateTime::UNIX_EPOCH));
    vm.pause().unwrap();
    vm.save_state(&state).unwrap();
    vm.switch_off().unwrap();

    let (mut vm, _wire) = start(dir.path(), Begin::Wait);
    vm.load_state(&state).unwrap();
    vm.go_on().unwrap();
    vm.check_running().unwrap();
    drop(vm);

    let whole = fs::read(&state).unwrap();
    let mut turned = whole.clone();
    turned[whole.len() / 2] ^= 0xff;
    for damaged in [&whole[..whole.len() / 2], &turned] {
        fs::write(&state, damaged).unwrap();
        let (mut vm, _wire) = start(dir.path(), Begin::Wait);
        assert!(vm.load_state(&state).is_err());
    }
}

#[test]
fn a_snapshot_that_lost_bytes_is_no_snapshot() {
    let (_dir, snapshots) = shelf();
    assert!(snapshots.find(KEY).unwrap().is_none());
    put(&snapshots, KEY, 100);
    assert!(snapshots.find(KEY).unwrap().is_some());
    let state = snapshots.dir.join(KEY).join("box.state");
    fs::write(&state, vec![7; 99]).unwrap();
    assert!(snapshots.find(KEY).is_err());
    fs::write(&state, vec![7; 100]).unwrap();
    fs::write(snapshots.dir.join(KEY).join(MANIFEST), "{").unwrap();
    assert!(snapshots.find(KEY).is_err());
}

#[test]
fn room_is_made_by_the_one_used_longest_ago_that_nobody_uses() {
    let (_dir, snapshots) = shelf();
    for (key, at) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        put(&snapshots, key, 1 << 20);
        used(&snapshots, key, at);
    }
    let held = snapshots.find("a").unwrap();
    used(&snapshots, "a", 1);
    snapshots.make_room(5 << 19, "d").unwrap();
    let left = |key: &str| snapshots.dir.join(key).exists();
    assert_eq!(
        [left("a"), left("b"), left("c"), left("d")],
        [true, false, false, true]
    );
    drop(held);
    snapshots.make_room(0, "d").unwrap();
    assert!(!left("a") && left("d"), "the newest always stays");
}

#[test]
fn a_disk_is_kept_with_what_is_below_it_and_goes_on_as_an_overlay() {
    let (dir, snapshots) = shelf();
    let lab = dir.path().join("lab");
    fs::create_dir(&lab).unwrap();
    let image = dir.path().join("firstlight.img");
    fs::write(&image, vec![1; 1 << 20]).unwrap();
    let stick = lab.join("stick.qcow2");
    disks::stick(&image, &stick, 1).unwrap();

    let mut folders = Vec::new();
    for key in ["11111111", "22222222"] {
        let folder = snapshots.dir.join(key);
        fs::create_dir(&folder).unwrap();
        let mut spec = the_box(&stick);
        keep_disk(&mut spec.disks[0], &folder, key).unwrap();
        assert_eq!(spec.disks[0].file, Path::new("stick.qcow2"));
        assert!(!stick.exists(), "the disk belongs to the snapshot");
        put(&snapshots, &format!("{key}x"), 0);
        let snapshot = Snapshot {
            key: key.to_owned(),
            dir: folder.clone(),
            ..snapshots.find(&format!("{key}x")).unwrap().unwrap()
        };
        let own = snapshot.furnish(&spec, &lab).unwrap();
        assert_eq!(own.disks[0].file, stick);
        folders.push(folder);
    }
    // Neither another build nor the end of the first snapshot matters to the second.
    fs::remove_file(&image).unwrap();
    fs::remove_dir_all(&folders[0]).unwrap();
    let raw = dir.path().join("raw");
    disks::to_raw(&stick, &raw).unwrap();
    assert!(fs::read(&raw).unwrap().starts_with(&vec![1; 1 << 20]));
}
