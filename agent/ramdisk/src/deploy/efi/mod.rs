//! UEFI boot variables: what a boot entry looks like, and where the kernel keeps them.

pub mod load_option;
pub mod vars;
