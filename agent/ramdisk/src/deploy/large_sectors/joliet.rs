//! ISO 9660 with Joliet's names, as config drives come (`xorrisofs -J`). Read from memory, in which it is whole.

use std::io;

use super::tree::{Entry, Tree, damaged};

const SECTOR: usize = 2048;
/// Of the volume descriptors.
const FIRST: usize = 16;
const MOST_DESCRIPTORS: usize = 16;
/// In the descriptor.
const ESCAPES: usize = 88;
const ROOT: usize = 156;
const LEVELS: [&[u8]; 3] = [b"%/@", b"%/C", b"%/E"];
const FOLDER: u8 = 2;

pub fn is_volume(bytes: &[u8]) -> bool {
    descriptor(bytes, FIRST).is_some()
}

pub fn read(bytes: &[u8]) -> io::Result<Tree> {
    let joliet = (FIRST..FIRST + MOST_DESCRIPTORS)
        .map_while(|number| descriptor(bytes, number))
        .find(|volume| volume[0] == 2 && LEVELS.contains(&&volume[ESCAPES..ESCAPES + 3]))
        .ok_or_else(|| damaged("it is ISO 9660 without Joliet's long names (xorrisofs -J)"))?;
    let root = Record::parse(&joliet[ROOT..]).ok_or_else(|| damaged("it has no root folder"))?;
    let mut tree = Tree::default();
    read_folder(bytes, &root, "", &mut tree)?;
    Ok(tree)
}

fn descriptor(bytes: &[u8], number: usize) -> Option<&[u8]> {
    let volume = bytes.get(number * SECTOR..(number + 1) * SECTOR)?;
    (&volume[1..6] == b"CD001" && volume[0] != 255).then_some(volume)
}

struct Record<'a> {
    length: usize,
    folder: bool,
    name: &'a [u8],
    place: usize,
    size: usize,
}

impl<'a> Record<'a> {
    /// The numbers stand there in both orders of bytes; this is the little end first.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let length = usize::from(*bytes.first()?);
        let record = bytes.get(..length)?;
        let number = |at: usize| {
            let four = record.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_le_bytes(four)).ok()
        };
        let name_length = usize::from(*record.get(32)?);
        Some(Self {
            length,
            folder: record[25] & FOLDER != 0,
            name: record.get(33..33 + name_length)?,
            place: number(2)?.checked_mul(SECTOR)?,
            size: number(10)?,
        })
    }

    fn content(&self, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        self.place
            .checked_add(self.size)
            .and_then(|end| bytes.get(self.place..end))
            .ok_or_else(|| damaged("a file lies outside of it"))
    }

    /// In UCS-2, the big end first; `;1` at its end is a version.
    fn name(&self) -> io::Result<String> {
        let units: Vec<u16> = self
            .name
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect();
        let name = String::from_utf16_lossy(&units);
        let name = name.strip_suffix(";1").unwrap_or(&name);
        if name.is_empty() || name.contains(['/', '\0']) || matches!(name, "." | "..") {
            return Err(damaged("a file has no name"));
        }
        Ok(name.to_owned())
    }
}

fn read_folder(bytes: &[u8], folder: &Record<'_>, path: &str, tree: &mut Tree) -> io::Result<()> {
    for sector in folder.content(bytes)?.chunks(SECTOR) {
        let mut rest = sector;
        // No record goes over the end of a sector; zeros fill it.
        while rest.first().is_some_and(|length| *length != 0) {
            let record = Record::parse(rest).ok_or_else(|| damaged("a folder is cut off"))?;
            rest = &rest[record.length..];
            // The folder itself, and the one that it is in.
            if matches!(record.name, [0 | 1]) {
                continue;
            }
            let path = format!("{path}{}", record.name()?);
            if record.folder {
                tree.add(path.clone(), Entry::Folder)?;
                read_folder(bytes, &record, &format!("{path}/"), tree)?;
            } else {
                let content = record.content(bytes)?.to_vec();
                tree.add(path, Entry::File(content))?;
            }
        }
    }
    Ok(())
}
