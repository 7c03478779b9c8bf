//! The UEFI boot entry of an installed disk: its boot loader is looked for, and the firmware is pointed at it.
//!
//! A firmware whose variables are full or read-only still boots a disk that has the removable-media path, so that is
//! a sentence and no failure.

use std::io;

use firstlight_efi::boot_entry::write_entry;
use firstlight_efi::vars::EfiVars;

use super::device::BlockDevice;
use super::finish::{self, FinishError, Range};
use super::volume::Volume;

/// What firmware tries by itself.
const REMOVABLE: &str = r"\EFI\BOOT\BOOTX64.EFI";
/// Best first: shim with the distribution's own directory knows its fallback and its keys.
const LOADERS: [&str; 3] = [
    r"\EFI\debian\shimx64.efi",
    REMOVABLE,
    r"\EFI\debian\grubx64.efi",
];

/// Bytes in which every loader is found, or none is: a damaged file system can lead in a circle.
const MOST_READ: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum BootEntryError {
    #[error(transparent)]
    Table(#[from] FinishError),
    #[error(
        "{0} has no EFI system partition, and this machine boots by UEFI; use an image that has one"
    )]
    NoEsp(String),
    #[error("reading the EFI system partition of {disk}")]
    Esp { disk: String, source: io::Error },
    #[error("the EFI system partition of {0} has none of {list}", list = LOADERS.join(", "))]
    NoLoader(String),
    #[error(
        "the firmware refuses a boot entry, and {disk} has no {REMOVABLE} that it would find by itself"
    )]
    Firmware { disk: String, source: io::Error },
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    /// `Boot####` with this number boots the disk.
    Entry(u16),
    /// The firmware must find the disk by itself; the reason is a sentence.
    RemovablePath(String),
}

/// Points the firmware at the disk.
pub fn install(device: &dyn BlockDevice, vars: &EfiVars) -> Result<Installed, BootEntryError> {
    let disk = || device.name().to_owned();
    let esp = finish::find_esp(device)?.ok_or_else(|| BootEntryError::NoEsp(disk()))?;
    let found = loaders(device, esp.range).map_err(|source| BootEntryError::Esp {
        disk: disk(),
        source,
    })?;
    let path = *found
        .first()
        .ok_or_else(|| BootEntryError::NoLoader(disk()))?;
    match write_entry(vars, &esp.drive, path) {
        Ok(number) => Ok(Installed::Entry(number)),
        Err(error) if found.contains(&REMOVABLE) => Ok(Installed::RemovablePath(format!(
            "The firmware took no boot entry ({error}); it has to find {REMOVABLE} on {} by itself.",
            device.name()
        ))),
        Err(source) => Err(BootEntryError::Firmware {
            disk: disk(),
            source,
        }),
    }
}

/// Loaders that are there, best first.
fn loaders(device: &dyn BlockDevice, range: Range) -> io::Result<Vec<&'static str>> {
    let volume = Volume::to_read(device, range, MOST_READ);
    let options = fatfs::FsOptions::new().update_accessed_date(false);
    let fs = fatfs::FileSystem::new(volume, options)?;
    let root = fs.root_dir();
    let mut found = Vec::new();
    for loader in LOADERS {
        match root.open_file(&loader.trim_start_matches('\\').replace('\\', "/")) {
            Ok(_) => found.push(loader),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(_) => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
