//! A kernel in memory that takes over from the running one: `kexec_file_load(2)`, which checks signatures by itself where the firmware
//! demands them. A ramdisk starts the system that it has installed by it, and an installed system the ramdisk.
//!
//! Must not: find or fetch what is to be started, or start it.

#![warn(missing_docs)]

use std::ffi::{CString, c_ulong};
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Of linux/kexec.h.
const UNLOAD: c_ulong = 1;
const NO_INITRAMFS: c_ulong = 4;

/// A kernel has some 10 MB, an initramfs with everything some 100.
const LARGEST: u64 = 2 << 30;
/// For the machine while it does this.
const SPARE: u64 = 64 << 20;

/// Opened files; the system that they are of may be unmounted once they are loaded.
#[derive(Debug)]
pub struct Files {
    /// Linux, as boot loaders load it.
    pub kernel: File,
    /// Its initramfs, in this order.
    pub initrds: Vec<File>,
    /// Its command line.
    pub options: String,
}

/// Why it is not loaded. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum KexecError {
    #[error(
        "the memory does not hold another kernel: it takes {needed} MB, and {free} MB are free"
    )]
    Memory { needed: u64, free: u64 },
    #[error("its kernel and initramfs are larger than any")]
    Size,
    #[error("its command line has a zero byte")]
    Options,
    #[error(
        "its kernel has no signature that the running one knows, and the firmware's Secure Boot demands one"
    )]
    Signature,
    #[error("reading its kernel and initramfs")]
    Read(#[source] io::Error),
    #[error("the running kernel does not take it")]
    Refused(#[source] Errno),
}

/// Loads it; nothing is started yet.
pub fn load(files: &Files) -> Result<(), KexecError> {
    let length = |file: &File| file.metadata().map(|meta| meta.len());
    let mut needed = length(&files.kernel).map_err(KexecError::Read)?;
    for initrd in &files.initrds {
        needed = needed.saturating_add(length(initrd).map_err(KexecError::Read)?);
    }
    fits(needed)?;
    let options = CString::new(files.options.as_str()).map_err(|_| KexecError::Options)?;
    let initrd = joined(&files.initrds).map_err(KexecError::Read)?;
    let (initrd, flags) = match &initrd {
        Some(file) => (file.as_raw_fd(), 0),
        None => (-1, NO_INITRAMFS),
    };
    let bytes = options.as_bytes_with_nul();
    call(files.kernel.as_raw_fd(), initrd, bytes, flags).map_err(|error| match error {
        Errno::EKEYREJECTED | Errno::ENOKEY | Errno::EPERM | Errno::ENODATA | Errno::EBADMSG => {
            KexecError::Signature
        }
        other => KexecError::Refused(other),
    })
}

/// Is there memory for a kernel and an initramfs of so many bytes?
pub fn fits(bytes: u64) -> Result<(), KexecError> {
    if bytes > LARGEST {
        return Err(KexecError::Size);
    }
    // The files as they are read, their copies for the next kernel, and one in between where there are several.
    let (needed, free) = (bytes * 3 + SPARE, available());
    if free < needed {
        return Err(KexecError::Memory {
            needed: needed >> 20,
            free: free >> 20,
        });
    }
    Ok(())
}

/// Forgets what was loaded, if anything was.
pub fn unload() {
    if let Err(error) = call(-1, -1, b"\0", UNLOAD) {
        tracing::debug!(%error, "no kernel was loaded");
    }
}

/// One after the other, each beginning at a multiple of four bytes, as boot loaders do it.
fn joined(files: &[File]) -> io::Result<Option<File>> {
    if let [only] = files {
        return only.try_clone().map(Some);
    }
    if files.is_empty() {
        return Ok(None);
    }
    let mut all = File::from(memfd_create(c"initramfs", MFdFlags::MFD_CLOEXEC)?);
    for file in files {
        io::copy(&mut &*file, &mut all)?;
        let end = all.stream_position()?.next_multiple_of(4);
        all.set_len(end)?;
        all.seek(SeekFrom::Start(end))?;
    }
    Ok(Some(all))
}

/// Bytes of memory that programs can have.
fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|it| it.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|it| it.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[allow(unsafe_code)]
fn call(kernel: RawFd, initrd: RawFd, options: &[u8], flags: c_ulong) -> Result<(), Errno> {
    // SAFETY: the kernel reads `options.len()` bytes of `options`, which outlives the call, and keeps neither it nor the files.
    let result = unsafe {
        libc::syscall(
            libc::SYS_kexec_file_load,
            kernel,
            initrd,
            options.len(),
            options.as_ptr(),
            flags,
        )
    };
    Errno::result(result).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file
    }

    #[test]
    fn several_archives_become_one_and_each_begins_where_the_kernel_looks_for_it() {
        let mut all = joined(&[file(b"12345"), file(b"6")]).unwrap().unwrap();
        let mut bytes = Vec::new();
        all.seek(SeekFrom::Start(0)).unwrap();
        all.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"12345\0\0\x006\0\0\0");
        assert!(joined(&[]).unwrap().is_none());
        let mut one = joined(&[file(b"12345")]).unwrap().unwrap();
        bytes.clear();
        one.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"12345");
    }

    #[test]
    fn a_kernel_that_nobody_has_memory_for_is_not_loaded() {
        let kernel = tempfile::tempfile().unwrap();
        kernel.set_len(LARGEST).unwrap();
        let files = Files {
            kernel,
            initrds: vec![file(b"1")],
            options: String::new(),
        };
        assert!(matches!(load(&files), Err(KexecError::Size)));
    }
}
