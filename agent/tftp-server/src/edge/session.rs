//! One transfer: opens the file, then carries packets between a socket of its own and the state machine.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep, sleep_until};

use super::reader::Reader;
use super::{Shared, Source, TransferReport};
use crate::options::Negotiated;
use crate::packet::{ClientPacket, ErrorCode, ReadRequest, encode_data_header, encode_error};
use crate::transfer::{Action, Blocks, Client, Input, Outcome, Transfer};

/// The task's end; what happened was reported already.
pub(super) struct Ended;

/// The session's ends of what it shares with the gate.
pub(super) struct Line {
    /// The same request came again.
    pub repeats: mpsc::Receiver<()>,
    pub client: watch::Sender<Client>,
}

pub(super) async fn run(
    shared: Arc<Shared>,
    request: ReadRequest,
    client: SocketAddr,
    line: Line,
) -> Ended {
    if let Err(error) = serve(&shared, &request, client, line).await {
        tracing::warn!(%client, path = %request.path, %error, "TFTP transfer failed");
        shared.stats.failed.fetch_add(1, Ordering::Relaxed);
    }
    Ended
}

async fn serve(
    shared: &Arc<Shared>,
    request: &ReadRequest,
    client: SocketAddr,
    line: Line,
) -> io::Result<()> {
    // Connected, so that the kernel drops what strangers send, and tells us when the client is gone.
    let socket = UdpSocket::bind((shared.local.ip(), 0)).await?;
    socket.connect(client).await?;
    let source = match open(shared, request, client).await {
        Ok(Some(source)) => source,
        Ok(None) => {
            tracing::debug!(%client, path = %request.path, "TFTP file not found");
            shared.stats.refused.fetch_add(1, Ordering::Relaxed);
            socket
                .send(&encode_error(ErrorCode::FileNotFound, "no such file"))
                .await?;
            return Ok(());
        }
        Err(error) => {
            socket
                .send(&encode_error(
                    ErrorCode::NotDefined,
                    "the server cannot read the file",
                ))
                .await?;
            return Err(error);
        }
    };
    let size = source.size();
    let started = Instant::now();
    let (settings, oack) = Negotiated::new(&request.options, size, &shared.limits.negotiation);
    let mut session = Session {
        transfer: Transfer::new(settings, oack, size, Duration::ZERO),
        shared: Arc::clone(shared),
        socket,
        reader: Reader::new(source, &shared.threads),
        started,
        timer: Box::pin(sleep_until(started)),
        line,
        packets: Vec::new(),
    };
    let outcome = session.carry().await;
    if outcome.is_err() {
        let packet = encode_error(ErrorCode::NotDefined, "the server cannot read the file");
        session.socket.send(&packet).await?;
    }
    let report = TransferReport {
        path: request.path.clone(),
        client,
        size,
        outcome: outcome?,
        took: started.elapsed(),
    };
    finish(shared, report).await
}

async fn open(
    shared: &Arc<Shared>,
    request: &ReadRequest,
    client: SocketAddr,
) -> io::Result<Option<Source>> {
    let provider = Arc::clone(&shared.provider);
    let path = request.path.clone();
    let thread = Arc::clone(&shared.threads).acquire_owned().await;
    tokio::task::spawn_blocking(move || {
        let opened = provider.open(&path, client);
        drop(thread);
        opened
    })
    .await
    .map_err(io::Error::other)?
}

async fn finish(shared: &Arc<Shared>, report: TransferReport) -> io::Result<()> {
    let counter = match report.outcome {
        Outcome::Complete => &shared.stats.completed,
        _ => &shared.stats.failed,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    tracing::debug!(client = %report.client, path = %report.path, outcome = ?report.outcome, "TFTP transfer ended");
    let provider = Arc::clone(&shared.provider);
    tokio::task::spawn_blocking(move || provider.finished(&report))
        .await
        .map_err(io::Error::other)
}

struct Session {
    transfer: Transfer,
    shared: Arc<Shared>,
    socket: UdpSocket,
    reader: Reader,
    started: Instant,
    /// Fires at the deadline or before. It is not moved for every packet: a new timer may wake another thread, which costs
    /// as much as the packet.
    timer: Pin<Box<Sleep>>,
    line: Line,
    /// Reused for every window.
    packets: Vec<u8>,
}

impl Session {
    async fn carry(&mut self) -> io::Result<Outcome> {
        let mut input = Input::Tick;
        let mut buffer = [0; 1024];
        loop {
            let action = self.transfer.handle(input, self.started.elapsed());
            // Before anything is sent: what the client sends next is judged by it.
            let client = self.transfer.client();
            self.line
                .client
                .send_if_modified(|known| std::mem::replace(known, client) != client);
            let carried_out = match action {
                Action::Finish(outcome) => return Ok(outcome),
                Action::SendOack(packet) => self.send(&packet).await,
                Action::SendBlocks(blocks) => self.send_blocks(blocks).await,
                Action::Nothing => Ok(()),
            };
            if is_gone(&carried_out) {
                input = Input::ClientGone;
                continue;
            }
            carried_out?;
            input = self.next_input(&mut buffer).await?;
        }
    }

    async fn next_input(&mut self, buffer: &mut [u8]) -> io::Result<Input> {
        let deadline = self.started + self.transfer.deadline();
        if self.timer.is_elapsed() || deadline < self.timer.deadline() {
            self.timer.as_mut().reset(deadline);
        }
        loop {
            let length = tokio::select! {
                biased;
                received = self.socket.recv(buffer) => {
                    if is_gone(&received) {
                        return Ok(Input::ClientGone);
                    }
                    received?
                }
                Some(()) = self.line.repeats.recv() => return Ok(Input::RequestAgain),
                () = &mut self.timer => {
                    if Instant::now() >= deadline {
                        return Ok(Input::Tick);
                    }
                    self.timer.as_mut().reset(deadline);
                    continue;
                }
            };
            match ClientPacket::parse(&buffer[..length]) {
                Ok(ClientPacket::Ack(block)) => return Ok(Input::Ack(block)),
                Ok(ClientPacket::Error { code, message }) => {
                    return Ok(Input::ClientError { code, message });
                }
                // Neither belongs here; answering could start a loop.
                Ok(ClientPacket::Read(_) | ClientPacket::Write) | Err(_) => {}
            }
        }
    }

    async fn send_blocks(&mut self, blocks: Blocks) -> io::Result<()> {
        let size = u64::from(self.transfer.settings().block_size);
        for block in blocks.first..blocks.first + blocks.count {
            let mut packet = std::mem::take(&mut self.packets);
            packet.clear();
            packet.extend_from_slice(&encode_data_header(block));
            self.reader
                .read((block - 1) * size, size, &mut packet)
                .await?;
            self.send(&packet).await?;
            let sent = packet.len() as u64 - 4;
            self.shared
                .stats
                .sent_bytes
                .fetch_add(sent, Ordering::Relaxed);
            self.packets = packet;
        }
        Ok(())
    }

    async fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.socket.send(packet).await.map(drop)
    }
}

/// The kernel passes on an ICMP "port unreachable" of the client.
fn is_gone<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}
