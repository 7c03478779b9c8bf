//! `firstlight-agent`: everything on the box that is not Kubernetes or Ironic.
//!
//! [`run`] starts one task for each concern; they share nothing but channels: [`bring_up::Facts`] for what is known,
//! [`status`] for what is told, [`fleet`] for what is heard of hosts. See ARCHITECTURE.md for the box as a whole.
//!
//! To add a concern: a module with a `run(…, stop)`, and a line in [`run`].

pub mod bring_up;
pub mod clock;
pub mod console;
pub mod dhcp;
mod files;
pub mod fleet;
pub mod ironic_files;
pub mod kubernetes;
pub mod network;
pub mod notify;
pub mod options;
pub mod paths;
pub mod pki;
pub mod roster;
pub mod site_file;
pub mod state;
pub mod status;
pub mod tftp;
pub mod web;

use std::{future::Future, net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use bring_up::{Facts, Place};
use options::Options;
use paths::Paths;
use status::StatusSender;
use web::Web;

/// The page, the API and network boot.
pub const HTTP_PORT: u16 = 80;

/// Given to tasks to end by themselves.
const STOP_TIME: Duration = Duration::from_secs(3);

/// Tasks by name; each runs until it is stopped.
struct Tasks {
    set: JoinSet<(&'static str, Result<()>)>,
    stop: CancellationToken,
}

impl Tasks {
    fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        self.set.spawn(async move { (name, task.await) });
    }
}

/// Runs the agent until it is told to stop by a signal, or a task that should run for ever ends.
pub async fn run(options: Options) -> Result<()> {
    // Both of ours and kube's TLS use ring; a second call, in tests, changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let paths = Paths::new(options.root);
    let (status, reader, owner) = status::channel(env!("CARGO_PKG_VERSION"));
    let (fleet, controller) = fleet::channel();
    let facts = Facts::default();
    let web = Web::new(
        reader.clone(),
        facts.boot.subscribe(),
        fleet.clone(),
        paths.clone(),
    );
    let mut tasks = Tasks {
        set: JoinSet::new(),
        stop: CancellationToken::new(),
    };
    let stop = || tasks.stop.clone();
    let place = if options.loopback.is_some() {
        Place::Desk
    } else {
        Place::Box
    };
    let port = options.loopback.unwrap_or(HTTP_PORT);
    let local = (Ipv4Addr::LOCALHOST, port).into();

    let (stop_status, stop_http, stop_site, stop_foundation) = (stop(), stop(), stop(), stop());
    tasks.spawn("status", status::own(owner, stop_status));
    tasks.spawn(
        "http",
        web::serve_address(web.clone(), local, status.clone(), stop_http),
    );
    tasks.spawn(
        "site",
        bring_up::site(paths.clone(), status.clone(), facts.clone(), stop_site),
    );
    tasks.spawn(
        "foundation",
        bring_up::foundation(
            paths.clone(),
            place,
            status.clone(),
            facts.clone(),
            stop_foundation,
        ),
    );
    if place == Place::Box {
        spawn_box_tasks(&mut tasks, &paths, &status, &facts, &web);
    }
    drop(controller);
    finish(tasks).await
}

/// What only a box has: networks, DHCP and TFTP, Kubernetes, a console.
fn spawn_box_tasks(
    tasks: &mut Tasks,
    paths: &Paths,
    status: &StatusSender,
    facts: &Facts,
    web: &Web,
) {
    let stop = || tasks.stop.clone();
    let stops = [stop(), stop(), stop(), stop(), stop(), stop(), stop()];
    let [
        on_segment,
        on_console,
        on_network,
        on_provisioning,
        on_dhcp,
        on_tftp,
        on_kubernetes,
    ] = stops;
    let segment = || facts.segment.subscribe();
    tasks.spawn(
        "http-segment",
        web::serve_segment(
            web.clone(),
            segment(),
            HTTP_PORT,
            status.clone(),
            on_segment,
        ),
    );
    tasks.spawn(
        "console",
        console::run(paths.clone(), web.status.clone(), on_console),
    );
    tasks.spawn(
        "network",
        network::run(
            paths.clone(),
            facts.site.subscribe(),
            status.clone(),
            facts.segment.clone(),
            on_network,
        ),
    );
    tasks.spawn(
        "provisioning",
        bring_up::provisioning(
            paths.clone(),
            status.clone(),
            facts.clone(),
            on_provisioning,
        ),
    );
    tasks.spawn(
        "tftp",
        tftp::run(web.clone(), segment(), status.clone(), on_tftp),
    );
    let dhcp = bring_up::dhcp(
        paths.clone(),
        status.clone(),
        facts.clone(),
        web.fleet.clone(),
        on_dhcp,
    );
    tasks.spawn("dhcp", dhcp);
    tasks.spawn(
        "kubernetes",
        bring_up::kubernetes(paths.clone(), status.clone(), facts.clone(), on_kubernetes),
    );
}

/// Waits for a signal or for the end of a task, then stops everything.
async fn finish(mut tasks: Tasks) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let ended = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        ended = tasks.set.join_next() => ended,
    };
    tasks.stop.cancel();
    let stopping = async { while tasks.set.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_TIME, stopping).await.is_err() {
        tracing::warn!("some tasks did not stop in time");
    }
    match ended {
        None => Ok(()),
        Some(Ok((name, Ok(())))) => bail!("the task {name} ended by itself"),
        Some(Ok((name, Err(error)))) => Err(error.context(format!("the task {name}"))),
        Some(Err(error)) => Err(error).context("a task panicked"),
    }
}
