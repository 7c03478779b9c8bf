//! A tree of Debian that an earlier step has made, entered once more: mmdebstrap unpacks it where it would make a new one, so
//! that this too works as root and as an ordinary user.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::cache::Work;
use super::command::Program;
use super::debian::{COMPONENTS, SUITE, chroot_hook, sources};
use super::settings::{SOURCE_DATE_EPOCH, Settings};

/// Where apt leaves what it downloads.
const ARCHIVES: &str = "/var/cache/apt/archives";

/// Lays package files into `/tmp/debs` of the tree `from`, runs `script` in it, and leaves it as `NAME.tar`.
pub fn install(
    work: &Work,
    from: &Path,
    debs: &[PathBuf],
    script: &Path,
    name: &str,
) -> Result<()> {
    let files: Vec<String> = debs.iter().map(|deb| deb.display().to_string()).collect();
    enter(work, from)
        .arg("--skip=update")
        .arg("--customize-hook=mkdir \"$1/tmp/debs\"")
        .arg(format!(
            "--customize-hook=copy-in {} /tmp/debs",
            files.join(" ")
        ))
        .arg(format!("--customize-hook={}", chroot_hook(script)?))
        .arg(SUITE)
        .arg(work.path(&format!("{name}.tar")))
        .run()
}

/// Downloads what the tree `from` lacks of these packages and of what they depend on, into the folder `to`. apt checks all of
/// it against the archive's key.
pub fn download(
    work: &Work,
    settings: &Settings,
    from: &Path,
    packages: &[String],
    to: &Path,
) -> Result<()> {
    let get = format!(
        "APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\" apt-get --yes --no-install-recommends --download-only install {}",
        packages.join(" ")
    );
    enter(work, from)
        .arg(format!("--customize-hook={get}"))
        .arg(format!(
            "--customize-hook=sync-out {ARCHIVES} {}",
            to.display()
        ))
        .arg(format!("--components={COMPONENTS}"))
        .args([SUITE, "/dev/null"])
        .args(sources(settings.mirror.as_deref()))
        .run()
}

fn enter(work: &Work, from: &Path) -> Program {
    Program::new("mmdebstrap", &work.log)
        .env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH.to_string())
        .args(["--mode=auto", "--variant=custom"])
        .arg(format!("--setup-hook=tar-in {} /", from.display()))
        // It makes its own, and as an ordinary user it stops where there is one.
        .arg("--setup-hook=find \"$1/dev\" -mindepth 1 ! -type d -delete")
}
