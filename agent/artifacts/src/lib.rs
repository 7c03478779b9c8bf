//! What files say of themselves: Debian packages, Helm charts, container archives. The builder, `firstlight push` and the box's
//! store read them with the same code, so that what one accepts the others do.
//!
//! Must not: use a network, a clock or a configuration. Everything read may be hostile: sizes are bounded before memory is taken.
//! To add a kind: a module that reads it, and a branch in [`recognise`].

#![warn(missing_docs)]

pub mod apt;
pub mod chart;
pub mod container;
pub mod deb;
pub mod qcow2;

use std::io::{self, Read, Seek, SeekFrom};

/// Why a file is not what it is said to be; a sentence.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Unfit {
    #[error("{0}")]
    Content(String),
    #[error("reading it: {0}")]
    Read(#[from] io::Error),
}

impl Unfit {
    fn new(what: impl Into<String>) -> Self {
        Self::Content(what.into())
    }
}

/// Formats, by how a file begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A Debian package, an `ar` archive.
    Deb,
    /// `docker save` and OCI layouts.
    Tar,
    /// A chart, or a tar that was compressed.
    Gzip,
    /// A node image, as the builder packs it.
    Zstd,
    /// A disk of QEMU, in pieces, compressed or not.
    Qcow2,
    /// Anything else: a raw disk.
    Raw,
}

/// What a file begins like. A raw disk is told from garbage by the signature of its partition table.
pub fn recognise(file: &mut (impl Read + Seek)) -> Result<Format, Unfit> {
    file.seek(SeekFrom::Start(0))?;
    let mut head = Vec::with_capacity(1024);
    file.by_ref().take(1024).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(0))?;
    let at = |offset: usize, magic: &[u8]| {
        head.get(offset..)
            .is_some_and(|rest| rest.starts_with(magic))
    };
    if at(0, b"!<arch>\n") {
        Ok(Format::Deb)
    } else if at(0, b"QFI\xfb") {
        Ok(Format::Qcow2)
    } else if at(0, &[0x28, 0xb5, 0x2f, 0xfd]) {
        Ok(Format::Zstd)
    } else if at(0, &[0x1f, 0x8b]) {
        Ok(Format::Gzip)
    } else if at(257, b"ustar") {
        Ok(Format::Tar)
    } else if at(510, &[0x55, 0xaa]) {
        Ok(Format::Raw)
    } else {
        Err(Unfit::new(
            "it is no Debian package, no chart, no container archive, and no disk with a partition table",
        ))
    }
}

/// Lower-case hex, as `sha256sum` prints it.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// At most `limit` bytes; more is an error, not a cut.
fn read_bounded(reader: impl Read, limit: u64, what: &str) -> Result<Vec<u8>, Unfit> {
    let mut bytes = Vec::new();
    reader.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(Unfit::new(format!("{what} is larger than {limit} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Cursor;

    use super::*;

    #[test]
    fn files_are_told_by_how_they_begin() {
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let mut disk = vec![0; 512];
        disk[510..].copy_from_slice(&[0x55, 0xaa]);
        for (bytes, format) in [
            (b"!<arch>\ndebian-binary".to_vec(), Some(Format::Deb)),
            (b"QFI\xfb\0\0".to_vec(), Some(Format::Qcow2)),
            (tar, Some(Format::Tar)),
            (disk, Some(Format::Raw)),
            (b"hello".to_vec(), None),
            (vec![], None),
        ] {
            assert_eq!(recognise(&mut Cursor::new(bytes)).ok(), format);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(0..=255_u8, 0..1200)) {
            let _ = recognise(&mut Cursor::new(bytes));
        }
    }
}
