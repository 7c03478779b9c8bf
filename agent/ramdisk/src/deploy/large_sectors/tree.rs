//! The files and folders of a small file system, in memory; FAT is where they are read from and written to.

use std::io::{self, Read, Seek, Write};

use fatfs::{Dir, FileSystem, FsOptions, ReadWriteSeek};
use firstlight_fat::{Layout, SectorSize};

/// Of everything together.
const MOST_ENTRIES: usize = 4096;
/// Of the files: a system partition has two or three boot loaders, a config drive is smaller.
pub const MOST_BYTES: u64 = 64 << 20;
/// Folders within each other.
const DEEPEST: usize = 16;

/// By path, `/` between names; folders stand before what is in them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree(Vec<(String, Entry)>);

#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    Folder,
    File(Vec<u8>),
}

/// What else tells a file system from others.
#[derive(Debug, PartialEq, Eq)]
pub struct Label {
    name: firstlight_fat::Label,
    id: u32,
}

impl Label {
    /// A name that no FAT can have is none: nothing is started by it.
    pub fn new(name: &str, id: u32) -> Self {
        let name = Some(name).filter(|name| *name != "NO NAME");
        let name = name.and_then(|name| firstlight_fat::Label::new(name).ok());
        Self {
            name: name.unwrap_or_default(),
            id,
        }
    }
}

impl Tree {
    pub fn add(&mut self, path: String, entry: Entry) -> io::Result<()> {
        if self.0.len() >= MOST_ENTRIES || path.matches('/').count() >= DEEPEST {
            return Err(damaged("it has more files or folders than a small one has"));
        }
        if let Entry::File(content) = &entry {
            self.has_room(content.len() as u64)?;
        }
        self.0.push((path, entry));
        Ok(())
    }

    /// For a file of this length.
    pub fn has_room(&self, length: u64) -> io::Result<()> {
        if length > MOST_BYTES || self.bytes(1) + length > MOST_BYTES {
            return Err(damaged("it holds more than 64 MiB"));
        }
        Ok(())
    }

    /// Of its files, in clusters of this size, with one for each folder.
    pub fn bytes(&self, cluster: u64) -> u64 {
        let of = |entry: &Entry| match entry {
            Entry::Folder => cluster,
            Entry::File(content) => (content.len() as u64).next_multiple_of(cluster),
        };
        self.0.iter().map(|(_, entry)| of(entry)).sum()
    }

    /// Makes a FAT file system with sectors of 4096 bytes that fills `bytes` of `to`.
    pub fn write(&self, to: &mut (impl Write + Seek), bytes: u64, label: &Label) -> io::Result<()> {
        let volume = firstlight_fat::Volume {
            bytes,
            sector: SectorSize::Bytes4096,
            cluster: 4096,
            align: 1,
            label: label.name,
            id: label.id,
        };
        let mut tree = firstlight_fat::Tree::default();
        let made = self.0.iter().try_for_each(|(path, entry)| match entry {
            Entry::Folder => tree.folder(path),
            Entry::File(content) => tree.file(path, content),
        });
        made.and_then(|()| Layout::plan(&volume, &tree))
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
            .write(to)
    }
}

/// A boot sector of FAT with sectors that are too small.
pub fn is_fat(start: &[u8]) -> bool {
    let (fat16, fat32) = (&start[54..59], &start[82..87]);
    let sector = u16::from_le_bytes([start[11], start[12]]);
    start[510..512] == [0x55, 0xAA]
        && sector < 4096
        && (fat16 == b"FAT12" || fat16 == b"FAT16" || fat32 == b"FAT32")
}

/// Everything in a FAT file system.
pub fn read(volume: impl ReadWriteSeek) -> io::Result<(Tree, Label)> {
    let system = FileSystem::new(volume, FsOptions::new().update_accessed_date(false))?;
    let label = Label::new(&system.volume_label(), system.volume_id());
    let mut tree = Tree::default();
    read_folder(&system.root_dir(), "", &mut tree)?;
    Ok((tree, label))
}

fn read_folder<T: ReadWriteSeek>(
    folder: &Dir<'_, T>,
    path: &str,
    tree: &mut Tree,
) -> io::Result<()> {
    for entry in folder.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.as_str(), "." | "..") {
            continue;
        }
        let path = format!("{path}{name}");
        if entry.is_dir() {
            tree.add(path.clone(), Entry::Folder)?;
            read_folder(&entry.to_dir(), &format!("{path}/"), tree)?;
            continue;
        }
        tree.has_room(entry.len())?;
        let mut content = Vec::new();
        entry
            .to_file()
            .take(entry.len())
            .read_to_end(&mut content)?;
        tree.add(path, Entry::File(content))?;
    }
    Ok(())
}

pub fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
