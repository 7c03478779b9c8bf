//! The boot files of the stick, by the names that firmware and boot loaders ask for. A new loader is a line here.

use crate::MacAddr;

const MEDIA: &str = "/boot/cd/";
const MEDIUM: &str = ".iso";

/// For BIOS firmware.
pub const BIOS_LOADER: &str = "undionly.kpxe";
/// iPXE for UEFI firmware, which GRUB hands over to.
pub const UEFI_LOADER: &str = "snponly.efi";
/// The first of the signed chain.
pub const SHIM: &str = "shimx64.efi";
/// What shim loads.
pub const GRUB: &str = "grubx64.efi";
/// Linux, signed by the distribution, for the ramdisk.
pub const KERNEL: &str = "vmlinuz";
/// The ramdisk itself.
pub const INITRD: &str = "initrd";

/// What is served at the top, over HTTP and TFTP.
pub const LOADERS: [&str; 4] = [BIOS_LOADER, UEFI_LOADER, SHIM, GRUB];

/// Under which path the box has the virtual CD of a server, for its BMC. Some want a name that ends so.
pub fn medium(mac: MacAddr) -> String {
    format!("{MEDIA}{}{MEDIUM}", mac.dashed())
}

/// Whose virtual CD is at this path.
pub fn of_medium(path: &str) -> Option<MacAddr> {
    let mac = path.strip_prefix(MEDIA)?.strip_suffix(MEDIUM)?;
    mac.parse().ok()
}

/// Whether TFTP has a file of this name: the loaders, and kernel and initramfs for odd machines.
pub fn is_boot_file(name: &str) -> bool {
    LOADERS.contains(&name) || name == KERNEL || name == INITRD
}
