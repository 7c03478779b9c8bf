//! FAT32 file systems, written front to back: every file in one piece, fixed times and serial numbers.
//!
//! Sources: Microsoft's "FAT32 File System Specification" 1.03. Written here because the crate `fatfs`, which reads what
//! this writes in the tests, gives `.` and `..` of new directories long names, which repair tools take for damage.

mod names;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use names::{Taken, name_entries};

const SECTOR: u64 = 512;
const RESERVED: u64 = 32;
const FATS: u64 = 2;
/// Below this number of clusters, a FAT file system is FAT16 by definition.
const MIN_CLUSTERS: u64 = 65_525;
const BACKUP: u64 = 6;
const END: u32 = 0x0fff_ffff;
const DIRECTORY: u8 = 0x10;
const ARCHIVE: u8 = 0x20;
const VOLUME: u8 = 0x08;
/// 2026-11-01, the day of `SOURCE_DATE_EPOCH`; the time of day is midnight.
const DATE: u16 = ((2026 - 1980) << 9) | (11 << 5) | 1;
const ENTRY: usize = 32;

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

/// The whole file system, as bytes.
pub fn format_fat(spec: &FatSpec) -> Result<Vec<u8>> {
    let mut root = BTreeMap::new();
    for (path, content) in &spec.files {
        let data = match content {
            Content::Text(text) => text.clone().into_bytes(),
            Content::File(from) => {
                fs::read(from).with_context(|| format!("reading {}", from.display()))?
            }
        };
        insert(&mut root, path, data)?;
    }
    let mut volume = Volume::new(spec)?;
    volume
        .place_root(&spec.label, &root)
        .with_context(|| format!("filling {}", spec.label))?;
    volume.finish(spec)
}

/// A directory tree in memory.
enum Node {
    File(Vec<u8>),
    Directory(BTreeMap<String, Node>),
}

fn insert(directory: &mut BTreeMap<String, Node>, path: &str, data: Vec<u8>) -> Result<()> {
    let Some((first, rest)) = path.split_once('/') else {
        let before = directory.insert(path.to_owned(), Node::File(data));
        ensure!(before.is_none(), "{path} is given twice");
        return Ok(());
    };
    match directory
        .entry(first.to_owned())
        .or_insert_with(|| Node::Directory(BTreeMap::new()))
    {
        Node::Directory(below) => insert(below, rest, data),
        Node::File(_) => bail!("{first} is a file and a directory"),
    }
}

/// The file system while it grows: clusters are given out in order.
struct Volume {
    bytes: Vec<u8>,
    table: Vec<u32>,
    table_sectors: u64,
    cluster: usize,
    clusters: u64,
}

impl Volume {
    fn new(spec: &FatSpec) -> Result<Self> {
        let sectors = spec.bytes / SECTOR;
        let per_cluster = u64::from(spec.cluster) / SECTOR;
        ensure!(
            per_cluster.is_power_of_two() && per_cluster <= 128,
            "a cluster of {} bytes is not possible",
            spec.cluster
        );
        // A little more than needed, because the tables themselves take room from the clusters.
        let upper = sectors.saturating_sub(RESERVED) / per_cluster;
        let table_sectors = ((upper + 2) * 4).div_ceil(SECTOR);
        let clusters = sectors.saturating_sub(RESERVED + FATS * table_sectors) / per_cluster;
        ensure!(
            clusters >= MIN_CLUSTERS,
            "{} is too small for FAT32",
            spec.label
        );
        Ok(Self {
            bytes: vec![0; usize::try_from(spec.bytes)?],
            table: vec![0x0fff_fff8, END],
            table_sectors,
            cluster: usize::try_from(spec.cluster)?,
            clusters,
        })
    }

    /// Reserves a chain for `length` bytes, at least `least` clusters; 0 stands for no chain.
    fn allocate(&mut self, length: usize, least: usize) -> Result<u32> {
        let count = length.div_ceil(self.cluster).max(least);
        if count == 0 {
            return Ok(0);
        }
        let first = u32::try_from(self.table.len())?;
        ensure!(
            self.table.len() + count <= usize::try_from(self.clusters)? + 2,
            "the files do not fit"
        );
        for next in first + 1..first + u32::try_from(count)? {
            self.table.push(next);
        }
        self.table.push(END);
        Ok(first)
    }

    fn write(&mut self, first: u32, data: &[u8]) -> Result<()> {
        let start = usize::try_from((RESERVED + FATS * self.table_sectors) * SECTOR)?;
        let offset = start + (first as usize).saturating_sub(2) * self.cluster;
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn place_root(&mut self, label: &str, root: &BTreeMap<String, Node>) -> Result<()> {
        let mut entries = short_entry(&label_field(label)?, VOLUME, 0, 0).to_vec();
        let names = all_names(root)?;
        let length = entries.len()
            + names
                .values()
                .map(|entry| entry.long.len() + ENTRY)
                .sum::<usize>();
        let first = self.allocate(length, 1)?;
        self.place_children(root, &names, first, &mut entries)?;
        self.write(first, &entries)
    }

    /// `parent` is the first cluster of the directory above; the root is written as 0.
    fn place_directory(&mut self, children: &BTreeMap<String, Node>, parent: u32) -> Result<u32> {
        let names = all_names(children)?;
        let length = 2 * ENTRY
            + names
                .values()
                .map(|entry| entry.long.len() + ENTRY)
                .sum::<usize>();
        let first = self.allocate(length, 1)?;
        let above = if parent == 2 { 0 } else { parent };
        let mut entries = short_entry(b".          ", DIRECTORY, first, 0).to_vec();
        entries.extend(short_entry(b"..         ", DIRECTORY, above, 0));
        self.place_children(children, &names, first, &mut entries)?;
        self.write(first, &entries)?;
        Ok(first)
    }

    fn place_children(
        &mut self,
        children: &BTreeMap<String, Node>,
        names: &BTreeMap<String, names::NameEntries>,
        first: u32,
        entries: &mut Vec<u8>,
    ) -> Result<()> {
        for (name, node) in children {
            let (kind, cluster, size) = match node {
                Node::Directory(below) => (DIRECTORY, self.place_directory(below, first)?, 0),
                Node::File(data) => {
                    let cluster = self.allocate(data.len(), 0)?;
                    if cluster != 0 {
                        self.write(cluster, data)?;
                    }
                    (
                        ARCHIVE,
                        cluster,
                        u32::try_from(data.len()).context("a file of 4 GiB or more")?,
                    )
                }
            };
            let entry = &names[name];
            entries.extend(&entry.long);
            entries.extend(short_entry(&entry.short, kind, cluster, size));
        }
        Ok(())
    }

    /// Boot sector, information sector, their copies, and both tables.
    fn finish(mut self, spec: &FatSpec) -> Result<Vec<u8>> {
        let boot = self.boot_sector(spec)?;
        let information = self.information_sector()?;
        for start in [0, BACKUP] {
            self.put(start, &boot)?;
            self.put(start + 1, &information)?;
        }
        let table: Vec<u8> = self
            .table
            .iter()
            .flat_map(|entry| entry.to_le_bytes())
            .collect();
        for copy in 0..FATS {
            self.put(RESERVED + copy * self.table_sectors, &table)?;
        }
        Ok(self.bytes)
    }

    fn put(&mut self, sector: u64, data: &[u8]) -> Result<()> {
        let offset = usize::try_from(sector * SECTOR)?;
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn boot_sector(&self, spec: &FatSpec) -> Result<[u8; 512]> {
        let mut boot = [0; 512];
        let mut field =
            |offset: usize, data: &[u8]| boot[offset..offset + data.len()].copy_from_slice(data);
        field(0, &[0xeb, 0x58, 0x90]);
        field(3, b"MSWIN4.1");
        field(11, &512u16.to_le_bytes());
        field(13, &[u8::try_from(u64::from(spec.cluster) / SECTOR)?]);
        field(14, &u16::try_from(RESERVED)?.to_le_bytes());
        field(16, &[u8::try_from(FATS)?]);
        field(21, &[0xf8]);
        field(24, &63u16.to_le_bytes());
        field(26, &255u16.to_le_bytes());
        field(32, &u32::try_from(spec.bytes / SECTOR)?.to_le_bytes());
        field(36, &u32::try_from(self.table_sectors)?.to_le_bytes());
        field(44, &2u32.to_le_bytes());
        field(48, &1u16.to_le_bytes());
        field(50, &u16::try_from(BACKUP)?.to_le_bytes());
        field(64, &[0x80, 0, 0x29]);
        field(67, &spec.volume_id.to_le_bytes());
        field(71, &label_field(&spec.label)?);
        field(82, b"FAT32   ");
        // Whoever boots from this partition by mistake comes to a stop, not to random code.
        field(90, &[0xf4, 0xeb, 0xfd]);
        field(510, &[0x55, 0xaa]);
        Ok(boot)
    }

    fn information_sector(&self) -> Result<[u8; 512]> {
        let mut sector = [0; 512];
        let used = self.table.len() as u64 - 2;
        let mut field =
            |offset: usize, data: &[u8]| sector[offset..offset + data.len()].copy_from_slice(data);
        field(0, b"RRaA");
        field(484, b"rrAa");
        field(488, &u32::try_from(self.clusters - used)?.to_le_bytes());
        field(492, &u32::try_from(self.table.len())?.to_le_bytes());
        field(510, &[0x55, 0xaa]);
        Ok(sector)
    }
}

fn label_field(label: &str) -> Result<[u8; 11]> {
    ensure!(
        label.len() <= 11 && label.is_ascii(),
        "label {label} has more than 11 letters"
    );
    let mut field = [b' '; 11];
    field[..label.len()].copy_from_slice(label.as_bytes());
    Ok(field)
}

fn all_names(children: &BTreeMap<String, Node>) -> Result<BTreeMap<String, names::NameEntries>> {
    let mut taken = Taken::default();
    children
        .keys()
        .map(|name| Ok((name.clone(), name_entries(name, &mut taken)?)))
        .collect()
}

fn short_entry(name: &[u8; 11], kind: u8, cluster: u32, size: u32) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    let [low0, low1, high0, high1] = cluster.to_le_bytes();
    entry[..11].copy_from_slice(name);
    entry[11] = kind;
    for date in [16, 18, 24] {
        entry[date..date + 2].copy_from_slice(&DATE.to_le_bytes());
    }
    entry[20..22].copy_from_slice(&[high0, high1]);
    entry[26..28].copy_from_slice(&[low0, low1]);
    entry[28..].copy_from_slice(&size.to_le_bytes());
    entry
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
