//! Our own programs, compiled for the image with cargo, and what they are compiled from.

use std::env;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::cache::Work;
use super::command::{Log, Program};
use super::settings::Settings;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Of the workspace's Cargo.toml: like release, but a changed crate is linked in seconds.
const PROFILE: &str = "image";

/// Version of the Rust compiler.
pub fn rust_version(log: &Log) -> Result<String> {
    Ok(Program::new("rustc", log)
        .arg("--version")
        .read()?
        .trim()
        .to_owned())
}

/// The crates of this workspace, as cargo knows them.
#[derive(Deserialize)]
pub struct Workspace {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    /// Of a crate of this workspace.
    path: Option<PathBuf>,
    kind: Option<String>,
}

impl Package {
    fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }
}

impl Workspace {
    pub fn load(source: &Path, log: &Log) -> Result<Self> {
        let text = cargo(source, log)
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .read()?;
        serde_json::from_str(&text).context("what `cargo metadata` said of the workspace")
    }

    /// What the crate `package` is compiled from: its folder and those of the crates below it. Where others live in a folder, too,
    /// only what is its own.
    pub fn sources(&self, package: &str) -> Vec<PathBuf> {
        let find = |folder: &Path| self.packages.iter().find(|found| found.folder() == folder);
        let mut used: Vec<&Package> = self
            .packages
            .iter()
            .filter(|found| found.name == package)
            .collect();
        let mut next = 0;
        while let Some(package) = used.get(next) {
            next += 1;
            for dependency in &package.dependencies {
                let below = dependency.path.as_deref().and_then(find);
                if let Some(below) = below.filter(|_| dependency.kind.as_deref() != Some("dev"))
                    && !used.iter().any(|known| known.name == below.name)
                {
                    used.push(below);
                }
            }
        }
        let mut paths: Vec<PathBuf> = used.into_iter().flat_map(|used| self.own(used)).collect();
        paths.sort();
        paths
    }

    fn own(&self, package: &Package) -> Vec<PathBuf> {
        let folder = package.folder();
        let shared = self
            .packages
            .iter()
            .any(|other| other.folder() != folder && other.folder().starts_with(folder));
        if shared {
            vec![package.manifest_path.clone(), folder.join("src")]
        } else {
            vec![folder.to_owned()]
        }
    }
}

fn cargo(source: &Path, log: &Log) -> Program {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Program::new(program, log).current_dir(source)
}

/// Builds one of our own programs, named like its crate, as a static binary and copies it to `out`.
///
/// Static, because it then runs on any base and as PID 1; in a target folder of its own, so that the flags do not rebuild
/// what `cargo test` has built.
pub fn build_rust(work: &Work, settings: &Settings, package: &str, out: &Path) -> Result<()> {
    let target = settings.cache.join("target-image");
    let cargo = || cargo(&settings.source, &work.log).env("CARGO_TARGET_DIR", &target);
    forget_other_checkouts(&settings.source, &target, &work.log, cargo)?;
    cargo()
        .env("RUSTFLAGS", rust_flags())
        .args([
            "build",
            "--profile",
            PROFILE,
            "--locked",
            "--target",
            TARGET,
            "--package",
            package,
            "--bin",
            package,
        ])
        .run()?;
    let built = target.join(TARGET).join(PROFILE).join(package);
    fs::copy(&built, out).with_context(|| format!("copying {}", built.display()))?;
    Ok(())
}

/// Cargo gives our crates the same names in every checkout and compares times, not contents: what another checkout has
/// compiled would count as this one's. Other crates stay.
fn forget_other_checkouts(
    source: &Path,
    target: &Path,
    log: &Log,
    cargo: impl Fn() -> Program,
) -> Result<()> {
    let mark = target.join("checkout");
    let here = source.as_os_str().as_bytes();
    if fs::read(&mark).is_ok_and(|last| last == here) {
        return Ok(());
    }
    let workspace = Workspace::load(source, log)?;
    let names = workspace.packages.iter().map(|package| &package.name);
    cargo()
        .args(["clean", "--quiet", "--profile", PROFILE, "--target", TARGET])
        .args(names.flat_map(|name| ["--package", name]))
        .run()?;
    fs::create_dir_all(target)
        .and_then(|()| fs::write(&mark, here))
        .with_context(|| format!("writing {}", mark.display()))
}

/// Paths of the build machine stay out of the binaries. Cargo compiles the workspace by relative paths; naming its folder
/// here would compile every crate again in the next clone.
fn rust_flags() -> String {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let remap = home.map(|home| format!(" --remap-path-prefix={}=/cargo", home.display()));
    format!("-C target-feature=+crt-static{}", remap.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_program_is_made_from_the_crates_below_it() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let log = Log::create(dir.path().join("log")).unwrap();
        let workspace = Workspace::load(source, &log).unwrap();
        let names = |package: &str| -> Vec<String> {
            let sources = workspace.sources(package);
            let name = |path: &PathBuf| path.strip_prefix(source).unwrap().display().to_string();
            sources.iter().map(name).collect()
        };
        assert_eq!(
            names("firstlight-bootstrap"),
            [
                "agent/api",
                "agent/bootstrap",
                "agent/client",
                "agent/efi",
                "agent/ipmi",
                "agent/kexec"
            ]
        );
        // Other crates are in the agent's folder; what only its tests use is no part of it.
        let agent = names("firstlight-agent");
        assert_eq!(agent[..2], ["agent/Cargo.toml", "agent/admission"]);
        assert!(agent.contains(&"agent/src".to_owned()), "{agent:?}");
        assert!(!agent.contains(&"agent/ramdisk".to_owned()), "{agent:?}");
    }
}
