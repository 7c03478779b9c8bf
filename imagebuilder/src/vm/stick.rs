//! What is on the stick of a lab's box: what a snapshot depends on, and the agent, which is brought into the box in seconds.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};

use super::accel::file_of_image;
use crate::build::cache::digest_file;
use crate::disk::gpt;
use crate::inspect::load_slot;
use crate::unpack;

const AGENT_LAYER: &str = "agent";
const AGENT: &str = "usr/bin/firstlight-agent";

/// Read from an image.
#[derive(Debug)]
pub struct Stick {
    /// Of everything but the agent: the other layers, the files around the agent, site.yaml.
    pub digest: String,
    pub agent: PathBuf,
    pub agent_digest: String,
}

/// Unpacks the small layer with the agent into `folder`, which must not be there.
pub fn load_stick(image: &Path, folder: &Path) -> Result<Stick> {
    let mut digest = Sha256::new();
    let table = gpt::load_table(image)?;
    let part = table.partition("system-a")?;
    let slot = load_slot(image, part)?
        .with_context(|| format!("{} has no system on it", image.display()))?;
    for layer in slot.iter().filter(|layer| layer.name != AGENT_LAYER) {
        digest.update(format!("{} {}\n", layer.name, layer.sha256));
    }
    unpack::layer(image, AGENT_LAYER, folder)?;
    let mut files = BTreeMap::new();
    list(folder, Path::new(""), &mut files)?;
    let agent_digest = files
        .remove(Path::new(AGENT))
        .with_context(|| format!("{} has no {AGENT}", image.display()))?;
    for (name, content) in &files {
        digest.update(format!("{} {content}\n", name.display()));
    }
    digest.update(file_of_image(image, "FIRSTLIGHT", "site.yaml")?.unwrap_or_default());
    Ok(Stick {
        digest: hex(&digest.finalize()),
        agent: folder.join(AGENT),
        agent_digest,
    })
}

/// Every file below `folder/under` with what is in it.
fn list(folder: &Path, under: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    let here = folder.join(under);
    for entry in fs::read_dir(&here).with_context(|| format!("reading {}", here.display()))? {
        let entry = entry?;
        let (name, kind) = (under.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            list(folder, &name, files)?;
        } else if kind.is_symlink() {
            files.insert(name, fs::read_link(entry.path())?.display().to_string());
        } else if name == Path::new(AGENT) {
            files.insert(name, digest_file(&entry.path())?);
        } else {
            let mode = entry.metadata()?.permissions().mode();
            let content = digest_file(&entry.path())?;
            files.insert(name, format!("{mode:o} {content}"));
        }
    }
    Ok(())
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
