//! The limit of a folder: a project of the file system's own, whose quota is what was promised. ext4 and XFS have them, mounted with
//! `prjquota`. The numbers are the kernel's (`linux/fs.h`, `linux/quota.h`).
#![allow(
    unsafe_code,
    reason = "projects and their quotas exist only as ioctls and a system call that nix does not wrap"
)]

use std::{
    fs::{self, File},
    os::fd::AsRawFd as _,
    path::Path,
};

use anyhow::{Context as _, Result};
use nix::{
    errno::Errno,
    libc::{self, c_int, c_long},
};

/// Not those that the kubelet gives, which begin at 2^20.
const FIRST_PROJECT: u32 = 0x4600_0000;
/// Files and folders below it are of its project.
const INHERIT: u32 = 0x200;
const PROJECT_QUOTA: c_int = 2;
const SET_QUOTA: c_int = 0x80_0008;
const BLOCK_LIMITS: u32 = 1;
const FILE_LIMITS: u32 = 4;
const BLOCK: u64 = 1024;
/// As many files as an ext4 of this size would have.
const BYTES_A_FILE: u64 = 16 << 10;
const FEWEST_FILES: u64 = 4096;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

#[repr(C)]
#[derive(Debug, Default)]
struct Quota {
    block_hard: u64,
    block_soft: u64,
    used: u64,
    file_hard: u64,
    file_soft: u64,
    files: u64,
    block_time: u64,
    file_time: u64,
    valid: u32,
}

nix::ioctl_read!(get_attributes, b'X', 31, Attributes);
nix::ioctl_write_ptr!(set_attributes, b'X', 32, Attributes);

/// The folder is held to `bytes` from now on, if its file system is mounted for it. `Err`: it cannot be.
pub fn limit(folder: &Path, bytes: u64) -> Result<()> {
    let file = open(folder)?;
    let mut attributes = attributes(&file)?;
    if attributes.project < FIRST_PROJECT {
        attributes.project = free_project(folder)?;
        attributes.flags |= INHERIT;
        // SAFETY: a pointer to a whole structure, for the length of the call.
        unsafe { set_attributes(file.as_raw_fd(), &raw const attributes) }
            .context("giving it a project")?;
    }
    let limits = Quota {
        block_hard: bytes.div_ceil(BLOCK),
        file_hard: (bytes / BYTES_A_FILE).max(FEWEST_FILES),
        valid: BLOCK_LIMITS | FILE_LIMITS,
        ..Quota::default()
    };
    set_quota(&file, attributes.project, &limits)
}

/// Before the folder goes, so that nobody inherits its limit with its number.
pub fn lift(folder: &Path) -> Result<()> {
    let file = open(folder)?;
    let project = attributes(&file)?.project;
    if project < FIRST_PROJECT {
        return Ok(());
    }
    let none = Quota {
        valid: BLOCK_LIMITS | FILE_LIMITS,
        ..Quota::default()
    };
    set_quota(&file, project, &none)
}

fn open(folder: &Path) -> Result<File> {
    File::open(folder).with_context(|| format!("opening {}", folder.display()))
}

fn attributes(file: &File) -> Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: a pointer to a whole structure, for the length of the call.
    unsafe { get_attributes(file.as_raw_fd(), &raw mut attributes) }
        .context("its file system has no projects")?;
    Ok(attributes)
}

/// One more than any volume beside it has.
fn free_project(folder: &Path) -> Result<u32> {
    let base = folder.parent().context("a volume is in a folder")?;
    let mut last = FIRST_PROJECT;
    for entry in fs::read_dir(base).with_context(|| format!("listing {}", base.display()))? {
        let path = entry?.path();
        // Others may be on other file systems, or be no folders.
        let found = open(&path).and_then(|file| attributes(&file));
        last = last.max(found.map_or(0, |attributes| attributes.project));
    }
    Ok(last + 1)
}

fn set_quota(file: &File, project: u32, quota: &Quota) -> Result<()> {
    let command = c_long::from(SET_QUOTA << 8 | PROJECT_QUOTA);
    // SAFETY: a pointer to a whole structure, for the length of the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            c_long::from(file.as_raw_fd()),
            command,
            c_long::from(project),
            std::ptr::from_ref(quota),
        )
    };
    Errno::result(result)
        .map(drop)
        .context("its file system is not mounted with `prjquota`")
}
