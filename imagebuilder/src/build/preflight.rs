//! Everything that can go wrong before the first step, checked at once and told with what to do.

use std::env;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::settings::Settings;
use crate::UsageError;

/// Programs that a build starts on the build host, and the Debian package that brings each.
const TOOLS: &[(&str, &str)] = &[
    ("mmdebstrap", "mmdebstrap"),
    ("tar", "tar"),
    ("cc", "build-essential"),
    ("cargo", "cargo (or https://rustup.rs)"),
    ("rustc", "rustc (or https://rustup.rs)"),
    ("go", "golang-go 1.26 or newer (https://go.dev/dl)"),
    ("python3", "python3"),
];

/// Room that a first build needs below the cache folder; later builds need less.
const CACHE_ROOM: u64 = 16 << 30;
/// The same when the cache is filled.
const WARM_ROOM: u64 = 4 << 30;
const OUTPUT_ROOM: u64 = 2 << 30;

/// Refuses a build that cannot succeed.
pub fn check(settings: &Settings) -> Result<()> {
    let mut problems = missing_tools(TOOLS, &search_path());
    problems.extend(python_problem());
    problems.extend(user_namespace_problem());
    problems.extend(output_problem(&settings.output));
    let filled = settings.cache.join("steps/base").exists();
    problems.extend(room_problem(
        &settings.cache,
        if filled { WARM_ROOM } else { CACHE_ROOM },
    ));
    problems.extend(room_problem(output_folder(&settings.output), OUTPUT_ROOM));
    if problems.is_empty() {
        return Ok(());
    }
    Err(UsageError(format!(
        "this build cannot start:\n  - {}",
        problems.join("\n  - ")
    ))
    .into())
}

fn search_path() -> Vec<PathBuf> {
    env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default()
}

fn missing_tools(tools: &[(&str, &str)], path: &[PathBuf]) -> Vec<String> {
    let found = |tool: &str| path.iter().any(|dir| dir.join(tool).is_file());
    let missing = tools.iter().filter(|(tool, _)| !found(tool));
    missing
        .map(|(tool, package)| {
            format!(
                "{tool} is missing: install the Debian package {package}, or run scripts/bootstrap"
            )
        })
        .collect()
}

/// Debian splits the part of Python that makes virtual environments into a package of its own.
fn python_problem() -> Option<String> {
    let output = Command::new("python3")
        .args(["-c", "import venv, ensurepip"])
        .output()
        .ok()?;
    (!output.status.success()).then(|| {
        "python3 cannot make virtual environments: install the Debian package python3-venv"
            .to_owned()
    })
}

/// Without root, mmdebstrap needs a range of user numbers and the helpers that map them.
fn user_namespace_problem() -> Option<String> {
    if nix::unistd::geteuid().is_root() {
        return None;
    }
    if !search_path()
        .iter()
        .chain([&PathBuf::from("/usr/bin")])
        .any(|dir| dir.join("newuidmap").is_file())
    {
        return Some(
            "newuidmap is missing, and this is not root: install the Debian package uidmap"
                .to_owned(),
        );
    }
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .ok()
        .flatten()?
        .name;
    let listed = |file: &str| {
        fs::read_to_string(file).is_ok_and(|text| {
            text.lines()
                .any(|line| line.starts_with(&format!("{user}:")))
        })
    };
    if listed("/etc/subuid") && listed("/etc/subgid") {
        return None;
    }
    Some(format!(
        "user {user} has no range in /etc/subuid and /etc/subgid: run `sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}`"
    ))
}

fn output_problem(output: &Path) -> Option<String> {
    let Ok(data) = fs::metadata(output) else {
        let folder = output_folder(output);
        return (!folder.is_dir()).then(|| {
            format!(
                "the folder {} of the output does not exist: create it",
                folder.display()
            )
        });
    };
    if data.file_type().is_block_device() {
        return Some(format!(
            "{0} is a device: build to a file, then write it with `firstlight flash FILE {0}`",
            output.display()
        ));
    }
    (!data.is_file()).then(|| {
        format!(
            "{} is not a regular file: choose another name with -o",
            output.display()
        )
    })
}

/// The folder that a file is written to.
pub fn output_folder(output: &Path) -> &Path {
    match output.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn room_problem(folder: &Path, needed: u64) -> Option<String> {
    let existing = folder
        .ancestors()
        .find(|dir| dir.exists())
        .unwrap_or(Path::new("/"));
    let free = free_bytes(existing).ok()?;
    (free < needed).then(|| {
        format!(
            "{} has {:.1} GB free, and the build needs {:.0} GB there: make room",
            existing.display(),
            gigabytes(free),
            gigabytes(needed)
        )
    })
}

fn free_bytes(folder: &Path) -> Result<u64> {
    let stat = nix::sys::statvfs::statvfs(folder)
        .with_context(|| format!("reading the free space of {}", folder.display()))?;
    Ok(stat.blocks_available() * stat.fragment_size())
}

#[allow(clippy::cast_precision_loss)] // shown with one digit after the point
fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_missing_tool_is_named_with_its_package() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("here"), "").unwrap();
        let problems = missing_tools(
            &[
                ("here", "a"),
                ("one", "package-one"),
                ("two", "package-two"),
            ],
            &[dir.path().to_owned()],
        );
        assert_eq!(problems.len(), 2);
        assert!(
            problems[0].contains("one is missing") && problems[0].contains("package-one"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_device_or_a_folder_is_no_output() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(output_problem(&dir.path().join("new.img")), None);
        assert!(
            output_problem(dir.path())
                .unwrap()
                .contains("not a regular file")
        );
        assert!(
            output_problem(&dir.path().join("no/new.img"))
                .unwrap()
                .contains("does not exist")
        );
        assert_eq!(output_folder(Path::new("x.img")), Path::new("."));
    }

    #[test]
    fn too_little_room_is_told_with_both_numbers() {
        let problem = room_problem(Path::new("/"), u64::MAX).unwrap();
        assert!(
            problem.contains("free") && problem.contains("needs"),
            "{problem}"
        );
        assert_eq!(room_problem(Path::new("/"), 0), None);
    }
}
