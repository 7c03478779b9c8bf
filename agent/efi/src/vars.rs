//! UEFI variables of the "global" vendor: the kernel's efivarfs, or a directory in tests.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::sys::statfs::FsType;

/// `EFI_GLOBAL_VARIABLE`
const VENDOR: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Non-volatile, for boot services and at run time.
const ATTRIBUTES: u32 = 7;
/// `EFIVARFS_MAGIC` of `linux/magic.h`
const EFIVARFS: FsType = FsType(0xde5e_81e4);

/// The variables as files named `NAME-VENDOR`: four bytes of attributes, then the data.
#[derive(Clone, Debug)]
pub struct EfiVars {
    dir: PathBuf,
}

impl EfiVars {
    /// `None` when the firmware is a BIOS, or efivarfs is not mounted.
    pub fn open(dir: &Path) -> Option<Self> {
        let has_any = fs::read_dir(dir).ok()?.next().is_some();
        has_any.then(|| Self {
            dir: dir.to_owned(),
        })
    }

    /// Names without the vendor, sorted.
    pub fn names(&self) -> Vec<String> {
        let suffix = format!("-{VENDOR}");
        let mut names: Vec<String> = fs::read_dir(&self.dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()?
                    .strip_suffix(&suffix)
                    .map(str::to_owned)
            })
            .collect();
        names.sort();
        names
    }

    /// The data behind the attributes; `None` when there is no such variable.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.path(name)).ok()?.get(4..).map(<[u8]>::to_vec)
    }

    /// Makes or replaces a variable that is kept over power cuts; one that has these data already is not written again.
    pub fn write(&self, name: &str, data: &[u8]) -> io::Result<()> {
        if self.read(name).as_deref() == Some(data) {
            return Ok(());
        }
        let path = self.path(name);
        make_mutable(&path)?;
        // efivarfs takes a variable in one write only.
        let bytes = [&ATTRIBUTES.to_le_bytes(), data].concat();
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        let written = file.write(&bytes)?;
        if written != bytes.len() {
            return Err(io::Error::other("the firmware took only a part"));
        }
        if !is_efivarfs(&path) {
            file.set_len(bytes.len() as u64)?;
        }
        Ok(())
    }

    /// Fails with `NotFound` when there is no such variable.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        make_mutable(&path)?;
        fs::remove_file(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}-{VENDOR}"))
    }
}

/// efivarfs sets the size by itself.
fn is_efivarfs(path: &Path) -> bool {
    nix::sys::statfs::statfs(path).is_ok_and(|fs| fs.filesystem_type() == EFIVARFS)
}

/// The kernel protects variables against `rm -rf` with the immutable flag.
fn make_mutable(path: &Path) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match flags::clear_immutable(&file) {
        // A plain file system of a test may have no flags.
        Err(nix::errno::Errno::ENOTTY | nix::errno::Errno::EOPNOTSUPP) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[allow(unsafe_code, reason = "inode flags exist only as ioctls")]
mod flags {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    const IMMUTABLE: nix::libc::c_long = 0x10;

    mod raw {
        nix::ioctl_read!(get, b'f', 1, nix::libc::c_long);
        nix::ioctl_write_ptr!(set, b'f', 2, nix::libc::c_long);
    }

    pub fn clear_immutable(file: &File) -> nix::Result<()> {
        let mut flags = 0;
        // SAFETY: the kernel writes at most one long to a live variable.
        unsafe { raw::get(file.as_raw_fd(), &raw mut flags)? };
        if flags & IMMUTABLE != 0 {
            let cleared = flags & !IMMUTABLE;
            // SAFETY: the kernel reads at most one long from a live variable.
            unsafe { raw::set(file.as_raw_fd(), &raw const cleared)? };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A firmware may hold anything, also a variable that is shorter than its attributes.
        #[test]
        fn whatever_a_firmware_holds_is_read_as_it_is_there(
            files in prop::collection::btree_map("(Boot[0-9A-F]{4}|[A-Za-z]{1,9})(-8be4df61-93ca-11d2-aa0d-00e098032b8c)?", prop::collection::vec(any::<u8>(), 0..40), 1..8),
            asked in "[A-Za-z0-9]{1,9}",
            data in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let dir = tempfile::tempdir().unwrap();
            for (name, bytes) in &files {
                fs::write(dir.path().join(name), bytes).unwrap();
            }
            let vars = EfiVars::open(dir.path()).unwrap();
            let ours = |name: &String| name.strip_suffix(&format!("-{VENDOR}")).map(str::to_owned);
            prop_assert_eq!(vars.names(), files.keys().filter_map(ours).collect::<Vec<_>>());
            for name in vars.names() {
                let there = &files[&format!("{name}-{VENDOR}")];
                prop_assert_eq!(vars.read(&name), there.get(4..).map(Vec::from));
            }
            vars.write(&asked, &data).unwrap();
            prop_assert_eq!(vars.read(&asked), Some(data));
            vars.remove(&asked).unwrap();
            prop_assert_eq!(vars.read(&asked), None);
        }
    }
}
