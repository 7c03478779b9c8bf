//! What a build is asked to do, checked.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::cache::Reuse;

/// The time all files in the image carry, in seconds since 1970: 2026-11-01. Same inputs, same bytes.
pub const SOURCE_DATE_EPOCH: u64 = 1_793_491_200;

/// Settings of one build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The working tree of the repository.
    pub source: PathBuf,
    /// `~/.cache/firstlight`.
    pub cache: PathBuf,
    pub output: PathBuf,
    /// Another Debian mirror than mmdebstrap's default.
    pub mirror: Option<String>,
    pub site: Option<PathBuf>,
    /// Minor versions of Kubernetes beside the one that clusters begin with: `1.37`.
    pub kubernetes: Vec<String>,
    /// The SSH key that signs the system.
    pub sign: Option<PathBuf>,
    /// Public keys of others who may sign the next one.
    pub trust: Option<PathBuf>,
    /// Whether trees of Debian packages may come from the cache.
    pub debian: Reuse,
}

impl Settings {
    pub fn rootfs(&self, name: &str) -> PathBuf {
        self.source.join("rootfs").join(name)
    }

    pub fn overlay(&self, name: &str) -> PathBuf {
        self.source.join("overlays").join(name)
    }
}

/// The working tree: the current folder or one above it, else where this program was built.
pub fn find_source() -> Result<PathBuf> {
    let is_source =
        |dir: &Path| dir.join("rootfs/box/packages").is_file() && dir.join("Cargo.toml").is_file();
    let current = env::current_dir().context("reading the current folder")?;
    let built = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned);
    let found = current
        .ancestors()
        .map(Path::to_owned)
        .chain(built)
        .find(|dir| is_source(dir));
    match found {
        Some(dir) => Ok(dir),
        None => bail!(
            "{} is not inside Firstlight's repository (no rootfs/box/packages): change into it",
            current.display()
        ),
    }
}

/// Where caches live: `$XDG_CACHE_HOME/firstlight` or `~/.cache/firstlight`.
pub fn find_cache() -> Result<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = base
        .or_else(home)
        .context("neither HOME nor XDG_CACHE_HOME is set: say where caches may live")?;
    Ok(base.join("firstlight"))
}
