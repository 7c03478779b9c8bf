//! Files that are whole or absent, also after a power cut.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A file to be written, below some root.
#[derive(Clone, PartialEq, Eq)]
pub struct NewFile {
    pub path: PathBuf,
    pub content: Vec<u8>,
    pub mode: u32,
}

impl NewFile {
    pub fn new(path: impl Into<PathBuf>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            content: content.into(),
            mode,
        }
    }
}

/// Content may be secret.
impl std::fmt::Debug for NewFile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{} ({:o}, {} bytes)",
            self.path.display(),
            self.mode,
            self.content.len()
        )
    }
}

/// Writes each file under a temporary name and moves it to its place, unless it is there with this content already.
pub fn write_files(root: &Path, files: &[NewFile]) -> Result<()> {
    for file in files {
        let path = root.join(&file.path);
        if fs::read(&path).is_ok_and(|old| old == file.content) {
            continue;
        }
        let folder = path.parent().unwrap_or(root);
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let mut temporary = path.clone().into_os_string();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        write(&temporary, file)
            .and_then(|()| fs::rename(&temporary, &path))
            .and_then(|()| sync_folder(folder))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Makes the folder `to` with these files in it: it has its name only once everything is on the disk.
pub fn write_folder(to: &Path, files: &[NewFile]) -> Result<()> {
    let mut temporary = to.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let parent = to.parent().context("a folder needs a parent")?;
    let made = || -> io::Result<()> {
        fs::create_dir_all(parent)?;
        if temporary.exists() {
            fs::remove_dir_all(&temporary)?;
        }
        DirBuilder::new().mode(0o700).create(&temporary)?;
        for file in files {
            let path = temporary.join(&file.path);
            let folder = path.parent().unwrap_or(&temporary);
            DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(folder)?;
            write(&path, file)?;
            sync_folder(folder)?;
        }
        sync_folder(&temporary)?;
        fs::rename(&temporary, to)?;
        sync_folder(parent)
    };
    made().with_context(|| format!("writing {}", to.display()))
}

fn write(path: &Path, file: &NewFile) -> io::Result<()> {
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).mode(file.mode);
    let mut out = open.open(path)?;
    out.write_all(&file.content)?;
    out.sync_all()
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_folder_appears_whole_also_after_an_attempt_that_was_cut_short() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("seed/config_drive");
        fs::create_dir_all(dir.path().join("seed/config_drive.new/left")).unwrap();
        let files = [
            NewFile::new("openstack/latest/user_data", 0o600, "secret"),
            NewFile::new("openstack/latest/meta_data.json", 0o600, "{}"),
        ];
        write_folder(&to, &files).unwrap();
        let path = to.join("openstack/latest/user_data");
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(!to.join("left").exists() && !dir.path().join("seed/config_drive.new").exists());
    }

    #[test]
    fn an_unchanged_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let files = [NewFile::new("etc/a/b", 0o644, "one")];
        write_files(dir.path(), &files).unwrap();
        let written = fs::metadata(dir.path().join("etc/a/b")).unwrap();
        write_files(dir.path(), &files).unwrap();
        let again = fs::metadata(dir.path().join("etc/a/b")).unwrap();
        assert_eq!(written.ino(), again.ino());
        assert!(!format!("{files:?}").contains("one"));
    }
}
