//! Whether somebody answers at an address beyond a router: an ICMP echo request (RFC 792), as nobody hears an ARP question there.

use std::{
    ffi::OsString,
    io,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use anyhow::{Context, Result};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, connect, recv, send,
    setsockopt, socket, sockopt,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::Instant,
};

/// Two questions: the first one may be lost while routers ask for neighbours.
const QUESTIONS: u16 = 2;
const BETWEEN: Duration = Duration::from_millis(500);
const REQUEST: u8 = 8;
const REPLY: u8 = 0;
/// Of the question: type, code, checksum, identifier, sequence, and what tells it apart.
const PACKET: usize = 16;
/// IPv4's header without options.
const HEADER: usize = 20;

/// Whether `address` answers by way of `interface`. A network that takes no packets has nobody to answer.
pub async fn answers(interface: &str, address: Ipv4Addr) -> Result<bool> {
    let socket = open(interface, address)?;
    let mut mark = [0; 10];
    getrandom::fill(&mut mark).context("drawing random bytes")?;
    for sequence in 0..QUESTIONS {
        let question = question(mark, sequence);
        let write = |fd: &OwnedFd| {
            send(fd.as_raw_fd(), &question, MsgFlags::empty()).map_err(io::Error::from)
        };
        if let Err(error) = socket.async_io(Interest::WRITABLE, write).await {
            tracing::debug!(%address, %error, "an ICMP echo request was not sent");
        }
        let deadline = Instant::now() + BETWEEN;
        while let Ok(packet) = tokio::time::timeout_at(deadline, receive(&socket)).await {
            match packet {
                Ok(packet) if is_answer(&packet, address, mark) => return Ok(true),
                // Something else of that machine, or a router that says that it is not there.
                Ok(_) => {}
                Err(error) => tracing::debug!(%address, %error, "listening for an ICMP echo"),
            }
        }
    }
    Ok(false)
}

/// Connected, so that it hears nobody else.
fn open(interface: &str, address: Ipv4Addr) -> Result<AsyncFd<OwnedFd>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(
        AddressFamily::Inet,
        SockType::Raw,
        flags,
        Some(SockProtocol::Icmp),
    )
    .context("making a socket for ICMP; the agent needs CAP_NET_RAW")?;
    setsockopt(&fd, sockopt::BindToDevice, &OsString::from(interface))
        .with_context(|| format!("binding a socket to {interface}"))?;
    let to = SockaddrIn::from(SocketAddrV4::new(address, 0));
    connect(fd.as_raw_fd(), &to).with_context(|| format!("finding a way to {address}"))?;
    #[allow(
        unsafe_code,
        reason = "AsyncFd cannot check that the descriptor stays what it is"
    )]
    // SAFETY: the OwnedFd is moved in, never replaced, and closed only with the AsyncFd.
    let registered = unsafe { AsyncFd::register(fd) };
    registered.context("handing a socket to tokio")
}

async fn receive(socket: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 128];
    let take = |fd: &OwnedFd| {
        recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()).map_err(io::Error::from)
    };
    let length = socket.async_io(Interest::READABLE, take).await?;
    buffer.truncate(length);
    Ok(buffer)
}

fn question(mark: [u8; 10], sequence: u16) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    packet[0] = REQUEST;
    packet[4..6].copy_from_slice(&mark[..2]);
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    packet[8..].copy_from_slice(&mark[2..]);
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// RFC 1071.
fn checksum(packet: &[u8]) -> u16 {
    let words = packet
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded to 16 bits")
}

/// `packet` begins with the IP header.
fn is_answer(packet: &[u8], address: Ipv4Addr, mark: [u8; 10]) -> bool {
    let Some(header) = packet.first_chunk::<HEADER>() else {
        return false;
    };
    let length = usize::from(header[0] & 0x0f) * 4;
    let Some(echo) = packet
        .get(length.max(HEADER)..)
        .and_then(|echo| echo.first_chunk::<PACKET>())
    else {
        return false;
    };
    header[12..16] == address.octets()
        && echo[0] == REPLY
        && echo[4..6] == mark[..2]
        && echo[8..] == mark[2..]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 100);
    const MARK: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

    fn answer() -> Vec<u8> {
        let mut packet = vec![0x45; 1];
        packet.resize(HEADER, 0);
        packet[12..16].copy_from_slice(&ADDRESS.octets());
        packet.extend(question(MARK, 1));
        packet[HEADER] = REPLY;
        packet
    }

    #[test]
    fn a_question_has_a_checksum_that_adds_up() {
        let packet = question(MARK, 1);
        assert_eq!(packet[..2], [8, 0]);
        assert_eq!(checksum(&packet), 0);
    }

    #[test]
    fn only_the_answer_to_our_question_counts() {
        assert!(is_answer(&answer(), ADDRESS, MARK));
        assert!(!is_answer(&answer(), Ipv4Addr::new(10, 9, 0, 1), MARK));
        assert!(!is_answer(&answer(), ADDRESS, [0; 10]));
        assert!(!is_answer(&answer()[..30], ADDRESS, MARK), "cut off");
        let mut unreachable = answer();
        unreachable[HEADER] = 3;
        assert!(!is_answer(&unreachable, ADDRESS, MARK));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_an_answer_only_with_our_mark(
            random in proptest::collection::vec(any::<u8>(), 0..80),
            changes in proptest::collection::vec((0..HEADER + PACKET, any::<u8>()), 0..4),
        ) {
            let mut near = answer();
            for (at, value) in changes {
                near[at] = value;
            }
            for packet in [&random, &near] {
                if is_answer(packet, ADDRESS, MARK) {
                    let of_mark = packet.windows(8).any(|part| part == &MARK[2..]);
                    prop_assert!(of_mark && packet[12..16] == ADDRESS.octets());
                }
            }
        }
    }
}
