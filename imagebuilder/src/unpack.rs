//! `firstlight unpack`: the files of a stick's system, as the box sees them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::UsageError;
use crate::disk::gpt;
use crate::inspect::load_slot;

#[derive(Debug, Args)]
pub struct UnpackArgs {
    /// Image file or device
    image: PathBuf,
    /// Folder to make
    folder: PathBuf,
    /// Only this layer of the system (`firstlight inspect` lists them); may be given several times
    #[arg(long = "layer", value_name = "NAME")]
    layers: Vec<String>,
}

/// Files belong to whoever unpacks them; where two layers have the same file, the upper one's is left.
///
/// # Errors
/// Also when the folder is there already, or a layer is not.
pub fn unpack(args: &UnpackArgs) -> Result<()> {
    let plan = gpt::load_table(&args.image)?;
    let mut slots = plan
        .partitions
        .iter()
        .filter(|part| part.kind == gpt::SYSTEM);
    let (part, slot) = slots
        .find_map(|part| {
            let slot = load_slot(&args.image, part).transpose()?;
            Some(slot.map(|slot| (part, slot)))
        })
        .with_context(|| format!("{} has no system on it", args.image.display()))??;
    let slot = slot.layers;
    for name in &args.layers {
        if !slot.iter().any(|layer| layer.name == *name) {
            let names: Vec<&str> = slot.iter().map(|layer| layer.name.as_str()).collect();
            let names = names.join(", ");
            return Err(UsageError(format!("no layer `{name}`; there are {names}")).into());
        }
    }
    if args.folder.exists() {
        bail!(
            "{} is there already; name a new folder",
            args.folder.display()
        );
    }
    fs::create_dir_all(&args.folder)
        .with_context(|| format!("making {}", args.folder.display()))?;
    let wanted = |name: &String| args.layers.is_empty() || args.layers.contains(name);
    for layer in slot.iter().rev().filter(|layer| wanted(&layer.name)) {
        unpack_layer(&args.image, part.offset() + layer.offset, &args.folder)
            .with_context(|| format!("unpacking layer {}", layer.name))?;
    }
    Ok(())
}

/// One layer of an image, into a folder that is not there yet.
pub fn layer(image: &Path, name: &str, folder: &Path) -> Result<()> {
    unpack(&UnpackArgs {
        image: image.to_owned(),
        folder: folder.to_owned(),
        layers: vec![name.to_owned()],
    })
}

fn unpack_layer(image: &Path, offset: u64, folder: &Path) -> Result<()> {
    let output = Command::new("unsquashfs")
        .args(["-quiet", "-no-progress", "-force", "-no-xattrs", "-offset"])
        .arg(offset.to_string())
        .arg("-dest")
        .arg(folder)
        .arg(image)
        .output()
        .context("starting unsquashfs; install the Debian package squashfs-tools")?;
    ensure!(
        output.status.success(),
        "unsquashfs: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
