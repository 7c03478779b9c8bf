//! From bytes as served to blocks of the disk: zstd or nothing.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender};

use hyper::body::Bytes;

use super::super::device::{Aligned, BlockDevice};
use super::ImageError;
use super::writer::{BLOCK, Block};

const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];

/// Formats that would be written as garbage, by their first bytes.
const REFUSED: [(&[u8], &str); 7] = [
    (b"QFI\xfb", "qcow2"),
    (b"KDMV", "vmdk"),
    (b"conectix", "vhd"),
    (b"vhdxfile", "vhdx"),
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
];

pub enum DecodeError {
    Format(&'static str),
    TooLarge,
    Io(io::Error),
    /// The writer has gone; it knows why.
    Closed,
}

impl DecodeError {
    pub fn at(self, device: &dyn BlockDevice) -> ImageError {
        match self {
            Self::Format(name) => ImageError::Format(name.to_owned()),
            Self::TooLarge => ImageError::TooLarge {
                disk: device.name().to_owned(),
                size: device.size(),
            },
            Self::Io(error) => ImageError::Decode(error),
            Self::Closed => ImageError::Cancelled,
        }
    }
}

/// Sends the decoded image in blocks. `compressed`: the name says zstd, whatever the first bytes say.
pub fn run(
    input: Receiver<Bytes>,
    output: &SyncSender<Block>,
    free: &Receiver<Aligned>,
    compressed: bool,
    size: u64,
) -> Result<(), DecodeError> {
    let mut reader = ChunkReader::new(input);
    let first = reader.peek(8).to_vec();
    if compressed || first.starts_with(ZSTD) {
        let decoder = zstd::stream::read::Decoder::with_buffer(io::BufReader::with_capacity(
            256 << 10,
            reader,
        ));
        blocks(&mut decoder.map_err(DecodeError::Io)?, output, free, size)
    } else {
        blocks(&mut reader, output, free, size)
    }
}

fn blocks(
    reader: &mut impl Read,
    output: &SyncSender<Block>,
    free: &Receiver<Aligned>,
    size: u64,
) -> Result<(), DecodeError> {
    let mut offset = 0;
    loop {
        let mut data = free.try_recv().unwrap_or_else(|_| Aligned::new(BLOCK));
        let length = fill(reader, &mut data).map_err(DecodeError::Io)?;
        data[length..].fill(0);
        if length == 0 {
            return Ok(());
        }
        if offset == 0 {
            let refused = REFUSED
                .iter()
                .find(|(magic, _)| data[..length].starts_with(magic));
            if let Some((_, name)) = refused {
                return Err(DecodeError::Format(name));
            }
        }
        if offset + length as u64 > size {
            return Err(DecodeError::TooLarge);
        }
        let block = Block {
            offset,
            data,
            length,
        };
        output.send(block).map_err(|_| DecodeError::Closed)?;
        offset += length as u64;
        if length < BLOCK {
            return Ok(());
        }
    }
}

/// Fills the buffer unless the input ends.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match reader.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Reads chunks of a channel as one stream that ends when the sender goes.
struct ChunkReader {
    input: Receiver<Bytes>,
    chunk: Bytes,
    used: usize,
}

impl ChunkReader {
    fn new(input: Receiver<Bytes>) -> Self {
        Self {
            input,
            chunk: Bytes::new(),
            used: 0,
        }
    }

    /// Up to `most` bytes that come next.
    fn peek(&mut self, most: usize) -> &[u8] {
        while self.chunk.len() - self.used < most {
            let Ok(next) = self.input.recv() else { break };
            self.chunk = [&self.chunk[self.used..], &next].concat().into();
            self.used = 0;
        }
        let left = &self.chunk[self.used..];
        &left[..left.len().min(most)]
    }
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.used == self.chunk.len() {
            match self.input.recv() {
                Ok(next) => (self.chunk, self.used) = (next, 0),
                Err(_) => return Ok(0),
            }
        }
        let left = &self.chunk[self.used..];
        let length = left.len().min(buffer.len());
        buffer[..length].copy_from_slice(&left[..length]);
        self.used += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::{channel, sync_channel};

    use proptest::prelude::*;

    use super::*;

    /// What comes out of `served` for a disk of `size` bytes, with the blocks until then.
    fn decode(
        served: &[u8],
        piece: usize,
        compressed: bool,
        size: u64,
    ) -> (Vec<u8>, Result<(), DecodeError>) {
        let (input, received) = channel();
        for piece in served.chunks(piece) {
            input.send(Bytes::copy_from_slice(piece)).unwrap();
        }
        drop(input);
        // One more than fits, so that nobody waits.
        let (output, blocks) = sync_channel(usize::try_from(size).unwrap() / BLOCK + 2);
        let (_free, none) = channel();
        let result = run(received, &output, &none, compressed, size);
        drop(output);
        let mut image = Vec::new();
        for block in blocks {
            assert_eq!(block.offset, image.len() as u64);
            image.extend_from_slice(&block.data[..block.length]);
        }
        (image, result)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// The bytes are another server's; the digest comes after them.
        #[test]
        fn whatever_is_served_what_is_written_fits_the_disk(
            word in proptest::collection::vec(any::<u8>(), 1..40),
            times in 1..60_000_usize,
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
            packed in any::<bool>(),
            compressed in any::<bool>(),
            piece in 1..5000_usize,
            size in 0..(3_u64 << 20),
        ) {
            let whole = word.repeat(times);
            let mut served = if packed { zstd::encode_all(&whole[..], 1).unwrap() } else { whole.clone() };
            for (at, value) in &changes {
                let at = at.index(served.len());
                served[at] = *value;
            }
            let cut = cut.index(served.len() * 2).min(served.len());
            let is_whole = changes.is_empty() && cut == served.len();
            let (image, result) = decode(&served[..cut], piece, compressed, size);
            prop_assert!(image.len() as u64 <= size);
            let is_refused = REFUSED.iter().any(|(magic, _)| whole.starts_with(magic));
            if is_whole && packed && !is_refused {
                prop_assert!(whole.starts_with(&image));
                prop_assert_eq!(result.is_ok(), whole.len() as u64 <= size);
            }
        }
    }
}
