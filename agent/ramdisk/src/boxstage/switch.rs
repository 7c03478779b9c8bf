//! Leaving the initramfs: its files are deleted (they are memory), the stack of layers becomes `/`, and systemd PID 1.

use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};
use nix::unistd::{chdir, chroot, execv};

/// linux/magic.h; nix does not name it.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);
/// File systems that go along.
const KEEP: [&str; 4] = ["/dev", "/proc", "/sys", "/run"];

/// Ends this program; comes back only with an error.
pub fn switch_root(root: &Path, init: &OsStr, arguments: &[String]) -> Result<Infallible> {
    if !root.join(Path::new(init).strip_prefix("/")?).exists()
        && fs::symlink_metadata(root.join("sbin")).is_err()
    {
        bail!(
            "the stick's system has no {}; write the stick again with `firstlight flash`",
            init.display()
        );
    }
    for dir in KEEP {
        let place = root.join(&dir[1..]);
        // The layers need not bring empty directories.
        fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
        mount(
            Some(dir),
            &place,
            None::<&str>,
            MsFlags::MS_MOVE,
            None::<&str>,
        )
        .with_context(|| format!("moving {dir} to {}", place.display()))?;
    }
    let old = fs::File::open("/").context("opening the initramfs")?;
    if matches!(statfs("/")?.filesystem_type(), TMPFS_MAGIC | RAMFS_MAGIC) {
        delete_contents(Path::new("/"), old.metadata()?.dev());
    }
    chdir(root).context("entering the new root")?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .context("moving the new root to /")?;
    chroot(".").context("changing the root")?;
    chdir("/")?;
    let program = CString::new(init.as_bytes())?;
    let rest = arguments
        .iter()
        .map(|argument| CString::new(argument.as_str()));
    let argv: Vec<CString> = std::iter::once(Ok(program.clone()))
        .chain(rest)
        .collect::<Result<_, _>>()?;
    execv(&program, &argv).with_context(|| format!("starting {}", init.display()))
}

/// Deletes what is on the device `dev` only: mounts below stay untouched. What cannot be deleted costs memory, no more.
fn delete_contents(dir: &Path, dev: u64) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        if meta.dev() != dev {
            continue;
        }
        if meta.is_dir() {
            delete_contents(&path, dev);
            let _ = fs::remove_dir(&path);
        } else {
            let _ = fs::remove_file(&path);
        }
    }
}
