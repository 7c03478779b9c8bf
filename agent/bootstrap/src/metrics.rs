//! What this server's `node_exporter` measures, on its way to the box (docs/monitoring.md).

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use firstlight_api::metrics::{LARGEST, PATH};
use firstlight_client::http::{Client, Request};
use firstlight_client::signed_client::SignedClient;

/// As its unit says: on this server alone, and not where people's own one would be.
const EXPORTER: &str = "http://127.0.0.1:9109/metrics";
const EVERY: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);

/// What the box does not take is not kept: the next measurement says more.
pub fn keep(the_box: &SignedClient) -> ! {
    let mut told = None;
    loop {
        let began = Instant::now();
        let failed = measure().and_then(|text| {
            let taken = the_box.post(PATH, &text);
            taken.map_err(|untaken| anyhow::Error::msg(untaken.reason))
        });
        let failed = failed.err().map(|error| format!("{error:#}"));
        if failed != told {
            if let Some(why) = &failed {
                tracing::warn!("the box does not get this server's metrics: {why}");
            } else {
                tracing::info!("the box gets this server's metrics");
            }
            told = failed;
        }
        thread::sleep(EVERY.saturating_sub(began.elapsed()));
    }
}

fn measure() -> Result<Vec<u8>> {
    let client = Client::new(None, PATIENCE);
    let mut reply = client.send(&Request::get(EXPORTER))?;
    ensure!(
        reply.status() == 200,
        "node_exporter answers with status {}",
        reply.status()
    );
    reply
        .read_body(LARGEST as u64)
        .context("reading what node_exporter measures")
}
