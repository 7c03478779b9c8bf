//! The DHCP client of one NIC on a real socket: gets a lease, applies it, keeps it.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
};

use super::dhcp::{Client, Lease, Output};
use super::interface::{LinkNews, Nic, configure, observe_nics, wait_readable};

const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;
/// How often a person hears what is being waited for.
const REMINDER: Duration = Duration::from_secs(10);

/// One NIC's client.
pub struct Session {
    nic: Nic,
    socket: UdpSocket,
    links: LinkNews,
    client: Client,
    start: Instant,
    applied: Option<Lease>,
}

impl Session {
    /// `xid` is random.
    pub fn open(mut nic: Nic, xid: u32) -> Result<Self> {
        let socket = open_socket(&nic.name)
            .with_context(|| format!("opening a DHCP socket on {}", nic.name))?;
        let links = LinkNews::open().context("listening for news of links")?;
        // Whatever changed before the subscription is no news any more.
        nic.carrier = has_carrier(&nic);
        let client = Client::new(nic.mac, xid);
        Ok(Self {
            nic,
            socket,
            links,
            client,
            start: Instant::now(),
            applied: None,
        })
    }

    /// The interface of [`Session::open`], with its carrier as last seen.
    pub fn nic(&self) -> &Nic {
        &self.nic
    }

    /// Asks until there is a lease and it is applied, or until `patience` ends.
    pub fn acquire(&mut self, patience: Option<Duration>) -> Result<Option<Lease>> {
        let end = patience.map(|patience| Instant::now() + patience);
        let mut reminder = Instant::now() + REMINDER;
        while self.applied.is_none() {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(None);
            }
            if now >= reminder {
                reminder = now + REMINDER;
                let link = if self.nic.carrier { "up" } else { "down" };
                tracing::warn!(
                    nic = self.nic.name,
                    mac = self.nic.mac_text(),
                    link,
                    "no address yet; check the cable, and that the box answers on this network"
                );
            }
            self.step(end.unwrap_or(reminder).min(reminder))?;
        }
        Ok(self.applied.clone())
    }

    /// Renews for as long as the program runs.
    pub fn keep(mut self) {
        loop {
            if let Err(error) = self.step(Instant::now() + REMINDER) {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the address is no longer renewed; restart the machine if it stops answering"
                );
                return;
            }
        }
    }

    /// Sends what is due, then waits for a packet, a link, the next deadline or `until`.
    fn step(&mut self, until: Instant) -> Result<()> {
        let outputs = self.client.poll(self.start.elapsed());
        self.carry_out(outputs)?;
        let due = self.start + self.client.deadline();
        let patience = due.min(until).saturating_duration_since(Instant::now());
        let [packet, link] = wait_readable(&[self.socket.as_fd(), self.links.as_fd()], patience)?;
        if link {
            self.look_at_link();
        }
        if packet {
            let mut buffer = [0; 2048];
            match self.socket.recv(&mut buffer) {
                Ok(length) => {
                    let outputs = self.client.receive(self.start.elapsed(), &buffer[..length]);
                    self.carry_out(outputs)?;
                }
                // The link went away; its return is news of its own.
                Err(error) => tracing::debug!(%error, "receiving"),
            }
        }
        Ok(())
    }

    fn look_at_link(&mut self) {
        self.links.clear();
        let carrier = has_carrier(&self.nic);
        if carrier == self.nic.carrier {
            return;
        }
        self.nic.carrier = carrier;
        if carrier {
            tracing::info!(nic = self.nic.name, "link is up");
            self.client.link_up(self.start.elapsed());
        } else {
            tracing::warn!(nic = self.nic.name, "link is down; check the cable");
        }
    }

    fn carry_out(&mut self, outputs: Vec<Output>) -> Result<()> {
        for output in outputs {
            match output {
                Output::Send { to, packet } => {
                    let to = SocketAddrV4::new(to.unwrap_or(Ipv4Addr::BROADCAST), SERVER_PORT);
                    if let Err(error) = self.socket.send_to(&packet, to) {
                        tracing::debug!(%error, "sending; the client tries again");
                    }
                }
                Output::Bound(lease) => self.apply(lease)?,
                // The address stays until there is another one: a disk may be half written over this connection.
                Output::Lost => tracing::warn!(
                    nic = self.nic.name,
                    "the lease is lost; asking for a new one"
                ),
            }
        }
        Ok(())
    }

    fn apply(&mut self, lease: Lease) -> Result<()> {
        let place = |lease: &Lease| (lease.address, lease.prefix, lease.router);
        if self.applied.as_ref().map(place) != Some(place(&lease)) {
            if let Some(old) = &self.applied {
                tracing::warn!(old = %old.address, new = %lease.address, "the address has changed; what Ironic knows is out of date until the next boot");
            }
            configure(&self.nic.name, lease.address, lease.prefix, lease.router).with_context(
                || {
                    format!(
                        "setting {}/{} on {}",
                        lease.address, lease.prefix, self.nic.name
                    )
                },
            )?;
        }
        self.applied = Some(lease);
        Ok(())
    }
}

fn has_carrier(nic: &Nic) -> bool {
    observe_nics()
        .iter()
        .any(|now| now.name == nic.name && now.carrier)
}

/// A socket that hears broadcasts of one NIC only, and may be used before there is an address.
fn open_socket(name: &str) -> io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    setsockopt(&fd, sockopt::Broadcast, &true)?;
    setsockopt(&fd, sockopt::BindToDevice, &name.into())?;
    bind(
        fd.as_raw_fd(),
        &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT)),
    )?;
    Ok(fd.into())
}
