//! Makes FAT file systems, whole and in one go: every file in one piece, fixed dates, the same bytes for the same files. No files of
//! this machine, no clock, no randomness. It reads none: the crate `fatfs` does, but what that writes has long names for `.` and `..`
//! of folders, which repair tools take for damage.
//!
//! Source: Microsoft's "FAT32 File System Specification" 1.03, which has FAT12 and FAT16, too. Which of the three it is follows from the
//! number of clusters, and from nothing else.
//!
//! [`Tree`] says which files, [`Layout::plan`] where each goes, [`Layout::write`] puts them there.

mod boot;
mod geometry;
mod layout;
mod names;
#[cfg(test)]
mod tests;
mod tree;

pub use geometry::{Kind, SectorSize};
pub use layout::Layout;
pub use tree::Tree;

/// A file system to make, but for its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub bytes: u64,
    pub sector: SectorSize,
    /// Bytes of a cluster: a power of two from the sector's size to 32 KiB.
    pub cluster: u32,
    /// Each file begins at a multiple of this many bytes, and of a cluster.
    pub align: u64,
    pub label: Label,
    pub id: u32,
}

/// The name of a volume, filled up with spaces; all of them: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label(Option<[u8; 11]>);

impl Label {
    pub fn new(name: &str) -> Result<Self, FatError> {
        let forbidden =
            |letter: char| !(' '..='~').contains(&letter) || "\"*+,./:;<=>?[\\]|".contains(letter);
        if name.len() > 11 || name.contains(forbidden) || name.starts_with(' ') {
            return Err(FatError::Label(name.to_owned()));
        }
        let mut field = [b' '; 11];
        field[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self((!name.is_empty()).then_some(field)))
    }
}

/// Why there can be no such file system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FatError {
    #[error("a cluster of {0} bytes is not possible")]
    Cluster(u32),
    #[error("{0} bytes are more than FAT can have")]
    TooLarge(u64),
    #[error("the files do not fit: they need {needed} clusters, and there are {clusters}")]
    Full { needed: u64, clusters: u64 },
    #[error("{0:?} is not a name that every system can read")]
    Name(String),
    #[error("{0:?} is there twice: FAT does not tell capitals from small letters")]
    Twice(String),
    #[error("{0:?} is a file and a folder")]
    FileAndFolder(String),
    #[error("{0:?} lies in more folders than FAT can be relied on for")]
    Deep(String),
    #[error("label {0:?} is not 11 plain letters at most")]
    Label(String),
    #[error("a file has {0} bytes, and 4 GiB is too much for FAT")]
    File(usize),
    #[error("a folder has more names than FAT can have in one")]
    Folder,
}
