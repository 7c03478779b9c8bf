//! Keys that are made once and cannot be made again: what was signed with one is worth nothing without it.
//!
//! One is made only where nothing is: no file, and nothing that an earlier one has signed. Whatever else is there, unreadable,
//! empty or damaged, stays as it is, and a person is told.

use std::{
    io,
    path::{Path, PathBuf},
};

/// How a file is read: by the system, or in tests by one that fails.
pub type Reader<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// Why nothing was made and nothing was overwritten.
#[derive(Debug, thiserror::Error)]
pub enum Kept {
    #[error("{} cannot be read", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        path: PathBuf,
        reason: String,
        remedy: Remedy,
    },
    #[error("{} is gone, and {} was made with it", path.display(), made.display())]
    Gone { path: PathBuf, made: PathBuf },
}

/// What a person can do about a damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It holds what exists nowhere else.
    Restore,
    /// The box makes it again from what is there.
    Remove,
}

impl Kept {
    pub fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            reason: reason.into(),
            remedy: Remedy::Restore,
        }
    }

    /// For a person.
    pub fn next(&self) -> String {
        let restore = |path: &Path| {
            format!(
                "nothing was overwritten, and the box tries again; put {} back from a backup of the state partition. Without one \
                 every server must be installed again: begin with another stick",
                path.display()
            )
        };
        match self {
            Self::Unreadable { path, .. } => format!(
                "nothing was overwritten, and the box tries again; check the state partition with fsck, and the owner and mode of {}",
                path.display()
            ),
            Self::Damaged {
                path,
                remedy: Remedy::Remove,
                ..
            } => format!(
                "nothing was overwritten; run `sudo rm {}`, and the box makes it again from its key",
                path.display()
            ),
            Self::Damaged { path, .. } | Self::Gone { path, .. } => restore(path),
        }
    }
}

/// `None` only if the system says that there is none.
pub fn read(path: &Path, reader: Reader) -> Result<Option<Vec<u8>>, Kept> {
    match reader(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Kept::Unreadable {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The same of a file that must be text.
pub fn read_text(path: &Path, reader: Reader) -> Result<Option<String>, Kept> {
    let Some(content) = read(path, reader)? else {
        return Ok(None);
    };
    let text = String::from_utf8(content);
    text.map(Some)
        .map_err(|_| Kept::damaged(path, "it is no text"))
}
