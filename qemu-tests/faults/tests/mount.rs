//! The disk as programs see it: like any other one, until it is told to fail.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use faults::{Disk, Fault, Kind, Mount, Names, Operation, Random, When};

fn mount(size: u64) -> (tempfile::TempDir, Mount) {
    let dir = tempfile::tempdir().unwrap();
    let mount = Mount::new(Disk::new(size, Names::WithFile), dir.path()).unwrap();
    (dir, mount)
}

/// Path, kind, permissions, links and content of all.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let content = if about.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else if about.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let links = if about.is_dir() { 1 } else { about.nlink() };
            all.insert(
                path.strip_prefix(root).unwrap().to_owned(),
                (about.mode(), links, content),
            );
        }
    }
    all
}

/// What a step does, below any root; and what it says.
fn step(root: &Path, random: &mut Random) -> String {
    const PLACES: [&str; 10] = ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a"];
    let place = |random: &mut Random| root.join(PLACES[usize::try_from(random.below(10)).unwrap()]);
    let (one, other) = (place(random), place(random));
    let (offset, length) = (random.below(9000), random.below(9000));
    let bytes = vec![u8::try_from(random.below(256)).unwrap(); usize::try_from(length).unwrap()];
    let done = match random.below(12) {
        0 => fs::create_dir(&one),
        1 => fs::remove_dir(&one),
        2 => fs::remove_file(&one),
        3 | 4 => fs::rename(&one, &other),
        5 => symlink("somewhere", &one),
        6 => fs::hard_link(&one, &other),
        7 => fs::set_permissions(&one, fs::Permissions::from_mode(0o640)),
        8 => OpenOptions::new()
            .write(true)
            .open(&one)
            .and_then(|file| file.set_len(length)),
        9 => OpenOptions::new()
            .append(true)
            .create(true)
            .open(&one)
            .and_then(|mut file| file.write_all(&bytes)),
        10 => File::open(&one).and_then(|mut file| {
            let mut found = vec![0; 100];
            file.read(&mut found).map(drop)
        }),
        _ => OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&one)
            .and_then(|file| file.write_all_at(&bytes, offset)),
    };
    // Which of two reasons is said differs between file systems, not whether.
    format!("{}", done.is_ok())
}

#[test]
#[ignore = "needs root and /dev/fuse, or fuse3: scripts/test-faults"]
fn any_operations_leave_what_they_leave_in_a_plain_directory() {
    for seed in 0..40 {
        let plain = tempfile::tempdir().unwrap();
        let (dir, _mount) = mount(1 << 30);
        let (mut here, mut there) = (Random::new(seed), Random::new(seed));
        for number in 0..150 {
            assert_eq!(
                step(dir.path(), &mut here),
                step(plain.path(), &mut there),
                "seed {seed}, step {number}"
            );
        }
        assert_eq!(tree(dir.path()), tree(plain.path()), "seed {seed}");
    }
}

#[test]
#[ignore = "needs root and /dev/fuse, or fuse3: scripts/test-faults"]
fn a_program_meets_each_fault_and_its_disk_is_whole_again_afterwards() {
    let (dir, mut mount) = mount(1 << 20);
    let path = dir.path().join("f");
    let code = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    fs::write(&path, "one").unwrap();
    let fault = |operation, kind| Fault::new("/f", operation, When::Always, kind);
    for (operation, kind, wanted) in [
        (Operation::Write, Kind::Full, nix::libc::ENOSPC),
        (Operation::Write, Kind::Broken, nix::libc::EIO),
        (Operation::Change, Kind::ReadOnly, nix::libc::EROFS),
    ] {
        mount.disk().add(fault(operation, kind));
        assert_eq!(code(fs::write(&path, "two")), Some(wanted));
        mount.disk().clear();
    }
    mount.disk().add(fault(Operation::Read, Kind::Broken));
    assert_eq!(code(fs::read(&path).map(drop)), Some(nix::libc::EIO));
    mount.disk().clear();
    mount.disk().add(fault(
        Operation::Sync,
        Kind::Slow(Duration::from_millis(300)),
    ));
    let since = Instant::now();
    File::open(&path).unwrap().sync_all().unwrap();
    assert!(since.elapsed() >= Duration::from_millis(300));
    mount.disk().clear();
    assert_eq!(
        code(fs::write(dir.path().join("large"), vec![1; 2 << 20])),
        Some(nix::libc::ENOSPC)
    );

    fs::write(&path, "lost").unwrap();
    mount.disk().cut();
    assert_eq!(code(fs::read(&path).map(drop)), Some(nix::libc::EIO));
    mount.restart(3).unwrap();
    assert_ne!(fs::read(&path).unwrap(), b"two");
}

#[test]
#[ignore = "needs root and /dev/fuse, or fuse3: scripts/test-faults"]
fn syncfs_reaches_the_disk_through_the_library() {
    let tools = tempfile::tempdir().unwrap();
    let library = faults::preload::library(tools.path()).unwrap();
    let (dir, mut mount) = mount(1 << 20);
    for (preload, wanted) in [(None, false), (Some(&library), true)] {
        fs::write(dir.path().join("f"), "1234").unwrap();
        let mut sync = Command::new("sync");
        sync.arg("--file-system").arg(dir.path());
        if let Some(library) = preload {
            sync.env("LD_PRELOAD", library);
        }
        assert!(sync.status().unwrap().success());
        let survives = (0..12).all(|seed| {
            let mut disk = mount.disk().clone();
            disk.cut();
            disk.survive(seed);
            let file = disk.lookup(1, "f".as_ref());
            file.is_ok_and(|file| {
                disk.read(file, 0, 9)
                    .is_ok_and(|content| content == b"1234")
            })
        });
        assert_eq!(survives, wanted);
    }
    mount.restart(0).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("f")).unwrap(), "1234");
}
