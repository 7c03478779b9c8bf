//! The "newc" cpio archive that the kernel unpacks as its initramfs (Documentation/driver-api/early-userspace/
//! buffer-format.rst). Every field that could differ between two builds is fixed: owner 0, time 0, numbered inodes.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// One entry of the archive; directories above an entry are made by [`write_archive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    File { mode: u32, data: Vec<u8> },
    Symlink { target: String },
}

/// Entries by path, without a leading slash. The order of the archive is the order of the paths.
pub type Entries = BTreeMap<String, Entry>;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_777;

/// Writes the archive with its trailer.
pub fn write_archive(entries: &Entries, out: &mut impl Write) -> io::Result<()> {
    let mut inode = 1;
    let mut open: Vec<&str> = Vec::new();
    for (path, entry) in entries {
        let parents: Vec<&str> = path.match_indices('/').map(|(at, _)| &path[..at]).collect();
        for parent in parents.iter().filter(|parent| !open.contains(parent)) {
            write_entry(out, &mut inode, parent, DIRECTORY, &[])?;
        }
        open = parents;
        match entry {
            Entry::File { mode, data } => {
                write_entry(out, &mut inode, path, FILE | mode, data)?;
            }
            Entry::Symlink { target } => {
                write_entry(out, &mut inode, path, SYMLINK, target.as_bytes())?;
            }
        }
    }
    inode = 0;
    write_entry(out, &mut inode, "TRAILER!!!", 0, &[])
}

fn write_entry(
    out: &mut impl Write,
    inode: &mut u32,
    path: &str,
    mode: u32,
    data: &[u8],
) -> io::Result<()> {
    let too_big = |_| io::Error::other(format!("{path}: over 4 GiB, which cpio cannot say"));
    let size = u32::try_from(data.len()).map_err(too_big)?;
    let name = u32::try_from(path.len() + 1).map_err(too_big)?;
    let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
    // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
    let fields = [*inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name, 0];
    write!(out, "070701")?;
    for field in fields {
        write!(out, "{field:08x}")?;
    }
    out.write_all(path.as_bytes())?;
    // Name and data are each padded to four bytes, counted from the start of the header (110 bytes).
    out.write_all(&[0; 4][..=pad(110 + path.len() + 1)])?;
    out.write_all(data)?;
    out.write_all(&[0; 4][..pad(data.len())])?;
    *inode += 1;
    Ok(())
}

fn pad(length: usize) -> usize {
    (4 - length % 4) % 4
}
