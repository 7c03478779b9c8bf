//! The box's page, read through a port of this machine: what it answers, its status, and what changed in that.

mod follow;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::status::SiteStatus;
use firstlight_client::http::{Client, Request};

pub use follow::{Line, changes};

/// The largest answer is an initramfs.
const LARGEST: u64 = 1 << 30;

/// The body of `http://PAGE/PATH` if the answer is 200.
pub fn get(page: SocketAddr, path: &str, silence: Duration) -> Result<Vec<u8>> {
    let url = format!("http://{page}{path}");
    let mut reply = Client::new(None, silence).send(&Request::get(&url))?;
    let body = reply
        .read_body(LARGEST)
        .with_context(|| format!("reading {url}"))?;
    ensure!(
        reply.status() == 200,
        "{url}: HTTP status {}",
        reply.status()
    );
    Ok(body)
}

/// What the box says about the site.
pub fn read_status(page: SocketAddr) -> Result<SiteStatus> {
    let body = get(page, "/api/v1/status", Duration::from_secs(20))?;
    serde_json::from_slice(&body).context("/api/v1/status is not the status value")
}
