//! A socket for packets of one protocol at one interface, without an address of the box there.

use std::{
    io::{self, IoSlice},
    os::fd::{AsRawFd, OwnedFd},
};

use anyhow::{Context, Result};
use nix::{
    libc,
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind, recv, sendmsg,
        socket,
    },
};
use tokio::io::unix::AsyncFd;

/// What is read of a packet: an ARP packet, or of an IPv6 packet as much as what firmware asks by `DHCPv6`.
const LENGTH: usize = 576;

#[derive(Debug)]
pub struct Packets {
    socket: AsyncFd<OwnedFd>,
    index: u32,
    protocol: u16,
}

impl Packets {
    /// `protocol`: as Ethernet numbers them.
    pub fn open(index: u32, protocol: u16) -> Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Packet, SockType::Datagram, flags, None)
            .context("making a socket for packets; the agent needs CAP_NET_RAW")?;
        bind(fd.as_raw_fd(), &link_address(index, protocol, [0; 6]))
            .context("binding a socket for packets")?;
        #[allow(
            unsafe_code,
            reason = "AsyncFd cannot check that the descriptor stays what it is"
        )]
        // SAFETY: the OwnedFd is moved in, never replaced, and closed only with the AsyncFd.
        let registered = unsafe { AsyncFd::register(fd) };
        let socket = registered.context("handing a socket to tokio")?;
        Ok(Self {
            socket,
            index,
            protocol,
        })
    }

    /// What came before a question answers nothing.
    pub fn drain(&self) {
        let mut buffer = [0; LENGTH];
        while recv(
            self.socket.get_ref().as_raw_fd(),
            &mut buffer,
            MsgFlags::empty(),
        )
        .is_ok()
        {}
    }

    pub async fn send(&self, packet: &[u8], to: [u8; 6]) -> io::Result<()> {
        let to = link_address(self.index, self.protocol, to);
        let send = |fd: &OwnedFd| {
            let sent = sendmsg(
                fd.as_raw_fd(),
                &[IoSlice::new(packet)],
                &[],
                MsgFlags::empty(),
                Some(&to),
            );
            sent.map(drop).map_err(io::Error::from)
        };
        self.socket
            .async_io(tokio::io::Interest::WRITABLE, send)
            .await
    }

    /// The beginning of the next one.
    pub async fn receive(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; LENGTH];
        let take = |fd: &OwnedFd| {
            recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()).map_err(io::Error::from)
        };
        let length = self
            .socket
            .async_io(tokio::io::Interest::READABLE, take)
            .await?;
        buffer.truncate(length);
        Ok(buffer)
    }
}

fn link_address(index: u32, protocol: u16, mac: [u8; 6]) -> LinkAddr {
    let mut address = [0; 8];
    address[..6].copy_from_slice(&mac);
    let raw = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).expect("a small number"),
        sll_protocol: protocol.to_be(),
        sll_ifindex: i32::try_from(index).expect("the kernel counts interfaces in an int"),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: address,
    };
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).expect("20 bytes");
    #[allow(
        unsafe_code,
        reason = "nix has no other way to make a link-layer address"
    )]
    // SAFETY: `raw` is a whole sockaddr_ll of AF_PACKET and outlives the call, which copies it.
    let made = unsafe { LinkAddr::from_raw((&raw const raw).cast(), Some(length)) };
    made.expect("the family is AF_PACKET")
}
