//! What is done to disks: looking for data, writing an image with its config drive and boot entry, erasing.
//!
//! Everything works on [`device::BlockDevice`], which is an image file in tests. Must not: choose a disk (that is
//! `inventory::hints`) or know Ironic's messages (that is `ipa`).

pub mod boot_entry;
pub mod cancel;
pub mod config_drive;
pub mod device;
pub mod efi;
pub mod erase;
pub mod finish;
pub mod gpt;
pub mod http;
pub mod image;
pub mod mark;
pub mod mbr;
pub mod signatures;
#[cfg(test)]
mod testing;

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
