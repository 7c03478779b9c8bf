//! Where each file goes, and how it gets there.

use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;

use crate::geometry::{ENTRY, Geometry, Kind, TABLES};
use crate::names::{NameEntries, of_folder};
use crate::tree::{Children, Node};
use crate::{FatError, Tree, Volume, boot};

const DIRECTORY: u8 = 0x10;
const ARCHIVE: u8 = 0x20;
const VOLUME: u8 = 0x08;
/// 2026-11-01, the day of `SOURCE_DATE_EPOCH`; the time of day is midnight.
const DATE: u16 = ((2026 - 1980) << 9) | (11 << 5) | 1;
/// The last cluster of a chain, in as many bits as the table has for one.
const END: u32 = 0x0fff_ffff;
const MEDIA: u32 = 0x0fff_fff8;
/// Names of a folder, long ones counted by their entries.
const MOST_ENTRIES: usize = 65_536;

/// A file system that is planned: what goes where. Clusters are given out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout<'a> {
    volume: Volume,
    geometry: Geometry,
    /// By cluster: the one that comes next.
    table: Vec<u32>,
    pieces: Vec<(u64, Piece<'a>)>,
    files: BTreeMap<String, Range<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<'a> {
    File(&'a [u8]),
    Folder(Vec<u8>),
}

impl<'a> Layout<'a> {
    pub fn plan(volume: &Volume, tree: &Tree<'a>) -> Result<Self, FatError> {
        let mut entries = match volume.label.0 {
            Some(label) => entry(&label, VOLUME, 0, 0).to_vec(),
            None => Vec::new(),
        };
        let names = of_folder(tree.0.keys())?;
        let needed = entries.len() + size_of(&names);
        let geometry = Geometry::of(volume, (needed / ENTRY) as u64)?;
        let mut layout = Self {
            volume: volume.clone(),
            geometry,
            table: vec![MEDIA, END],
            pieces: Vec::new(),
            files: BTreeMap::new(),
        };
        let place = if geometry.kind == Kind::Fat32 {
            let first = layout.allocate(needed.max(1))?;
            geometry.place(first.into())
        } else {
            geometry.root() * geometry.sector
        };
        layout.place_children(&tree.0, &names, 0, "", &mut entries)?;
        layout.pieces.push((place, Piece::Folder(entries)));
        Ok(layout)
    }

    pub fn kind(&self) -> Kind {
        self.geometry.kind
    }

    /// Where in the volume the bytes of a file are; an empty one is nowhere.
    pub fn place(&self, path: &str) -> Option<Range<u64>> {
        self.files.get(path).cloned()
    }

    /// The first sector comes last: it is what makes this a file system.
    pub fn write(&self, to: &mut (impl Write + Seek)) -> io::Result<()> {
        let geometry = &self.geometry;
        for (place, piece) in &self.pieces {
            let content = match piece {
                Piece::File(content) => content,
                Piece::Folder(entries) => entries.as_slice(),
            };
            // The root of FAT12 and FAT16 has a size of its own.
            let whole = if *place < geometry.place(2) {
                geometry.place(2) - place
            } else {
                (content.len() as u64).next_multiple_of(geometry.cluster_bytes())
            };
            put(to, *place, content, whole)?;
        }
        let table = encode(&self.table, geometry.kind);
        let whole = geometry.table * geometry.sector;
        for copy in 0..TABLES {
            let place = geometry.kind.reserved() * geometry.sector + copy * whole;
            put(to, place, &table, whole)?;
        }
        let reserved = boot::reserved(&self.volume, geometry, &self.table);
        let (first, rest) = reserved.split_at(usize::from(self.volume.sector.bytes()));
        put(to, geometry.sector, rest, rest.len() as u64)?;
        put(to, 0, first, first.len() as u64)?;
        to.flush()
    }

    /// Reserves a chain for `length` bytes; 0 stands for no chain.
    fn allocate(&mut self, length: usize) -> Result<u32, FatError> {
        let count = (length as u64).div_ceil(self.geometry.cluster_bytes());
        if count == 0 {
            return Ok(0);
        }
        let (first, clusters) = (self.table.len() as u64, self.geometry.clusters);
        let needed = first - 2 + count;
        if needed > clusters {
            return Err(FatError::Full { needed, clusters });
        }
        // Fewer than 2^28, as the geometry has it.
        let number = |cluster: u64| u32::try_from(cluster).unwrap_or(END);
        self.table.extend((first + 1..first + count).map(number));
        self.table.push(END);
        Ok(number(first))
    }

    /// Clusters that nobody has, until the next one begins where a file may.
    fn align(&mut self) -> Result<(), FatError> {
        let clusters = self.geometry.clusters;
        while !self
            .geometry
            .place(self.table.len() as u64)
            .is_multiple_of(self.volume.align.max(1))
        {
            let needed = self.table.len() as u64 - 1;
            if needed > clusters {
                return Err(FatError::Full { needed, clusters });
            }
            self.table.push(0);
        }
        Ok(())
    }

    /// `parent`: the first cluster of the folder above, 0 for the root.
    fn place_folder(
        &mut self,
        children: &Children<'a>,
        parent: u32,
        path: &str,
    ) -> Result<u32, FatError> {
        let names = of_folder(children.keys())?;
        let first = self.allocate(2 * ENTRY + size_of(&names))?;
        let mut entries = entry(b".          ", DIRECTORY, first, 0).to_vec();
        entries.extend(entry(b"..         ", DIRECTORY, parent, 0));
        self.place_children(children, &names, first, path, &mut entries)?;
        let place = self.geometry.place(first.into());
        self.pieces.push((place, Piece::Folder(entries)));
        Ok(first)
    }

    /// `own`: the first cluster of the folder that they are in.
    fn place_children(
        &mut self,
        children: &Children<'a>,
        names: &BTreeMap<&str, NameEntries>,
        own: u32,
        path: &str,
        entries: &mut Vec<u8>,
    ) -> Result<(), FatError> {
        if size_of(names) / ENTRY + 2 > MOST_ENTRIES {
            return Err(FatError::Folder);
        }
        for (name, node) in children {
            let path = format!("{path}{name}");
            let (kind, first, size) = match node {
                Node::Folder(below) => {
                    let first = self.place_folder(below, own, &format!("{path}/"))?;
                    (DIRECTORY, first, 0)
                }
                Node::File(content) => {
                    let size =
                        u32::try_from(content.len()).map_err(|_| FatError::File(content.len()))?;
                    (ARCHIVE, self.place_file(path, content)?, size)
                }
            };
            let written = &names[name.as_str()];
            entries.extend(&written.long);
            entries.extend(entry(&written.short, kind, first, size));
        }
        Ok(())
    }

    fn place_file(&mut self, path: String, content: &'a [u8]) -> Result<u32, FatError> {
        if content.is_empty() {
            return Ok(0);
        }
        self.align()?;
        let first = self.allocate(content.len())?;
        let place = self.geometry.place(first.into());
        self.pieces.push((place, Piece::File(content)));
        self.files.insert(path, place..place + content.len() as u64);
        Ok(first)
    }
}

fn size_of(names: &BTreeMap<&str, NameEntries>) -> usize {
    let sizes = names.values().map(|entries| entries.long.len() + ENTRY);
    sizes.sum()
}

fn entry(name: &[u8; 11], kind: u8, first: u32, size: u32) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    let [low0, low1, high0, high1] = first.to_le_bytes();
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

fn encode(table: &[u32], kind: Kind) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(table.len() * 4);
    match kind {
        Kind::Fat32 => bytes.extend(table.iter().flat_map(|entry| entry.to_le_bytes())),
        Kind::Fat16 => {
            for entry in table {
                bytes.extend(&entry.to_le_bytes()[..2]);
            }
        }
        // Two in three bytes.
        Kind::Fat12 => {
            for pair in table.chunks(2) {
                let second = pair.get(1).copied().unwrap_or(0);
                let both = pair[0] & 0xfff | (second & 0xfff) << 12;
                bytes.extend(&both.to_le_bytes()[..3]);
            }
        }
    }
    bytes
}

/// Writes `content`, and zeros until there are `whole` bytes.
fn put(to: &mut (impl Write + Seek), place: u64, content: &[u8], whole: u64) -> io::Result<()> {
    static ZEROS: [u8; 4096] = [0; 4096];
    to.seek(SeekFrom::Start(place))?;
    to.write_all(content)?;
    let mut left = whole.saturating_sub(content.len() as u64);
    while left > 0 {
        let piece = usize::try_from(left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        to.write_all(&ZEROS[..piece])?;
        left -= piece as u64;
    }
    Ok(())
}
