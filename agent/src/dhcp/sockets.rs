//! UDP sockets that belong to one network interface.

use std::{
    ffi::OsString,
    io::{self, IoSliceMut},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::AsRawFd,
};

use anyhow::{Context, Result};
use nix::{
    cmsg_space, libc,
    sys::socket::{
        AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn,
        bind as bind_socket, recvmsg, setsockopt, socket, sockopt,
    },
};
use tokio::{io::Interest, net::UdpSocket};

/// Bytes of requests that may wait: those of a rack that was switched on, while something else has the processor.
const RECEIVED: usize = 1 << 20;
/// Larger than any DHCP message on Ethernet.
pub const LARGEST: usize = 2048;

/// What came, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub length: usize,
    pub from: SocketAddr,
    /// As the sender addressed it: the box's own, or a broadcast.
    pub to: Ipv4Addr,
}

/// A socket for `port` that sees and uses `interface` only, broadcasts included.
pub fn bind(interface: &str, port: u16) -> Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Inet, SockType::Datagram, flags, None)
        .context("making a UDP socket")?;
    setsockopt(&fd, sockopt::ReuseAddr, &true).context("sharing the port")?;
    setsockopt(&fd, sockopt::Broadcast, &true).context("allowing broadcasts")?;
    setsockopt(&fd, sockopt::Ipv4PacketInfo, &true).context("asking where packets went to")?;
    // Beyond what the kernel allows everybody, or else as much as that.
    setsockopt(&fd, sockopt::RcvBufForce, &RECEIVED)
        .or_else(|_| setsockopt(&fd, sockopt::RcvBuf, &RECEIVED))
        .context("making room for requests")?;
    setsockopt(&fd, sockopt::BindToDevice, &OsString::from(interface))
        .with_context(|| format!("binding a socket to {interface}; the agent needs CAP_NET_RAW"))?;
    let address = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
    bind_socket(fd.as_raw_fd(), &address).with_context(|| format!("binding to UDP port {port}"))?;
    UdpSocket::from_std(fd.into()).context("handing a socket to tokio")
}

/// The next datagram. Dropping the future loses none.
pub async fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Arrival> {
    socket
        .async_io(Interest::READABLE, || take(socket, buffer))
        .await
}

/// The next datagram, if one is there already.
pub fn try_receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<Arrival> {
    // What else goes wrong is met by whoever waits.
    socket
        .try_io(Interest::READABLE, || take(socket, buffer))
        .ok()
}

fn take(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Arrival> {
    let mut space = cmsg_space!(libc::in_pktinfo);
    let mut parts = [IoSliceMut::new(buffer)];
    let fd = socket.as_raw_fd();
    let message = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut space), MsgFlags::empty())?;
    let from = message.address.map_or(
        SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        SocketAddrV4::from,
    );
    let to = message.cmsgs()?.find_map(|told| match told {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(Ipv4Addr::from_bits(u32::from_be(info.ipi_addr.s_addr)))
        }
        _ => None,
    });
    Ok(Arrival {
        length: message.bytes,
        from: from.into(),
        to: to.unwrap_or(Ipv4Addr::UNSPECIFIED),
    })
}
