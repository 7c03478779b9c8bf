//! Clusters go to another version of Kubernetes in place: packages change, disks and etcd stay.
//!
//! One task looks at all [`ClusterUpgrade`] objects, at each change again. A round ([`job`]) asks the cluster, plans ([`plan`], pure) and brings
//! at most one node to the version, by orders that `firstlight-bootstrap` carries out there with the real kubeadm; then the next round begins
//! with a new look. A change of certificate authorities goes the same way, a step a round ([`rotation`]). Cluster API is held off meanwhile, and told at the end ([`held`]).
//!
//! Must not: keep anything that objects, nodes and the status do not say. After a restart of the agent a round begins anew, and what is done is not
//! done twice.

mod cluster;
mod held;
mod job;
mod plan;
mod rotation;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use firstlight_api::{
    capi::Cluster,
    names,
    site::SiteConfig,
    status::UpgradeLine,
    upgrade::{self, ClusterUpgrade, ClusterUpgradeStatus, NodeUpgradeState, UpgradeState},
};
use kube::Client;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use held::Owners;
use job::{News, Work};
use plan::Known;

use crate::{
    capi::{CLUSTERS, world::World},
    objects::{Key, Listed, Objects, Resource, Selection, Watches, is_overtaken},
    paths::Paths,
    reconcile::{self, Applied, Reason, Reconciler, Teller},
    software::{Hands, Member, OverSsh, ServerObjects, installed},
    sources::Sources,
    ssh::Keys,
    status::{StatusSender, Update},
    store::Registry,
};

const MANAGER: &str = "firstlight-upgrades";
const UPGRADES: Resource = Resource(
    upgrade::GROUP,
    upgrade::VERSION,
    upgrade::KIND,
    upgrade::PLURAL,
);
const LOOK: Duration = Duration::from_secs(15);
const COALESCE: Duration = Duration::from_millis(300);
/// What runs on every cluster's nodes as images of its version.
const IMAGES: [&str; 4] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
];

/// What the rest of the agent publishes and this controller waits for.
pub struct Facts {
    pub site: watch::Receiver<Option<Arc<SiteConfig>>>,
    pub kubernetes: watch::Receiver<Option<Client>>,
}

/// What the box has for nodes.
#[derive(Clone, Debug)]
pub struct Stock {
    /// Indexes of the suites of its apt repository.
    pub indexes: Vec<PathBuf>,
    pub registry: SocketAddr,
}

impl Stock {
    pub fn new(paths: &Paths, registry: SocketAddr) -> Self {
        let index = |folder: PathBuf, suite: &str| {
            folder.join(format!("dists/{suite}/main/binary-amd64/Packages"))
        };
        let indexes = vec![
            index(paths.apt_base(), firstlight_api::repository::BASE),
            index(paths.apt(), firstlight_api::repository::UPLOADS),
        ];
        Self { indexes, registry }
    }

    async fn packages(&self) -> Vec<String> {
        let mut found = Vec::new();
        for index in &self.indexes {
            // A suite without packages has none.
            let text = tokio::fs::read_to_string(index).await.unwrap_or_default();
            found.extend(plan::kubeadm_versions(&text));
        }
        found
    }

    async fn missing(&self, version: &str) -> Vec<String> {
        let mut missing = Vec::new();
        for name in IMAGES {
            let repository = format!("{}/{name}", names::KUBERNETES_REPOSITORY);
            // A registry that does not answer says nothing of them.
            let found = Registry(self.registry).tagged(&repository, version).await;
            if let Ok(None) = found {
                missing.push(format!("{}/{repository}:{version}", names::REGISTRY));
            }
        }
        missing
    }
}

/// Runs until `stop`.
pub async fn run(
    keys: Keys,
    paths: Paths,
    registry: SocketAddr,
    mut facts: Facts,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let work = async {
        let Some(site) = facts.site.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        let Some(client) = facts.kubernetes.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        let sources = Sources::new(&paths, site.provisioning.address.address());
        let stock = Stock::new(&paths, registry);
        reconcile(OverSsh { keys, sources }, stock, client, site, status).await
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// For ever: look, begin rounds, tell, wait for a change or for what a round tells.
pub async fn reconcile<H: Hands>(
    hands: H,
    stock: Stock,
    client: Client,
    site: Arc<SiteConfig>,
    status: StatusSender,
) -> Result<()> {
    let teller = Teller::new(
        "upgrades",
        &status,
        ["upgrades-loop", "upgrades of clusters are not looked after"],
        [
            "upgrades-objects",
            "an object about an upgrade is left as it is",
        ],
    );
    reconcile::run(Keeper::new(hands, stock, client, site, status), teller).await
}

struct Keeper<H> {
    status: StatusSender,
    hands: H,
    stock: Stock,
    client: Client,
    watches: Watches,
    upgrades: Objects<ClusterUpgrade>,
    clusters: Objects<Cluster>,
    servers: ServerObjects,
    tell: mpsc::UnboundedSender<(Key, News)>,
    told: mpsc::UnboundedReceiver<(Key, News)>,
    rounds: JoinSet<()>,
    busy: BTreeSet<Key>,
    /// With the newest status: what is in the API server may be a write behind.
    known: BTreeMap<Key, ClusterUpgrade>,
    /// When a round ended, and of which generation it was.
    tried: BTreeMap<Key, (Instant, i64)>,
}

impl<H: Hands> Reconciler for Keeper<H> {
    type Seen = (Listed<ClusterUpgrade>, World, Vec<Cluster>);

    async fn look(&mut self) -> Result<Self::Seen> {
        while let Ok(told) = self.told.try_recv() {
            self.hear(told);
        }
        while self.rounds.try_join_next().is_some() {}
        let listed = self.upgrades.all().await?.owned();
        if listed.objects.is_empty() {
            return Ok((listed, World::default(), Vec::new()));
        }
        let clusters = self.clusters.all().await?.owned();
        Ok((listed, self.servers.look().await?, clusters.objects))
    }

    async fn apply(&mut self, (listed, world, clusters): Self::Seen) -> Result<Applied> {
        let mut failures = [listed.unreadable, world.unreadable.clone()].concat();
        let keys: BTreeSet<Key> = listed
            .objects
            .iter()
            .map(|one| Key::of(&one.metadata))
            .collect();
        self.known.retain(|key, _| keys.contains(key));
        self.tried.retain(|key, _| keys.contains(key));
        for upgrade in &listed.objects {
            // One at a time: the one that has begun.
            let first = listed
                .objects
                .iter()
                .filter(|other| other.spec.cluster == upgrade.spec.cluster)
                .filter(|other| other.metadata.namespace == upgrade.metadata.namespace)
                .filter(|other| !is_over(other) || other.metadata.uid == upgrade.metadata.uid)
                .min_by_key(|other| (!has_begun(other), &other.metadata.name));
            let before = first.filter(|first| first.metadata.uid != upgrade.metadata.uid);
            if let Err(error) = self.attend(upgrade, before, &world, &clusters).await
                && !is_overtaken(&error)
            {
                failures.push(format!("{error:#}"));
            }
        }
        let goes_on = |one: &&ClusterUpgrade| one.status.state != UpgradeState::Done;
        let lines = self.known.values().filter(goes_on).map(line);
        self.status.send(Update::Upgrades(lines.collect()));
        let rest = LOOK;
        Ok(Applied { failures, rest })
    }

    async fn reason(&mut self) -> Result<Reason> {
        tokio::select! {
            Some(told) = self.told.recv() => {
                self.hear(told);
                tokio::time::sleep(COALESCE).await;
                Ok(Reason::News)
            }
            changed = self.watches.changed() => changed.map(|()| Reason::Change),
        }
    }
}

/// For the page.
fn line(upgrade: &ClusterUpgrade) -> UpgradeLine {
    let ClusterUpgradeStatus {
        state,
        message,
        ready,
        nodes,
        ..
    } = &upgrade.status;
    let mut at_work = nodes.iter();
    let at_work = at_work.find(|node| {
        !matches!(
            node.state,
            NodeUpgradeState::Waiting | NodeUpgradeState::Ready
        )
    });
    let of_node = at_work.map(|node| format!("{}: {}", node.name, node.message));
    UpgradeLine {
        name: upgrade.metadata.name.clone(),
        cluster: upgrade.spec.cluster.clone(),
        to: if upgrade.spec.rotate_authorities {
            "other certificate authorities".to_owned()
        } else {
            format!("Kubernetes {}", upgrade.spec.version)
        },
        state: *state,
        ready: ready.clone(),
        message: if message.is_empty() {
            of_node.unwrap_or_default()
        } else {
            message.clone()
        },
    }
}

fn is_over(upgrade: &ClusterUpgrade) -> bool {
    upgrade.status.state == UpgradeState::Done
        && upgrade.status.observed_generation == upgrade.metadata.generation
}

fn has_begun(upgrade: &ClusterUpgrade) -> bool {
    let mut nodes = upgrade.status.nodes.iter();
    nodes.any(|node| node.state != NodeUpgradeState::Waiting)
}

/// Before the next round, after one that ended so.
fn again(state: UpgradeState) -> Duration {
    match state {
        UpgradeState::Pending => Duration::ZERO,
        UpgradeState::Upgrading => Duration::from_secs(2),
        UpgradeState::Refused | UpgradeState::Paused | UpgradeState::Done => {
            Duration::from_secs(30)
        }
        UpgradeState::Stopped => Duration::from_mins(2),
    }
}

impl<H: Hands> Keeper<H> {
    fn new(
        hands: H,
        stock: Stock,
        client: Client,
        site: Arc<SiteConfig>,
        status: StatusSender,
    ) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let mut watches = Watches::new(client.clone(), MANAGER, COALESCE);
        Self {
            status,
            hands,
            stock,
            client,
            upgrades: watches.objects(Selection::perhaps(UPGRADES)),
            clusters: watches.objects(Selection::perhaps(CLUSTERS)),
            servers: ServerObjects::new(&mut watches, site),
            watches,
            tell,
            told,
            rounds: JoinSet::new(),
            busy: BTreeSet::new(),
            known: BTreeMap::new(),
            tried: BTreeMap::new(),
        }
    }

    async fn attend(
        &mut self,
        upgrade: &ClusterUpgrade,
        before: Option<&ClusterUpgrade>,
        world: &World,
        clusters: &[Cluster],
    ) -> Result<()> {
        let key = Key::of(&upgrade.metadata);
        let mut meta = upgrade.metadata.clone();
        let writer = self.upgrades.writer().clone();
        if meta.is_deleting() {
            // A node that is worked on is brought to its end.
            if !self.busy.contains(&key) && meta.has_finalizer(upgrade::FINALIZER) {
                self.uncordon(upgrade).await;
                self.owners(upgrade).let_go().await?;
                writer.let_go(&mut meta, upgrade::FINALIZER).await?;
            }
            return Ok(());
        }
        writer.hold(&mut meta, upgrade::FINALIZER).await?;
        let same = self
            .known
            .get(&key)
            .filter(|known| known.metadata.uid == upgrade.metadata.uid);
        let mut status = same.map_or(&upgrade.status, |known| &known.status).clone();
        if let Some(before) = before {
            status.observed_generation = upgrade.metadata.generation;
            status.state = UpgradeState::Refused;
            status.message = format!(
                "the ClusterUpgrade {} of the same cluster goes first; delete it, or wait until it is Done",
                before.metadata.name
            );
        } else if self.is_due(&key, upgrade, &status) {
            self.begin(&key, upgrade, world, clusters);
        }
        let known = ClusterUpgrade {
            status: status.clone(),
            ..upgrade.clone()
        };
        self.known.insert(key, known);
        if status != upgrade.status {
            writer.write_status(&mut meta, &status).await?;
        }
        Ok(())
    }

    fn is_due(&self, key: &Key, upgrade: &ClusterUpgrade, status: &ClusterUpgradeStatus) -> bool {
        if self.busy.contains(key) || is_over(upgrade) {
            return false;
        }
        match self.tried.get(key) {
            Some((at, generation)) if *generation == upgrade.metadata.generation => {
                at.elapsed() >= again(status.state)
            }
            _ => true,
        }
    }

    /// Nodes that were begun and not brought to their end: nobody else would.
    async fn uncordon(&self, upgrade: &ClusterUpgrade) {
        let key = Key::of(&upgrade.metadata);
        for node in &upgrade.status.nodes {
            if matches!(
                node.state,
                NodeUpgradeState::Waiting | NodeUpgradeState::Ready
            ) {
                continue;
            }
            let member = Member {
                client: self.client.clone(),
                namespace: key.namespace.clone(),
                cluster: upgrade.spec.cluster.clone(),
                node: node.name.clone(),
                holder: key.to_string(),
            };
            // A cluster that does not answer keeps no object of the box's.
            if let Err(error) = member.uncordon().await {
                tracing::warn!(node = node.name, "it stays cordoned: {error:#}");
            }
        }
    }

    fn owners(&self, upgrade: &ClusterUpgrade) -> Owners {
        let key = Key::of(&upgrade.metadata);
        Owners {
            client: self.client.clone(),
            namespace: key.namespace.clone(),
            cluster: upgrade.spec.cluster.clone(),
            holder: key.to_string(),
        }
    }

    fn begin(&mut self, key: &Key, upgrade: &ClusterUpgrade, world: &World, clusters: &[Cluster]) {
        let spec = upgrade.spec.clone();
        let mut clusters = clusters.iter().filter(|cluster| {
            cluster.metadata.namespace == key.namespace && cluster.metadata.name == spec.cluster
        });
        let machines = world.machines.values().filter(|machine| {
            machine.metadata.namespace == key.namespace && machine.spec.cluster_name == spec.cluster
        });
        let known = Known {
            cluster: clusters.next().cloned(),
            machines: machines.cloned().collect(),
            servers: installed(world, &key.namespace, &spec.cluster),
            ..Known::default()
        };
        let (tell, to) = (self.tell.clone(), key.clone());
        let work = Work {
            hands: self.hands.clone(),
            stock: self.stock.clone(),
            client: self.client.clone(),
            namespace: key.namespace.clone(),
            holder: key.to_string(),
            uid: upgrade.metadata.uid.clone(),
            spec,
            known,
            // The keeper outlives its rounds.
            tell: move |news| drop(tell.send((to.clone(), news))),
        };
        self.tried
            .insert(key.clone(), (Instant::now(), upgrade.metadata.generation));
        self.busy.insert(key.clone());
        self.rounds.spawn(work.run());
    }

    fn hear(&mut self, (key, news): (Key, News)) {
        let is_end = matches!(news, News::Ended(..));
        if is_end {
            self.busy.remove(&key);
        }
        let tried = self.tried.get_mut(&key);
        if let (Some(upgrade), Some((at, generation))) = (self.known.get_mut(&key), tried) {
            if is_end {
                *at = Instant::now();
            }
            let version = &upgrade.spec.version;
            note(&mut upgrade.status, version, *generation, news);
        }
    }
}

/// What a round of this generation told, as people read it.
fn note(status: &mut ClusterUpgradeStatus, version: &str, generation: i64, news: News) {
    // While it only plans, the state is still that of the round before.
    if !matches!(news, News::Planned(_)) {
        status.observed_generation = generation;
    }
    match news {
        News::Planned(mut nodes) => {
            for node in &mut nodes {
                // Why one failed is told until it is tried again.
                let before = status.nodes.iter().find(|old| old.name == node.name);
                if let Some(old) = before.filter(|old| old.state == NodeUpgradeState::Failed)
                    && node.state == NodeUpgradeState::Waiting
                {
                    node.state = old.state;
                    node.message.clone_from(&old.message);
                }
            }
            status.nodes = nodes;
        }
        News::Node(name, state, message) => {
            status.state = UpgradeState::Upgrading;
            status.message = format!("{name}: {message}");
            if let Some(node) = status.nodes.iter_mut().find(|node| node.name == name) {
                if state == NodeUpgradeState::Ready {
                    if !version.is_empty() {
                        version.clone_into(&mut node.version);
                    }
                    status.message = String::new();
                }
                node.state = state;
                node.message = message;
            }
        }
        News::Ended(state, message) => {
            tracing::info!(
                state = state.as_str(),
                message,
                "a round of an upgrade ended"
            );
            status.state = state;
            status.message = message;
        }
    }
    let ready =
        |node: &&firstlight_api::upgrade::NodeUpgrade| node.state == NodeUpgradeState::Ready;
    status.ready = match status.nodes.len() {
        0 => String::new(),
        all => format!("{}/{all}", status.nodes.iter().filter(ready).count()),
    };
}
