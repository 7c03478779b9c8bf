//! Reads a QCOW2 disk from its first to its last byte, as the raw disk that it stands for.
//!
//! Form: `docs/interop/qcow2.txt` of QEMU. Backing files, encryption, external data and extended L2 entries are refused: a disk
//! that servers are installed from stands alone.

use std::io::{self, Read, Seek, SeekFrom};

use crate::Unfit;

const MAGIC: &[u8] = b"QFI\xfb";
const HEADER: usize = 112;
/// 2 MiB, the largest that QEMU makes.
const MOST_CLUSTER_BITS: u32 = 21;
const LEAST_CLUSTER_BITS: u32 = 9;
/// Of the raw disk, 2 TiB: even of nothing but holes, each byte is gone through.
const LARGEST: u64 = 2 << 40;
/// Enough for 2 EiB with the usual clusters would be more; 32 MiB of table is what QEMU allows.
const LARGEST_L1: u64 = 32 << 20;
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;

/// Incompatible features, by bit.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const OTHER_COMPRESSION: u64 = 1 << 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Deflate,
    Zstd,
}

/// One after the other, the clusters of the disk.
#[derive(Debug)]
pub struct Disk<F> {
    file: F,
    size: u64,
    cluster_bits: u32,
    compression: Compression,
    l1: Vec<u64>,
    /// The table of `l1`'s entry of this number.
    l2: Option<(usize, Vec<u64>)>,
    at: u64,
    cluster: Vec<u8>,
    /// How much of `cluster` was handed out.
    given: usize,
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl<F: Read + Seek> Disk<F> {
    /// Reads the header and the first table. A disk with a backing file, encryption or what else cannot be read here is refused.
    pub fn open(mut file: F) -> Result<Self, Unfit> {
        let mut header = [0; HEADER];
        file.seek(SeekFrom::Start(0))?;
        let mut head = file.by_ref().take(HEADER as u64);
        let mut length = 0;
        while let count @ 1.. = head.read(&mut header[length..])? {
            length += count;
        }
        if length < 72 || !header.starts_with(MAGIC) {
            return Err(Unfit::new("it is no QCOW2 disk"));
        }
        let field = |at: usize, length: usize| number(&header, at, length);
        let version = field(4, 4);
        if !(2..=3).contains(&version) {
            return Err(Unfit::new(format!(
                "it is QCOW2 of version {version}; 2 and 3 can be read"
            )));
        }
        if field(8, 8) != 0 {
            return Err(Unfit::new(
                "it stands on a backing file; join them with `qemu-img convert`",
            ));
        }
        if field(32, 4) != 0 {
            return Err(Unfit::new("it is encrypted"));
        }
        let features = if version == 3 { field(72, 8) } else { 0 };
        if features & (CORRUPT | EXTERNAL_DATA) != 0 || features & !(DIRTY | OTHER_COMPRESSION) != 0
        {
            return Err(Unfit::new(
                "it is damaged, or uses external data or extended L2 entries; make a plain one with `qemu-img convert`",
            ));
        }
        let compression = match (features & OTHER_COMPRESSION != 0).then(|| header[104]) {
            None | Some(0) => Compression::Deflate,
            Some(1) => Compression::Zstd,
            Some(other) => {
                return Err(Unfit::new(format!(
                    "it is compressed in a way ({other}) that nobody here knows"
                )));
            }
        };
        let cluster_bits = u32::try_from(field(20, 4)).unwrap_or(u32::MAX);
        if !(LEAST_CLUSTER_BITS..=MOST_CLUSTER_BITS).contains(&cluster_bits) {
            return Err(Unfit::new("its clusters have an impossible size"));
        }
        let (size, entries) = (field(24, 8), field(36, 4));
        if size > LARGEST {
            return Err(Unfit::new(
                "it is a disk of more than 2 TiB; make a smaller one with `qemu-img resize --shrink`, and it grows again where it is installed",
            ));
        }
        let wanted = size.div_ceil(1 << (2 * cluster_bits - 3));
        if wanted > entries || wanted * 8 > LARGEST_L1 {
            return Err(Unfit::new("its tables do not cover the disk"));
        }
        let l1 = read_table(&mut file, field(40, 8), wanted)?;
        Ok(Self {
            file,
            size,
            cluster_bits,
            compression,
            l1,
            l2: None,
            at: 0,
            cluster: Vec::new(),
            given: 0,
        })
    }

    /// Of the raw disk.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn next_cluster(&mut self) -> io::Result<()> {
        let size = 1_usize << self.cluster_bits;
        let left = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
        let entry = self.entry()?;
        self.given = 0;
        self.cluster.clear();
        if entry & COMPRESSED != 0 {
            self.unpack(entry)?;
        } else if entry & OFFSET == 0 || entry & ZERO != 0 {
            self.cluster.resize(size, 0);
        } else {
            self.file.seek(SeekFrom::Start(entry & OFFSET))?;
            // The last cluster of a file may be cut off where the disk ends.
            self.file
                .by_ref()
                .take(size as u64)
                .read_to_end(&mut self.cluster)?;
            if self.cluster.len() < size.min(left) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.cluster.truncate(left);
        self.at += self.cluster.len() as u64;
        Ok(())
    }

    fn entry(&mut self) -> io::Result<u64> {
        let index = self.at >> self.cluster_bits;
        let entries = 1_u64 << (self.cluster_bits - 3);
        let which = usize::try_from(index / entries).map_err(io::Error::other)?;
        if self.l2.as_ref().is_none_or(|(number, _)| *number != which) {
            let offset = self.l1[which] & OFFSET;
            let table = if offset == 0 {
                vec![0; 1 << (self.cluster_bits - 3)]
            } else {
                read_table(&mut self.file, offset, entries)?
            };
            self.l2 = Some((which, table));
        }
        let slot = usize::try_from(index % entries).map_err(io::Error::other)?;
        Ok(self.l2.as_ref().map_or(0, |(_, table)| table[slot]))
    }

    fn unpack(&mut self, entry: u64) -> io::Result<()> {
        let size = 1_u64 << self.cluster_bits;
        let bits = 62 - (self.cluster_bits - 8);
        let offset = entry & ((1 << bits) - 1);
        let sectors = ((entry & !COMPRESSED & !(1 << 63)) >> bits) + 1;
        let length = sectors * 512 - offset % 512;
        self.file.seek(SeekFrom::Start(offset))?;
        let packed = self.file.by_ref().take(length);
        match self.compression {
            Compression::Deflate => flate2::read::DeflateDecoder::new(packed)
                .take(size)
                .read_to_end(&mut self.cluster)?,
            Compression::Zstd => zstd::Decoder::new(packed)?
                .single_frame()
                .take(size)
                .read_to_end(&mut self.cluster)?,
        };
        if (self.cluster.len() as u64) < size {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a compressed cluster is damaged",
            ));
        }
        Ok(())
    }
}

fn read_table(file: &mut (impl Read + Seek), offset: u64, entries: u64) -> io::Result<Vec<u64>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(entries * 8).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != entries * 8 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes
        .chunks_exact(8)
        .map(|entry| number(entry, 0, 8))
        .collect())
}

impl<F: Read + Seek> Read for Disk<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.cluster.len() {
            if self.at == self.size {
                return Ok(0);
            }
            self.next_cluster()?;
        }
        let count = buffer.len().min(self.cluster.len() - self.given);
        buffer[..count].copy_from_slice(&self.cluster[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    // qemu-img makes the disks, in files.
    #![allow(clippy::disallowed_methods, clippy::disallowed_types)]
    #![allow(clippy::unwrap_used)]
    use std::{
        fs::{self, File},
        io::Cursor,
        path::Path,
        process::Command,
    };

    use super::*;

    fn qemu_img(arguments: &[&str], dir: &Path) {
        let output = Command::new("qemu-img")
            .args(arguments)
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    /// Data, holes, and data again that compresses well; not a whole number of clusters.
    fn raw() -> Vec<u8> {
        let mut disk = vec![0; 5_000_192];
        let mut state = 1_u32;
        for byte in &mut disk[70_000..1_300_000] {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = state.to_be_bytes()[0];
        }
        disk[3_000_000..3_900_000].fill(7);
        disk
    }

    fn read_back(path: &Path) -> Vec<u8> {
        let mut disk = Disk::open(File::open(path).unwrap()).unwrap();
        let mut content = Vec::new();
        disk.read_to_end(&mut content).unwrap();
        assert_eq!(content.len() as u64, disk.size());
        content
    }

    #[test]
    fn disks_of_qemu_img_are_read_back_in_every_form() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("raw"), raw()).unwrap();
        for options in [
            &["-o", "compat=0.10"][..],
            &["-o", "compat=1.1"],
            &["-c"],
            &["-c", "-o", "compression_type=zstd"],
            &["-o", "cluster_size=512"],
            &["-c", "-o", "cluster_size=2M"],
            &["-o", "preallocation=metadata"],
        ] {
            let arguments = [
                &["convert", "-f", "raw", "-O", "qcow2"],
                options,
                &["raw", "disk"],
            ]
            .concat();
            qemu_img(&arguments, dir.path());
            assert!(read_back(&dir.path().join("disk")) == raw(), "{options:?}");
        }
    }

    #[test]
    fn what_does_not_stand_alone_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        qemu_img(&["create", "-q", "-f", "qcow2", "base", "1M"], dir.path());
        qemu_img(
            &[
                "create", "-q", "-f", "qcow2", "-b", "base", "-F", "qcow2", "disk",
            ],
            dir.path(),
        );
        let error = Disk::open(File::open(dir.path().join("disk")).unwrap()).unwrap_err();
        assert!(error.to_string().contains("backing file"), "{error}");
        qemu_img(
            &[
                "create",
                "-q",
                "-f",
                "qcow2",
                "-o",
                "extended_l2=on",
                "disk",
                "1M",
            ],
            dir.path(),
        );
        let error = Disk::open(File::open(dir.path().join("disk")).unwrap()).unwrap_err();
        assert!(error.to_string().contains("extended L2"), "{error}");
        assert!(Disk::open(Cursor::new(b"QFI\xfb")).is_err());
    }

    #[test]
    fn a_disk_that_would_take_days_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (size, good) in [("2T", true), ("2049G", false), ("1000T", false)] {
            let create = [
                "create",
                "-q",
                "-f",
                "qcow2",
                "-o",
                "cluster_size=2M",
                "disk",
                size,
            ];
            qemu_img(&create, dir.path());
            let opened = Disk::open(File::open(dir.path().join("disk")).unwrap());
            assert_eq!(opened.is_ok(), good, "{size}: {opened:?}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

        #[test]
        fn no_damage_breaks_one_that_is_packed_with_zstd(at in 0..200_000_usize, bytes: [u8; 8]) {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("raw"), &raw()[..300_000]).unwrap();
            qemu_img(
                &["convert", "-c", "-o", "compression_type=zstd", "-f", "raw", "-O", "qcow2", "raw", "disk"],
                dir.path(),
            );
            let mut disk = fs::read(dir.path().join("disk")).unwrap();
            let at = if at % 2 == 0 { at % 120 } else { at } % (disk.len() - 8);
            disk[at..at + 8].copy_from_slice(&bytes);
            if let Ok(disk) = Disk::open(Cursor::new(disk)) {
                let _ = io::copy(&mut disk.take(4 << 20), &mut io::sink());
            }
        }

        #[test]
        fn no_damage_breaks_it(at in 0..200_000_usize, bytes: [u8; 8]) {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("raw"), &raw()[..300_000]).unwrap();
            qemu_img(&["convert", "-c", "-f", "raw", "-O", "qcow2", "raw", "disk"], dir.path());
            let mut disk = fs::read(dir.path().join("disk")).unwrap();
            // Twice as often in the header and the tables.
            let at = if at % 2 == 0 { at % 120 } else { at } % (disk.len() - 8);
            disk[at..at + 8].copy_from_slice(&bytes);
            if let Ok(disk) = Disk::open(Cursor::new(disk)) {
                let _ = io::copy(&mut disk.take(4 << 20), &mut io::sink());
            }
        }
    }
}
