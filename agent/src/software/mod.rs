//! Software: exact versions of Debian packages on installed servers, over SSH.
//!
//! One task looks at all [`Software`] objects and the servers that they select ([`servers`], pure), at each change again.
//! [`plan`] (pure) says what each server has come to, which one is worked on next, and what is said of it all. A job
//! ([`job`]) does one thing with one server: look, or everything from the packages to the restart of a node that was drained
//! before ([`drain`]); jobs run side by side and tell what they do.
//!
//! Must not: keep anything that the status of the object does not say. After a restart of the agent whoever was worked on is
//! worked on again: the server's side does nothing twice.

mod drain;
mod job;
mod plan;
mod servers;
mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use firstlight_api::{
    site::SiteConfig,
    software::{NodeState, NodeStatus, Software, SoftwareStatus},
};
use kube::Client;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub use job::{Hands, OverSsh};
pub use plan::{News, Trouble};

use drain::Member;
use job::Work;
use plan::Job;
use servers::Server;
pub use store::Store;

use crate::{
    capi::{HOSTS, Listed, world::Key},
    clock,
    paths::Paths,
    sources::Sources,
    ssh::{Keys, Node},
    status::{Failing, Rounds, StatusSender, Update},
    store::{Store as Artifacts, User},
};

/// Between two looks without a change.
const LOOK: Duration = Duration::from_secs(15);
/// After a change: more of them come together.
const SETTLE: Duration = Duration::from_millis(300);

/// What the rest of the agent publishes and this controller waits for.
pub struct Facts {
    pub site: watch::Receiver<Option<Arc<SiteConfig>>>,
    pub kubernetes: watch::Receiver<Option<Client>>,
    pub artifacts: watch::Receiver<Option<Artifacts>>,
}

/// Runs until `stop`.
pub async fn run(
    keys: Keys,
    paths: Paths,
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
        let address = site.provisioning.address.address();
        let sources = Sources::new(&paths, address);
        reconcile(
            OverSsh { keys, sources },
            client,
            site,
            facts.artifacts,
            status,
        )
        .await
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// For ever: look, begin jobs, tell, wait for a change or for what a job tells.
pub async fn reconcile<H: Hands>(
    hands: H,
    client: Client,
    site: Arc<SiteConfig>,
    artifacts: watch::Receiver<Option<Artifacts>>,
    status: StatusSender,
) -> Result<()> {
    let (trigger, mut changes) = mpsc::channel(1);
    let store = Store { client };
    let mut watches = JoinSet::new();
    for resource in [store::SOFTWARE, HOSTS] {
        watches.spawn(store.clone().follow(resource, trigger.clone()));
    }
    let (tell, mut news) = mpsc::unbounded_channel();
    let failing = |source, what| Failing::new(status.clone(), source, what);
    let mut rounds = Rounds {
        whole: failing("software-loop", "software on servers is not looked after"),
        objects: failing(
            "software-objects",
            "an object about software on servers is left as it is",
        ),
    };
    let mut keeper = Keeper {
        hands,
        store,
        site,
        artifacts,
        status,
        tell,
        jobs: JoinSet::new(),
        busy: BTreeSet::new(),
        known: BTreeMap::new(),
        tried: BTreeMap::new(),
    };
    loop {
        rounds.went(keeper.look().await, clock::uptime());
        tokio::select! {
            Some(told) = news.recv() => { keeper.hear(told); tokio::time::sleep(SETTLE).await }
            Some(()) = changes.recv() => tokio::time::sleep(SETTLE).await,
            Some(ended) = watches.join_next() => {
                ended?;
                bail!("a watch of the box's API server ended");
            }
            () = tokio::time::sleep(LOOK) => {}
        }
        while let Ok(told) = news.try_recv() {
            keeper.hear(told);
        }
        while changes.try_recv().is_ok() {}
        while keeper.jobs.try_join_next().is_some() {}
    }
}

/// A Software and one of its servers.
type Place = (Key, String);

struct Keeper<H> {
    hands: H,
    store: Store,
    site: Arc<SiteConfig>,
    artifacts: watch::Receiver<Option<Artifacts>>,
    status: StatusSender,
    tell: mpsc::UnboundedSender<(Place, News)>,
    jobs: JoinSet<()>,
    busy: BTreeSet<Place>,
    /// Each Software as it was seen last, with the newest status: what is in the API server may be a write behind.
    known: BTreeMap<Key, Software>,
    /// When a job about a server ended.
    tried: BTreeMap<Place, Instant>,
}

impl<H: Hands> Keeper<H> {
    /// A sentence for each object that could not be read or written.
    async fn look(&mut self) -> Result<Vec<String>> {
        let Listed {
            objects,
            unreadable: mut odd,
        } = self.store.software().await?;
        // What an object that cannot be read refers to stays in use.
        if let (Some(artifacts), true) = (&*self.artifacts.borrow(), odd.is_empty()) {
            artifacts.note(User::Software, plan::packages(&objects));
        }
        let mut lines = Vec::new();
        if !objects.is_empty() {
            let mut world = self.store.world(self.site.clone()).await?;
            odd.append(&mut world.unreadable);
            let all: Vec<(Software, Vec<Server>)> = objects
                .into_iter()
                .map(|software| {
                    let servers = servers::selected(&world, &software);
                    (software, servers)
                })
                .collect();
            self.known
                .retain(|key, _| all.iter().any(|(one, _)| Key::of(&one.metadata) == *key));
            for (software, servers) in &all {
                let conflicts = servers::conflicts(software, servers, &all);
                let told = match self.attend(software, servers, &conflicts).await {
                    Ok(told) => told,
                    Err(error) => {
                        odd.push(format!("{error:#}"));
                        software.status.clone()
                    }
                };
                lines.push(plan::line(software, &told));
            }
        }
        self.status.send(Update::Software(lines));
        Ok(odd)
    }

    async fn attend(
        &mut self,
        software: &Software,
        servers: &[Server],
        conflicts: &BTreeMap<String, String>,
    ) -> Result<SoftwareStatus> {
        let key = Key::of(&software.metadata);
        let now = clock::rfc3339();
        if !software.metadata.is_deleting() {
            self.store.hold(software).await?;
        }
        let same = self
            .known
            .get(&key)
            .filter(|known| known.metadata.uid == software.metadata.uid);
        let newest = same.map_or(&software.status, |known| &known.status);
        let mine = self.busy_of(|other| *other == key);
        let mut nodes = plan::refresh(software, servers, conflicts, &mine, newest, &now);
        let busy = self.busy_of(|other| other.namespace == key.namespace);
        let due = |node: &NodeStatus| self.is_due(&key, node);
        let jobs = plan::jobs(software, servers, &nodes, &busy, due);
        for node in nodes.iter().filter(|node| node.state == NodeState::Ready) {
            // Found like this after a start of the agent: asked again when its time has come.
            self.tried
                .entry((key.clone(), node.name.clone()))
                .or_insert_with(Instant::now);
        }
        for (name, job) in jobs {
            if let Some(node) = nodes.iter_mut().find(|node| node.name == name) {
                let server = servers.iter().find(|server| server.name == name);
                self.begin(software, node, server, job);
            }
        }
        let is_over = software.metadata.is_deleting() && nodes.is_empty();
        let told = plan::status(software, nodes, &now);
        let known = Software {
            status: told.clone(),
            ..software.clone()
        };
        self.known.insert(key.clone(), known);
        if is_over {
            self.store.let_go(software).await?;
        } else if told != software.status {
            self.store.write_status(&key, &told).await?;
        }
        Ok(told)
    }

    fn busy_of(&self, is_meant: impl Fn(&Key) -> bool) -> BTreeSet<String> {
        let meant = self.busy.iter().filter(|(key, _)| is_meant(key));
        meant.map(|(_, name)| name.clone()).collect()
    }

    fn is_due(&self, key: &Key, node: &NodeStatus) -> bool {
        let tried = self.tried.get(&(key.clone(), node.name.clone()));
        match tried {
            Some(at) => at.elapsed() >= plan::again(node),
            None => node.state != NodeState::Ready,
        }
    }

    /// A server that was taken away has no address; what is left to do is on its cluster.
    fn begin(
        &mut self,
        software: &Software,
        node: &mut NodeStatus,
        server: Option<&Server>,
        job: Job,
    ) {
        let place = (Key::of(&software.metadata), node.name.clone());
        let is_member = !node.cluster.is_empty() && !node.node.is_empty();
        let member = is_member.then(|| Member {
            client: self.store.client.clone(),
            namespace: place.0.namespace.clone(),
            cluster: node.cluster.clone(),
            node: node.node.clone(),
            holder: place.0.to_string(),
        });
        if job == Job::Apply && !node.state.is_working() {
            let begun = News::Doing(NodeState::Installing, String::new());
            plan::note(software, node, &begun, &clock::rfc3339());
        }
        tracing::info!(software = %place.0, host = place.1, job = ?job, "a job on a server begins");
        let (tell, to) = (self.tell.clone(), place.clone());
        let work = Work {
            hands: self.hands.clone(),
            node: server.and_then(ssh_node),
            spec: software.spec.clone(),
            member,
            // The keeper outlives its jobs.
            tell: move |news| drop(tell.send((to.clone(), news))),
        };
        self.busy.insert(place);
        self.jobs.spawn(work.run(job));
    }

    fn hear(&mut self, (place, news): (Place, News)) {
        if news.is_end() {
            self.busy.remove(&place);
            self.tried.insert(place.clone(), Instant::now());
        }
        let Some(software) = self.known.get_mut(&place.0) else {
            return;
        };
        let mut nodes = std::mem::take(&mut software.status.nodes);
        if let Some(node) = nodes.iter_mut().find(|node| node.name == place.1) {
            plan::note(software, node, &news, &clock::rfc3339());
            if news.is_end() {
                tracing::info!(
                    software = %place.0,
                    host = place.1,
                    state = node.state.as_str(),
                    reason = node.message,
                    "a job on a server ended"
                );
            }
        }
        software.status.nodes = nodes;
    }
}

fn ssh_node(server: &Server) -> Option<Node> {
    let address = server.address?;
    Some(Node {
        mac: server.mac,
        address,
    })
}
