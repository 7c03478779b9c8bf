//! An isolated Ethernet segment in user space: no root, bridge or tap device, and nothing leaves it unseen.
//!
//! [`Wire::lay`] starts one thread that switches frames between virtual machines and a small TCP/IP host of its own
//! ([`HOST_ADDRESS`]). Through that host [`Wire::forward`] carries 127.0.0.1 ports to machines, and [`Wire::serve`] machines to
//! 127.0.0.1 ports. Every frame with an address outside the site is a leak in [`Wire::report`].
//!
//! The host's address is fixed: `.2`, below where the box's DHCP server leases; a machine that uses it all the same
//! is reported like a leak.

mod datagrams;
mod frame;
mod host;
mod pcap;
mod switch;
mod watch;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::num::NonZeroU16;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

pub use frame::{Mac, Site, format_mac};
pub use watch::Report;

use host::Host;
use pcap::Capture;
use switch::{Command, Switch};
use watch::Watch;

/// Where the wire's own host sits in the default site 172.22.0.0/24.
pub const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 2);
const HOST_MAC: Mac = [0x02, 0xf1, 0x57, 0x11, 0x67, 0x02];

/// What a wire is like.
#[derive(Clone, Debug)]
pub struct WireSpec {
    pub site: Site,
    pub host_address: Ipv4Addr,
    /// Writes what passes to this file.
    pub capture: Option<PathBuf>,
}

impl Default for WireSpec {
    fn default() -> Self {
        Self {
            site: Site::new(Ipv4Addr::new(172, 22, 0, 0), 24),
            host_address: HOST_ADDRESS,
            capture: None,
        }
    }
}

/// The handle of a wire; it ends when this is dropped.
pub struct Wire {
    commands: Sender<Command>,
    wake: UnixStream,
    report: Arc<Mutex<Report>>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    pub fn lay(spec: &WireSpec) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let (commands, receiver) = channel();
        let report = Arc::new(Mutex::new(Report::default()));
        let watch = Watch {
            site: spec.site.clone(),
            host_mac: HOST_MAC,
            host_address: spec.host_address,
            capture: spec.capture.as_deref().map(Capture::create).transpose()?,
            report: Arc::clone(&report),
        };
        let host = Host::new(HOST_MAC, spec.host_address, spec.site.prefix());
        let switch = Switch::new(receiver, woken, host, watch);
        let thread = std::thread::Builder::new()
            .name("wire".to_owned())
            .spawn(move || switch.run())?;
        Ok(Self {
            commands,
            wake,
            report,
            thread: Some(thread),
        })
    }

    /// A new port of the switch: the returned end speaks frames with their length in front (QEMU `-netdev stream`).
    pub fn attach(&self) -> io::Result<UnixStream> {
        let (machine, port) = UnixStream::pair()?;
        port.set_nonblocking(true)?;
        self.send(Command::Attach(port))?;
        Ok(machine)
    }

    /// Carries connections to the returned address (on 127.0.0.1; `port` 0 takes a free one) to `target` on the wire.
    pub fn forward(&self, port: u16, target: SocketAddrV4) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        self.send(Command::Forward(listener, target))?;
        Ok(address)
    }

    /// Carries connections that machines open to `port` of the wire's host to `target`, on 127.0.0.1.
    pub fn serve(&self, port: NonZeroU16, target: SocketAddr) -> io::Result<()> {
        self.send(Command::Serve(port.get(), target))
    }

    /// The same for UDP.
    pub fn serve_datagrams(&self, port: NonZeroU16, target: SocketAddr) -> io::Result<()> {
        self.send(Command::ServeDatagrams(port.get(), target))
    }

    pub fn report(&self) -> Report {
        self.report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn send(&self, command: Command) -> io::Result<()> {
        self.commands
            .send(command)
            .map_err(|_| io::Error::other("the wire has ended"))?;
        (&self.wake).write_all(&[0])
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
