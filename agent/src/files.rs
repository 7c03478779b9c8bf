//! Files that are either whole or absent, also after a power cut, and whose they are.

mod account;

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

pub use account::Account;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// 0644
    Everybody,
    /// 0640: the services of the box run in the agent's group.
    Group,
    /// 0640, with a group that the agent is in besides its own.
    GroupOf(u32),
    /// 0600
    Owner,
}

impl Access {
    pub fn mode(self) -> u32 {
        match self {
            Self::Everybody => 0o644,
            Self::Group | Self::GroupOf(_) => 0o640,
            Self::Owner => 0o600,
        }
    }
}

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    pub path: PathBuf,
    pub content: Vec<u8>,
    pub access: Access,
}

/// Makes `path` with exactly `mode`, and its parents if they are missing. Nothing is written where it is so already: the file
/// system may be read-only.
pub fn make_dir(path: &Path, mode: u32) -> Result<()> {
    let is_there = |found: fs::Metadata| found.is_dir() && found.mode() & 0o7777 == mode;
    if fs::metadata(path).is_ok_and(is_there) {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .with_context(|| format!("making the directory {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("setting the mode of {}", path.display()))
}

/// Writes files of one file system: all content reaches the disk before the first of them gets its name, and they
/// get their names in the given order. One `syncfs` costs less than an `fsync` a file on a USB stick.
pub fn write_all(files: &[NewFile]) -> Result<()> {
    let Some(first) = files.first() else {
        return Ok(());
    };
    for file in files {
        write_aside(file).with_context(|| format!("writing {}", aside(&file.path).display()))?;
    }
    let dir = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_owned();
    let handle = File::open(dir(&first.path))
        .with_context(|| format!("opening {}", dir(&first.path).display()))?;
    nix::unistd::syncfs(&handle).context("flushing the state partition")?;
    for file in files {
        fs::rename(aside(&file.path), &file.path)
            .with_context(|| format!("renaming to {}", file.path.display()))?;
    }
    nix::unistd::syncfs(&handle).context("flushing the state partition")
}

/// Writes one file whole: temporary name, `fsync`, rename, `fsync` of the directory.
pub fn write(path: &Path, content: &[u8], access: Access) -> Result<()> {
    let file = NewFile {
        path: path.to_owned(),
        content: content.to_vec(),
        access,
    };
    let aside = aside(path);
    write_aside(&file)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(&aside, path))
        .and_then(|()| File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all())
        .with_context(|| format!("writing {}", path.display()))
}

/// A name with a leading dot, which kubelet passes over in its directory of pods.
fn aside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

fn write_aside(file: &NewFile) -> io::Result<File> {
    let path = aside(&file.path);
    let mut out = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(file.access.mode())
        .open(&path)?;
    if let Access::GroupOf(group) = file.access {
        fchown(&out, None, Some(group))?;
    }
    // The mode at creation is cut by the umask and does not apply to a file left by a power cut.
    out.set_permissions(fs::Permissions::from_mode(file.access.mode()))?;
    out.write_all(&file.content)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_directory_gets_its_mode_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let changed = |path: &Path| {
            let found = fs::metadata(path).unwrap();
            (found.mode() & 0o7777, found.ctime(), found.ctime_nsec())
        };
        make_dir(&path, 0o750).unwrap();
        let first = changed(&path);
        assert_eq!(first.0, 0o750);
        make_dir(&path, 0o750).unwrap();
        assert_eq!(changed(&path), first, "nothing was written");
        make_dir(&path, 0o700).unwrap();
        assert_eq!(changed(&path).0, 0o700);
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(make_dir(&dir.path().join("file"), 0o644).is_err());
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_is_left_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.key");
        fs::write(dir.path().join(".ca.key.new"), "left by a power cut").unwrap();
        for content in ["one", "two"] {
            write(&path, content.as_bytes(), Access::Group).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        let batch = NewFile {
            path: path.clone(),
            content: b"three".to_vec(),
            access: Access::Owner,
        };
        write_all(&[batch]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_path() {
        let error = write(Path::new("/nonexistent/x"), b"", Access::Owner).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/x"), "{error:#}");
    }
}
