//! The box's root: each layer of the slot behind a loop device of its own, whose every block is checked when it is read ([`super::verity`]),
//! stacked under a tmpfs.
#![allow(unsafe_code)] // two ioctls of loop devices, which no safe wrapper offers

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use firstlight_api::slot::Layer;
use nix::mount::{MsFlags, mount};

use super::find::Slot;
use super::verity;

/// Where the layers stay visible on the running box.
pub const LAYERS: &str = "/run/firstlight/layers";
/// The new root before it becomes `/`.
pub const SYSROOT: &str = "/sysroot";

/// linux/loop.h
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

nix::ioctl_none_bad!(loop_ctl_get_free, 0x4C82);
nix::ioctl_write_ptr_bad!(loop_configure, 0x4C0A, LoopConfig);

/// Mounts every layer at its place below [`LAYERS`], and the stack of them at [`SYSROOT`].
pub fn mount_layers(slot: &Slot, layers: &[Layer]) -> Result<()> {
    let partition =
        File::open(slot.node()).with_context(|| format!("opening {}", slot.node().display()))?;
    for layer in layers {
        let place = Path::new(LAYERS).join(&layer.name);
        fs::create_dir_all(&place)?;
        let device = attach(&partition, slot, layer)
            .with_context(|| format!("mapping layer {}", layer.name))?;
        let checked = verity::check_blocks(&device.0, layer)
            .with_context(|| format!("checking layer {}", layer.name))?;
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NODEV;
        mount(
            Some(&checked),
            &place,
            Some("squashfs"),
            flags,
            None::<&str>,
        )
        .with_context(|| {
            format!(
                "mounting layer {} as squashfs; write the stick again with `firstlight flash`",
                layer.name
            )
        })?;
    }
    stack(layers)
}

/// A loop device over the layer's bytes. The kernel lets go of it when the file system is unmounted.
fn attach(partition: &File, slot: &Slot, layer: &Layer) -> Result<(PathBuf, File)> {
    let control = File::open("/dev/loop-control")
        .context("opening /dev/loop-control (kernel module loop)")?;
    // SAFETY: the call takes no argument.
    let number = unsafe { loop_ctl_get_free(control.as_raw_fd()) }
        .context("asking for a free loop device")?;
    let path = PathBuf::from(format!("/dev/loop{number}"));
    let device = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
    let aligned =
        (layer.offset | layer.length).is_multiple_of(u64::from(slot.sector_bytes.max(512)));
    let config = LoopConfig {
        fd: partition.as_raw_fd().cast_unsigned(),
        // Direct I/O wants the disk's own block size; without it every byte would be cached twice.
        block_size: if aligned {
            slot.sector_bytes.max(512)
        } else {
            512
        },
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: layer.offset,
            size_limit: layer.length,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_READ_ONLY
                | LO_FLAGS_AUTOCLEAR
                | if aligned { LO_FLAGS_DIRECT_IO } else { 0 },
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the kernel only reads the structure, whose layout is linux/loop.h's `struct loop_config`.
    unsafe { loop_configure(device.as_raw_fd(), &raw const config) }
        .with_context(|| format!("configuring {}", path.display()))?;
    Ok((path, device))
}

fn stack(layers: &[Layer]) -> Result<()> {
    let rw = Path::new(LAYERS).join("rw");
    fs::create_dir_all(&rw)?;
    mount(
        Some("tmpfs"),
        &rw,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=0755,size=50%"),
    )
    .context("mounting the upper layer")?;
    for dir in ["upper", "work"] {
        fs::create_dir(rw.join(dir))?;
    }
    let lower: Vec<String> = layers
        .iter()
        .map(|layer| format!("{LAYERS}/{}", layer.name))
        .collect();
    let options = format!(
        "lowerdir={},upperdir={LAYERS}/rw/upper,workdir={LAYERS}/rw/work",
        lower.join(":")
    );
    fs::create_dir_all(SYSROOT)?;
    mount(
        Some("overlay"),
        SYSROOT,
        Some("overlay"),
        MsFlags::empty(),
        Some(options.as_str()),
    )
    .context("stacking the layers")
}
