//! Whether somebody uses an address (RFC 5227 section 2.1.1: ARP probes, which disturb nobody's ARP cache).

use std::{
    io::{self, IoSlice},
    net::Ipv4Addr,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use anyhow::{Context, Result};
use nix::{
    libc,
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind, recv, sendmsg,
        socket,
    },
};
use tokio::{io::unix::AsyncFd, time::Instant};

use crate::network::Segment;

const ETH_P_ARP: u16 = 0x0806;
const PACKET: usize = 28;
/// Two questions; a neighbour on Ethernet answers within a few milliseconds, a sleepy one within the second.
const QUESTIONS: u32 = 2;
const BETWEEN: Duration = Duration::from_millis(250);

/// A socket for ARP packets of one interface.
#[derive(Debug)]
pub struct Arp {
    socket: AsyncFd<OwnedFd>,
    index: u32,
    mac: [u8; 6],
}

impl Arp {
    pub fn open(segment: &Segment) -> Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Packet, SockType::Datagram, flags, None)
            .context("making a socket for ARP; the agent needs CAP_NET_RAW")?;
        bind(fd.as_raw_fd(), &link_address(segment.index, [0; 6]))
            .context("binding a socket for ARP")?;
        #[allow(
            unsafe_code,
            reason = "AsyncFd cannot check that the descriptor stays what it is"
        )]
        // SAFETY: the OwnedFd is moved in, never replaced, and closed only with the AsyncFd.
        let registered = unsafe { AsyncFd::register(fd) };
        let socket = registered.context("handing a socket to tokio")?;
        Ok(Self {
            socket,
            index: segment.index,
            mac: segment.mac.octets(),
        })
    }

    /// Whether somebody answers for `address`. A network that takes no packets has nobody to answer.
    pub async fn is_used(&self, address: Ipv4Addr) -> Result<bool> {
        self.drain();
        for _ in 0..QUESTIONS {
            if let Err(error) = self.ask(address).await {
                tracing::debug!(%error, %address, "an ARP probe was not sent");
            }
            let deadline = Instant::now() + BETWEEN;
            while let Ok(packet) = tokio::time::timeout_at(deadline, self.receive()).await {
                if claims(&packet.context("listening for ARP")?, address, self.mac) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// What came before the question answers nothing.
    fn drain(&self) {
        let mut buffer = [0; 64];
        while recv(
            self.socket.get_ref().as_raw_fd(),
            &mut buffer,
            MsgFlags::empty(),
        )
        .is_ok()
        {}
    }

    async fn ask(&self, address: Ipv4Addr) -> io::Result<()> {
        let packet = probe(self.mac, address);
        let to = link_address(self.index, [0xff; 6]);
        let send = |fd: &OwnedFd| {
            let sent = sendmsg(
                fd.as_raw_fd(),
                &[IoSlice::new(&packet)],
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

    async fn receive(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; 64];
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

fn link_address(index: u32, mac: [u8; 6]) -> LinkAddr {
    let mut address = [0; 8];
    address[..6].copy_from_slice(&mac);
    let raw = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).expect("a small number"),
        sll_protocol: ETH_P_ARP.to_be(),
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

/// RFC 826 with the sender's address zero.
fn probe(mac: [u8; 6], address: Ipv4Addr) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    packet[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    packet[8..14].copy_from_slice(&mac);
    packet[24..28].copy_from_slice(&address.octets());
    packet
}

/// Whether `packet` shows that somebody other than us has `address`, or is about to take it.
fn claims(packet: &[u8], address: Ipv4Addr, own: [u8; 6]) -> bool {
    let Some(packet) = packet.first_chunk::<PACKET>() else {
        return false;
    };
    let ethernet_ipv4 = packet[..6] == [0, 1, 8, 0, 6, 4];
    let (sender_mac, sender, target) = (&packet[8..14], &packet[14..18], &packet[24..28]);
    let probes_it_too = packet[7] == 1 && sender == [0; 4] && target == address.octets();
    ethernet_ipv4 && sender_mac != own && (sender == address.octets() || probes_it_too)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 100);

    fn reply(mac: [u8; 6], sender: Ipv4Addr) -> [u8; PACKET] {
        let mut packet = probe(mac, Ipv4Addr::new(172, 22, 0, 1));
        packet[7] = 2;
        packet[14..18].copy_from_slice(&sender.octets());
        packet
    }

    #[test]
    fn only_another_machine_with_that_address_counts() {
        assert!(claims(&reply(OTHER, ADDRESS), ADDRESS, OWN));
        assert!(
            claims(&probe(OTHER, ADDRESS), ADDRESS, OWN),
            "it probes the same address"
        );
        assert!(!claims(
            &reply(OTHER, Ipv4Addr::new(172, 22, 0, 101)),
            ADDRESS,
            OWN
        ));
        assert!(!claims(&reply(OWN, ADDRESS), ADDRESS, OWN));
        assert!(
            !claims(&probe(OWN, ADDRESS), ADDRESS, OWN),
            "our own question"
        );
        assert!(
            !claims(&reply(OTHER, ADDRESS)[..20], ADDRESS, OWN),
            "cut off"
        );
    }

    #[test]
    fn a_probe_is_a_request_without_a_sender() {
        assert_eq!(
            probe(OWN, ADDRESS),
            [
                0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 172, 22, 0,
                100
            ]
        );
    }
}
