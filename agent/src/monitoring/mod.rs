//! The programs that keep and judge the box's metrics and logs (docs/monitoring.md): they are units of their own; this says whom
//! Alertmanager tells, and puts what vmalert finds on the page and the console.
//!
//! `receivers` writes Alertmanager's file (pure), `alarms` reads vmalert's answer, `events` tells Kubernetes. Must not: judge metrics, which the rules do
//! (`overlays/box/usr/share/firstlight/monitoring`).

mod alarms;
pub mod events;
mod receivers;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use firstlight_api::{
    bounded,
    site::SiteConfig,
    status::{Alarm, SiteStatus},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    files::{self, Access, Account},
    paths::Paths,
    status::{Failing, StatusSender, Update},
};

/// As whom they run (overlays/box/usr/lib/sysusers.d).
const ACCOUNT: &str = "firstlight-monitoring";
const EVERY: Duration = Duration::from_secs(15);
/// For an answer, on a busy machine.
const ANSWER: Duration = Duration::from_secs(10);
/// Of a box that is busy for so long somebody should know.
const SILENT: Duration = Duration::from_mins(15);
/// Of an answer.
const LARGEST: usize = 1 << 20;

/// Where they listen, on the box itself.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub vmalert: SocketAddr,
    pub alertmanager: SocketAddr,
}

impl Default for Places {
    /// As their units say.
    fn default() -> Self {
        let at = |port: u16| ([127, 0, 0, 1], port).into();
        Self {
            vmalert: at(8880),
            alertmanager: at(9093),
        }
    }
}

/// Until the agent stops.
pub async fn run(
    paths: Paths,
    places: Places,
    mut site: watch::Receiver<Option<Arc<SiteConfig>>>,
    shown: watch::Receiver<SiteStatus>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    if !paths.vmalert().exists() {
        stop.cancelled().await;
        return Ok(());
    }
    let settings = tokio::select! {
        settings = site.wait_for(Option::is_some) => settings.ok().and_then(|site| site.clone()),
        () = stop.cancelled() => return Ok(()),
    };
    let settings = settings.context("the agent is stopping")?;
    write_receivers(&paths, &settings)?;
    // The unit may have begun with what an earlier agent wrote; where it has not begun, it reads this.
    drop(call(places.alertmanager, Method::POST, "/-/reload").await);
    let mut failing = Failing::new(
        status.clone(),
        "alarms",
        "nobody is told what the box's metrics say",
    );
    let mut heard = clock::uptime();
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return Ok(()),
        }
        let found = firing(places.vmalert).await;
        let now = clock::uptime();
        if found.is_ok() {
            heard = now;
        }
        // They come up last, and give way to all others.
        if now.saturating_sub(heard) > SILENT || found.is_ok() {
            failing.went(&found, now);
        }
        if let Ok(found) = found
            && shown.borrow().alarms != found
        {
            status.send(Update::Alarms(found));
        }
    }
}

fn write_receivers(paths: &Paths, site: &SiteConfig) -> Result<()> {
    let dir = paths.run_monitoring();
    let account = Account::find(ACCOUNT)?;
    files::make_dir(&dir, 0o750)?;
    std::os::unix::fs::chown(&dir, None, Some(account.gid))
        .with_context(|| format!("giving {} to the group {ACCOUNT}", dir.display()))?;
    // JSON is YAML.
    let content = format!("{:#}\n", receivers::config(site));
    let access = Access::GroupOf(account.gid);
    files::write(&dir.join("alertmanager.yaml"), content.as_bytes(), access)
}

async fn firing(vmalert: SocketAddr) -> Result<Vec<Alarm>> {
    let answer = call(vmalert, Method::GET, "/api/v1/alerts").await?;
    alarms::firing(&answer).context("what vmalert answers")
}

async fn call(address: SocketAddr, method: Method, path: &str) -> Result<Bytes> {
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{address}{path}"))
        .body(Full::default())?;
    let answer = tokio::time::timeout(ANSWER, ask(request, LARGEST)).await;
    answer
        .context("no answer")
        .flatten()
        .with_context(|| format!("asking {address}{path}"))
}

/// To these programs, on the box itself.
pub fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

/// What one of them answers, in `largest` bytes at most; else why not, in its words.
pub async fn ask(request: Request<Full<Bytes>>, largest: usize) -> Result<Bytes> {
    let answer = client().request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), largest).collect().await;
    let body = body.map_err(|error| anyhow!("{error}"))?.to_bytes();
    if !status.is_success() {
        bail!(
            "{status}: {}",
            bounded::sentence(&String::from_utf8_lossy(&body))
        );
    }
    Ok(body)
}
