//! The file systems of an image that firmware and people read: FAT32, made by `firstlight-fat` out of files of this machine.

#[cfg(test)]
mod tests;

use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use firstlight_fat::{Kind, Label, Layout, SectorSize, Tree, Volume};

/// Where the bytes of a file come from.
#[derive(Clone, Debug)]
pub enum Content {
    Text(String),
    File(PathBuf),
}

/// A file system to make.
#[derive(Clone, Debug)]
pub struct FatSpec {
    pub bytes: u64,
    /// Bytes of a cluster, a power of two from 512 on.
    pub cluster: u32,
    /// At most 11 characters, upper case.
    pub label: String,
    pub volume_id: u32,
    /// Path from the root with `/`, and content.
    pub files: Vec<(String, Content)>,
}

/// The whole file system, as bytes. Firmware need not know more than FAT32 on a disk.
pub fn format_fat(spec: &FatSpec) -> Result<Vec<u8>> {
    let mut files = Vec::new();
    for (path, content) in &spec.files {
        let data = match content {
            Content::Text(text) => text.clone().into_bytes(),
            Content::File(from) => {
                fs::read(from).with_context(|| format!("reading {}", from.display()))?
            }
        };
        files.push((path, data));
    }
    let make = || -> Result<Vec<u8>> {
        let mut tree = Tree::default();
        for (path, data) in &files {
            tree.file(path, data)?;
        }
        let volume = Volume {
            bytes: spec.bytes,
            sector: SectorSize::Bytes512,
            cluster: spec.cluster,
            align: 1,
            label: Label::new(&spec.label)?,
            id: spec.volume_id,
        };
        let layout = Layout::plan(&volume, &tree)?;
        ensure!(layout.kind() == Kind::Fat32, "it is too small for FAT32");
        let mut made = Cursor::new(vec![0; usize::try_from(spec.bytes)?]);
        layout.write(&mut made)?;
        Ok(made.into_inner())
    };
    make().with_context(|| format!("making the file system {}", spec.label))
}

/// Reads one file of a FAT file system; `None` when it is not there.
pub fn read_file(image: impl fatfs::ReadWriteSeek, path: &str) -> Result<Option<Vec<u8>>> {
    use std::io::Read as _;
    let system = fatfs::FileSystem::new(image, fatfs::FsOptions::new())
        .context("reading the FAT file system")?;
    let root = system.root_dir();
    let Ok(mut file) = root.open_file(path) else {
        return Ok(None);
    };
    let mut data = Vec::new();
    file.read_to_end(&mut data)?;
    Ok(Some(data))
}
