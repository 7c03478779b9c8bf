//! The UEFI boot entry of an installed disk: found boot loader, `Boot####`, first in `BootOrder`, and `BootNext`.
//!
//! A firmware whose variables are full or read-only still boots a disk that has the removable-media path, so that is
//! a sentence and no failure.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::device::BlockDevice;
use super::efi::load_option;
use super::efi::vars::EfiVars;
use super::finish::{self, Esp, FinishError, Range};

const DESCRIPTION: &str = "Firstlight";
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
    match write_entry(vars, &esp, path) {
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

/// Makes the next boot use the entry of an installed disk; false when there is none.
pub fn boot_next(vars: &EfiVars) -> io::Result<bool> {
    match own_entries(vars).first() {
        Some(number) => vars.write("BootNext", &number.to_le_bytes()).map(|()| true),
        None => Ok(false),
    }
}

/// Makes the next boot come from the network: by the entry of this NIC, else of any; false when there is none.
pub fn boot_network_next(vars: &EfiVars, mac: [u8; 6]) -> io::Result<bool> {
    match network_entry(vars, mac) {
        Some(number) => vars.write("BootNext", &number.to_le_bytes()).map(|()| true),
        None => Ok(false),
    }
}

/// IPv4 before the rest, because the box answers there; then in the firmware's own order.
fn network_entry(vars: &EfiVars, mac: [u8; 6]) -> Option<u16> {
    let order = boot_order(vars);
    let place = |number: &u16| order.iter().position(|n| n == number).unwrap_or(usize::MAX);
    let network = |number: u16| {
        let path = load_option::network_path(&vars.read(&entry_name(number))?)?;
        Some((number, path))
    };
    entry_numbers(vars)
        .into_iter()
        .filter_map(network)
        .min_by_key(|(number, path)| (path.mac != mac, !path.ipv4, place(number)))
        .map(|(number, _)| number)
}

/// Loaders that are there, best first.
fn loaders(device: &dyn BlockDevice, range: Range) -> io::Result<Vec<&'static str>> {
    let volume = Volume {
        device,
        range,
        position: 0,
        left: MOST_READ,
    };
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

fn write_entry(vars: &EfiVars, esp: &Esp, path: &str) -> io::Result<u16> {
    let data = load_option::encode(DESCRIPTION, esp, path);
    let own = own_entries(vars);
    let number = own.first().copied().map_or_else(|| free_number(vars), Ok)?;
    vars.write(&entry_name(number), &data)?;
    let stale = own.get(1..).unwrap_or_default();
    for other in stale {
        vars.remove(&entry_name(*other))?;
    }
    let order: Vec<u8> = std::iter::once(number)
        .chain(
            boot_order(vars)
                .into_iter()
                .filter(|n| *n != number && !stale.contains(n)),
        )
        .flat_map(u16::to_le_bytes)
        .collect();
    vars.write("BootOrder", &order)?;
    vars.write("BootNext", &number.to_le_bytes())?;
    Ok(number)
}

/// Entries that an earlier installation made, in order of number.
fn own_entries(vars: &EfiVars) -> Vec<u16> {
    entry_numbers(vars)
        .into_iter()
        .filter(|number| {
            let data = vars.read(&entry_name(*number));
            data.and_then(|d| load_option::description(&d)).as_deref() == Some(DESCRIPTION)
        })
        .collect()
}

/// Each once: `Boot00ab` is another variable than `Boot00AB`, and no entry.
fn entry_numbers(vars: &EfiVars) -> Vec<u16> {
    let number = |name: &String| {
        let number = u16::from_str_radix(name.strip_prefix("Boot")?, 16).ok()?;
        (entry_name(number) == *name).then_some(number)
    };
    vars.names().iter().filter_map(number).collect()
}

fn free_number(vars: &EfiVars) -> io::Result<u16> {
    let taken = entry_numbers(vars);
    (0..=u16::MAX)
        .find(|number| !taken.contains(number))
        .ok_or_else(|| io::Error::other("every boot entry is taken"))
}

fn entry_name(number: u16) -> String {
    format!("Boot{number:04X}")
}

fn boot_order(vars: &EfiVars) -> Vec<u16> {
    let data = vars.read("BootOrder").unwrap_or_default();
    data.chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect()
}

/// A partition as a file that can only be read.
struct Volume<'a> {
    device: &'a dyn BlockDevice,
    range: Range,
    position: u64,
    /// Bytes that may still be read.
    left: u64,
}

impl Read for Volume<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.range.length.saturating_sub(self.position);
        let length = usize::try_from(left).map_or(buffer.len(), |l| l.min(buffer.len()));
        if length == 0 {
            return Ok(0);
        }
        self.left = self.left.checked_sub(length as u64).ok_or_else(|| {
            let circle = "it is damaged: its folders lead in a circle";
            io::Error::new(io::ErrorKind::InvalidData, circle)
        })?;
        self.device
            .read_at(self.range.start + self.position, &mut buffer[..length])?;
        self.position += length as u64;
        Ok(length)
    }
}

impl Write for Volume<'_> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Volume<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.range.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests;
