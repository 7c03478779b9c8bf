//! A user-space TCP/IP host on the wire: it carries connections from 127.0.0.1 to the machines, and from the machines to services
//! on 127.0.0.1, so that nothing needs root, a bridge or a tap device. It has a fixed address.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::PollFlags;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

use super::datagrams::Datagrams;
use super::frame::Mac;

const BUFFER: usize = 128 << 10;
/// A machine that is still booting does not answer ARP: give up, the caller tries again.
const CONNECT_TIMEOUT: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(15);
/// An emulated machine under load may be silent for long.
const SILENCE_TIMEOUT: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(120);
const KEEP_ALIVE: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(20);
/// Connections that may come to one service at the same instant.
const DOORS: usize = 4;
/// Frames waiting for the stack; more is a broadcast storm, which a network card would drop as well.
const QUEUE: usize = 4096;

/// Frames between the switch and the stack.
#[derive(Default)]
pub(super) struct Link {
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
}

pub(super) struct Received(pub Vec<u8>);
pub(super) struct Sender<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for Link {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sender<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sender<'_>)> {
        let frame = self.incoming.pop_front()?;
        Some((Received(frame), Sender(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sender<'_>> {
        Some(Sender(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sender<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut frame = vec![0; length];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

pub(super) struct Host {
    link: Link,
    interface: Interface,
    sockets: SocketSet<'static>,
    forwards: Vec<Forward>,
    services: Vec<Service>,
    datagrams: Vec<Datagrams>,
    connections: Vec<Connection>,
    next_port: u16,
}

struct Forward {
    listener: TcpListener,
    target: SocketAddrV4,
}

/// A port of the host, behind which somebody listens on 127.0.0.1.
struct Service {
    port: u16,
    target: SocketAddr,
    /// Sockets of it that nobody has connected to yet.
    doors: Vec<SocketHandle>,
}

impl Host {
    pub fn new(mac: Mac, address: Ipv4Addr, prefix: u8) -> Self {
        let mut link = Link::default();
        let mut config = Config::new(EthernetAddress(mac).into());
        config.random_seed = u64::from(std::process::id());
        let mut interface = Interface::new(config, &mut link, Instant::now());
        interface.update_ip_addrs(|addresses| {
            addresses
                .push(IpCidr::new(IpAddress::Ipv4(address), prefix))
                .expect("an empty list has room");
        });
        Self {
            link,
            interface,
            sockets: SocketSet::new(vec![]),
            forwards: Vec::new(),
            services: Vec::new(),
            datagrams: Vec::new(),
            connections: Vec::new(),
            next_port: 49152,
        }
    }

    /// Carries every connection that `listener` (non-blocking) accepts to `target`.
    pub fn forward(&mut self, listener: TcpListener, target: SocketAddrV4) {
        self.forwards.push(Forward { listener, target });
    }

    /// Carries every connection that comes to `port` to `target`.
    pub fn serve(&mut self, port: u16, target: SocketAddr) {
        let doors = (0..DOORS).map(|_| self.sockets.add(door(port))).collect();
        self.services.push(Service {
            port,
            target,
            doors,
        });
    }

    /// The same for UDP.
    pub fn serve_datagrams(&mut self, port: u16, target: SocketAddr) {
        let datagrams = Datagrams::bind(&mut self.sockets, port, target);
        self.datagrams.push(datagrams);
    }

    pub fn receive(&mut self, frame: &[u8]) {
        if self.link.incoming.len() < QUEUE {
            self.link.incoming.push_back(frame.to_vec());
        }
    }

    pub fn next_outgoing(&mut self) -> Option<Vec<u8>> {
        self.link.outgoing.pop_front()
    }

    /// What to wait for. Connections with nothing to do are left out: a hung-up descriptor would wake the loop for ever.
    pub fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let listeners = self
            .forwards
            .iter()
            .map(|f| (f.listener.as_fd(), PollFlags::POLLIN));
        let connections = self.connections.iter().filter_map(|c| {
            let flags = c.interest(self.sockets.get(c.handle));
            (!flags.is_empty()).then(|| (c.local.as_fd(), flags))
        });
        let datagrams = self.datagrams.iter().flat_map(Datagrams::interests);
        listeners.chain(connections).chain(datagrams)
    }

    /// How long the stack can do without a call of [`Self::work`]; `None`: until something arrives.
    pub fn delay(&mut self) -> Option<Duration> {
        self.interface
            .poll_delay(Instant::now(), &self.sockets)
            .map(Duration::from)
    }

    /// Accepts, moves bytes both ways, lets the stack speak.
    pub fn work(&mut self) {
        self.accept();
        self.interface
            .poll(Instant::now(), &mut self.link, &mut self.sockets);
        self.admit();
        for datagrams in &mut self.datagrams {
            datagrams.pump(&mut self.sockets);
        }
        let (sockets, connections) = (&mut self.sockets, &mut self.connections);
        connections.retain_mut(|connection| {
            let alive = connection.pump(sockets.get_mut(connection.handle));
            if !alive {
                sockets.remove(connection.handle);
            }
            alive
        });
        self.interface
            .poll(Instant::now(), &mut self.link, &mut self.sockets);
    }

    fn accept(&mut self) {
        for forward in &self.forwards {
            while let Ok((local, _)) = forward.listener.accept() {
                let mut socket = socket();
                self.next_port = self.next_port.checked_add(1).unwrap_or(49152);
                let connecting =
                    socket.connect(self.interface.context(), forward.target, self.next_port);
                if connecting.is_ok() && local.set_nonblocking(true).is_ok() {
                    let handle = self.sockets.add(socket);
                    self.connections.push(Connection::new(local, handle));
                }
            }
        }
    }

    /// Each socket that somebody has connected to is carried on, and another takes its place.
    fn admit(&mut self) {
        for service in &mut self.services {
            for handle in &mut service.doors {
                let state = self.sockets.get_mut::<tcp::Socket<'_>>(*handle).state();
                if matches!(state, tcp::State::Listen | tcp::State::SynReceived) {
                    continue;
                }
                let taken = std::mem::replace(handle, self.sockets.add(door(service.port)));
                let local = TcpStream::connect(service.target)
                    .and_then(|local| local.set_nonblocking(true).map(|()| local));
                if let Ok(local) = local {
                    self.connections.push(Connection::new(local, taken));
                } else {
                    // The peer's next segment is answered as at any port where nobody listens.
                    self.sockets.remove(taken);
                }
            }
        }
    }
}

fn socket() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_timeout(Some(CONNECT_TIMEOUT));
    socket.set_nagle_enabled(false);
    socket
}

fn door(port: u16) -> tcp::Socket<'static> {
    let mut socket = socket();
    socket
        .listen(port)
        .expect("a new socket takes any port but 0");
    socket
}

#[derive(PartialEq)]
enum Phase {
    Connecting,
    Open,
    /// The machine has sent its last byte.
    RemoteEnded,
}

struct Connection {
    local: TcpStream,
    handle: SocketHandle,
    phase: Phase,
    local_ended: bool,
}

impl Connection {
    fn new(local: TcpStream, handle: SocketHandle) -> Self {
        Self {
            local,
            handle,
            phase: Phase::Connecting,
            local_ended: false,
        }
    }

    fn interest(&self, socket: &tcp::Socket<'_>) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, !self.local_ended && socket.can_send());
        flags.set(PollFlags::POLLOUT, socket.can_recv());
        flags
    }

    /// False when the connection is over.
    fn pump(&mut self, socket: &mut tcp::Socket<'_>) -> bool {
        if self.phase == Phase::Connecting && socket.may_send() {
            self.phase = Phase::Open;
            socket.set_timeout(Some(SILENCE_TIMEOUT));
            socket.set_keep_alive(Some(KEEP_ALIVE));
        }
        if !self.send(socket) || !self.receive(socket) {
            socket.abort();
            return false;
        }
        if self.phase == Phase::Open && !socket.may_recv() {
            self.phase = Phase::RemoteEnded;
            let _ = self.local.shutdown(Shutdown::Write);
        }
        !matches!(socket.state(), tcp::State::Closed | tcp::State::TimeWait) || socket.can_recv()
    }

    fn send(&mut self, socket: &mut tcp::Socket<'_>) -> bool {
        while !self.local_ended && socket.can_send() {
            let local = &mut self.local;
            let read = socket.send(|buffer| {
                let result = local.read(buffer);
                (*result.as_ref().unwrap_or(&0), result)
            });
            match read {
                Ok(Ok(0)) => {
                    self.local_ended = true;
                    socket.close();
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return error.kind() == ErrorKind::WouldBlock,
                Err(_) => return true,
            }
        }
        true
    }

    fn receive(&mut self, socket: &mut tcp::Socket<'_>) -> bool {
        while socket.can_recv() {
            let local = &mut self.local;
            let written = socket.recv(|buffer| {
                let result = local.write(buffer);
                (*result.as_ref().unwrap_or(&0), result)
            });
            match written {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return error.kind() == ErrorKind::WouldBlock,
                Err(_) => return true,
            }
        }
        true
    }
}
