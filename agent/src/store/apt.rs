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

use crate::files::{self, Access};

const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
const POOL: &str = "pool";

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
        let key = self.load_or_make_key(now)?;
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

    fn load_or_make_key(&self, now: i64) -> Result<SigningKey> {
        if let Ok(armored) = fs::read_to_string(&self.key) {
            return SigningKey::parse(&armored)
                .with_context(|| format!("reading {}", self.key.display()));
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
            write(&self.dir.join(path), &content)?;
        }
        Ok(())
    }

    /// Files that left the index. Old indexes stay: they are small, and somebody may be reading them.
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

fn write(path: &Path, content: &str) -> Result<()> {
    files::make_dir(path.parent().unwrap_or(path), 0o755)?;
    files::write(path, content.as_bytes(), Access::Everybody)
}

/// `OpenPGP` counts in 32 bits.
fn seconds(now: i64) -> u32 {
    u32::try_from(now).unwrap_or(u32::MAX)
}
