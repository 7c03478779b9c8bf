//! The one task that joins what `machines` and `clusters` plan: it looks at all objects, writes, and waits for a change of any
//! of them, or some seconds. What it writes carries the version that it saw, so two looks never claim one host twice.
//!
//! Must not: talk to Ironic or to hosts. `BareMetalHost` objects are all it has.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use firstlight_api::site::SiteConfig;
use kube::Client;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    capi::{MANAGER, ProviderObjects, world::World},
    clock, clusters, host_networks, machines,
    objects::{Watches, apply_all},
    reconcile::{self, AGAIN, Applied, Reason, Reconciler, Teller},
    status::{StatusSender, Update},
};

/// Without a change.
const LOOK: Duration = Duration::from_secs(15);
/// After a change: more of them come together.
const COALESCE: Duration = Duration::from_secs(1);

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
        Box::pin(reconcile(client, site, facts.stick, status)).await
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// For ever: look, plan, write, wait for a change.
pub async fn reconcile(
    client: Client,
    site: Arc<SiteConfig>,
    stick: watch::Receiver<Option<Arc<clusters::Stick>>>,
    status: StatusSender,
) -> Result<()> {
    let mut watches = Watches::new(client, MANAGER, COALESCE);
    let provider = Provider {
        objects: ProviderObjects::new(&mut watches),
        watches,
        site,
        stick,
        status: status.clone(),
        nodes: machines::Nodes::default(),
        departures: machines::Departures::default(),
    };
    let teller = Teller::new(
        "machines",
        &status,
        [
            "machines",
            "clusters are not looked after: Cluster API's objects cannot be read",
        ],
        [
            "machines-objects",
            "an object of a cluster is left as it is",
        ],
    );
    reconcile::run(provider, teller).await
}

struct Provider {
    objects: ProviderObjects,
    watches: Watches,
    site: Arc<SiteConfig>,
    stick: watch::Receiver<Option<Arc<clusters::Stick>>>,
    status: StatusSender,
    nodes: machines::Nodes,
    departures: machines::Departures,
}

impl Reconciler for Provider {
    type Seen = World;

    async fn look(&mut self) -> Result<World> {
        self.objects.look(self.site.clone()).await
    }

    async fn apply(&mut self, mut world: World) -> Result<Applied> {
        let now = clock::rfc3339();
        let (generated, said) = clusters::plan(&world, self.stick.borrow().as_deref());
        let mut plan = machines::plan(&world, &now);
        plan.extend(generated);
        plan.extend(host_networks::plan(&world));
        plan.extend(self.departures.plan(self.objects.client(), &world));
        let mut failures = apply_all(&self.objects, &plan).await;
        let rest = if failures.is_empty() { LOOK } else { AGAIN };
        failures.append(&mut world.unreadable);
        failures.extend(machines::left_behind(&world));
        self.status.send(Update::Clusters(machines::shown(&world)));
        self.status.problems("cluster", said);
        let client = self.objects.client();
        self.nodes.label(client, &world, Instant::now());
        Ok(Applied { failures, rest })
    }

    async fn reason(&mut self) -> Result<Reason> {
        tokio::select! {
            () = self.departures.news() => Ok(Reason::News),
            changed = self.watches.changed() => changed.map(|()| Reason::Change),
        }
    }
}
