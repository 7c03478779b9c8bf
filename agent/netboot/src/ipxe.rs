//! iPXE scripts. They never end in iPXE's shell: whatever fails, the box is asked again, as it may have decided anew.

use crate::MacAddr;
use crate::boot_choice::{BootSite, BootTarget, kernel_command_line, plain_text};

/// The answer to `/boot/ipxe?mac=M`.
pub fn ipxe_script(site: &BootSite, mac: MacAddr, target: &BootTarget) -> String {
    let http = site.http;
    let body = match target {
        BootTarget::Ramdisk => format!(
            "echo Firstlight: loading the ramdisk from {http}\n\
             kernel {http}/boot/kernel initrd=initrd {} || goto again\n\
             initrd --name initrd {http}/boot/initrd || goto again\n\
             boot || goto again\n",
            kernel_command_line(site, mac)
        ),
        // Booting the disk from iPXE itself, because many a firmware does not go on to its next device. On UEFI drive 0
        // means the first disk that has the default loader. If nothing was found, `exit 1` hands an error back, upon which
        // firmware tries its next boot entry; success would end in its menu (UEFI 2.10 section 3.1.3).
        BootTarget::Disk => {
            "echo Firstlight: this host has its operating system, booting it from disk\n\
             iseq ${platform} efi && goto efi ||\n\
             sanboot --no-describe --drive 0x80 || exit 1\n\
             :efi\n\
             sanboot --no-describe --drive 0 || exit 1\n"
                .to_owned()
        }
        BootTarget::Wait { reason } => {
            format!("echo Firstlight: waiting: {}\n", plain_text(reason))
        }
    };
    format!(
        "#!ipxe\n\
         {body}\
         :again\n\
         imgfree\n\
         echo Firstlight: asking {http} again in 5 seconds\n\
         sleep 5\n\
         chain --replace --autofree {http}/boot/ipxe?mac={mac} || goto again\n"
    )
}

#[cfg(test)]
mod tests;
