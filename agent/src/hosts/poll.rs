//! Asks Ironic for its nodes, again and again, so that the owner of the hosts never waits for it.

use std::time::Duration;

use firstlight_ironic::{Client, ClientError, Node};
use tokio::sync::{mpsc, watch};

use crate::clock;

/// Ironic, as the controller uses it.
#[derive(Clone, Debug)]
pub struct IronicEnd {
    pub client: Client,
    /// Where hosts get images: `http://172.22.0.1`.
    pub box_http: String,
    /// Where installed systems ask for bootstrap data: `https://172.22.0.1:8443/bootstrap/v1`.
    pub bootstrap: String,
    /// The site's CA, PEM.
    pub ca: String,
}

/// One look at all nodes, and the uptime at which it was begun.
pub struct Look {
    pub nodes: Result<Vec<Node>, ClientError>,
    pub asked: Duration,
}

/// Of Ironic's time; the rest is for what it has to do beside answering.
const SHARE: u32 = 4;

/// `pause` is the time between two looks, if Ironic is quick to answer; a change of it, even to the same value, asks at once.
pub async fn run(
    mut ironic: watch::Receiver<Option<IronicEnd>>,
    mut pause: watch::Receiver<Duration>,
    looks: mpsc::Sender<Look>,
) -> anyhow::Result<()> {
    loop {
        let Some(end) = ironic.wait_for(Option::is_some).await?.clone() else {
            continue;
        };
        let rest = *pause.borrow_and_update();
        let asked = clock::uptime();
        let nodes = end.client.nodes().await;
        let rest = rest.max(clock::uptime().saturating_sub(asked) * SHARE);
        if looks.send(Look { nodes, asked }).await.is_err() {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            changed = pause.changed() => changed?,
        }
    }
}
