//! Where the kernel counts what a node uses: cgroups of either version, the only thing of a node that outlives its namespaces.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What their names begin with.
const NAME: &str = "firstlight-node";

/// Of a node.
pub fn name(number: u8) -> String {
    format!("{NAME}-{number}")
}

/// In every hierarchy.
pub fn make(number: u8) -> Result<()> {
    for parent in cgroup_folders()? {
        make_cgroup(&parent.join(name(number)))?;
    }
    Ok(())
}

/// Roots of all hierarchies, of either version.
fn cgroup_folders() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let folders = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (folder, kind) = (words.next()?, words.next()?);
        kind.starts_with("cgroup").then(|| PathBuf::from(folder))
    });
    Ok(folders.collect())
}

fn make_cgroup(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let parent = folder.parent().context("a cgroup is in a hierarchy")?;
    // Of the first version: a new one has none, and takes no process.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if parent.join(file).exists() && parent.join("cgroup.clone_children").exists() {
            fs::write(folder.join(file), fs::read(parent.join(file))?)?;
        }
    }
    Ok(())
}

/// Those of an earlier run too, whose processes are gone.
pub fn remove_all() {
    for parent in cgroup_folders().unwrap_or_default() {
        for folder in fs::read_dir(parent).into_iter().flatten().flatten() {
            if folder.file_name().to_string_lossy().starts_with(NAME) {
                remove_below(&folder.path());
            }
        }
    }
}

fn remove_below(folder: &Path) {
    for inner in fs::read_dir(folder).into_iter().flatten().flatten() {
        if inner.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&inner.path());
        }
    }
    drop(fs::remove_dir(folder));
}
