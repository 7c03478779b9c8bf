//! UEFI boot entries: how one names a partition ([`load_option`]), where the kernel keeps them ([`vars`]), and which of them the
//! firmware takes next ([`boot_entry`]).
//!
//! Must not: read a disk. Who writes an entry says where its boot loader is.

#![warn(missing_docs)]

pub mod boot_entry;
pub mod load_option;
pub mod vars;
