//! `firstlight-agent`: everything on the box that is not Kubernetes or Ironic.
//!
//! [`run`] starts one task for each concern; they share nothing but channels: [`bring_up::Facts`] for what is known,
//! [`status`] for what is told, [`fleet`] for what is heard of hosts. See ARCHITECTURE.md for the box as a whole.
//!
//! To add a concern: a module with a `run(…, stop)`, and a line in [`run`].

pub mod addons;
pub mod backups;
mod boot_files;
pub mod bring_up;
pub mod capi;
mod child;
pub mod clock;
pub mod clusters;
pub mod console;
pub mod containers;
mod damage;
pub mod dhcp;
pub mod doors;
pub mod edge;
mod encryption;
mod files;
pub mod fleet;
mod hardware;
pub mod helper;
mod host_networks;
pub mod hosts;
pub mod ironic_files;
pub mod journal;
pub mod keep;
pub mod kubernetes;
pub mod liveness;
mod machines;
pub mod monitoring;
pub mod network;
pub mod notify;
pub mod objects;
pub mod options;
mod packages;
mod page_certificate;
pub mod paths;
pub mod people;
mod pieces;
pub mod pki;
pub mod pools;
pub mod provider;
mod reconcile;
pub mod registry_files;
pub mod remediation;
pub mod site_file;
pub mod software;
pub mod sources;
pub mod ssh;
mod start_line;
pub mod state;
mod state_versions;
pub mod status;
pub mod store;
pub mod tftp;
mod timekeeper;
mod update;
pub mod upgrades;
pub mod uplink;
mod warnings;
pub mod web;
pub mod workload;

use std::{future::Future, net::Ipv4Addr, path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use firstlight_api::names::{HTTP_PORT, HTTPS_PORT};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use boot_files::{BootFiles, Loaders, tell_of_loaders};
use bring_up::Facts;
use options::{BoxForm, Options};
use paths::Paths;
use people::People;
use status::StatusSender;
use web::Web;

/// Given to tasks to end by themselves.
const STOP_TIME: Duration = Duration::from_secs(3);

/// Tasks by name; each runs until it is stopped.
struct Tasks {
    set: JoinSet<(&'static str, Result<()>)>,
    stop: CancellationToken,
}

impl Tasks {
    fn spawn<T>(&mut self, name: &'static str, task: impl FnOnce(CancellationToken) -> T)
    where
        T: Future<Output = Result<()>> + Send + 'static,
    {
        let task = task(self.stop.clone());
        self.set.spawn(async move { (name, task.await) });
    }
}

/// What tasks are made of; each gets copies.
#[derive(Clone)]
struct Agent {
    paths: Paths,
    status: StatusSender,
    facts: Facts,
    web: Web,
}

/// Runs the agent until it is told to stop by a signal, or a task that should run for ever ends.
pub async fn run(options: Options) -> Result<()> {
    // Both of ours and kube's TLS use ring; a second call, in tests, changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let form = options.form();
    let paths = Paths::new(options.root);
    let (status, reader, owner) = status::channel(env!("CARGO_PKG_VERSION"));
    let (fleet, controller) = fleet::channel();
    let facts = Facts::default();
    let boot_files = BootFiles {
        site: facts.boot.subscribe(),
        fleet,
        paths: paths.clone(),
        loaders: Loaders::default(),
    };
    let people = People::new(paths.people());
    let web = Web::new(
        reader,
        boot_files,
        doors::Known::new(facts.leased.subscribe()),
        people,
        web::Facts {
            store: facts.store.subscribe(),
            kubernetes: facts.kubernetes.subscribe(),
            site: facts.site.subscribe(),
            pki: facts.pki.subscribe(),
        },
    );
    let local = (Ipv4Addr::LOCALHOST, options.loopback.unwrap_or(HTTP_PORT)).into();
    let agent = Agent {
        paths,
        status,
        facts,
        web,
    };

    let mut tasks = Tasks {
        set: JoinSet::new(),
        stop: CancellationToken::new(),
    };
    tasks.spawn("status", |stop| status::own(owner, stop));
    let (web, status) = (agent.web.clone(), agent.status.clone());
    tasks.spawn("http", |stop| {
        let known = web.known.clone();
        web::serve_address(web, known, local, status, stop)
    });
    tasks.spawn("liveness", |stop| liveness::run(local, stop));
    tasks.spawn("people", |stop| {
        let (people, status) = (agent.web.people.clone(), agent.status.clone());
        let (site, pki) = (agent.facts.site.subscribe(), agent.facts.pki.subscribe());
        people::run(people, site, pki, status, stop)
    });
    spawn_common(&mut tasks, agent.clone(), form, controller);
    if form != BoxForm::Desk {
        spawn_box(&mut tasks, &agent, form);
    }
    finish(tasks).await
}

/// What a desk has too.
fn spawn_common(tasks: &mut Tasks, agent: Agent, form: BoxForm, controller: fleet::Controller) {
    let Agent {
        paths,
        status,
        facts,
        ..
    } = agent;
    let known = hosts::Facts {
        pki: facts.pki.subscribe(),
        site: facts.site.subscribe(),
        ironic: facts.ironic.subscribe(),
        kubernetes: facts.kubernetes.subscribe(),
        artifacts: facts.store.subscribe(),
        bmcs: facts.bmcs.clone(),
        boot: facts.boot.subscribe(),
    };
    tasks.spawn("hosts", |stop| {
        hosts::run(paths.clone(), known, controller, status.clone(), stop)
    });
    tasks.spawn("site", |stop| {
        site_file::run(paths.clone(), status.clone(), facts.site.clone(), stop)
    });
    tasks.spawn("packages", |stop| {
        let (site, store) = (facts.site.subscribe(), facts.store.subscribe());
        packages::run(paths.clone(), site, store, status.clone(), stop)
    });
    let (pki, opened) = (facts.pki.subscribe(), facts.store.clone());
    let dirs = store::Dirs {
        store: paths.store(),
        apt: paths.apt(),
        apt_key: paths.apt_key(),
        images: paths.uploaded_images(),
        pushed: paths.pushed(),
    };
    let told = status.clone();
    tasks.spawn("store", |stop| {
        store::run(dirs, store::REGISTRY, pki, opened, told, stop)
    });
    tasks.spawn("foundation", |stop| {
        bring_up::foundation(paths, form, status, facts, stop)
    });
}

/// What only a box has: networks, DHCP and TFTP, Kubernetes, a console.
fn spawn_box(tasks: &mut Tasks, agent: &Agent, form: BoxForm) {
    let Agent {
        paths,
        status,
        facts,
        web,
    } = agent;
    let copies = || (paths.clone(), status.clone(), facts.clone());
    spawn_listeners(tasks, agent);
    // A machine with a life of its own keeps its journal as it likes, and below another root it is not the box's.
    if form == BoxForm::Box && paths.root() == Path::new("/") {
        tasks.spawn("warnings", |stop| {
            warnings::run(paths.clone(), status.clone(), stop)
        });
    }
    tasks.spawn("certificates", |stop| {
        let (kubernetes, cluster_api) =
            (facts.kubernetes.subscribe(), facts.cluster_api.subscribe());
        clusters::certificates::run(kubernetes, cluster_api, status.clone(), stop)
    });
    tasks.spawn("timekeeper", |stop| {
        timekeeper::run(paths.clone(), status.clone(), stop)
    });
    tasks.spawn("seal", |stop| {
        state::seal::run(paths.clone(), status.clone(), stop)
    });
    tasks.spawn("hardware", |stop| {
        hardware::run(paths.clone(), status.clone(), stop)
    });
    tasks.spawn("damage", |stop| {
        damage::run(paths.clone(), status.clone(), stop)
    });
    tasks.spawn("page-certificate", |stop| {
        page_certificate::run(web.certificate.clone(), paths.clone(), status.clone(), stop)
    });
    tasks.spawn("monitoring", |stop| {
        let (paths, status, facts) = copies();
        let places = monitoring::Places::default();
        monitoring::run(
            paths,
            places,
            facts.site.subscribe(),
            web.status.clone(),
            status,
            stop,
        )
    });
    tasks.spawn("alarm-events", |stop| {
        monitoring::events::run(facts.kubernetes.subscribe(), web.status.clone(), stop)
    });
    tasks.spawn("update", |stop| {
        update::run(web.update.clone(), web.status.clone(), status.clone(), stop)
    });
    tasks.spawn("backups", |stop| {
        let keys = ssh::Keys::new(paths.host_keys(), ssh::PORT);
        let (site, seen) = (facts.site.subscribe(), web.status.clone());
        backups::run(paths.clone(), keys, site, seen, status.clone(), stop)
    });
    tasks.spawn("console", |stop| {
        console::run(paths.clone(), web.status.clone(), web.people.code(), stop)
    });
    tasks.spawn("network", |stop| {
        let (paths, status, facts) = copies();
        let site = facts.site.subscribe();
        let known = network::Known {
            bmcs: facts.bmcs.subscribe(),
            heard: facts.heard.subscribe(),
            servers: network::Servers::new(facts.leased.subscribe(), web.known.believed()),
        };
        let published = network::Published {
            segment: facts.segment,
            link_ups: facts.link_ups,
        };
        network::run(paths, form, site, known, status, published, stop)
    });
    tasks.spawn("uplink", |stop| {
        let (paths, status, facts) = copies();
        let known = uplink::Facts {
            site: facts.site.subscribe(),
            segment: facts.segment.subscribe(),
            shown: web.status.clone(),
        };
        let published = uplink::Published {
            outside: facts.outside,
            name_servers: facts.name_servers,
        };
        uplink::run(paths, form, known, status, published, stop)
    });
    tasks.spawn("provisioning", |stop| {
        let (paths, status, facts) = copies();
        bring_up::provisioning(paths, status, facts, stop)
    });
    tasks.spawn("dhcp", |stop| {
        let (paths, status, facts) = copies();
        bring_up::dhcp(paths, status, facts, web.fleet.clone(), stop)
    });
    tasks.spawn("kubernetes", |stop| {
        let (paths, status, facts) = copies();
        bring_up::kubernetes(paths, status, facts, stop)
    });
    spawn_controllers(tasks, agent);
}

/// What looks after objects of the box's Kubernetes.
fn spawn_controllers(tasks: &mut Tasks, agent: &Agent) {
    let Agent {
        paths,
        status,
        facts,
        ..
    } = agent;
    let copies = || (paths.clone(), status.clone(), facts.clone());
    tasks.spawn("addons", |stop| {
        let (paths, status, facts) = copies();
        let places = addons::Places {
            helm: paths.helm(),
            builtin: paths.addons(),
            scratch: paths.run_addons(),
            registry: store::REGISTRY,
        };
        let (kubernetes, artifacts) = (facts.kubernetes.subscribe(), facts.store.subscribe());
        let pki = facts.pki.subscribe();
        addons::run(places, kubernetes, artifacts, pki, status, stop)
    });
    let (kubernetes, artifacts) = (facts.kubernetes.subscribe(), facts.store.subscribe());
    let (site, cluster_api) = (facts.site.subscribe(), facts.cluster_api.subscribe());
    tasks.spawn("containers", |stop| {
        containers::run(
            kubernetes,
            artifacts,
            site,
            cluster_api,
            status.clone(),
            stop,
        )
    });
    tasks.spawn("software", |stop| {
        let (paths, status, facts) = copies();
        let known = software::Facts {
            site: facts.site.subscribe(),
            kubernetes: facts.kubernetes.subscribe(),
            artifacts: facts.store.subscribe(),
        };
        let keys = ssh::Keys::new(paths.host_keys(), ssh::PORT);
        software::run(keys, paths, known, status, stop)
    });
    tasks.spawn("upgrades", |stop| {
        let (paths, status, facts) = copies();
        let known = upgrades::Facts {
            site: facts.site.subscribe(),
            kubernetes: facts.kubernetes.subscribe(),
        };
        let keys = ssh::Keys::new(paths.host_keys(), ssh::PORT);
        upgrades::run(keys, paths, store::REGISTRY, known, status, stop)
    });
    let (site, kubernetes) = (facts.site.subscribe(), facts.kubernetes.subscribe());
    tasks.spawn("pools", |stop| {
        pools::run(site, kubernetes, status.clone(), stop)
    });
    let kubernetes = facts.kubernetes.subscribe();
    tasks.spawn("remediation", |stop| {
        remediation::run(kubernetes, status.clone(), stop)
    });
    tasks.spawn("machines", |stop| {
        let (_, status, facts) = copies();
        let known = provider::Facts {
            site: facts.site.subscribe(),
            kubernetes: facts.kubernetes.subscribe(),
            cluster_api: facts.cluster_api.subscribe(),
            stick: facts.stick.subscribe(),
        };
        provider::run(known, status, stop)
    });
}

/// Who answers over the network, beside DHCP.
fn spawn_listeners(tasks: &mut Tasks, agent: &Agent) {
    let Agent {
        paths,
        status,
        facts,
        web,
    } = agent;
    let segment = || facts.segment.subscribe();
    tasks.spawn("http-segment", |stop| {
        let page = web.clone();
        web::serve_segment(
            move |_| Ok(page.clone()),
            web.known.clone(),
            segment(),
            HTTP_PORT,
            status.clone(),
            stop,
        )
    });
    tasks.spawn("http-uplink", |stop| {
        let (page, outside) = (web::Outside(web.clone()), facts.outside.subscribe());
        let (known, at) = (web.known.clone(), move |_| Ok(page.clone()));
        web::serve_segment(at, known, outside, HTTP_PORT, status.clone(), stop)
    });
    tasks.spawn("https-segment", |stop| {
        let (page, known) = (web.clone().over_tls(), web.known.clone());
        let (pki, at) = (
            facts.pki.subscribe(),
            (HTTPS_PORT, "https", web.certificate.current()),
        );
        web::serve_secure(page, known, pki, segment(), at, status.clone(), stop)
    });
    tasks.spawn("https-uplink", |stop| {
        let (page, known) = (web::Outside(web.clone().over_tls()), web.known.clone());
        let (pki, at) = (
            facts.pki.subscribe(),
            (HTTPS_PORT, "https-uplink", web.certificate.current()),
        );
        let outside = facts.outside.subscribe();
        web::serve_secure(page, known, pki, outside, at, status.clone(), stop)
    });
    tasks.spawn("pushes", |stop| {
        web::serve_pushes(paths.store(), web.known.clone(), status.clone(), stop)
    });
    tasks.spawn("conversion", |stop| {
        web::serve_conversion(
            web.known.clone(),
            web.people.clone(),
            facts.pki.subscribe(),
            status.clone(),
            stop,
        )
    });
    tasks.spawn("bootstrap", |stop| {
        web::serve_bootstrap(
            web.fleet.clone(),
            web.known.clone(),
            web::Engines::default(),
            facts.pki.subscribe(),
            segment(),
            status.clone(),
            stop,
        )
    });
    tasks.spawn("boot-loaders", |stop| {
        let loaders = web.boot_files.loaders.clone();
        tell_of_loaders(loaders, status.clone(), stop)
    });
    tasks.spawn("tftp", |stop| {
        let (files, known) = (web.boot_files.clone(), web.known.clone());
        tftp::run(files, known, segment(), status.clone(), stop)
    });
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
