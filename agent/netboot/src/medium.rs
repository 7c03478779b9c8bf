//! The virtual CD from which a BMC starts a server whose firmware does not boot from the network. Pure: what is large, kernel and
//! initramfs, is named here and never held.
//!
//! An ISO 9660 volume (ECMA-119) with an El Torito entry for UEFI (El Torito 1.0; UEFI 2.10 section 13.3.2.1): a small FAT with shim,
//! GRUB and its configuration, which the ISO has as a file, too. GRUB finds kernel and initramfs in the ISO itself: El Torito can say of a FAT of 32 MiB at most how long
//! it is. All servers have the same CD but for the configuration, which has a place of its own and always the same size.

mod fat;
mod iso;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::{BootSite, MacAddr, boot_choice::kernel_command_line};

/// Of a CD.
const SECTOR: usize = 2048;
/// Of the configuration, with what fills it up.
pub const MEDIUM_CONFIG: usize = 4096;

/// Why there is no CD of these files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediumError {
    /// Firmware is told of 32 MiB at most.
    #[error("shim and GRUB have {0} bytes, and 32 MiB is the most that a CD can start")]
    Loaders(usize),
    /// A file of ISO 9660 has 4 GiB at most.
    #[error("a file of {0} bytes does not fit onto a CD")]
    File(u64),
    /// More kernel arguments than there is room for.
    #[error("the boot configuration has {0} bytes, and there is room for {MEDIUM_CONFIG}")]
    Config(usize),
}

/// All of the CD but kernel and initramfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Medium {
    head: Vec<u8>,
    config: Range<usize>,
    kernel: u64,
    initrd: u64,
}

/// A piece of the CD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumPart {
    /// Of [`Medium::head`].
    Head(Range<usize>),
    /// What [`medium_config`] made.
    Config,
    /// All of the file.
    Kernel,
    /// All of the file.
    Initrd,
    /// So many.
    Zeros(usize),
}

impl Medium {
    /// `kernel`, `initrd`: how many bytes they have.
    pub fn new(shim: &[u8], grub: &[u8], kernel: u64, initrd: u64) -> Result<Self, MediumError> {
        let volume = fat::volume(shim, grub)?;
        let (mut head, at) = iso::volume(&volume.bytes, &volume.config, kernel, initrd)?;
        head.extend_from_slice(&volume.bytes);
        head.resize(head.len().next_multiple_of(SECTOR), 0);
        let config = at + volume.config.start..at + volume.config.end;
        Ok(Self {
            head,
            config,
            kernel,
            initrd,
        })
    }

    /// What stands before the kernel.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// All of it in order, each with its bytes.
    pub fn parts(&self) -> [(MediumPart, u64); 7] {
        let Range { start, end } = self.config;
        let head = |range: Range<usize>| (MediumPart::Head(range.clone()), range.len() as u64);
        let rest = |size: u64| {
            let rest = size.next_multiple_of(SECTOR as u64) - size;
            let zeros = usize::try_from(rest).expect("less than a sector");
            (MediumPart::Zeros(zeros), rest)
        };
        [
            head(0..start),
            (MediumPart::Config, self.config.len() as u64),
            head(end..self.head.len()),
            (MediumPart::Kernel, self.kernel),
            rest(self.kernel),
            (MediumPart::Initrd, self.initrd),
            rest(self.initrd),
        ]
    }
}

/// GRUB's configuration for one server. What cannot be loaded restarts it: GRUB's `exit` ends in the menu of some firmware.
pub fn medium_config(site: &BootSite, mac: MacAddr) -> Result<Vec<u8>, MediumError> {
    let (kernel, initrd) = (iso::KERNEL.to_lowercase(), iso::INITRD.to_lowercase());
    let text = format!(
        "echo \"Firstlight: loading the ramdisk from a virtual CD\"\n\
         if search --no-floppy --set=root --file /{kernel}; then\n\
         \x20 if linux /{kernel} {}; then\n\
         \x20   if initrd /{initrd}; then boot; fi\n\
         \x20 fi\n\
         fi\n\
         echo \"Firstlight: the virtual CD cannot be read; restarting in 30 seconds\"\n\
         sleep 30\n\
         reboot\n",
        kernel_command_line(site, mac)
    );
    let mut config = text.into_bytes();
    if config.len() > MEDIUM_CONFIG {
        return Err(MediumError::Config(config.len()));
    }
    config.resize(MEDIUM_CONFIG, b'\n');
    Ok(config)
}
