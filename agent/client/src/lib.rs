//! How a machine of the site reaches the box: an address by DHCP ([`net`]), requests over HTTP ([`http`]), whom it trusts and by
//! whose clock ([`tls`]), the key that it signs with ([`key`]), and what it says of itself
//! ([`signed_client`], [`logs`]).
//!
//! Blocking throughout, for PID 1 of the ramdisk, for what an installed server runs before cloud-init, and for people's tools.
//! Must not: use an async runtime, touch disks, or know Ironic.

#![warn(missing_docs)]

pub mod http;
pub mod key;
pub mod logs;
pub mod net;
pub mod signed_client;
pub mod tls;

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
