//! What GRUB would start, from the configuration that it would read.

mod env;
mod run;
mod script;
mod test;
#[cfg(test)]
mod tests;

pub use run::{LONGEST_CONFIG, choose};

/// Commands that start Linux.
pub const STARTS: [&str; 3] = ["linux", "linuxefi", "linux16"];
/// Where distributions put it, on the root file system or on one for `/boot`.
pub const CONFIGS: [&str; 4] = [
    "/boot/grub/grub.cfg",
    "/grub/grub.cfg",
    "/boot/grub2/grub.cfg",
    "/grub2/grub.cfg",
];
