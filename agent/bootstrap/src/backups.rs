//! Backups of the box that this server keeps for it, on its order over SSH: encrypted files, of which it can read none.

use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use firstlight_api::backup::{BackupFile, KeepOrder, MOST_COUNT, surplus};

const FOLDER: &str = "var/lib/firstlight/backups";
const UNFINISHED: &str = "unfinished";
/// Of the order, which is a line of JSON.
const LONGEST_LINE: u64 = 4096;
/// Of one backup.
pub const MOST_BYTES: u64 = 1 << 30;
/// Stays free, in bytes: the server is there for something else.
const RESERVE: u64 = 2 << 30;

/// Takes a backup below `root`; `free` says how many bytes its disk has left.
pub fn keep(root: &Path, input: &mut impl BufRead, free: impl Fn(&Path) -> u64) -> Result<()> {
    let mut line = Vec::new();
    let mut head = input.by_ref().take(LONGEST_LINE);
    head.read_until(b'\n', &mut line)
        .context("reading the order")?;
    let KeepOrder { file, count } = serde_json::from_slice(&line).context("this is no order")?;
    ensure!(
        BackupFile::is_name(&file.name)
            && file.bytes <= MOST_BYTES
            && (1..=MOST_COUNT).contains(&count),
        "the order is for no backup"
    );
    let folder = root.join(FOLDER);
    let what = || format!("keeping {} in {}", file.name, folder.display());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(what)?;
    let left = free(&folder);
    ensure!(
        left >= file.bytes.saturating_add(RESERVE),
        "the server's disk has {} MB free, and {} of them are its own",
        left >> 20,
        RESERVE >> 20
    );
    let unfinished = folder.join(UNFINISHED);
    let taken = take(&file, input, &unfinished);
    if taken.is_err() {
        drop(fs::remove_file(&unfinished));
    }
    taken.with_context(what)?;
    fs::rename(&unfinished, folder.join(&file.name)).with_context(what)?;
    File::open(&folder)?.sync_all().with_context(what)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(what)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    for name in surplus(names, &file.name, count) {
        fs::remove_file(folder.join(&name)).with_context(|| format!("removing {name}"))?;
    }
    Ok(())
}

fn take(file: &BackupFile, input: &mut impl Read, path: &Path) -> io::Result<()> {
    let mut to = File::create(path)?;
    let bytes = io::copy(&mut input.take(file.bytes), &mut to)?;
    if bytes < file.bytes {
        let why = format!("it was cut after {bytes} of {} bytes", file.bytes);
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    to.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const ROOM: u64 = 10 << 30;

    fn order(name: &str, bytes: u64, count: u8) -> Vec<u8> {
        let file = BackupFile {
            name: name.to_owned(),
            bytes,
        };
        let mut line = serde_json::to_vec(&KeepOrder { file, count }).unwrap();
        line.push(b'\n');
        line
    }

    fn names(root: &Path) -> Vec<String> {
        let Ok(entries) = fs::read_dir(root.join(FOLDER)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn so_many_are_kept_and_those_that_were_cut_are_not() {
        let root = tempfile::tempdir().unwrap();
        let send = |name: &str, content: &[u8], bytes: u64, free: u64| {
            let input = [&order(name, bytes, 2), content].concat();
            keep(root.path(), &mut input.as_slice(), |_| free)
        };
        for name in ["lab-1.backup", "lab-2.backup", "lab-3.backup"] {
            send(name, b"sealed", 6, ROOM).unwrap();
        }
        assert_eq!(names(root.path()), ["lab-2.backup", "lab-3.backup"]);
        // Again, and with something behind it.
        send("lab-3.backup", b"sealed and more", 6, ROOM).unwrap();
        let kept = root.path().join(FOLDER).join("lab-3.backup");
        assert_eq!(fs::read(kept).unwrap(), b"sealed");
        let cut = send("lab-4.backup", b"seal", 6, ROOM).unwrap_err();
        assert!(format!("{cut:#}").contains("cut after 4 of 6"));
        let full = send("lab-4.backup", b"sealed", 6, RESERVE).unwrap_err();
        assert!(full.to_string().contains("free"));
        for (name, bytes) in [
            ("../lab.backup", 6),
            ("lab", 6),
            ("lab-5.backup", MOST_BYTES + 1),
        ] {
            assert!(send(name, b"sealed", bytes, u64::MAX).is_err(), "{name}");
        }
        assert_eq!(names(root.path()), ["lab-2.backup", "lab-3.backup"]);
    }

    proptest! {
        #[test]
        fn whatever_is_sent_nothing_else_is_written(noise: Vec<u8>, name in "[a./-]{0,6}(.backup)?", count: u8) {
            let root = tempfile::tempdir().unwrap();
            for input in [noise.clone(), [order(&name, 3, count), noise.clone()].concat()] {
                if keep(root.path(), &mut input.as_slice(), |_| ROOM).is_ok() {
                    prop_assert!(BackupFile::is_name(&name));
                }
                prop_assert!(names(root.path()).iter().all(|kept| *kept == name));
            }
        }
    }
}
