//! What a transfer's thread and the gate share: the socket, and what they tell each other.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use nix::sys::socket::{MsgFlags, Shutdown, send, shutdown};

use crate::transfer::Client;

/// A packet that finds no room for so long is lost, as on any other way.
const ROOM: Duration = Duration::from_secs(1);

pub(super) struct Line {
    pub socket: UdpSocket,
    /// The packet that the request was answered with.
    first: OnceLock<Vec<u8>>,
    client: Mutex<Client>,
    cut: AtomicBool,
}

impl Line {
    /// Connected, so that the kernel drops what strangers send, and tells us when the client is gone.
    pub fn open(local: IpAddr, client: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((local, 0))?;
        socket.connect(client)?;
        socket.set_write_timeout(Some(ROOM))?;
        Ok(Self {
            socket,
            first: OnceLock::new(),
            client: Mutex::new(Client::Asked),
            cut: AtomicBool::new(false),
        })
    }

    pub fn client(&self) -> Client {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tell(&self, client: Client) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// Only the first packet is kept.
    pub fn answers_with(&self, packet: &[u8]) {
        self.first.get_or_init(|| packet.to_vec());
    }

    /// For the same request, which came again. Whoever has no answer yet gets it when the file is open.
    pub fn answer_again(&self) {
        if let Some(packet) = self.first.get() {
            // The thread sends it once more anyway.
            let _ = send(self.socket.as_raw_fd(), packet, MsgFlags::MSG_DONTWAIT);
        }
    }

    /// Ends the transfer; its thread wakes up.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
        if let Err(error) = shutdown(self.socket.as_raw_fd(), Shutdown::Read) {
            tracing::debug!(%error, "ending a TFTP transfer");
        }
    }

    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }
}
