//! Lays files down and takes them away, so that a cut at any moment leaves a machine that the next run knows.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::layout::{Files, Item, LayoutPlan, Shape};
use super::manifest::Manifest;
use super::observe::observe_shape;

/// The manifest says first what may come, and at the end what is there.
pub fn lay_out(root: &Path, plan: &LayoutPlan, manifest: &mut Manifest) -> Result<()> {
    for (path, shapes) in &plan.files {
        let known = manifest.files.entry(path.clone()).or_default();
        known.extend(shapes.iter().cloned());
    }
    for item in &plan.write {
        manifest.folders.extend(missing_folders(root, &item.path));
    }
    manifest.save(root)?;
    for item in &plan.write {
        place(root, item).with_context(|| format!("writing /{}", item.path.display()))?;
    }
    for path in &plan.remove {
        remove_file(&root.join(path))?;
    }
    // Names and contents are on the disk before the manifest forgets the old ones.
    nix::unistd::sync();
    manifest.files.clone_from(&plan.files);
    manifest.save(root)
}

fn missing_folders(root: &Path, path: &Path) -> BTreeSet<PathBuf> {
    let folders = path.ancestors().skip(1);
    folders
        .filter(|folder| !root.join(folder).exists())
        .map(Path::to_owned)
        .collect()
}

/// Under another name first: what runs keeps its old file, and nobody sees half of the new one.
fn place(root: &Path, item: &Item) -> Result<()> {
    let to = root.join(&item.path);
    let folder = to.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)?;
    let mut name = to.file_name().context("a file has a name")?.to_owned();
    name.push(".firstlight-new");
    let new = folder.join(name);
    remove_file(&new)?;
    match &item.shape {
        Shape::Link(target) => symlink(target, &new)?,
        Shape::File { mode, .. } => {
            fs::copy(&item.from, &new)?;
            fs::set_permissions(&new, Permissions::from_mode(*mode))?;
        }
        Shape::Other => bail!("the image has neither a file nor a link there"),
    }
    if observe_shape(&new)?.as_ref() != Some(&item.shape) {
        bail!("the copy is not what the image has: did the image change?");
    }
    Ok(fs::rename(&new, &to)?)
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.with_context(|| format!("removing {}", path.display())),
    }
}

/// Takes away what the manifest lists. Files that somebody changed stay, and are returned.
pub fn take_away(root: &Path, manifest: &mut Manifest) -> Result<Vec<PathBuf>> {
    let mut left = Files::new();
    for (path, shapes) in &manifest.files {
        match observe_shape(&root.join(path))? {
            Some(shape) if shapes.contains(&shape) => remove_file(&root.join(path))?,
            Some(_) => drop(left.insert(path.clone(), shapes.clone())),
            None => {}
        }
    }
    // The deepest first; one that somebody else uses by now stays.
    for folder in manifest.folders.iter().rev() {
        let _ = fs::remove_dir(root.join(folder));
    }
    manifest.folders.retain(|folder| root.join(folder).exists());
    manifest.files = left;
    Ok(manifest.files.keys().cloned().collect())
}
