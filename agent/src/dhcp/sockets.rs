//! UDP sockets that belong to one network interface.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::AsRawFd,
};

use anyhow::{Context, Result};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind as bind_socket, setsockopt, socket, sockopt,
};
use tokio::net::UdpSocket;

/// Larger than any DHCP message on Ethernet.
pub const LARGEST: usize = 2048;

/// A socket for `port` that sees and uses `interface` only, broadcasts included.
pub fn bind(interface: &str, port: u16) -> Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Inet, SockType::Datagram, flags, None)
        .context("making a UDP socket")?;
    setsockopt(&fd, sockopt::ReuseAddr, &true).context("sharing the port")?;
    setsockopt(&fd, sockopt::Broadcast, &true).context("allowing broadcasts")?;
    setsockopt(&fd, sockopt::BindToDevice, &OsString::from(interface))
        .with_context(|| format!("binding a socket to {interface}; the agent needs CAP_NET_RAW"))?;
    let address = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
    bind_socket(fd.as_raw_fd(), &address).with_context(|| format!("binding to UDP port {port}"))?;
    UdpSocket::from_std(fd.into()).context("handing a socket to tokio")
}
