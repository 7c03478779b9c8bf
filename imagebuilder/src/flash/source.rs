//! What is written: an image as it is or packed by zstd, with a part of it laid over.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use super::bar;
use crate::UsageError;
use crate::disk::fill;

/// RFC 8878, 3.1.1.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub struct Source {
    file: File,
    path: PathBuf,
    bytes: u64,
    over: Option<Over>,
    /// Goes when this does.
    _unpacked: Option<NamedTempFile>,
}

/// Bytes that stand for those of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    pub offset: u64,
    pub content: Vec<u8>,
}

impl Source {
    /// One that is packed is unpacked beside it first, or where temporary files are: a stick is compared with it block by block.
    pub fn open(image: &Path) -> Result<Self> {
        let open = |path: &Path| {
            File::open(path).map_err(|error| UsageError(format!("{}: {error}", path.display())))
        };
        let mut file = open(image)?;
        let mut magic = [0; 4];
        let packed = fill(&mut file, &mut magic)? == magic.len() && magic == ZSTD;
        file.seek(SeekFrom::Start(0))?;
        let unpacked = packed.then(|| unpack(image, &file)).transpose()?;
        let path = unpacked.as_ref().map_or(image, |file| file.path());
        let file = open(path)?;
        let bytes = fs::metadata(path)
            .with_context(|| format!("reading {}", path.display()))?
            .len();
        Ok(Self {
            file,
            path: path.to_owned(),
            bytes,
            over: None,
            _unpacked: unpacked,
        })
    }

    /// Of an image that is not packed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn lay_over(&mut self, over: Over) {
        self.over = Some(over);
    }

    /// As many as there are.
    pub fn read(&mut self, offset: u64, block: &mut [u8]) -> Result<usize> {
        self.file.seek(SeekFrom::Start(offset))?;
        let count = fill(&mut self.file, block)
            .with_context(|| format!("reading {}", self.path.display()))?;
        if let Some(over) = &self.over {
            over.onto(offset, &mut block[..count]);
        }
        Ok(count)
    }
}

impl Over {
    fn onto(&self, offset: u64, block: &mut [u8]) {
        let (end, over_end) = (
            offset + block.len() as u64,
            self.offset + self.content.len() as u64,
        );
        let (first, last) = (offset.max(self.offset), end.min(over_end));
        if first >= last {
            return;
        }
        let of = |at: u64, begin: u64| usize::try_from(at - begin).unwrap_or(usize::MAX);
        block[of(first, offset)..of(last, offset)]
            .copy_from_slice(&self.content[of(first, self.offset)..of(last, self.offset)]);
    }
}

fn unpack(image: &Path, packed: &File) -> Result<NamedTempFile> {
    let folder = image
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let beside = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")));
    let mut unpacked = beside
        .or_else(|_| NamedTempFile::new())
        .context("making a temporary file")?;
    let bar = bar("unpacking", packed.metadata()?.len());
    let mut reader = zstd::Decoder::new(bar.wrap_read(packed))?;
    io::copy(&mut reader.by_ref(), &mut unpacked).with_context(|| {
        format!(
            "unpacking {}: it is damaged, cut short, or larger than what is free in {}",
            image.display(),
            unpacked.path().parent().unwrap_or(Path::new("/")).display()
        )
    })?;
    bar.finish_and_clear();
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn read_all(source: &mut Source, block: usize) -> Vec<u8> {
        let (mut all, mut block) = (Vec::new(), vec![0; block]);
        loop {
            let count = source.read(all.len() as u64, &mut block).unwrap();
            if count == 0 {
                return all;
            }
            all.extend(&block[..count]);
        }
    }

    #[test]
    fn a_packed_image_is_unpacked_and_one_that_is_cut_short_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let plain: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let packed = zstd::encode_all(&plain[..], 3).unwrap();
        let path = folder.path().join("a.img.zst");
        fs::write(&path, &packed).unwrap();
        let mut source = Source::open(&path).unwrap();
        assert_eq!(source.bytes(), plain.len() as u64);
        assert!(read_all(&mut source, 4096) == plain);
        let beside = source.path().to_owned();
        drop(source);
        assert!(!beside.exists());
        fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        let error = Source::open(&path).err().unwrap();
        assert!(error.to_string().contains("cut short"), "{error:#}");
    }

    proptest! {
        #[test]
        fn a_part_is_laid_over_wherever_blocks_begin(
            length in 1_usize..200, offset in 0_u64..220, content in prop::collection::vec(1_u8.., 0..60), block in 1_usize..90,
        ) {
            let mut file = NamedTempFile::new().unwrap();
            file.write_all(&vec![0; length]).unwrap();
            let mut source = Source::open(file.path()).unwrap();
            source.lay_over(Over { offset, content: content.clone() });
            let mut expected = vec![0; length];
            for (at, byte) in content.iter().enumerate() {
                let at = usize::try_from(offset).unwrap() + at;
                if at < length {
                    expected[at] = *byte;
                }
            }
            prop_assert_eq!(read_all(&mut source, block), expected);
        }
    }
}
