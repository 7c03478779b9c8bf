//! Asks the segment, as a client would, whether somebody leases addresses there, and listens to what others are told.
//!
//! A task with a socket of its own (UDP port 68), so that nobody waits for it, and nothing that its socket meets ends it.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result};
use firstlight_netboot::{
    ForeignProbe, ForeignServer, MacAddr, Overheard, ProbeStep, observe_foreign,
};
use tokio::{net::UdpSocket, sync::mpsc, time::Instant};

use super::{AbortOnDrop, sockets};
use crate::{clock, network::Segment};

/// What is overheard and not looked at yet; more of it says nothing new.
const BACKLOG: usize = 16;
/// Before the socket is read again after an error.
const PAUSE: Duration = Duration::from_secs(1);

/// What came to port 68.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEvent {
    Overheard(Overheard),
    /// The answer to a question, after at most three seconds; `None`: nobody.
    Answer(Option<ForeignServer>),
}

/// The questioner's end.
pub struct Prober {
    ask: mpsc::Sender<()>,
    heard: mpsc::Receiver<ProbeEvent>,
    _task: AbortOnDrop<()>,
}

impl Prober {
    pub fn spawn(segment: &Segment) -> Result<Self> {
        let socket = sockets::bind(&segment.interface, 68).context("opening UDP port 68")?;
        let (ask, asked) = mpsc::channel(1);
        let (tell, heard) = mpsc::channel(BACKLOG);
        let task = tokio::spawn(run(socket, segment.mac, asked, tell));
        Ok(Self {
            ask,
            heard,
            _task: AbortOnDrop(task),
        })
    }

    /// Asks, unless a question is open.
    pub fn ask(&self) {
        let _ = self.ask.try_send(());
    }

    pub async fn heard(&mut self) -> Result<ProbeEvent> {
        self.heard
            .recv()
            .await
            .context("the search for DHCP servers ended")
    }
}

async fn run(
    socket: UdpSocket,
    mac: MacAddr,
    mut asked: mpsc::Receiver<()>,
    tell: mpsc::Sender<ProbeEvent>,
) {
    let mut buffer = vec![0; sockets::LARGEST];
    let mut probe: Option<ForeignProbe> = None;
    loop {
        let mut wait = None;
        match probe.as_mut().map(|probe| probe.step(clock::uptime())) {
            None => {}
            Some(ProbeStep::WaitUntil(when)) => {
                wait = Some(Instant::now() + when.saturating_sub(clock::uptime()));
            }
            Some(ProbeStep::Send(datagram)) => {
                // A NIC that lost its carrier refuses; the next question may get through.
                if let Err(error) = socket.send_to(&datagram, (Ipv4Addr::BROADCAST, 67)).await {
                    tracing::debug!(%error, "a probe for DHCP servers was not sent");
                }
                continue;
            }
            Some(step @ (ProbeStep::Clear | ProbeStep::Foreign(_))) => {
                probe = None;
                let found = match step {
                    ProbeStep::Foreign(found) => Some(found),
                    _ => None,
                };
                if tell.send(ProbeEvent::Answer(found)).await.is_err() {
                    return;
                }
            }
        }
        tokio::select! {
            received = socket.recv_from(&mut buffer) => match received {
                Ok((length, _)) => {
                    let datagram = &buffer[..length];
                    if let Some(probe) = &mut probe {
                        probe.receive(datagram);
                    }
                    if let Some(heard) = observe_foreign(datagram).filter(|heard| heard.client != mac) {
                        let _ = tell.try_send(ProbeEvent::Overheard(heard));
                    }
                }
                // The interface goes down, or the network says something.
                Err(error) => {
                    tracing::debug!(%error, "listening for DHCP servers");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            asked = asked.recv(), if probe.is_none() => match asked {
                Some(()) => probe = new_probe(mac),
                None => return,
            },
            () = sleep_until(wait) => {}
        }
    }
}

/// For as long as that; for ever without one.
pub async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// `None` without random numbers: the question is asked again later.
fn new_probe(mac: MacAddr) -> Option<ForeignProbe> {
    let mut xids = [[0; 4]; 3];
    if let Err(error) = getrandom::fill(xids.as_flattened_mut()) {
        tracing::warn!(%error, "drawing random numbers failed");
        return None;
    }
    let xids = xids.map(u32::from_be_bytes);
    Some(ForeignProbe::new(mac, xids, clock::uptime()))
}
