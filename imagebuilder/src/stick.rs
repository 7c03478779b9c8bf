//! What a laboratory has to know of the image that its box runs from: settings, kernel, what a snapshot depends on, and the agent,
//! which is brought into the box in seconds.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use firstlight_api::boot_choice::{KERNEL, SystemSlot};
use firstlight_api::site::parse_site;
use firstlight_artifacts::hex;
use lab::{Lab, LabSpec};
use sha2::{Digest as _, Sha256};

use crate::build::cache::digest_file;
use crate::build::settings::find_cache;
use crate::disk::{fat, gpt};
use crate::inspect::load_slot;
use crate::unpack;

const AGENT_LAYER: &str = "agent";
const AGENT: &str = "usr/bin/firstlight-agent";

/// A laboratory whose box runs from `image`; everything else is as `spec` says.
pub fn set_up_lab(image: &Path, spec: LabSpec) -> Result<Lab> {
    let spec = LabSpec {
        image: image.to_owned(),
        // A bad file is the box's to report; it then runs with the defaults, and so does the lab.
        site: parse_site(&load_site(image)?).unwrap_or_default(),
        cache: find_cache()?,
        ..spec
    };
    Lab::set_up(spec, || kernel_of_image(image))
}

fn load_site(image: &Path) -> Result<Vec<u8>> {
    Ok(file_of_image(image, "FIRSTLIGHT", "site.yaml")?.unwrap_or_default())
}

/// Read from an image.
#[derive(Debug)]
pub struct Stick {
    /// Of everything but the agent: the other layers, the files around the agent, site.yaml.
    pub digest: String,
    pub agent: PathBuf,
    pub agent_digest: String,
}

/// Unpacks the small layer with the agent into `folder`, in place of what an earlier look left there.
pub fn load_stick(image: &Path, folder: &Path) -> Result<Stick> {
    drop(fs::remove_dir_all(folder));
    let mut digest = Sha256::new();
    let table = gpt::load_table(image)?;
    let part = table.partition(SystemSlot::A.partition())?;
    let slot = load_slot(image, part)?
        .with_context(|| format!("{} has no system on it", image.display()))?;
    for layer in slot.layers.iter().filter(|layer| layer.name != AGENT_LAYER) {
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
    digest.update(load_site(image)?);
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

/// The kernel from the image's ESP.
pub fn kernel_of_image(image: &Path) -> Result<Vec<u8>> {
    match file_of_image(image, "ESP", &SystemSlot::A.boot_file(KERNEL))? {
        Some(kernel) => Ok(kernel),
        None => bail!(
            "{}: no kernel on its ESP: not an image of `firstlight build`",
            image.display()
        ),
    }
}

/// A file of one of the image's FAT partitions.
pub fn file_of_image(image: &Path, partition: &str, file: &str) -> Result<Option<Vec<u8>>> {
    let table = gpt::load_table(image)?;
    let part = table.partition(partition)?;
    let mut disk = fs::File::open(image).with_context(|| format!("opening {}", image.display()))?;
    disk.seek(SeekFrom::Start(part.offset()))?;
    let mut bytes = Vec::new();
    disk.take(part.bytes())
        .read_to_end(&mut bytes)
        .with_context(|| format!("reading {partition}"))?;
    fat::read_file(Cursor::new(bytes), file)
}
