//! The image that a machine is made of: its layers, checked, mounted to be read from, and copied.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use firstlight_api::slot::Layer;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use super::system::run;
use crate::build::cache::digest_file;
use crate::disk::{fat, gpt};
use crate::inspect::{check_layer, files_of, load_slot, window};

/// Kept as they are and mounted by the box: what is in them is served, or is what containers run from.
pub const KEPT: [&str; 3] = ["payload", "registry", "images"];
/// Looked into for an installation: two whose files are laid over the machine's, and the one that is served.
const READ: [&str; 3] = ["agent", "kube", "payload"];

#[derive(Debug)]
pub struct Source {
    image: PathBuf,
    /// Of the system slot.
    offset: u64,
    slot: Vec<Layer>,
    site: Vec<u8>,
}

impl Source {
    /// Refuses what is no image, or one whose layers do not have the digests of its slot table.
    pub fn open(image: &Path) -> Result<Self> {
        let plan = gpt::load_table(image)?;
        for part in plan
            .partitions
            .iter()
            .filter(|part| part.kind == gpt::SYSTEM)
        {
            let Some(slot) = load_slot(image, part)? else {
                continue;
            };
            let data = plan.partition("FIRSTLIGHT")?;
            let data = files_of(image, data)?;
            let source = Self {
                image: image.to_owned(),
                offset: part.offset(),
                slot: slot.layers,
                site: fat::read_file(data, "site.yaml")?.unwrap_or_default(),
            };
            for name in ["agent", "kube"].iter().chain(&KEPT) {
                check_layer(image, part, source.layer(name)?)?;
            }
            return Ok(source);
        }
        bail!("{} has no system on it", image.display())
    }

    /// The settings on the image.
    pub fn site(&self) -> &[u8] {
        &self.site
    }

    pub fn layer(&self, name: &str) -> Result<&Layer> {
        let found = self.slot.iter().find(|layer| layer.name == name);
        found.with_context(|| format!("{} has no layer {name}", self.image.display()))
    }

    /// Layers as folders. Only this process sees the mounts, and they end with it.
    pub fn mount(&self) -> Result<Trees> {
        unshare(CloneFlags::CLONE_NEWNS).context("making a mount namespace (are you root?)")?;
        mount(
            None::<&str>,
            "/",
            None::<&str>,
            MsFlags::MS_REC | MsFlags::MS_SLAVE,
            None::<&str>,
        )
        .context("keeping mounts to this process")?;
        let trees = Trees(TempDir::new().context("making a folder to mount layers in")?);
        for name in READ {
            let layer = self.layer(name)?;
            let folder = trees.path(name);
            fs::create_dir(&folder)?;
            let options = format!(
                "loop,ro,nodev,nosuid,offset={},sizelimit={}",
                self.offset + layer.offset,
                layer.length
            );
            run(
                "mount",
                [
                    "-t".as_ref(),
                    "squashfs".as_ref(),
                    "-o".as_ref(),
                    options.as_ref(),
                    self.image.as_os_str(),
                    folder.as_os_str(),
                ],
            )?;
        }
        Ok(trees)
    }

    /// The file appears when it is complete and on the disk.
    pub fn copy_layer(&self, name: &str, to: &Path) -> Result<()> {
        let layer = self.layer(name)?;
        let mut from = window(&self.image, self.offset + layer.offset, layer.length)?;
        let new = to.with_extension("new");
        let mut file = File::create(&new).with_context(|| format!("creating {}", new.display()))?;
        std::io::copy(&mut from, &mut file).with_context(|| format!("copying layer {name}"))?;
        file.sync_all()
            .with_context(|| format!("writing {}", new.display()))?;
        let found = digest_file(&new)?;
        ensure!(
            found == layer.sha256.to_string(),
            "the copy of layer {name} has digest {found}, and the slot table says {}: did {} change?",
            layer.sha256,
            self.image.display()
        );
        fs::rename(&new, to).with_context(|| format!("naming {}", to.display()))
    }
}

/// Mounted layers, a folder each.
pub struct Trees(TempDir);

impl Trees {
    pub fn path(&self, layer: &str) -> PathBuf {
        self.0.path().join(layer)
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        for name in READ {
            // One that was not mounted any more, or not yet, is gone as well.
            let _ = umount2(&self.path(name), MntFlags::MNT_DETACH);
        }
    }
}
