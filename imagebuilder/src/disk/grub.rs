//! GRUB for BIOS, put into an image without `grub-install`: two block addresses and one jump are patched.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

use anyhow::{Context, Result, ensure};
use firstlight_api::boot_choice::MBR_CODE;

use super::gpt::{BIOS_BOOT_LBA, SECTOR};

/// Where `boot.img` keeps the address of the core image, 8 bytes, little-endian (`GRUB_BOOT_MACHINE_KERNEL_SECTOR`).
const KERNEL_SECTOR: usize = 0x5c;
/// The jump that distrusts the drive number of the BIOS; two NOPs trust it, as `grub-install` does for disks.
const DRIVE_CHECK: usize = 0x66;
/// Where the first sector of `core.img` keeps the address of the rest.
const BLOCK_LIST: usize = 0x1f4;

/// Modules in the core image: enough to read the configuration on the ESP and start a kernel from FAT or ext4.
pub const BIOS_MODULES: &[&str] = &[
    "biosdisk",
    "part_gpt",
    "fat",
    "ext2",
    "normal",
    "configfile",
    "linux",
    "search",
    "search_fs_uuid",
    "probe",
    "echo",
    "test",
    "serial",
    "terminal",
    "sleep",
    "reboot",
    "halt",
    "all_video",
    "gzio",
    "loadenv",
    "minicmd",
    "regexp",
];

/// `boot.img` with the address of the core image in it.
fn patch_boot(boot: &[u8]) -> Result<Vec<u8>> {
    ensure!(
        boot.len() == 512,
        "boot.img of GRUB has {} bytes, not 512",
        boot.len()
    );
    let mut code = boot[..MBR_CODE].to_vec();
    code[KERNEL_SECTOR..KERNEL_SECTOR + 8].copy_from_slice(&BIOS_BOOT_LBA.to_le_bytes());
    code[DRIVE_CHECK..DRIVE_CHECK + 2].copy_from_slice(&[0x90, 0x90]);
    Ok(code)
}

/// `core.img` with the address of its second sector in it.
fn patch_core(core: &[u8], room: u64) -> Result<Vec<u8>> {
    ensure!(
        core.len() > 1024 && core.len() as u64 <= room,
        "core.img of GRUB has {} bytes, room is {room}",
        core.len()
    );
    let listed = u64::from_le_bytes(
        core[BLOCK_LIST..BLOCK_LIST + 8]
            .try_into()
            .expect("eight bytes"),
    );
    ensure!(
        listed == 1 || listed == 2,
        "core.img of GRUB names block {listed} where 1 or 2 is expected: another layout?"
    );
    let mut core = core.to_vec();
    core[BLOCK_LIST..BLOCK_LIST + 8].copy_from_slice(&(BIOS_BOOT_LBA + 1).to_le_bytes());
    Ok(core)
}

/// GRUB for BIOS, as it lies on a disk.
#[derive(Clone, Debug)]
pub struct BiosLoader {
    /// In the MBR.
    pub code: Vec<u8>,
    /// At [`BIOS_BOOT_LBA`].
    pub core: Vec<u8>,
}

impl BiosLoader {
    /// `boot`, `core`: as GRUB makes them. `room`: of the BIOS boot partition.
    pub fn new(boot: &[u8], core: &[u8], room: u64) -> Result<Self> {
        Ok(Self {
            code: patch_boot(boot)?,
            core: patch_core(core, room)?,
        })
    }

    pub fn write(&self, disk: &mut File) -> Result<()> {
        disk.seek(SeekFrom::Start(0))?;
        disk.write_all(&self.code)
            .context("writing GRUB's boot code")?;
        disk.seek(SeekFrom::Start(BIOS_BOOT_LBA * SECTOR))?;
        disk.write_all(&self.core)
            .context("writing GRUB's core image")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn boot_code_names_the_core_image_and_keeps_the_partition_table() {
        let patched = patch_boot(&[0xff; 512]).unwrap();
        assert_eq!(patched.len(), 440);
        assert_eq!(patched[0x5c..0x64], [0, 8, 0, 0, 0, 0, 0, 0]);
        assert_eq!(patched[0x64..0x69], [0xff, 0xff, 0x90, 0x90, 0xff]);
        assert!(patch_boot(&[0; 511]).is_err());
    }

    #[test]
    fn core_image_names_its_second_sector() {
        let mut core = vec![0; 2000];
        core[0x1f4] = 2;
        assert_eq!(
            patch_core(&core, 1 << 20).unwrap()[0x1f4..0x1fc],
            [1, 8, 0, 0, 0, 0, 0, 0]
        );
        assert!(patch_core(&core, 1999).is_err(), "does not fit");
        core[0x1f4] = 9;
        assert!(
            patch_core(&core, 1 << 20).is_err(),
            "an unknown block list is not patched blindly"
        );
    }
}
