//! The clients that people have, against the agent's DHCP, TFTP and HTTP: on the segment, behind a real relay agent, in a flood,
//! and outside, at the uplink.
//!
//! Runs unprivileged in namespaces of its own, like `netns.rs`. Needs the Debian packages busybox, dhcpcd-base, isc-dhcp-client,
//! systemd, kea-admin, dnsmasq-base, curl, atftp, tftp-hpa and iproute2.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "netboot_clients/every.rs"]
mod every;
#[path = "netboot_clients/flood.rs"]
mod flood;
#[path = "netboot_clients/relay.rs"]
mod relay;
#[path = "common/segment.rs"]
#[allow(dead_code, reason = "netns.rs uses the rest")]
mod segment;

#[path = "netboot_clients/uplink.rs"]
mod uplink;

use std::path::Path;

/// A test without its client would prove nothing.
fn needs(program: &str, package: &str) {
    let folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/lib/systemd"];
    let is_there = |folder: &&str| Path::new(folder).join(program).exists();
    assert!(
        folders.iter().any(is_there),
        "{program} is missing: install the Debian package {package}"
    );
}
