//! The disk that volumes of a node are on: its size, what was promised of it, and what is left to promise. What was promised is a file for
//! each volume in `.volumes`, whose text is the number of its bytes.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::statvfs::statvfs,
};

const PROMISES: &str = ".volumes";
const LOCK: &str = ".lock";
const SHARE: &str = "SHARE";

/// Of a file system, or of a folder with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub bytes: u64,
    pub free: u64,
}

/// Of the file system, in per cent, for all volumes together: the rest is the node's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    pub bytes: u64,
    /// `None`: nobody holds it to what was promised, and so nobody knows: all of it may be to come.
    pub used: Option<u64>,
}

#[derive(Debug)]
pub struct Disk {
    base: PathBuf,
    share: Share,
}

impl Share {
    pub fn load() -> Result<Self> {
        let text = std::env::var(SHARE).context("SHARE is not set")?;
        Self::parse(&text)
    }

    pub fn parse(text: &str) -> Result<Self> {
        match text.parse() {
            Ok(percent @ 1..=100) => Ok(Self(percent)),
            _ => bail!("share: `{text:.20}` is no percentage from 1 to 100"),
        }
    }

    fn of(self, bytes: u64) -> u64 {
        bytes / 100 * self.0
    }
}

impl Space {
    pub fn load(folder: &Path) -> Result<Self> {
        let found = statvfs(folder);
        let found =
            found.with_context(|| format!("asking for the space of {}", folder.display()))?;
        Ok(Self {
            bytes: found.blocks() * found.fragment_size(),
            free: found.blocks_available() * found.fragment_size(),
        })
    }
}

impl Disk {
    pub fn new(base: &Path, share: Share) -> Self {
        Self {
            base: base.to_owned(),
            share,
        }
    }

    pub fn folder(&self, volume: &str) -> PathBuf {
        self.base.join(volume)
    }

    /// Others that make volumes of this disk wait meanwhile.
    pub fn lock(&self) -> Result<Flock<File>> {
        let promises = self.base.join(PROMISES);
        fs::create_dir_all(&promises).with_context(|| format!("making {}", promises.display()))?;
        let lock = promises.join(LOCK);
        let file = File::create(&lock).with_context(|| format!("opening {}", lock.display()))?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .with_context(|| format!("locking {}", lock.display()))
    }

    /// By the names of volumes. One that cannot be read is told and stops nobody.
    pub fn promises(&self) -> Result<BTreeMap<String, Promise>> {
        let folder = self.base.join(PROMISES);
        let mut found = BTreeMap::new();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
            entries => entries.with_context(|| format!("listing {}", folder.display()))?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
            let Ok(bytes) = text.trim().parse() else {
                tracing::warn!(
                    volume = name,
                    "what was promised to it cannot be read in {}",
                    folder.display()
                );
                continue;
            };
            let used = self.used(name, bytes);
            found.insert(name.to_owned(), Promise { bytes, used });
        }
        Ok(found)
    }

    /// A folder with a limit shows it as its size.
    fn used(&self, volume: &str, promised: u64) -> Option<u64> {
        let space = Space::load(&self.folder(volume)).ok()?;
        is_held_to(space, promised).then(|| space.bytes.saturating_sub(space.free))
    }

    /// On the disk when this returns.
    pub fn promise(&self, volume: &str, bytes: u64) -> Result<()> {
        let folder = self.base.join(PROMISES);
        let (path, new) = (folder.join(volume), folder.join(".new"));
        let write = || {
            let mut file = File::create(&new)?;
            writeln!(file, "{bytes}")?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&folder)?.sync_all()
        };
        write().with_context(|| format!("writing {}", path.display()))
    }

    pub fn take_back(&self, volume: &str) -> Result<()> {
        let path = self.base.join(PROMISES).join(volume);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.with_context(|| format!("removing {}", path.display())),
        }
    }

    /// What a further volume may have.
    pub fn left(&self) -> Result<u64> {
        let promises = self.promises()?;
        Ok(left(
            Space::load(&self.base)?,
            self.share,
            promises.values(),
        ))
    }
}

/// Whether a folder of this space has a limit of so many bytes, which the kernel counts in blocks.
pub fn is_held_to(space: Space, bytes: u64) -> bool {
    const BLOCK: u64 = 1 << 16;
    space.bytes.abs_diff(bytes) <= BLOCK
}

/// No more than the share, and no more than others have left of it.
fn left<'p>(disk: Space, share: Share, promises: impl Iterator<Item = &'p Promise> + Clone) -> u64 {
    let all: u64 = promises.clone().map(|promise| promise.bytes).sum();
    let of_share = share.of(disk.bytes).saturating_sub(all);
    let unused = |promise: &Promise| promise.bytes.saturating_sub(promise.used.unwrap_or(0));
    let to_come: u64 = promises.map(unused).sum();
    of_share.min(disk.free.saturating_sub(to_come))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GIB: u64 = 1 << 30;

    fn share(percent: u64) -> Share {
        Share::parse(&percent.to_string()).unwrap()
    }

    #[test]
    fn what_is_left_is_the_share_less_what_was_promised_and_what_others_took() {
        let held = |bytes, used| Promise {
            bytes,
            used: Some(used),
        };
        let loose = |bytes| Promise { bytes, used: None };
        for (free, promises, expected) in [
            (100, vec![], 80),
            (100, vec![loose(30)], 50),
            (50, vec![loose(30)], 20),
            (60, vec![held(30, 10)], 40),
            (60, vec![held(30, 30)], 50),
            (10, vec![held(30, 10)], 0),
            (100, vec![loose(90)], 0),
        ] {
            let disk = Space {
                bytes: 100 * GIB,
                free: free * GIB,
            };
            let promises: Vec<Promise> = promises
                .into_iter()
                .map(|promise: Promise| Promise {
                    bytes: promise.bytes * GIB,
                    used: promise.used.map(|used| used * GIB),
                })
                .collect();
            let left = left(disk, share(80), promises.iter());
            assert_eq!(left / GIB, expected, "{free} {promises:?}");
        }
    }

    #[test]
    fn promises_are_kept_until_they_are_taken_back() {
        let base = tempfile::tempdir().unwrap();
        let disk = Disk::new(base.path(), share(50));
        assert!(disk.promises().unwrap().is_empty());
        let empty = disk.left().unwrap();
        let lock = disk.lock().unwrap();
        disk.promise("a", GIB).unwrap();
        disk.promise("a", GIB).unwrap();
        fs::write(base.path().join(PROMISES).join("torn"), "").unwrap();
        drop(lock);
        let bytes = |disk: &Disk| -> Vec<u64> {
            disk.promises()
                .unwrap()
                .values()
                .map(|promise| promise.bytes)
                .collect()
        };
        assert_eq!(bytes(&disk), [GIB]);
        assert!(disk.left().unwrap() < empty || empty == 0);
        disk.take_back("a").unwrap();
        disk.take_back("a").unwrap();
        assert!(bytes(&disk).is_empty());
    }

    #[test]
    fn a_share_is_a_percentage() {
        assert_eq!(share(80).of(200 * GIB), 160 * GIB);
        for wrong in ["0", "101", "-1", "80%", ""] {
            assert!(Share::parse(wrong).is_err(), "{wrong}");
        }
    }
}
