//! A port of the wire's host for UDP: what machines send there goes to a service on 127.0.0.1, and its answers go back.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::PollFlags;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::udp;
use smoltcp::wire::IpEndpoint;

const LARGEST: usize = 2048;
const QUEUE: usize = 64;
/// Who has not sent for longest is forgotten first.
const MOST_PEERS: usize = 64;

pub(super) struct Datagrams {
    handle: SocketHandle,
    target: SocketAddr,
    /// Whoever sent last comes last.
    peers: Vec<Peer>,
}

/// Each has a socket of its own, by which its answers are known.
struct Peer {
    endpoint: IpEndpoint,
    local: UdpSocket,
}

impl Datagrams {
    pub fn bind(sockets: &mut SocketSet<'_>, port: u16, target: SocketAddr) -> Self {
        let buffer = || {
            let places = vec![udp::PacketMetadata::EMPTY; QUEUE];
            udp::PacketBuffer::new(places, vec![0; QUEUE * LARGEST])
        };
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket
            .bind(port)
            .expect("a new socket takes any port but 0");
        Self {
            handle: sockets.add(socket),
            target,
            peers: Vec::new(),
        }
    }

    pub fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let peers = self.peers.iter();
        peers.map(|peer| (peer.local.as_fd(), PollFlags::POLLIN))
    }

    /// What is lost here is lost as on any wire.
    pub fn pump(&mut self, sockets: &mut SocketSet<'_>) {
        let socket = sockets.get_mut::<udp::Socket<'_>>(self.handle);
        while let Ok((data, from)) = socket.recv() {
            if let Some(peer) = peer(&mut self.peers, from.endpoint, self.target) {
                let _ = peer.local.send(data);
            }
        }
        let mut data = [0; LARGEST];
        for peer in &self.peers {
            while let Ok(length) = peer.local.recv(&mut data) {
                let _ = socket.send_slice(&data[..length], peer.endpoint);
            }
        }
    }
}

fn peer(peers: &mut Vec<Peer>, endpoint: IpEndpoint, target: SocketAddr) -> Option<&Peer> {
    let known = peers.iter().position(|peer| peer.endpoint == endpoint);
    let peer = match known {
        Some(at) => peers.remove(at),
        None => Peer {
            endpoint,
            local: connect(target).ok()?,
        },
    };
    if peers.len() == MOST_PEERS {
        peers.remove(0);
    }
    peers.push(peer);
    peers.last()
}

fn connect(target: SocketAddr) -> std::io::Result<UdpSocket> {
    let local = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    local.set_nonblocking(true)?;
    local.connect(target)?;
    Ok(local)
}
