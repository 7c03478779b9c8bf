//! The DHCP edge: sockets, clock, lease file and probes around `firstlight-netboot`, which decides.
//!
//! [`run`] holds the server for one segment at a time: read the leases, ask whether somebody else serves here, then answer.
//! Must not: decide anything about DHCP. A new situation belongs into `firstlight-netboot` with a test there.

mod arp;
mod config;
mod lease_file;
mod server;
mod sockets;

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::{site::SiteConfig, status::DhcpMode};
use firstlight_netboot::{BootSite, ForeignProbe, ForeignServer, ProbeStep};
use tokio::{net::UdpSocket, sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    fleet::Fleet,
    network::Segment,
    paths::Paths,
    status::{StatusSender, StepName, Update},
};

const RETRY: Duration = Duration::from_secs(5);

/// What the DHCP edge is given.
#[derive(Clone, Debug)]
pub struct Dhcp {
    pub paths: Paths,
    pub site: Arc<SiteConfig>,
    pub fleet: Fleet,
    pub status: StatusSender,
}

/// Serves the segment, whichever it is, until `stop`.
pub async fn run(
    dhcp: Dhcp,
    mut segment: watch::Receiver<Option<Segment>>,
    boot: watch::Receiver<Option<BootSite>>,
    stop: CancellationToken,
) -> Result<()> {
    loop {
        let current = segment.borrow_and_update().clone();
        let serving = async {
            match &current {
                Some(current) => keep_serving(&dhcp, current, boot.clone()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = serving => {}
            () = stop.cancelled() => return Ok(()),
            changed = segment.wait_for(|segment| *segment != current) => if changed.is_err() { return Ok(()) },
        }
        dhcp.status.send(Update::Dhcp(DhcpMode::Off));
    }
}

async fn keep_serving(dhcp: &Dhcp, segment: &Segment, mut boot: watch::Receiver<Option<BootSite>>) {
    loop {
        dhcp.status.running(StepName::Dhcp);
        let Err(error) = serve(dhcp, segment, &mut boot).await;
        dhcp.status.failed(
            StepName::Dhcp,
            format!("DHCP on {} failed: {error:#}", segment.interface),
            "the box tries again; if another DHCP server runs on this machine, stop it",
        );
        tokio::time::sleep(RETRY).await;
    }
}

async fn serve(
    dhcp: &Dhcp,
    segment: &Segment,
    boot: &mut watch::Receiver<Option<BootSite>>,
) -> Result<std::convert::Infallible> {
    let client = sockets::bind(&segment.interface, 68).context("opening UDP port 68")?;
    dhcp.status.send(Update::Dhcp(DhcpMode::Probing));
    let foreign = probe_foreign(&client, segment).await?;
    // Asking takes seconds, so it comes first. Answers need the lease file, and boot scripts that can be made.
    boot.wait_for(Option::is_some)
        .await
        .context("the agent is stopping")?;
    server::serve(dhcp, segment, client, foreign).await
}

/// Asks the segment, as a client would, whether somebody leases addresses there.
async fn probe_foreign(client: &UdpSocket, segment: &Segment) -> Result<Option<ForeignServer>> {
    let mut random = [0; 12];
    getrandom::fill(&mut random).context("drawing random numbers")?;
    let xid = |at: usize| {
        u32::from_be_bytes([random[at], random[at + 1], random[at + 2], random[at + 3]])
    };
    let mut probe = ForeignProbe::new(
        segment.mac,
        segment.address.address(),
        [xid(0), xid(4), xid(8)],
        clock::uptime(),
    );
    let mut buffer = vec![0; sockets::LARGEST];
    loop {
        match probe.step(clock::uptime()) {
            ProbeStep::Clear => return Ok(None),
            ProbeStep::Foreign(server) => return Ok(Some(server)),
            ProbeStep::Send(datagram) => {
                // A NIC that lost its carrier refuses; the next question may get through.
                if let Err(error) = client.send_to(&datagram, (Ipv4Addr::BROADCAST, 67)).await {
                    tracing::debug!(%error, "a probe for DHCP servers was not sent");
                }
            }
            ProbeStep::WaitUntil(when) => {
                let deadline = Instant::now() + when.saturating_sub(clock::uptime());
                if let Ok(received) =
                    tokio::time::timeout_at(deadline, client.recv_from(&mut buffer)).await
                {
                    let (length, _) = received.context("listening for DHCP servers")?;
                    probe.receive(&buffer[..length]);
                }
            }
        }
    }
}
