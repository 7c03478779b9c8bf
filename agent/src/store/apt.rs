//! The apt repository of uploaded packages: `pool` holds the files, `dists/uploads` the signed index over them.
//!
//! The key is made on the box at first use and signs nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use firstlight_api::repository::UPLOADS;
use firstlight_artifacts::{
    apt::{self, Package, Suite, key::SigningKey},
    deb::read_control,
};
use time::{OffsetDateTime, format_description::well_known::Rfc2822};

use crate::{
    files::{self, Access},
    keep::{self, Kept, Reader},
};

const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
const POOL: &str = "pool";
const BY_HASH: &str = "by-hash/SHA256";

/// A verified file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deb {
    pub path: PathBuf,
    pub size: u64,
    pub sha256: String,
}

#[derive(Clone, Debug)]
pub struct Repository {
    /// Served to everybody.
    pub dir: PathBuf,
    /// Below the same file system as the packages, which get a second name here.
    pub key: PathBuf,
}

impl Repository {
    /// Makes the repository hold exactly these; `now` in seconds since 1970. May be cut and repeated at any point.
    pub fn rebuild(&self, debs: &[Deb], now: i64) -> Result<()> {
        let key = self.load_or_make_key(now, &|path| fs::read(path))?;
        let mut packages = BTreeMap::new();
        for deb in debs {
            let file =
                File::open(&deb.path).with_context(|| format!("opening {}", deb.path.display()))?;
            let control =
                read_control(file).with_context(|| format!("reading {}", deb.path.display()))?;
            let filename = apt::filename(&control)?;
            self.link(&deb.path, &filename)?;
            let package = Package {
                control,
                filename: filename.clone(),
                size: deb.size,
                sha256: deb.sha256.clone(),
            };
            packages.insert(filename, package);
        }
        let all: Vec<Package> = packages.values().cloned().collect();
        self.write_indexes(&all, &key, now)?;
        self.forget_all_but(&packages.into_keys().collect())
    }

    fn load_or_make_key(&self, now: i64, reader: Reader) -> Result<SigningKey> {
        if let Some(armored) = keep::read_text(&self.key, reader)? {
            return SigningKey::parse(&armored)
                .map_err(anyhow::Error::from)
                .map_err(|error| Kept::damaged(&self.key, format!("{error:#}")).into());
        }
        // Servers have this half of it, and believe no other.
        let public = self.dir.join(format!("{UPLOADS}.asc"));
        if keep::read(&public, reader)?.is_some() {
            return Err(Kept::Gone {
                path: self.key.clone(),
                made: public,
            }
            .into());
        }
        let key = SigningKey::make(
            rand::rngs::OsRng,
            "Firstlight uploads of this box",
            seconds(now),
        )?;
        files::write(&self.key, key.secret()?.as_bytes(), Access::Owner)?;
        Ok(key)
    }

    fn link(&self, deb: &Path, filename: &str) -> Result<()> {
        let path = self.dir.join(filename);
        if path.exists() {
            return Ok(());
        }
        fs::create_dir_all(path.parent().unwrap_or(&self.dir))
            .and_then(|()| fs::hard_link(deb, &path))
            .with_context(|| format!("making {}", path.display()))
    }

    fn write_indexes(&self, all: &[Package], key: &SigningKey, now: i64) -> Result<()> {
        let date = OffsetDateTime::from_unix_timestamp(now)?.format(&Rfc2822)?;
        let suite = Suite {
            name: UPLOADS,
            architectures: &ARCHITECTURES,
            date: &date,
        };
        for (path, content) in apt::files(&suite, all, key, seconds(now))? {
            let path = self.dir.join(path);
            write(&path, &content)?;
            if path.ends_with(Path::new(BY_HASH).join(path.file_name().unwrap_or_default())) {
                forget_old_indexes(&path)?;
            }
        }
        Ok(())
    }

    /// Files that left the index.
    fn forget_all_but(&self, filenames: &BTreeSet<String>) -> Result<()> {
        let pool = self.dir.join(POOL);
        let Ok(folders) = fs::read_dir(&pool) else {
            return Ok(());
        };
        for folder in folders {
            let folder = folder?.path();
            for file in fs::read_dir(&folder)? {
                let file = file?.path();
                let name = file
                    .strip_prefix(&self.dir)
                    .unwrap_or(&file)
                    .to_string_lossy()
                    .into_owned();
                if !filenames.contains(&name) {
                    fs::remove_file(&file)
                        .with_context(|| format!("removing {}", file.display()))?;
                }
            }
            // Not empty, or it is gone.
            let _ = fs::remove_dir(&folder);
        }
        Ok(())
    }
}

/// Beside this index the one before stays: somebody may be reading it.
fn forget_old_indexes(index: &Path) -> Result<()> {
    let folder = index.parent().unwrap_or(index);
    let mut old = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        if file.path() != index {
            old.push((file.metadata()?.modified()?, file.path()));
        }
    }
    old.sort();
    old.pop();
    for (_, path) in old {
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

fn write(path: &Path, content: &str) -> Result<()> {
    files::make_dir(path.parent().unwrap_or(path), 0o755)?;
    files::write(path, content.as_bytes(), Access::Everybody)
}

/// `OpenPGP` counts in 32 bits.
fn seconds(now: i64) -> u32 {
    u32::try_from(now).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        io,
        time::{Duration, SystemTime},
    };

    use super::*;

    fn repository() -> (tempfile::TempDir, Repository) {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository {
            dir: dir.path().join("apt"),
            key: dir.path().join("key.asc"),
        };
        (dir, repository)
    }

    #[test]
    fn of_each_index_two_stay() {
        let (_dir, repository) = repository();
        let folder = repository
            .dir
            .join("dists/uploads/main/binary-amd64/by-hash/SHA256");
        fs::create_dir_all(&folder).unwrap();
        let age = |name: &str, seconds| {
            let file = File::create(folder.join(name)).unwrap();
            let time = SystemTime::now() - Duration::from_secs(seconds);
            file.set_modified(time).unwrap();
        };
        age("older", 200);
        age("old", 100);
        age("oldest", 300);
        repository.rebuild(&[], 1_790_000_000).unwrap();
        let names: BTreeSet<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names.contains("old"));
    }

    #[test]
    fn a_key_that_servers_trust_is_never_replaced() {
        let (_dir, repository) = repository();
        let load = |reader: Reader| repository.load_or_make_key(1_790_000_000, reader);
        let real: Reader = &|path| fs::read(path);
        repository.rebuild(&[], 1_790_000_000).unwrap();
        let key = fs::read(&repository.key).unwrap();
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::Other] {
            assert!(load(&|_| Err(kind.into())).is_err(), "{kind}");
        }
        assert_eq!(fs::read(&repository.key).unwrap(), key);
        for damaged in [&b""[..], b"garbage", &[0xff; 9], &key[..key.len() / 2]] {
            fs::write(&repository.key, damaged).unwrap();
            assert!(load(real).is_err(), "{damaged:?}");
            assert_eq!(fs::read(&repository.key).unwrap(), damaged);
        }
        fs::remove_file(&repository.key).unwrap();
        let error = load(real).unwrap_err();
        let kept: &Kept = error.downcast_ref().unwrap();
        assert!(matches!(kept, Kept::Gone { .. }), "{kept}");
        assert!(!repository.key.exists());
    }
}
