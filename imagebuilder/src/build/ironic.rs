//! Ironic's container image: Debian's Python, wheels from the Python package index, and the steps that `rootfs/ironic/README.md` lists.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::cache::{Output, Work};
use super::debian::{TreeSpec, bootstrap_with, pack_overlay};
use super::settings::Settings;
use super::wheels;

/// Where Debian's Python 3.13 looks for packages that do not come from Debian.
const PACKAGES: &str = "usr/local/lib/python3.13/dist-packages";

/// Ironic and what it needs.
pub fn install_wheels(work: &Work, requirements: &Path) -> Result<()> {
    wheels::install(work, requirements, &work.path("overlay").join(PACKAGES))
}

/// Puts Debian's packages, the wheels and our launcher together.
pub fn make_tree(work: &Work, settings: &Settings, spec: &TreeSpec, wheels: &Output) -> Result<()> {
    let scratch = work.path("overlay");
    let share = scratch.join("usr/share/ironic");
    fs::create_dir_all(&share)?;
    fs::copy(spec.recipe.join("launch.py"), share.join("launch.py"))?;
    fs::copy(spec.recipe.join("finish.py"), scratch.join("finish.py"))?;
    pack_overlay(&scratch, ".", &work.path("ours.tar"))?;
    pack_overlay(&wheels.path("overlay"), ".", &work.path("wheels.tar"))?;
    let hooks = [
        format!("tar-in {} /", work.path("wheels.tar").display()),
        format!("tar-in {} /", work.path("ours.tar").display()),
        "chroot \"$1\" /usr/bin/python3 /finish.py && rm \"$1/finish.py\"".to_owned(),
    ];
    bootstrap_with(work, settings, spec, "ironic", &hooks)?;
    fs::remove_dir_all(&scratch)?;
    fs::remove_file(work.path("ours.tar"))?;
    Ok(fs::remove_file(work.path("wheels.tar"))?)
}
