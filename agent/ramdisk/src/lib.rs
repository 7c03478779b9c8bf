//! PID 1 of the one initramfs: the first stage of the box (`firstlight.slot=` on the command line), or the deploy
//! ramdisk of a host, which gets an address and then serves Ironic.
//!
//! Must not: start another program, or use an async runtime beyond what its HTTPS server needs. Waiting is done by
//! blocking on the thing waited for.

pub mod boxstage;
pub mod cmdline;
pub mod console;
pub mod context;
pub mod deploy;
pub mod devices;
pub mod early;
pub mod init;
pub mod inventory;
pub mod ipa;
pub mod modules;
pub mod power;
pub mod ramdisk;
pub mod tpm;
pub mod uevent;
