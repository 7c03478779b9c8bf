//! GRUB's configuration, for UEFI machines that came through shim.
//!
//! Facts it rests on: the network image reads `$prefix/grub.cfg` and nothing made for one host; `[ -e ]` is always false over
//! the network; a missing `source` file is an error line and the script goes on; the end of the script is GRUB's shell, so
//! it goes round for ever (a `configfile` of itself would need more stack each time); `initrd` reports success for a file
//! that is not there.

use crate::boot_choice::{BootSite, BootTarget, kernel_command_line, plain_text};
use crate::{BoxHttp, MacAddr};

/// In front of what a server waits for.
pub const GRUB_WAITS: &str = "Firstlight: waiting: ";

/// `/grub/grub.cfg`, the same for everybody: goes on to the file made for this host's NIC.
pub fn generic_grub_config(http: BoxHttp) -> String {
    format!(
        "while true; do\n\
         \x20 source $prefix/mac-$net_default_mac.cfg\n\
         \x20 echo \"Firstlight: asking {http} again in 5 seconds\"\n\
         \x20 sleep 5\n\
         done\n"
    )
}

/// `/grub/mac-M.cfg`.
pub fn host_grub_config(site: &BootSite, mac: MacAddr, target: &BootTarget) -> String {
    match target {
        BootTarget::Ramdisk => ramdisk(site, mac),
        BootTarget::Disk => disk(),
        BootTarget::Wait { reason } => {
            format!("echo \"{GRUB_WAITS}{}\"\n", plain_text(reason))
        }
    }
}

/// Without lockdown iPXE takes over, which loads many times faster. With it (Secure Boot) GRUB loads the signed kernel:
/// by its own HTTP where it came by TFTP, and else by the firmware's, which plain paths mean then.
fn ramdisk(site: &BootSite, mac: MacAddr) -> String {
    let http = site.http;
    let (address, authority) = (http.address(), http.authority());
    format!(
        "if [ \"$lockdown\" != \"y\" ]; then\n\
         \x20 if chainloader /snponly.efi; then boot; fi\n\
         fi\n\
         set files=\"\"\n\
         if [ \"$root\" = \"tftp,{address}\" ]; then set files=\"(http,{authority})\"; fi\n\
         echo \"Firstlight: loading the ramdisk from {http}\"\n\
         if linux ${{files}}/boot/kernel {}; then\n\
         \x20 if initrd ${{files}}/boot/initrd; then boot; fi\n\
         fi\n",
        kernel_command_line(site, mac)
    )
}

/// The loader of the operating system is started directly: GRUB's `exit` reports success, which ends in the firmware's
/// menu on machines that keep to the UEFI specification (2.10 section 3.1.3).
fn disk() -> String {
    let try_loader = |loader| {
        format!(
            "if search --no-floppy --set=root --file {loader}; then\n\
             \x20 if chainloader {loader}; then boot; fi\n\
             fi\n"
        )
    };
    [
        "echo \"Firstlight: this host has its operating system, booting it from disk\"\n"
            .to_owned(),
        try_loader("/EFI/debian/shimx64.efi"),
        try_loader("/EFI/BOOT/BOOTX64.EFI"),
        "exit\n".to_owned(),
    ]
    .concat()
}

#[cfg(test)]
mod tests;
