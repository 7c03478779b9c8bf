//! The edge: one socket for requests, a thread with a socket of its own for each transfer.
//!
//! Here, and only here, are the clock, the sockets and the files.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the edge that the core must not have"
)]

mod gate;
mod line;
mod packets;
mod session;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use firstlight_admission::{Shares, Standing};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::gate::{Admission, Gate};
use self::line::Line;
use crate::options::NegotiationLimits;
use crate::packet::{ClientPacket, ErrorCode, Mode, PacketError, ReadRequest, encode_error};
use crate::path::FilePath;
use crate::transfer::Outcome;

/// Threads of transfers that had to give way and still wait for the disk.
const LEAVING: usize = 32;

const BUSY: &str = "too many transfers at once, try again later";

/// What a name stands for.
#[derive(Debug)]
pub enum Source {
    /// In memory; shared by all that read it.
    Bytes(Arc<[u8]>),
    /// On a disk.
    File(OpenFile),
}

/// An open file and its size, which must not change while it is read.
#[derive(Debug)]
pub struct OpenFile {
    /// Read from by position.
    pub file: std::fs::File,
    /// In bytes.
    pub size: u64,
}

impl OpenFile {
    /// Takes the size from the file itself; an error unless it is a regular file.
    pub fn new(file: std::fs::File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(Self {
            file,
            size: metadata.len(),
        })
    }
}

impl Source {
    fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.size,
        }
    }
}

/// What the server serves. Opening may block: it runs on the transfer's thread, one of tokio's for what blocks.
pub trait Provider: Send + Sync + 'static {
    /// `None`: there is no such file. An error is logged, and the client is told that the server failed.
    fn open(&self, path: &FilePath, client: SocketAddr) -> io::Result<Option<Source>>;

    /// Whether places are kept for this client. Must not block.
    fn knows(&self, _client: IpAddr) -> bool {
        false
    }

    /// Called at the end of every transfer.
    fn finished(&self, _report: &TransferReport) {}
}

/// One transfer that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferReport {
    /// As it was asked for.
    pub path: FilePath,
    /// The port that the request came from.
    pub client: SocketAddr,
    /// Of the file, in bytes.
    pub size: u64,
    /// For the log.
    pub outcome: Outcome,
    /// From the request to the end.
    pub took: Duration,
}

/// How much at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What one transfer may ask for.
    pub negotiation: NegotiationLimits,
    /// Transfers at once, of all clients and of one; a request beyond it is answered with an error.
    pub shares: Shares,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            negotiation: NegotiationLimits::default(),
            shares: Shares {
                all: 192,
                kept: 96,
                of_peer: 8,
            },
        }
    }
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Stats {
    sent_bytes: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

impl Stats {
    /// File bytes sent, repetitions included.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Transfers of which the client acknowledged all.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Transfers that the client gave up, or that timed out.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Requests that were answered with an error.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A bound server.
pub struct Server {
    socket: UdpSocket,
    shared: Arc<Shared>,
}

/// What all transfers have in common.
struct Shared {
    local: SocketAddr,
    provider: Arc<dyn Provider>,
    limits: Limits,
    stats: Arc<Stats>,
    /// One for each transfer, until its thread is at its end.
    threads: Arc<Semaphore>,
}

impl Server {
    /// Binds the request socket. Transfers use the same IP address with ports of their own, so bind the address that
    /// clients know, not the unspecified one.
    pub async fn bind(
        addr: SocketAddr,
        provider: Arc<dyn Provider>,
        limits: Limits,
    ) -> io::Result<Self> {
        let socket = UdpSocket::bind(addr).await?;
        let shared = Shared {
            local: socket.local_addr()?,
            provider,
            limits,
            stats: Arc::default(),
            threads: Arc::new(Semaphore::new(limits.shares.all + LEAVING)),
        };
        Ok(Self {
            socket,
            shared: Arc::new(shared),
        })
    }

    /// With the port, if it was bound to port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local
    }

    /// They go on counting while the server runs.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.shared.stats)
    }

    /// Serves until `stop`; ends all transfers then. Dropping the future does the same. An error means that the request
    /// socket is broken.
    pub async fn run(self, stop: CancellationToken) -> io::Result<()> {
        let mut transfers = JoinSet::new();
        let mut gate = Gate::new(self.shared.limits);
        let mut buffer = [0; 2048];
        loop {
            let (length, client) = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(ended) = transfers.join_next_with_id() => {
                    gate.leave(ended);
                    continue;
                }
                received = self.socket.recv_from(&mut buffer) => match received {
                    Ok(received) => received,
                    // An ICMP error of an earlier answer; the socket goes on working.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                    Err(error) => return Err(error),
                },
            };
            let raw = &buffer[..length];
            let request = match accept(raw) {
                Accepted::Read(request) => request,
                Accepted::Refuse(code, why) => {
                    tracing::debug!(%client, reason = why, "TFTP request refused");
                    self.refuse(client, code, why).await;
                    continue;
                }
                Accepted::Ignore => continue,
            };
            let standing = if self.shared.provider.knows(client.ip()) {
                Standing::Known
            } else {
                Standing::Stranger
            };
            let Ok(thread) = Arc::clone(&self.shared.threads).try_acquire_owned() else {
                self.refuse(client, ErrorCode::NotDefined, BUSY).await;
                continue;
            };
            let ticket = match gate.admit(client, standing, raw) {
                Admission::Repeated => continue,
                Admission::Full(why) => {
                    tracing::debug!(%client, path = %request.path, reason = why, "TFTP request refused");
                    self.refuse(client, ErrorCode::NotDefined, why).await;
                    continue;
                }
                Admission::Granted(ticket) => ticket,
            };
            let line = match Line::open(self.shared.local.ip(), client) {
                Ok(line) => Arc::new(line),
                Err(error) => {
                    tracing::warn!(%client, path = %request.path, %error, "TFTP transfer failed");
                    gate.end(ticket);
                    continue;
                }
            };
            let (shared, own) = (Arc::clone(&self.shared), Arc::clone(&line));
            let task = transfers.spawn_blocking(move || {
                session::run(&shared, &request, client, &own);
                drop(thread);
            });
            gate.enter(ticket, client, raw, line, task.id());
        }
    }

    async fn refuse(&self, client: SocketAddr, code: ErrorCode, why: &str) {
        self.shared.stats.refused.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.socket.send_to(&encode_error(code, why), client).await {
            tracing::debug!(%client, %error, "sending a TFTP error failed");
        }
    }
}

enum Accepted {
    Read(ReadRequest),
    Refuse(ErrorCode, &'static str),
    /// Nothing to answer: an answer to an answer would go on for ever.
    Ignore,
}

fn accept(raw: &[u8]) -> Accepted {
    match ClientPacket::parse(raw) {
        Ok(ClientPacket::Read(request)) if request.mode == Mode::Octet => Accepted::Read(request),
        Ok(ClientPacket::Read(_)) => Accepted::Refuse(
            ErrorCode::IllegalOperation,
            "only mode octet is served: netascii would change the bytes of the file",
        ),
        Ok(ClientPacket::Write) => {
            Accepted::Refuse(ErrorCode::AccessViolation, "this server is read-only")
        }
        Err(PacketError::Path(_)) => {
            Accepted::Refuse(ErrorCode::AccessViolation, "no such file name is served")
        }
        Err(PacketError::Mode) => {
            Accepted::Refuse(ErrorCode::IllegalOperation, "unknown transfer mode")
        }
        Ok(ClientPacket::Ack(_) | ClientPacket::Error { .. })
        | Err(PacketError::Truncated | PacketError::Operation(_)) => Accepted::Ignore,
    }
}
