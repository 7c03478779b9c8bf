//! The machine below: its files, disks and firmware. Tests put fixture trees and image files in its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use firstlight_efi::vars::EfiVars;
use firstlight_ipmi::device::{self, Device};
use firstlight_kexec::{Files, KexecError};
use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::deploy::device::{BlockDevice, KernelDisk};
use crate::deploy::start::{Mounted, Use};
use crate::inventory::sys::SysTree;
use crate::tpm::Channel;

/// By way of the kernel's resource manager, which a TPM 1.2 has not.
const TPM: &str = "/dev/tpmrm0";
const START_LOG: &str = "/sys/kernel/security/tpm0/binary_bios_measurements";
/// Which kind of boot loader has started the kernel, times 16 (Documentation/admin-guide/sysctl/kernel.rst).
const LOADER: &str = "/proc/sys/kernel/bootloader_type";
const KEXEC: u32 = 0xd;
/// Firmware has room for 64 KiB, some for a few times that.
const LARGEST_START_LOG: u64 = 1 << 20;

pub trait Machine: Send + Sync {
    fn sys(&self) -> SysTree;
    /// Opens a disk by its name, e.g. `/dev/vda`.
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn BlockDevice>>;
    /// `None` on a machine that booted by BIOS.
    fn efi_vars(&self) -> Option<EfiVars>;
    /// The way to its TPM 2.0; `NotFound` where there is none.
    fn tpm(&self) -> io::Result<Box<dyn Channel>> {
        Err(io::ErrorKind::NotFound.into())
    }
    /// What its firmware has started, as the kernel hands it out; `NotFound` where nobody has kept it.
    fn start_log(&self) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
    /// The file systems of a written disk.
    fn mount(&self, _: &dyn BlockDevice, _: Use) -> io::Result<Mounted> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The kernel to be started at the end, instead of the firmware.
    fn load(&self, _: &Files) -> Result<(), KexecError> {
        Err(KexecError::Refused(Errno::ENOSYS))
    }
    /// No kernel, if there was one.
    fn unload(&self) {}
    /// The way to its BMC; `NotFound` where there is none.
    fn bmc(&self) -> io::Result<Box<dyn firstlight_ipmi::Channel>> {
        Err(io::ErrorKind::NotFound.into())
    }
    /// The kernel's log, which has this program's lines too.
    fn log(&self) -> Vec<u8>;
    /// Writes everything back.
    fn sync(&self);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// The one this program runs on.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn sys(&self) -> SysTree {
        SysTree::new("/")
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn BlockDevice>> {
        let path = Path::new(name);
        Ok(Box::new(match access {
            Access::Read => KernelDisk::open_to_read(path)?,
            Access::Write => KernelDisk::open(path)?,
        }))
    }

    fn efi_vars(&self) -> Option<EfiVars> {
        EfiVars::open(Path::new("/sys/firmware/efi/efivars"))
    }

    fn tpm(&self) -> io::Result<Box<dyn Channel>> {
        let mut way = OpenOptions::new();
        Ok(Box::new(way.read(true).write(true).open(TPM)?))
    }

    fn start_log(&self) -> io::Result<Vec<u8>> {
        let loader = fs::read_to_string(LOADER)?;
        if is_kexec(&loader) {
            return Err(io::Error::other(
                "another kernel has started this one, and the log is of that one",
            ));
        }
        let mut log = Vec::new();
        let mut file = File::open(START_LOG)?.take(LARGEST_START_LOG + 1);
        file.read_to_end(&mut log)?;
        if log.len() as u64 > LARGEST_START_LOG {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(log)
    }

    fn mount(&self, device: &dyn BlockDevice, use_: Use) -> io::Result<Mounted> {
        let is_efi = Path::new("/sys/firmware/efi").exists();
        Mounted::of(device, use_, is_efi)
    }

    fn load(&self, files: &Files) -> Result<(), KexecError> {
        firstlight_kexec::load(files)
    }

    fn unload(&self) {
        firstlight_kexec::unload();
    }

    fn bmc(&self) -> io::Result<Box<dyn firstlight_ipmi::Channel>> {
        Ok(Box::new(Device::open(Path::new(device::PATH))?))
    }

    fn log(&self) -> Vec<u8> {
        read_kmsg(Path::new("/dev/kmsg"))
            .unwrap_or_else(|e| format!("the kernel's log cannot be read: {e}\n").into_bytes())
    }

    fn sync(&self) {
        nix::unistd::sync();
    }
}

fn is_kexec(loader: &str) -> bool {
    loader
        .trim()
        .parse::<u32>()
        .is_ok_and(|kind| kind / 16 == KEXEC)
}

/// Each read gives one record, `priority,sequence,microseconds,flags;text`; after the last one the read would block.
fn read_kmsg(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let mut log = Vec::new();
    let mut record = [0; 8192];
    loop {
        match file.read(&mut record) {
            Ok(0) => return Ok(log),
            Ok(length) => log.extend(readable(&record[..length])),
            // The kernel overwrote records while they were read.
            Err(error) if error.raw_os_error() == Some(nix::libc::EPIPE) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(log),
            Err(error) => return Err(error),
        }
    }
}

fn readable(record: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(record);
    let Some((prefix, message)) = text.split_once(';') else {
        return record.to_vec();
    };
    let microseconds: u64 = prefix
        .split(',')
        .nth(2)
        .and_then(|t| t.parse().ok())
        .unwrap_or(0);
    // Lines that begin with a space are the record's dictionary.
    let message = message.lines().next().unwrap_or_default();
    format!(
        "[{:5}.{:06}] {message}\n",
        microseconds / 1_000_000,
        microseconds % 1_000_000
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_kernel_becomes_a_line_with_its_time() {
        let line = readable(b"30,339,5140900,-;firstlight: hello\n SUBSYSTEM=x\n");
        assert_eq!(
            String::from_utf8_lossy(&line),
            "[    5.140900] firstlight: hello\n"
        );
        assert_eq!(readable(b"odd"), b"odd");
    }

    #[test]
    fn a_kernel_that_was_started_by_another_is_known_by_its_loader() {
        for (loader, by_kernel) in [("208\n", true), ("176\n", false), ("", false), ("x", false)] {
            assert_eq!(is_kexec(loader), by_kernel, "{loader}");
        }
    }
}
