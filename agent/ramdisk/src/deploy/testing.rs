//! Disks for the tests of this directory.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use super::device::{BlockDevice, FileDisk};
use super::image::is_zero;

/// A disk image of `fixtures/disks`, unpacked with its holes.
pub fn fixture(name: &str) -> (tempfile::NamedTempFile, FileDisk) {
    let path = format!("fixtures/disks/{name}.zst");
    let mut packed = zstd::Decoder::new(File::open(path).unwrap()).unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    let mut block = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let length = packed.read(&mut block).unwrap();
        if length == 0 {
            break;
        }
        if !is_zero(&block[..length]) {
            image
                .as_file()
                .write_all_at(&block[..length], offset)
                .unwrap();
        }
        offset += length as u64;
    }
    image.as_file().set_len(offset).unwrap();
    let disk = FileDisk::open(image.path(), 512).unwrap();
    (image, disk)
}

/// An empty disk with these bytes on it.
pub fn disk_with(size: u64, places: &[(u64, &[u8])]) -> (tempfile::NamedTempFile, FileDisk) {
    disk_of_sectors(512, size, places)
}

pub fn disk_of_sectors(
    sector: u64,
    size: u64,
    places: &[(u64, &[u8])],
) -> (tempfile::NamedTempFile, FileDisk) {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(size).unwrap();
    for (offset, bytes) in places {
        image.as_file().write_all_at(bytes, *offset).unwrap();
    }
    let disk = FileDisk::open(image.path(), sector).unwrap();
    (image, disk)
}

pub fn read(device: &dyn BlockDevice, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    device.read_at(offset, &mut bytes).unwrap();
    bytes
}
