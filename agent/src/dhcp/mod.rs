//! The DHCP edge: sockets, clock, lease file and probes around `firstlight-netboot`, which decides.
//!
//! [`run`] holds the server for one segment at a time. `server` is the loop, `ports` are its sockets, `prober` asks for other DHCP
//! servers, `addresses` asks who has one, `lease_file` writes, `ipv6` hears who asks otherwise, `conditions` keeps what people should know and `tell` says it; each of what takes time is a task of its own.
//! Must not: decide anything about DHCP. A new situation belongs into `firstlight-netboot` with a test there.

mod addresses;
mod clock;
mod conditions;
mod config;
mod ipv6;
pub mod lease_file;
mod ports;
mod prober;
mod server;
mod sockets;
mod tell;

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::Result;
use firstlight_api::{site::SiteConfig, status::DhcpMode};
use firstlight_netboot::{BootSite, Guard};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    fleet::Fleet,
    network::{Heard, Segment},
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
    /// How often the segment's link came up.
    pub link_ups: watch::Receiver<u32>,
    /// For servers that go out through the box.
    pub name_servers: watch::Receiver<Vec<Ipv4Addr>>,
    /// For who chooses the segment.
    pub heard: watch::Sender<Option<Heard>>,
    /// Addresses that are leased now.
    pub leased: watch::Sender<Arc<BTreeSet<Ipv4Addr>>>,
    /// Down only where the server is measured.
    pub guard: Guard,
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
        let Err(error) = server::serve(dhcp, segment, &mut boot).await;
        dhcp.status.failed(
            StepName::Dhcp,
            format!("DHCP on {} failed: {error:#}", segment.interface),
            "the box tries again; if another DHCP server runs on this machine, stop it",
        );
        tokio::time::sleep(RETRY).await;
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
