//! Remediation: restarts the server of a machine that a person's `MachineHealthCheck` found unhealthy, and tells Cluster API when that
//! did not help. [`plan()`] is pure; [`run`] looks and writes, and sees to nodes beside its loop.
//!
//! What is remembered is in the objects alone. Must not: delete a machine, which is its owner's to do; speak to Ironic or to a server:
//! annotations of the host say what its power shall be.

mod nodes;
mod plan;

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use firstlight_api::{
    capi::{Cluster, Machine},
    capm3::{self, Metal3Machine, Metal3Remediation},
    object::Meta,
};
use kube::Client;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use self::nodes::{NodeView, Nodes};
use crate::{
    capi::{
        CLUSTERS, HOSTS, MACHINES, METAL3_MACHINES,
        world::{Host, keyed},
    },
    clock,
    objects::{Applies, Key, Objects, Part, Resource, Selection, Watches, apply_all},
    reconcile::{self, AGAIN, Applied, Reason, Reconciler, Teller},
    status::StatusSender,
};

pub use plan::plan;

const MANAGER: &str = "firstlight-remediation";
const REMEDIATIONS: Resource = Resource(
    capm3::GROUP,
    capm3::VERSION,
    "Metal3Remediation",
    "metal3remediations",
);
/// Between two looks without a change.
const LOOK: Duration = Duration::from_secs(10);
/// After a change: more of them come together.
const COALESCE: Duration = Duration::from_millis(300);

/// Everything that a plan is made from.
#[derive(Clone, Debug, Default)]
pub struct Remediations {
    pub remediations: BTreeMap<Key, Metal3Remediation>,
    /// Some cannot be read, so that nobody knows whose an annotation is.
    pub is_partial: bool,
    pub machines: BTreeMap<Key, Machine>,
    pub metal3_machines: BTreeMap<Key, Metal3Machine>,
    pub hosts: BTreeMap<Key, Host>,
    pub clusters: BTreeMap<Key, Cluster>,
    /// By UID of the remediation.
    pub nodes: BTreeMap<String, NodeView>,
    /// For so long the box has been looking.
    pub awake: Duration,
    /// A sentence for each object that is left out, because it cannot be read.
    pub unreadable: Vec<String>,
}

/// What is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Remediation,
    Machine,
    Host,
}

/// A JSON merge patch, refused if somebody wrote since `meta`. Those of one list follow each other; the first that fails ends it until
/// the next look.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    pub kind: Kind,
    pub part: Part,
    pub meta: Box<Meta>,
    pub patch: Value,
}

/// Runs until `stop`.
pub async fn run(
    mut kubernetes: watch::Receiver<Option<Client>>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let work = async {
        let Some(client) = kubernetes.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        reconcile(client, status).await
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// For ever: look, plan, write, wait for a change.
pub async fn reconcile(client: Client, status: StatusSender) -> Result<()> {
    let teller = Teller::new(
        "remediation",
        &status,
        [
            "remediation",
            "no unhealthy machine's server is restarted, and none that was switched off is let go",
        ],
        [
            "remediation-objects",
            "an object about an unhealthy machine is left as it is",
        ],
    );
    let mut watches = Watches::new(client.clone(), MANAGER, COALESCE);
    let controller = Controller {
        objects: RemediationObjects {
            remediations: watches.objects(Selection::perhaps(REMEDIATIONS)),
            machines: watches.objects(Selection::perhaps(MACHINES)),
            metal3_machines: watches.objects(Selection::perhaps(METAL3_MACHINES)),
            hosts: watches.objects(Selection::perhaps(HOSTS)),
            clusters: watches.objects(Selection::perhaps(CLUSTERS)),
        },
        watches,
        client,
        nodes: Nodes::default(),
        began: Instant::now(),
    };
    reconcile::run(controller, teller).await
}

struct Controller {
    objects: RemediationObjects,
    watches: Watches,
    client: Client,
    nodes: Nodes,
    began: Instant,
}

impl Reconciler for Controller {
    type Seen = Remediations;

    async fn look(&mut self) -> Result<Remediations> {
        let mut seen = self.objects.look().await?;
        seen.nodes = self.nodes.views(Instant::now());
        seen.awake = self.began.elapsed();
        Ok(seen)
    }

    async fn apply(&mut self, mut seen: Remediations) -> Result<Applied> {
        let plan = plan(&seen, clock::wall_seconds());
        let mut failures = apply_all(&self.objects, &plan.steps).await;
        let rest = if failures.is_empty() { LOOK } else { AGAIN };
        failures.append(&mut seen.unreadable);
        self.nodes.visit(&self.client, plan.nodes, Instant::now());
        Ok(Applied { failures, rest })
    }

    async fn reason(&mut self) -> Result<Reason> {
        tokio::select! {
            changed = self.watches.changed() => changed.map(|()| Reason::Change),
            () = self.nodes.news() => Ok(Reason::News),
        }
    }
}

/// The API server, as this controller uses it.
struct RemediationObjects {
    remediations: Objects<Metal3Remediation>,
    machines: Objects<Machine>,
    metal3_machines: Objects<Metal3Machine>,
    hosts: Objects<Host>,
    clusters: Objects<Cluster>,
}

impl RemediationObjects {
    async fn look(&self) -> Result<Remediations> {
        let mut unreadable = Vec::new();
        let odd = &mut unreadable;
        let remediations = keyed(self.remediations.all().await?, odd);
        let is_partial = !odd.is_empty();
        Ok(Remediations {
            remediations,
            is_partial,
            machines: keyed(self.machines.all().await?, odd),
            metal3_machines: keyed(self.metal3_machines.all().await?, odd),
            hosts: keyed(self.hosts.all().await?, odd),
            clusters: keyed(self.clusters.all().await?, odd),
            nodes: BTreeMap::new(),
            awake: Duration::ZERO,
            unreadable,
        })
    }
}

impl Applies<Action> for RemediationObjects {
    async fn apply(&self, action: &Action) -> Result<()> {
        let writer = match action.kind {
            Kind::Remediation => self.remediations.writer(),
            Kind::Machine => self.machines.writer(),
            Kind::Host => self.hosts.writer(),
        };
        let mut patch = action.patch.clone();
        patch["metadata"]["resourceVersion"] = json!(action.meta.resource_version);
        let key = Key::of(&action.meta);
        let written = writer.merge(&key, action.part, &patch).await;
        written.map(drop)
    }
}
