//! Blocks of the image onto the disk, except for what is held back.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender};

use super::super::device::{Aligned, BlockDevice};
use super::super::mark::{self, Maker};
use super::ImageError;

/// Bytes in a block.
pub const BLOCK: usize = 4 << 20;
/// Blocks that may wait for the disk.
pub const BLOCKS: usize = 4;
/// Held back at the start and at the end of the disk.
pub const HELD: usize = 1 << 20;
/// Runs of zeros are looked for in steps of this.
const STEP: usize = 128 << 10;

/// A piece of the decoded image. Behind `length` the data is zero.
pub struct Block {
    pub offset: u64,
    pub data: Aligned,
    pub length: usize,
}

/// The parts of the image that are not on the disk yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Held {
    /// From byte 0.
    pub head: Vec<u8>,
    /// Up to the disk's last byte; zero where the image does not reach.
    pub tail: Vec<u8>,
    /// Length of the image on disk.
    pub length: u64,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// Removes everything that a firmware or a kernel could take for a partition table, and leaves the mark of the `maker`,
/// which the image's own first bytes replace in the end.
pub fn begin(device: &dyn BlockDevice, maker: Option<&Maker>) -> Result<(), ImageError> {
    let (head, tail) = ends(device)?;
    for (offset, length) in [(0, head), (device.size() - tail, tail)] {
        device
            .zero(offset, length)
            .map_err(|e| failed(device, offset, e))?;
    }
    if let Some(maker) = maker {
        mark::begin(device, maker).map_err(|e| failed(device, mark::PLACE, e))?;
    }
    device.flush().map_err(|e| failed(device, 0, e))
}

/// Writes what comes in, and passes the emptied memory on; gives back what it kept.
pub fn run(
    device: &dyn BlockDevice,
    blocks: Receiver<Block>,
    written: &SyncSender<Aligned>,
) -> Result<Held, ImageError> {
    let (first, last) = ends(device)?;
    let mut held = Held {
        head: vec![0; usize_of(first)],
        tail: vec![0; usize_of(last)],
        length: 0,
    };
    for block in blocks {
        write_block(device, &block, &mut held)?;
        held.length = block.offset + block.length as u64;
        // One too many is given back to the system.
        drop(written.try_send(block.data));
    }
    device.flush().map_err(|e| failed(device, 0, e))?;
    Ok(held)
}

/// Bytes held back at the start and at the end: whole sectors, and not overlapping.
fn ends(device: &dyn BlockDevice) -> Result<(u64, u64), ImageError> {
    let held = HELD as u64;
    if device.size() < 4 * held {
        return Err(ImageError::TooLarge {
            disk: device.name().to_owned(),
            size: device.size(),
        });
    }
    // The tail begins at a page whatever the disk's size is, so that writes before it stay aligned.
    Ok((held, held + device.size() % 4096))
}

fn write_block(device: &dyn BlockDevice, block: &Block, held: &mut Held) -> Result<(), ImageError> {
    let sector = usize_of(device.sector());
    let length = block.length.next_multiple_of(sector).min(block.data.len());
    let (start, end) = (block.offset, block.offset + length as u64);
    let tail_start = device.size() - held.tail.len() as u64;
    let head_end = held.head.len() as u64;
    let slice = |from: u64, to: u64| &block.data[usize_of(from - start)..usize_of(to - start)];
    if start < head_end {
        let to = end.min(head_end);
        held.head[usize_of(start)..usize_of(to)].copy_from_slice(slice(start, to));
    }
    if end > tail_start {
        let from = start.max(tail_start);
        let at = usize_of(from - tail_start);
        let data = slice(from, end.min(device.size()));
        held.tail[at..at + data.len()].copy_from_slice(data);
    }
    let (from, to) = (start.max(head_end), end.min(tail_start));
    if from < to {
        write_sparse(device, from, slice(from, to))?;
    }
    Ok(())
}

/// Zeros are asked for as zeros: disks that can do so need no data for them, and old data never shines through.
fn write_sparse(device: &dyn BlockDevice, offset: u64, data: &[u8]) -> Result<(), ImageError> {
    let mut at = 0;
    while at < data.len() {
        let zero = is_zero(&data[at..(at + STEP).min(data.len())]);
        let mut end = (at + STEP).min(data.len());
        while end < data.len() && is_zero(&data[end..(end + STEP).min(data.len())]) == zero {
            end = (end + STEP).min(data.len());
        }
        let position = offset + at as u64;
        let result = if zero {
            device.zero(position, (end - at) as u64)
        } else {
            device.write_bulk(position, &data[at..end])
        };
        result.map_err(|e| failed(device, position, e))?;
        at = end;
    }
    Ok(())
}

/// Compares with the kernel's speed of `memcmp` instead of byte by byte.
pub fn is_zero(data: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    data.chunks(ZEROS.len())
        .all(|chunk| chunk == &ZEROS[..chunk.len()])
}

fn failed(device: &dyn BlockDevice, offset: u64, source: io::Error) -> ImageError {
    ImageError::Write {
        disk: device.name().to_owned(),
        offset,
        source,
    }
}

fn usize_of(value: u64) -> usize {
    usize::try_from(value).expect("a place in memory")
}
