//! A Debian 13 machine that is no part of the image: a disk, and the kernel that starts it. For tests of what people do on
//! machines of their own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cache::Steps;
use super::debian;
use super::progress::Progress;
use super::recipe::Recipe;
use super::settings::Settings;

/// What a machine's disk is made of, below one folder.
#[derive(Clone, Debug)]
pub struct MachineSpec<'a> {
    /// Folder with `packages` and `customize`, like those below `rootfs`.
    pub recipe: &'a Path,
    /// Laid over the tree as root's files.
    pub files: &'a Path,
    pub gib: u64,
}

/// Files that start it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Raw; one ext4 file system without a partition table.
    pub disk: PathBuf,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
}

/// Makes them in the folder `to`; the tree comes from the cache, the disk is made each time.
pub fn make_machine(
    settings: &Settings,
    progress: Progress,
    spec: &MachineSpec<'_>,
    to: &Path,
) -> Result<Machine> {
    let recipe = Recipe {
        settings,
        steps: Steps::open(&settings.cache, progress)?,
    };
    let tools = recipe.tools()?;
    let tree = recipe.machine_tree(spec.recipe)?;
    let archive = to.join("machine.tar");
    fs::copy(tree.path("machine.tar"), &archive).context("copying the machine's tree")?;
    debian::unpack(&archive, &["boot"], to)?;
    debian::add_to_tree(&archive, spec.files)?;

    let disk = to.join("machine.raw");
    File::create(&disk)?.set_len(spec.gib << 30)?;
    let log = super::command::Log::create(to.join("machine.log"))?;
    tools
        .program("usr/sbin/mke2fs", &log)
        .args(["-q", "-t", "ext4", "-b", "4096", "-L", "root"])
        .args(["-E", "root_owner=0:0", "-d"])
        .arg(&archive)
        .arg(&disk)
        .run()?;
    fs::remove_file(&archive)?;
    Ok(Machine {
        disk,
        kernel: find(&to.join("boot"), "vmlinuz-")?,
        initrd: find(&to.join("boot"), "initrd.img-")?,
    })
}

fn find(folder: &Path, begin: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(begin))
        })
        .with_context(|| format!("no {begin} in {}", folder.display()))
}
