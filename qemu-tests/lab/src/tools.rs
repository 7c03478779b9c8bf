//! Finds QEMU and the firmware files, and says which package brings a missing one.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::qemu::Firmware;

/// UEFI firmware code and the variable store that a new machine starts with. Same places on Debian 12 and 13.
pub struct UefiFiles {
    pub code: &'static Path,
    pub variables: &'static Path,
}

/// The program `name`, or the package to install.
pub fn find_program(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    match found {
        Some(file) => Ok(file),
        None => bail!("{name} is not installed\n  next: sudo apt-get install {package}"),
    }
}

/// `None` for BIOS: `SeaBIOS` comes with QEMU.
pub fn find_firmware(firmware: Firmware) -> Result<Option<UefiFiles>> {
    let files = match firmware {
        Firmware::Bios => {
            let rom = Path::new("/usr/lib/ipxe/qemu/pxe-virtio.rom");
            if !rom.is_file() {
                bail!(
                    "{} is missing: a BIOS machine boots from the network with it\n  next: sudo apt-get install ipxe-qemu",
                    rom.display()
                );
            }
            return Ok(None);
        }
        Firmware::Uefi => UefiFiles {
            code: Path::new("/usr/share/OVMF/OVMF_CODE_4M.fd"),
            variables: Path::new("/usr/share/OVMF/OVMF_VARS_4M.fd"),
        },
        // The variables hold Microsoft's keys, and Secure Boot is on.
        Firmware::SecureBoot => UefiFiles {
            code: Path::new("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"),
            variables: Path::new("/usr/share/OVMF/OVMF_VARS_4M.ms.fd"),
        },
    };
    for file in [files.code, files.variables] {
        if !file.is_file() {
            bail!(
                "{} is missing: UEFI machines start from it\n  next: sudo apt-get install ovmf",
                file.display()
            );
        }
    }
    Ok(Some(files))
}
