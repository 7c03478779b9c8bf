//! The two ports of the DHCP server, and how an answer gets out.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    time::Duration,
};

use anyhow::{Context, Result};
use firstlight_netboot::{Destination, Listener, Reply, Request};
use rtnetlink::{Handle, packet_route::neighbour::NeighbourState};
use tokio::net::UdpSocket;

use super::sockets;
use crate::network::Segment;

/// For the kernel to take a neighbour.
const KERNEL_TIME: Duration = Duration::from_secs(1);

/// A datagram with what is needed to answer it.
#[derive(Clone)]
pub struct Received {
    pub request: Request,
    pub listener: Listener,
    pub from: SocketAddr,
    /// As it was addressed.
    pub to: Ipv4Addr,
}

/// A reply and the request that it is for.
pub struct Answer {
    pub reply: Reply,
    pub received: Received,
}

pub struct Ports {
    pub main: UdpSocket,
    pub pxe: UdpSocket,
    netlink: Handle,
    /// Of the interface.
    index: u32,
}

impl Ports {
    pub fn open(segment: &Segment, netlink: Handle) -> Result<Self> {
        Ok(Self {
            main: sockets::bind(&segment.interface, 67).context("opening UDP port 67")?,
            pxe: sockets::bind(&segment.interface, 4011).context("opening UDP port 4011")?,
            netlink,
            index: segment.index,
        })
    }

    pub fn of(&self, listener: Listener) -> &UdpSocket {
        match listener {
            Listener::Dhcp => &self.main,
            Listener::Pxe => &self.pxe,
        }
    }

    /// An answer that does not get out is asked for again.
    pub async fn send(&self, Answer { reply, received }: &Answer) {
        let socket = self.of(received.listener);
        let to = match reply.destination {
            Destination::Broadcast { port } => SocketAddrV4::new(Ipv4Addr::BROADCAST, port).into(),
            Destination::Unicast { address, port } | Destination::Relay { address, port } => {
                SocketAddrV4::new(address, port).into()
            }
            Destination::Sender => received.from,
            Destination::Hardware { address, mac, port } => {
                match self.introduce(address, mac.octets()).await {
                    Ok(()) => SocketAddrV4::new(address, port).into(),
                    Err(error) => {
                        tracing::debug!(%mac, error = format!("{error:#}"), "answering by broadcast");
                        SocketAddrV4::new(Ipv4Addr::BROADCAST, port).into()
                    }
                }
            }
        };
        if let Err(error) = socket.send_to(&reply.encode(), to).await {
            tracing::warn!(%to, %error, "a DHCP reply was not sent");
        }
    }

    /// The client cannot answer ARP before it has its address, so the kernel is told where it is.
    async fn introduce(&self, address: Ipv4Addr, mac: [u8; 6]) -> Result<()> {
        let entry = self
            .netlink
            .neighbours()
            .add(self.index, IpAddr::V4(address));
        let entry = entry
            .link_layer_address(&mac)
            .state(NeighbourState::Reachable)
            .replace();
        tokio::time::timeout(KERNEL_TIME, entry.execute())
            .await
            .context("the kernel is slow")?
            .with_context(|| format!("entering {address} as a neighbour"))
    }
}
