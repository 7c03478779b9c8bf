//! Packets of consecutive blocks, ready to be sent: the kernel puts the file's bytes behind their headers.

use std::io::{self, IoSliceMut};

use nix::sys::uio::preadv;

use super::{OpenFile, Source};
use crate::options::Negotiated;
use crate::packet::encode_data_header;
use crate::transfer::Blocks;

/// What is read at once, and all that a transfer has in memory unless its window is larger.
const AT_ONCE: usize = 64 * 1024;
/// `IOV_MAX`
const MOST_SLICES: usize = 1024;
const HEADER: usize = 4;

pub(super) struct Packets {
    source: Source,
    size: u64,
    block: usize,
    /// One packet behind the other. `first` and `count` say of which blocks.
    bytes: Vec<u8>,
    first: u64,
    count: u64,
}

impl Packets {
    pub fn new(source: Source, settings: Negotiated) -> Self {
        let (size, block) = (source.size(), usize::from(settings.block_size));
        let window = usize::from(settings.window);
        let blocks = usize::try_from(size / block as u64 + 1).unwrap_or(usize::MAX);
        let packets = (AT_ONCE / (HEADER + block)).max(window).min(blocks);
        Self {
            source,
            size,
            block,
            bytes: vec![0; packets * (HEADER + block)],
            first: 1,
            count: 0,
        }
    }

    /// Of a full block; the last of a file is shorter.
    pub fn packet_length(&self) -> usize {
        HEADER + self.block
    }

    /// At most a window.
    pub fn of(&mut self, blocks: Blocks) -> io::Result<&[u8]> {
        let Blocks { first, count } = blocks;
        if first < self.first || self.first + self.count < first + count {
            self.read(first)?;
        }
        let at = |block: u64| {
            let packets = usize::try_from(block - self.first).expect("within what was read");
            packets * self.packet_length()
        };
        let last = first + count - 1;
        let end = at(last) + HEADER + self.length_of(last);
        Ok(&self.bytes[at(first)..end])
    }

    fn length_of(&self, block: u64) -> usize {
        let left = self.size - (block - 1) * self.block as u64;
        usize::try_from(left).map_or(self.block, |left| left.min(self.block))
    }

    /// As many blocks as there is room for, from `first` on.
    fn read(&mut self, first: u64) -> io::Result<()> {
        let start = (first - 1) * self.block as u64;
        let length = self.packet_length();
        let mut payloads = Vec::with_capacity(self.bytes.len() / length);
        for (number, packet) in (first..).zip(self.bytes.chunks_exact_mut(length)) {
            let (header, payload) = packet.split_at_mut(HEADER);
            header.copy_from_slice(&encode_data_header(number));
            payloads.push(IoSliceMut::new(payload));
        }
        let room = (payloads.len() * self.block) as u64;
        self.count = payloads.len() as u64;
        self.first = first;
        let wanted = room.min(self.size - start);
        match &self.source {
            Source::Bytes(bytes) => {
                let start = usize::try_from(start).map_err(io::Error::other)?;
                for (from, to) in bytes[start..].chunks(self.block).zip(&mut payloads) {
                    to[..from.len()].copy_from_slice(from);
                }
            }
            Source::File(file) => read_into(file, start, wanted, &mut payloads)?,
        }
        Ok(())
    }
}

fn read_into(
    file: &OpenFile,
    start: u64,
    wanted: u64,
    mut places: &mut [IoSliceMut<'_>],
) -> io::Result<()> {
    let mut read = 0;
    while read < wanted {
        let offset = i64::try_from(start + read).map_err(io::Error::other)?;
        let most = places.len().min(MOST_SLICES);
        let got = preadv(&file.file, &mut places[..most], offset)?;
        if got == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file became shorter while it was read",
            ));
        }
        read += got as u64;
        IoSliceMut::advance_slices(&mut places, got);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    fn content(length: usize) -> Vec<u8> {
        (0_u32..)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .take(length)
            .collect()
    }

    fn sources(content: &[u8]) -> [Source; 2] {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        [
            Source::File(OpenFile::new(file).unwrap()),
            Source::Bytes(content.into()),
        ]
    }

    fn settings(block_size: u16, window: u16) -> Negotiated {
        Negotiated {
            block_size,
            window,
            timeout: Duration::from_secs(1),
        }
    }

    /// One after the other, and now and then one once more, as after a loss.
    #[test]
    fn packets_have_the_bytes_of_the_file_behind_their_numbers() {
        for (size, block, window) in [
            (0, 512, 1),
            (512, 512, 1),
            (200_003, 8, 1),
            (200_003, 8, 64),
            (200_000, 1468, 7),
            (200_000, 1468, 64),
        ] {
            let content = content(size);
            for source in sources(&content) {
                let mut packets = Packets::new(source, settings(block, window));
                let (block, last) = (usize::from(block), size / usize::from(block) + 1);
                let mut first = 1;
                while first <= last {
                    let count = usize::from(window).min(last - first + 1);
                    let wanted: Vec<u8> = (first..first + count)
                        .flat_map(|number| {
                            let bytes = &content[(number - 1) * block..size.min(number * block)];
                            [&encode_data_header(number as u64), bytes].concat()
                        })
                        .collect();
                    let asked = Blocks {
                        first: first as u64,
                        count: count as u64,
                    };
                    assert!(
                        packets.of(asked).unwrap() == wanted,
                        "{size} {block} {first}"
                    );
                    let again = first % 5 == 0 && count > 1;
                    first += if again { 1 } else { count };
                }
            }
        }
    }

    #[test]
    fn a_transfer_has_at_most_a_window_or_64_kib_in_memory() {
        let bytes = |size, block, window| {
            let [file, _] = sources(&content(size));
            Packets::new(file, settings(block, window)).bytes.len()
        };
        assert!(bytes(1_000_000, 8, 1) <= AT_ONCE);
        assert!(bytes(1_000_000, 1468, 1) <= AT_ONCE);
        assert_eq!(bytes(1_000_000, 1468, 64), 64 * 1472);
        assert_eq!(bytes(100, 1468, 64), 1472, "no more than the file");
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content(100_000)).unwrap();
        let source = Source::File(OpenFile::new(file.try_clone().unwrap()).unwrap());
        let mut packets = Packets::new(source, settings(512, 1));
        file.set_len(1000).unwrap();
        let error = packets.of(Blocks { first: 1, count: 1 }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
