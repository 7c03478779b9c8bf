//! The one task that joins what `machines` and `clusters` plan: it looks at all objects, writes, and waits for a change of any
//! of them, or some seconds. What it writes carries the version that it saw, so two looks never claim one host twice. Between
//! two looks only lists are kept that nobody has changed.
//!
//! Must not: talk to Ironic or to hosts. `BareMetalHost` objects are all it has.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};
use firstlight_api::site::SiteConfig;
use futures_util::StreamExt;
use kube::{
    Api, Client,
    api::{DynamicObject, PartialObjectMeta},
    runtime::{WatchStreamExt, watcher},
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    capi::{self, Resource, Store},
    clock, clusters, machines,
    status::{Failing, Rounds, StatusSender, Update},
};

/// Without a change.
const LOOK: Duration = Duration::from_secs(15);
/// After a change: more of them come together.
const SETTLE: Duration = Duration::from_secs(1);
/// While Cluster API is not there, and after a failed write.
const AGAIN: Duration = Duration::from_secs(3);

/// What the rest of the agent publishes and this controller waits for.
pub struct Facts {
    pub site: watch::Receiver<Option<Arc<SiteConfig>>>,
    pub kubernetes: watch::Receiver<Option<Client>>,
    /// Cluster API's kinds are served.
    pub cluster_api: watch::Receiver<bool>,
    /// What the stick brings for clusters, once it is known.
    pub stick: watch::Receiver<Option<Arc<clusters::Stick>>>,
}

/// Runs until `stop`.
pub async fn run(mut facts: Facts, status: StatusSender, stop: CancellationToken) -> Result<()> {
    let work = async {
        let Some(site) = facts.site.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        let Some(client) = facts.kubernetes.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        facts.cluster_api.wait_for(|there| *there).await?;
        reconcile(Store::new(client), site, facts.stick, status).await
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// For ever: look, plan, write, wait for a change.
pub async fn reconcile(
    store: Store,
    site: Arc<SiteConfig>,
    stick: watch::Receiver<Option<Arc<clusters::Stick>>>,
    status: StatusSender,
) -> Result<()> {
    let (trigger, mut changes) = mpsc::channel(1);
    let mut watches = tokio::task::JoinSet::new();
    for resource in capi::WATCHED {
        watches.spawn(follow(store.clone(), resource, trigger.clone()));
    }
    let mut nodes = machines::Nodes::default();
    let failing = |source, what| Failing::new(status.clone(), source, what);
    let mut rounds = Rounds {
        whole: failing(
            "machines",
            "clusters are not looked after: Cluster API's objects cannot be read",
        ),
        objects: failing(
            "machines-objects",
            "an object of a cluster is left as it is",
        ),
    };
    loop {
        let look = store.look(site.clone()).await;
        let mut rest = AGAIN;
        let round = match look {
            Ok(mut world) => {
                let now = clock::rfc3339();
                let (generated, said) = clusters::plan(&world, stick.borrow().as_deref());
                let mut plan = machines::plan(&world, &now);
                plan.extend(generated);
                let mut odd = capi::apply_all(&store, &plan).await;
                if odd.is_empty() {
                    rest = LOOK;
                }
                odd.append(&mut world.unreadable);
                status.send(Update::Clusters(machines::shown(&world)));
                status.problems("cluster", said);
                nodes.label(&store, &world, Instant::now());
                Ok(odd)
            }
            Err(error) => Err(error),
        };
        rounds.went(round, clock::uptime());
        tokio::select! {
            Some(()) = changes.recv() => tokio::time::sleep(SETTLE).await,
            Some(ended) = watches.join_next() => {
                ended?;
                bail!("a watch of the box's API server ended");
            }
            () = tokio::time::sleep(rest) => store.forget_unwatched(),
        }
        while changes.try_recv().is_ok() {}
    }
}

/// Says that something changed; what exactly is for the next look.
async fn follow(store: Store, resource: Resource, changed: mpsc::Sender<()>) {
    let client = store.client().clone();
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &resource.api());
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        store.forget(resource);
        match event {
            // A full channel: a look is due already.
            Ok(_) => drop(changed.try_send(())),
            Err(error) => tracing::debug!(kind = resource.2, error = %error, "watching again"),
        }
    }
}
