//! PID 1 of the one initramfs: the first stage of the box (`firstlight.slot=` on the command line), or the deploy
//! ramdisk of a host, which gets an address and then serves Ironic.
//!
//! Must not: start another program, or use an async runtime beyond what its HTTPS server needs. Waiting is done by
//! blocking on the thing waited for.

pub mod cmdline;
pub mod context;
pub mod power;
