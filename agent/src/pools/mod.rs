//! Pools of IP addresses: who claims one gets the lowest that is free, in Metal3's API (`ipam.metal3.io`) and by Cluster API's contract
//! for pools (`ipam.cluster.x-k8s.io`). [`plan()`] is pure; [`run`] looks and writes.
//!
//! What is in use is what `IPAddress` objects say, and nothing else is remembered: an address is written down before its claim is told of
//! it, and is free again when its object is gone. Must not: make claims. Machines do (`machines`), and people.

mod book;
mod plan;
mod range;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Result;
use firstlight_api::{capi::Cluster, ipam::IpPool, object::Meta, site::SiteConfig};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    capi::{
        CLUSTERS, POOLS,
        addresses::{AddressObjects, Addresses, IpamApi},
        world::keyed,
    },
    clock,
    objects::{Applies, Key, Objects, Part, Selection, Watches, Writer, apply_all},
    reconcile::{self, AGAIN, Applied, Reason, Reconciler, Teller},
    status::StatusSender,
};

pub use plan::plan;

const MANAGER: &str = "firstlight-pools";
/// Between two looks without a change.
const LOOK: Duration = Duration::from_secs(15);
/// After a change: more of them come together.
const COALESCE: Duration = Duration::from_millis(300);

/// Everything that a plan is made from.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    pub site: Arc<SiteConfig>,
    pub pools: BTreeMap<Key, IpPool>,
    pub clusters: BTreeMap<Key, Cluster>,
    pub addresses: Addresses,
    /// A sentence for each object that is left out, because it cannot be read.
    pub unreadable: Vec<String>,
}

/// What is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pool,
    Claim(IpamApi),
    Address(IpamApi),
}

/// One write. Those of one object follow each other; the first that fails ends its list until the next look.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A JSON merge patch, refused if somebody wrote since `meta`.
    Patch {
        kind: Kind,
        part: Part,
        meta: Box<Meta>,
        patch: Value,
    },
    /// One that is there already stays as it is.
    Create(Kind, Value),
    /// Unless somebody wrote since.
    Delete(Kind, Box<Meta>),
}

/// Runs until `stop`.
pub async fn run(
    mut site: watch::Receiver<Option<Arc<SiteConfig>>>,
    mut kubernetes: watch::Receiver<Option<Client>>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let work = async {
        let Some(site) = site.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        let Some(client) = kubernetes.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        reconcile(client, site, status).await
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// For ever: look, plan, write, wait for a change.
pub async fn reconcile(client: Client, site: Arc<SiteConfig>, status: StatusSender) -> Result<()> {
    let teller = Teller::new(
        "pools",
        &status,
        ["pools", "no address of an IPPool is given or taken back"],
        [
            "pools-objects",
            "an object about IP addresses is left as it is",
        ],
    );
    let mut watches = Watches::new(client, MANAGER, COALESCE);
    let controller = Controller {
        objects: PoolObjects {
            pools: watches.objects(Selection::perhaps(POOLS)),
            clusters: watches.objects(Selection::perhaps(CLUSTERS)),
            addresses: AddressObjects::new(&mut watches),
        },
        watches,
        site,
    };
    reconcile::run(controller, teller).await
}

struct Controller {
    objects: PoolObjects,
    watches: Watches,
    site: Arc<SiteConfig>,
}

impl Reconciler for Controller {
    type Seen = Pools;

    async fn look(&mut self) -> Result<Pools> {
        self.objects.look(self.site.clone()).await
    }

    async fn apply(&mut self, mut seen: Pools) -> Result<Applied> {
        let plan = plan(&seen, &clock::rfc3339());
        let mut failures = apply_all(&self.objects, &plan).await;
        let rest = if failures.is_empty() { LOOK } else { AGAIN };
        failures.append(&mut seen.unreadable);
        Ok(Applied { failures, rest })
    }

    async fn reason(&mut self) -> Result<Reason> {
        self.watches.changed().await?;
        Ok(Reason::Change)
    }
}

/// The API server, as this controller uses it.
struct PoolObjects {
    pools: Objects<IpPool>,
    clusters: Objects<Cluster>,
    addresses: AddressObjects,
}

impl PoolObjects {
    async fn look(&self, site: Arc<SiteConfig>) -> Result<Pools> {
        let mut unreadable = Vec::new();
        let odd = &mut unreadable;
        Ok(Pools {
            site,
            pools: keyed(self.pools.all().await?, odd),
            clusters: keyed(self.clusters.all().await?, odd),
            addresses: self.addresses.look(odd).await?,
            unreadable,
        })
    }

    fn writer(&self, kind: Kind) -> &Writer {
        match kind {
            Kind::Pool => self.pools.writer(),
            Kind::Claim(api) => self.addresses.claim_writer(api),
            Kind::Address(api) => self.addresses.given_writer(api),
        }
    }
}

impl Applies<Action> for PoolObjects {
    async fn apply(&self, action: &Action) -> Result<()> {
        match action {
            Action::Patch {
                kind,
                part,
                meta,
                patch,
            } => {
                let mut patch = patch.clone();
                patch["metadata"]["resourceVersion"] = json!(meta.resource_version);
                let writer = self.writer(*kind);
                let written = writer.merge(&Key::of(meta), *part, &patch).await;
                written.map(drop)
            }
            Action::Create(kind, object) => {
                let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
                let key = Key::new(text("namespace"), text("name"));
                self.writer(*kind).create(&key, object.clone()).await
            }
            Action::Delete(kind, meta) => self.writer(*kind).delete(meta).await,
        }
    }
}
