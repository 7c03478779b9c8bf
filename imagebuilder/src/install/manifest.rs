//! What an installation has put on a machine, so that the next one and `--remove` know their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::layout::Files;

/// Beside the state that it belongs to.
pub const PATH: &str = "var/lib/firstlight/install.json";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The machine's id: state that came here on another machine's disk is not this machine's.
    pub machine: String,
    /// Name and SHA-256 of the layers below `/var/lib/firstlight/layers`.
    pub layers: BTreeMap<String, String>,
    pub files: Files,
    /// Folders that were made for them.
    pub folders: BTreeSet<PathBuf>,
}

impl Manifest {
    pub fn load(root: &Path) -> Result<Option<Self>> {
        let path = root.join(PATH);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("reading {}", path.display()))?,
        };
        serde_json::from_slice(&text)
            .map(Some)
            .with_context(|| format!("{} is damaged", path.display()))
    }

    /// After a power cut there is the old one or the new one.
    pub fn save(&self, root: &Path) -> Result<()> {
        let path = root.join(PATH);
        let new = path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().with_context(|| format!("writing {}", path.display()))
    }
}
