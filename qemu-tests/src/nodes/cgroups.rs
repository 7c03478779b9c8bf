//! Where the kernel counts what a node uses: cgroups of either version, the only thing of a node that outlives its namespaces.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What their names begin with.
const NAME: &str = "firstlight-node";
/// In no name of a place.
const SEPARATOR: char = '+';

/// Of a node; other clusters have other places.
pub fn name(place: &Path, number: u8) -> String {
    let place = place.file_name().unwrap_or_default().to_string_lossy();
    format!("{NAME}{SEPARATOR}{place}{SEPARATOR}{number}")
}

/// In every hierarchy.
pub fn make(name: &str) -> Result<()> {
    for parent in cgroup_folders()? {
        make_cgroup(&parent.join(name))?;
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

/// Of all clusters whose places, folders in `places`, are gone.
pub fn remove_left(places: &Path) {
    let is_left = |name: &str| {
        let mut words = name.split(SEPARATOR);
        let place = (words.next() == Some(NAME)).then(|| words.next())??;
        Some(!places.join(place).exists())
    };
    for parent in cgroup_folders().unwrap_or_default() {
        for folder in fs::read_dir(parent).into_iter().flatten().flatten() {
            if is_left(&folder.file_name().to_string_lossy()) == Some(true) {
                remove_below(&folder.path());
            }
        }
    }
}

/// Once nothing runs in it any more: after its start a kubelet asks for each that is left, seconds long.
pub fn remove(name: &str) -> Result<()> {
    for parent in cgroup_folders()? {
        remove_below(&parent.join(name));
    }
    Ok(())
}

fn remove_below(folder: &Path) {
    for inner in fs::read_dir(folder).into_iter().flatten().flatten() {
        if inner.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&inner.path());
        }
    }
    drop(fs::remove_dir(folder));
}
