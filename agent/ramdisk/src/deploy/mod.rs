//! What is done to disks: looking for data, writing an image with its config drive and boot entry, erasing.
//!
//! Everything works on [`device::BlockDevice`], which is an image file in tests. Must not: choose a disk (the box does, or
//! Ironic's hints) or know Ironic's messages (that is `ipa`).

pub mod boot_entry;
pub mod cancel;
pub mod config_drive;
pub mod device;
pub mod erase;
pub mod finish;
pub mod gpt;
pub mod image;
pub mod large_sectors;
pub mod mark;
pub mod mbr;
pub mod mirror;
pub mod signatures;
pub mod start;
#[cfg(test)]
mod testing;
mod volume;
