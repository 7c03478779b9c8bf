//! One transfer on a thread of its own: opens the file, then carries packets between its socket and the state machine.
//!
//! A thread, because it waits for one thing at a time: so a block costs two system calls, and a disk holds up nobody else.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};

use super::line::Line;
use super::packets::Packets;
use super::{Shared, TransferReport};
use crate::options::Negotiated;
use crate::packet::{ClientPacket, ErrorCode, ReadRequest, encode_error};
use crate::transfer::{Action, Blocks, Client, Input, Outcome, Transfer};

/// The socket's time limit may be wrong by so much: to set it costs a system call.
const SLACK: Duration = Duration::from_millis(20);
/// Packets, and bytes, that the kernel takes at once (`UDP_MAX_SEGMENTS`, and what fits an IP packet).
const MOST_SEGMENTS: usize = 64;
const MOST_BYTES: usize = 65_507;

pub(super) fn run(shared: &Shared, request: &ReadRequest, client: SocketAddr, line: &Line) {
    if let Err(error) = serve(shared, request, client, line) {
        tracing::warn!(%client, path = %request.path, %error, "TFTP transfer failed");
        shared.stats.failed.fetch_add(1, Ordering::Relaxed);
    }
    line.tell(Client::Left);
}

fn serve(
    shared: &Shared,
    request: &ReadRequest,
    client: SocketAddr,
    line: &Line,
) -> io::Result<()> {
    let refuse = |code, why| line.socket.send(&encode_error(code, why));
    let broken = |error| {
        // Whether or not that arrives, the error is what is told.
        let _ = refuse(ErrorCode::NotDefined, "the server cannot read the file");
        error
    };
    let source = shared.provider.open(&request.path, client);
    let Some(source) = source.map_err(broken)? else {
        tracing::debug!(%client, path = %request.path, "TFTP file not found");
        shared.stats.refused.fetch_add(1, Ordering::Relaxed);
        return refuse(ErrorCode::FileNotFound, "no such file").map(drop);
    };
    let size = source.size();
    let started = Instant::now();
    let (settings, oack) = Negotiated::new(&request.options, size, &shared.limits.negotiation);
    let mut session = Session {
        transfer: Transfer::new(settings, oack, size, Duration::ZERO),
        shared,
        line,
        together: packets_together(line, settings),
        packets: Packets::new(source, settings),
        started,
        client: Client::Asked,
        limit: Duration::ZERO,
    };
    let Some(outcome) = session.carry().map_err(broken)? else {
        return Ok(());
    };
    let counter = match outcome {
        Outcome::Complete => &shared.stats.completed,
        _ => &shared.stats.failed,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    tracing::debug!(%client, path = %request.path, ?outcome, "TFTP transfer ended");
    shared.provider.finished(&TransferReport {
        path: request.path.clone(),
        client,
        size,
        outcome,
        took: started.elapsed(),
    });
    Ok(())
}

/// How many packets of a window go to the kernel at once, which cuts them apart again.
fn packets_together(line: &Line, settings: Negotiated) -> usize {
    let length = settings.block_size + 4;
    let possible =
        settings.window > 1 && setsockopt(&line.socket, UdpGsoSegment, &i32::from(length)).is_ok();
    if possible {
        (MOST_BYTES / usize::from(length)).clamp(1, MOST_SEGMENTS)
    } else {
        1
    }
}

struct Session<'a> {
    transfer: Transfer,
    shared: &'a Shared,
    line: &'a Line,
    together: usize,
    packets: Packets,
    started: Instant,
    /// As the gate was told.
    client: Client,
    /// The socket's, for one receive.
    limit: Duration,
}

impl Session<'_> {
    /// `None`: the gate has ended it.
    fn carry(&mut self) -> io::Result<Option<Outcome>> {
        let mut input = Input::Tick;
        while !self.line.is_cut() {
            let now = self.started.elapsed();
            let action = self.transfer.handle(input, now);
            // Before anything is sent: what the client sends next is judged by it.
            let client = self.transfer.client();
            if client != self.client {
                self.line.tell(client);
                self.client = client;
            }
            let sent = match action {
                Action::Finish(outcome) => return Ok(Some(outcome)),
                Action::SendOack(packet) => {
                    self.line.answers_with(&packet);
                    self.line.socket.send(&packet).map(drop)
                }
                Action::SendBlocks(blocks) => self.send_blocks(blocks),
                Action::Nothing => Ok(()),
            };
            input = match sent {
                Err(error) if is_gone(&error) => Input::ClientGone,
                sent => {
                    sent?;
                    self.next_input(now)?
                }
            };
        }
        Ok(None)
    }

    /// A tick is nothing before its time, so whatever says nothing is one.
    fn next_input(&mut self, now: Duration) -> io::Result<Input> {
        let left = self.transfer.deadline().saturating_sub(now);
        // Whatever else the client has said meanwhile.
        if left.is_zero() {
            return Ok(Input::Tick);
        }
        let left = left.max(Duration::from_millis(1));
        if self.limit.abs_diff(left) > SLACK {
            self.line.socket.set_read_timeout(Some(left))?;
            self.limit = left;
        }
        let mut buffer = [0; 1024];
        let length = match self.line.socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if is_gone(&error) => return Ok(Input::ClientGone),
            Err(error) if is_nothing(&error) => return Ok(Input::Tick),
            Err(error) => return Err(error),
        };
        Ok(match ClientPacket::parse(&buffer[..length]) {
            Ok(ClientPacket::Ack(block)) => Input::Ack(block),
            Ok(ClientPacket::Error { code, message }) => Input::ClientError { code, message },
            // Neither belongs here; answering could start a loop.
            Ok(ClientPacket::Read(_) | ClientPacket::Write) | Err(_) => Input::Tick,
        })
    }

    fn send_blocks(&mut self, blocks: Blocks) -> io::Result<()> {
        let length = self.packets.packet_length();
        let mut rest = self.packets.of(blocks)?;
        self.line.answers_with(&rest[..length.min(rest.len())]);
        while !rest.is_empty() {
            let (packets, behind) = rest.split_at(rest.len().min(length * self.together));
            match self.line.socket.send(packets) {
                // Smaller packets on this way, or a NIC that leaves checksums to us.
                Err(error) if self.together > 1 && is_too_much(&error) => {
                    setsockopt(&self.line.socket, UdpGsoSegment, &0)?;
                    self.together = 1;
                    continue;
                }
                Err(error) if is_nothing(&error) => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    let headers = 4 * packets.len().div_ceil(length);
                    let sent = (packets.len() - headers) as u64;
                    self.shared
                        .stats
                        .sent_bytes
                        .fetch_add(sent, Ordering::Relaxed);
                }
            }
            rest = behind;
        }
        Ok(())
    }
}

/// The kernel passes on an ICMP "port unreachable" of the client.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// The socket's time limit.
fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn is_too_much(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EINVAL | Errno::EIO | Errno::EMSGSIZE))
}
