//! What is on a disk image, byte by byte: partition table, FAT file systems, GRUB for BIOS.
//!
//! Works on plain files; needs no root, no loop device and no mount. Must not: run programs.
//! To add a partition to the stick: a line in [`gpt::plan_stick`], its type in [`gpt`], and a row in docs/reference.md.

pub mod fat;
pub mod gpt;
pub mod grub;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Granularity at which zeros are left out of an image file.
const BLOCK: usize = 64 * 1024;

/// Copies `from` to byte `offset` of `to`, leaving holes where `from` has only zeros. Returns the bytes covered.
pub fn copy_sparse(from: &mut impl Read, to: &mut File, offset: u64) -> io::Result<u64> {
    let mut block = vec![0; BLOCK];
    let mut position = offset;
    loop {
        let filled = fill(from, &mut block)?;
        if filled == 0 {
            return Ok(position - offset);
        }
        let data = &block[..filled];
        if data.iter().any(|byte| *byte != 0) {
            to.seek(SeekFrom::Start(position))?;
            to.write_all(data)?;
        }
        position += filled as u64;
    }
}

/// Like [`copy_sparse`], for a file that has to fit into `room` bytes.
pub fn place_file(path: &Path, to: &mut File, offset: u64, room: u64) -> Result<u64> {
    let mut from = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let length = from.metadata()?.len();
    if length > room {
        bail!(
            "{} has {length} bytes, and there is room for {room}",
            path.display()
        );
    }
    copy_sparse(&mut from, to, offset).with_context(|| format!("copying {}", path.display()))
}

/// Reads until `block` is full or the end.
pub fn fill(from: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match from.read(&mut block[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
