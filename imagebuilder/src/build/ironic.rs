//! Ironic's container image: Debian's Python, wheels from the Python package index, and the steps that `rootfs/ironic/README.md` lists.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::cache::{Output, Work};
use super::command::Program;
use super::debian::{TreeSpec, bootstrap_with, load_list, pack_overlay};
use super::settings::Settings;

/// Where Debian's Python 3.13 looks for packages that do not come from Debian.
const PACKAGES: &str = "usr/local/lib/python3.13/dist-packages";

/// A package of the Python index.
#[derive(Debug, PartialEq, Eq)]
pub struct Wheel {
    pub name: String,
    pub version: String,
}

/// What `requirements.txt` pins, line by line: `NAME==VERSION --hash=…`.
pub fn load_wheels(requirements: &Path) -> Result<Vec<Wheel>> {
    let lines = load_list(requirements)?;
    lines
        .iter()
        .map(|line| {
            let pinned = line.split_whitespace().next().unwrap_or_default();
            let (name, version) = pinned
                .split_once("==")
                .with_context(|| format!("{}: `{line}` pins no version", requirements.display()))?;
            Ok(Wheel {
                name: name.to_owned(),
                version: version.to_owned(),
            })
        })
        .collect()
}

/// Installs the wheels of `requirements.txt` for Python 3.13, whatever Python the build host has.
pub fn install_wheels(work: &Work, requirements: &Path) -> Result<()> {
    let count = load_wheels(requirements)?.len();
    work.log.note(&format!("{count} packages"))?;
    let venv = work.path("venv");
    Program::new("python3", &work.log)
        .args(["-m", "venv"])
        .arg(&venv)
        .run()?;
    let target = work.path("overlay").join(PACKAGES);
    Program::new(venv.join("bin/pip"), &work.log)
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .args(["install", "--no-input", "--target"])
        .arg(&target)
        .args(["--python-version", "3.13", "--implementation", "cp"])
        .args(
            [
                "manylinux_2_34_x86_64",
                "manylinux_2_28_x86_64",
                "manylinux2014_x86_64",
            ]
            .iter()
            .flat_map(|name| ["--platform", name]),
        )
        .args([
            // Nothing else than what was looked at, whoever serves it.
            "--require-hashes",
            "--only-binary=:all:",
            "--ignore-requires-python",
            "--no-deps",
            "--no-compile",
            "--requirement",
        ])
        .arg(requirements)
        .run()?;
    fs::remove_dir_all(&venv)?;
    Ok(())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_wheel_of_ours_is_pinned_by_version_and_content() {
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rootfs/ironic/requirements.txt");
        assert!(
            load_wheels(&list)
                .unwrap()
                .iter()
                .any(|wheel| wheel.name == "ironic")
        );
        for line in load_list(&list).unwrap() {
            let (_, hash) = line.split_once(" --hash=sha256:").expect(&line);
            assert_eq!(hash.len(), 64, "{line}");
        }
    }

    #[test]
    fn a_line_without_a_version_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("list");
        fs::write(&list, "# comment\nironic>=3 --hash=sha256:0\n").unwrap();
        let told = load_wheels(&list).unwrap_err().to_string();
        assert!(
            told.contains("`ironic>=3 --hash=sha256:0` pins no version"),
            "{told}"
        );
    }
}
