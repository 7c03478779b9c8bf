//! The file systems of an installed disk, by the names that boot loaders have for them.

use std::io;

use super::tree::Tree;

/// One of them.
#[derive(Debug)]
pub struct Volume {
    /// Of its partition, from 1.
    pub number: u32,
    /// As `search --fs-uuid` and `probe -u` have it; empty if it has none.
    pub uuid: String,
    pub label: String,
    /// As `root=PARTUUID=` has it, lower case; empty without a partition table that has such.
    pub part_uuid: String,
    pub tree: Tree,
}

/// A disk as far as the ramdisk can read it.
#[derive(Debug, Default)]
pub struct System {
    pub volumes: Vec<Volume>,
    /// Kinds of file systems that it cannot read, e.g. `btrfs in partition 3`.
    pub unread: Vec<String>,
    /// It was started by UEFI.
    pub is_efi: bool,
}

/// A file of one of the volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// In [`System::volumes`].
    pub volume: usize,
    pub path: String,
}

/// What a boot loader would start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub kernel: Option<Location>,
    /// One after the other they are the initramfs.
    pub initrds: Vec<Location>,
    /// The whole command line.
    pub options: String,
}

/// Why nobody can say what the disk's own loader would do; each a sentence.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    #[error("{0}")]
    Unclear(String),
    #[error("reading {path} of the installed system")]
    Read { path: String, source: io::Error },
}

impl EntryError {
    pub fn unclear(why: impl Into<String>) -> Self {
        Self::Unclear(why.into())
    }
}

impl System {
    pub fn tree(&self, volume: usize) -> Option<&Tree> {
        self.volumes.get(volume).map(|volume| &volume.tree)
    }

    /// # Errors
    /// It is not there, too long, or cannot be read.
    pub fn text(&self, place: &Location, most: u64) -> Result<String, EntryError> {
        let tree = self.tree(place.volume).ok_or(io::ErrorKind::NotFound);
        let text = tree
            .map_err(io::Error::from)
            .and_then(|tree| tree.text(&place.path, most));
        text.map_err(|source| EntryError::Read {
            path: place.path.clone(),
            source,
        })
    }

    pub fn has(&self, place: &Location) -> bool {
        self.tree(place.volume)
            .is_some_and(|tree| tree.has(&place.path))
    }

    pub fn find(&self, is_it: impl Fn(&Volume) -> bool) -> Option<usize> {
        self.volumes.iter().position(is_it)
    }
}
