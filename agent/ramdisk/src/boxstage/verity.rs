//! A device whose blocks the kernel checks by a hash tree when they are read (dm-verity): another one than was built cannot be read.
#![allow(unsafe_code)] // ioctls of device-mapper, which no safe wrapper offers

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use firstlight_api::slot::Layer;
use firstlight_api::verity::{BLOCK, data_blocks};

const CONTROL: &str = "/dev/mapper/control";
const SECTOR: u64 = 512;
/// linux/dm-ioctl.h
const VERSION: [u32; 3] = [4, 0, 0];
const READONLY: u32 = 1;
/// Of what is behind the head: one target and its words.
const ROOM: usize = 512;

#[repr(C)]
struct Request {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event_number: u32,
    padding: u32,
    device: u64,
    name: [u8; 128],
    uuid: [u8; 129],
    unused: [u8; 7],
    target: Target,
    words: [u8; ROOM],
}

#[repr(C)]
struct Target {
    start: u64,
    length: u64,
    status: i32,
    next: u32,
    kind: [u8; 16],
}

const HEAD: usize = std::mem::offset_of!(Request, target);

nix::ioctl_readwrite_bad!(create, nix::request_code_readwrite!(0xfd, 3, HEAD), Request);
nix::ioctl_readwrite_bad!(resume, nix::request_code_readwrite!(0xfd, 6, HEAD), Request);
nix::ioctl_readwrite_bad!(load, nix::request_code_readwrite!(0xfd, 9, HEAD), Request);

impl Request {
    fn new(name: &str) -> Result<Box<Self>> {
        let size = u32::try_from(size_of::<Self>())?;
        let mut request = Box::new(Self {
            version: VERSION,
            data_size: size,
            data_start: u32::try_from(HEAD)?,
            target_count: 0,
            open_count: 0,
            flags: READONLY,
            event_number: 0,
            padding: 0,
            device: 0,
            name: [0; 128],
            uuid: [0; 129],
            unused: [0; 7],
            target: Target {
                start: 0,
                length: 0,
                status: 0,
                next: 0,
                kind: [0; 16],
            },
            words: [0; ROOM],
        });
        put(&mut request.name, name)?;
        Ok(request)
    }
}

fn put(place: &mut [u8], text: &str) -> Result<()> {
    ensure!(text.len() < place.len(), "{text} is too long");
    place[..text.len()].copy_from_slice(text.as_bytes());
    Ok(())
}

/// The layer on `device`, checked by the root that the slot's table has of it.
pub fn check_blocks(device: &Path, layer: &Layer) -> Result<PathBuf> {
    let blocks = data_blocks(layer.length).context("its length is no layer's")?;
    let control = File::open(CONTROL).context("opening device-mapper (kernel module dm_mod)")?;
    let control = control.as_raw_fd();
    let name = format!("firstlight-{}", layer.name);

    let mut request = Request::new(&name)?;
    // SAFETY: the kernel reads and writes no more than `data_size` bytes, which are the structure.
    unsafe { create(control, &raw mut *request) }.context("making a device")?;
    // Minor numbers below 256 are all that a machine that just started has.
    let minor = request.device & 0xff;

    let mut request = Request::new(&name)?;
    request.target_count = 1;
    request.target.length = blocks * BLOCK as u64 / SECTOR;
    put(&mut request.target.kind, "verity")?;
    put(&mut request.words, &words(device, blocks, layer))?;
    // SAFETY: as above.
    unsafe { load(control, &raw mut *request) }
        .context("setting up the check (kernel module dm_verity)")?;
    let mut request = Request::new(&name)?;
    // SAFETY: as above. Without the flag to suspend it resumes.
    unsafe { resume(control, &raw mut *request) }.context("starting the check")?;
    Ok(PathBuf::from(format!("/dev/dm-{minor}")))
}

/// Documentation/admin-guide/device-mapper/verity.rst. Each block is checked the first time that it is read: what is read again from
/// memory was checked.
fn words(device: &Path, blocks: u64, layer: &Layer) -> String {
    let (device, root) = (device.display(), layer.root);
    format!("1 {device} {device} {BLOCK} {BLOCK} {blocks} {blocks} sha256 {root} -")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_structures_are_the_kernels() {
        assert_eq!((HEAD, size_of::<Target>()), (312, 40));
        assert_eq!(std::mem::offset_of!(Request, name), 48);
        let mut small = [0; 4];
        assert!(put(&mut small, "long").is_err(), "no room for the zero");
        put(&mut small, "abc").unwrap();
        assert_eq!(&small, b"abc\0");
    }

    #[test]
    fn the_words_are_dm_veritys() {
        let layer = Layer {
            name: "agent".to_owned(),
            offset: 4096,
            length: 132 * 4096,
            sha256: [1; 32].into(),
            root: [0xab; 32].into(),
        };
        let words = words(Path::new("/dev/loop0"), 129, &layer);
        let root = "ab".repeat(32);
        assert_eq!(
            words,
            format!("1 /dev/loop0 /dev/loop0 4096 4096 129 129 sha256 {root} -")
        );
    }
}
