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
mod server_objects;
mod servers;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use firstlight_api::{
    site::SiteConfig,
    software::{self, NodeState, NodeStatus, Software, SoftwareStatus},
};
use kube::Client;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub use drain::{Drained, Member};
pub use job::{End, Hands, OverSsh};
pub use plan::{JobError, News};
pub use server_objects::ServerObjects;
pub use servers::{Server, installed};

use job::Work;
use plan::Job;

use crate::{
    capi::world::World,
    clock,
    objects::{Key, Listed, Objects, Resource, Selection, Watches, is_overtaken},
    paths::Paths,
    reconcile::{self, Applied, Reason, Reconciler, Teller},
    sources::Sources,
    ssh::{Keys, Node},
    status::{StatusSender, Update},
    store::{Store as Artifacts, User},
};

const MANAGER: &str = "firstlight-software";
pub const SOFTWARE: Resource = Resource(
    software::GROUP,
    software::VERSION,
    software::KIND,
    software::PLURAL,
);
/// Between two looks without a change.
const LOOK: Duration = Duration::from_secs(15);
/// After a change, or what a job tells: more of them come together.
const COALESCE: Duration = Duration::from_millis(300);

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
    let teller = Teller::new(
        "software",
        &status,
        ["software-loop", "software on servers is not looked after"],
        [
            "software-objects",
            "an object about software on servers is left as it is",
        ],
    );
    reconcile::run(Keeper::new(hands, client, site, artifacts, status), teller).await
}

/// A Software and one of its servers.
type Assignment = (Key, String);

struct Keeper<H> {
    hands: H,
    client: Client,
    watches: Watches,
    software: Objects<Software>,
    servers: ServerObjects,
    artifacts: watch::Receiver<Option<Artifacts>>,
    status: StatusSender,
    tell: mpsc::UnboundedSender<(Assignment, News)>,
    told: mpsc::UnboundedReceiver<(Assignment, News)>,
    jobs: JoinSet<()>,
    busy: BTreeSet<Assignment>,
    /// Each Software as it was seen last, with the newest status: what is in the API server may be a write behind.
    known: BTreeMap<Key, Software>,
    /// When a job about a server ended.
    tried: BTreeMap<Assignment, Instant>,
}

impl<H: Hands> Reconciler for Keeper<H> {
    type Seen = (Listed<Software>, World);

    async fn look(&mut self) -> Result<Self::Seen> {
        while let Ok(told) = self.told.try_recv() {
            self.hear(told);
        }
        while self.jobs.try_join_next().is_some() {}
        let listed = self.software.all().await?.owned();
        // What an object that cannot be read refers to stays in use.
        if let (Some(artifacts), true) = (&*self.artifacts.borrow(), listed.unreadable.is_empty()) {
            artifacts.note(User::Software, plan::packages(&listed.objects));
        }
        let world = if listed.objects.is_empty() {
            World::default()
        } else {
            self.servers.look().await?
        };
        Ok((listed, world))
    }

    async fn apply(&mut self, (listed, world): Self::Seen) -> Result<Applied> {
        let with_servers = |software: Software| {
            let servers = servers::selected(&world, &software);
            (software, servers)
        };
        let all: Vec<_> = listed.objects.into_iter().map(with_servers).collect();
        let mut failures = [listed.unreadable, world.unreadable].concat();
        self.known
            .retain(|key, _| all.iter().any(|(one, _)| Key::of(&one.metadata) == *key));
        let mut lines = Vec::new();
        for (software, servers) in &all {
            let conflicts = servers::conflicts(software, servers, &all);
            let told = match self.attend(software, servers, &conflicts).await {
                Ok(told) => told,
                Err(error) => {
                    if !is_overtaken(&error) {
                        failures.push(format!("{error:#}"));
                    }
                    software.status.clone()
                }
            };
            lines.push(plan::line(software, &told));
        }
        self.status.send(Update::Software(lines));
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

impl<H: Hands> Keeper<H> {
    fn new(
        hands: H,
        client: Client,
        site: Arc<SiteConfig>,
        artifacts: watch::Receiver<Option<Artifacts>>,
        status: StatusSender,
    ) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let mut watches = Watches::new(client.clone(), MANAGER, COALESCE);
        Self {
            hands,
            client,
            software: watches.objects(Selection::perhaps(SOFTWARE)),
            servers: ServerObjects::new(&mut watches, site),
            watches,
            artifacts,
            status,
            tell,
            told,
            jobs: JoinSet::new(),
            busy: BTreeSet::new(),
            known: BTreeMap::new(),
            tried: BTreeMap::new(),
        }
    }

    async fn attend(
        &mut self,
        software: &Software,
        servers: &[Server],
        conflicts: &BTreeMap<String, String>,
    ) -> Result<SoftwareStatus> {
        let key = Key::of(&software.metadata);
        let now = clock::rfc3339();
        let mut meta = software.metadata.clone();
        let writer = self.software.writer().clone();
        if !meta.is_deleting() {
            writer.hold(&mut meta, software::FINALIZER).await?;
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
            writer.let_go(&mut meta, software::FINALIZER).await?;
        } else if told != software.status {
            writer.write_status(&mut meta, &told).await?;
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
        let assignment = (Key::of(&software.metadata), node.name.clone());
        let is_member = !node.cluster.is_empty() && !node.node.is_empty();
        let member = is_member.then(|| Member {
            client: self.client.clone(),
            namespace: assignment.0.namespace.clone(),
            cluster: node.cluster.clone(),
            node: node.node.clone(),
            holder: assignment.0.to_string(),
        });
        if job == Job::Apply && !node.state.is_working() {
            let begun = News::Doing(NodeState::Installing, String::new());
            plan::note(software, node, &begun, &clock::rfc3339());
        }
        tracing::info!(software = %assignment.0, host = assignment.1, job = ?job, "a job on a server begins");
        let (tell, to) = (self.tell.clone(), assignment.clone());
        let work = Work {
            hands: self.hands.clone(),
            node: server.and_then(ssh_node),
            spec: software.spec.clone(),
            member,
            // The keeper outlives its jobs.
            tell: move |news| drop(tell.send((to.clone(), news))),
        };
        self.busy.insert(assignment);
        self.jobs.spawn(work.run(job));
    }

    fn hear(&mut self, (assignment, news): (Assignment, News)) {
        if news.is_end() {
            self.busy.remove(&assignment);
            self.tried.insert(assignment.clone(), Instant::now());
        }
        let Some(software) = self.known.get_mut(&assignment.0) else {
            return;
        };
        let mut nodes = std::mem::take(&mut software.status.nodes);
        if let Some(node) = nodes.iter_mut().find(|node| node.name == assignment.1) {
            plan::note(software, node, &news, &clock::rfc3339());
            if news.is_end() {
                tracing::info!(
                    software = %assignment.0,
                    host = assignment.1,
                    state = node.state.as_str(),
                    reason = node.message,
                    "a job on a server ended"
                );
            }
        }
        software.status.nodes = nodes;
    }
}

/// How it is reached, once its address is known.
pub fn ssh_node(server: &Server) -> Option<Node> {
    let address = server.address?;
    Some(Node {
        mac: server.mac,
        address,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::{job::tests::Panicking, *};

    #[tokio::test]
    async fn a_server_whose_job_panicked_is_free_again() {
        let silent = service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let (_artifacts, artifacts) = watch::channel(None);
        let mut keeper = Keeper::new(
            Panicking,
            Client::new(silent, "default"),
            Arc::default(),
            artifacts,
            crate::status::channel("tests").0,
        );
        let mut software = Software::default();
        software.metadata.name = "tools".to_owned();
        let server = Server {
            name: "a".to_owned(),
            mac: "52:54:00:00:00:01".parse().unwrap(),
            address: Some([127, 0, 0, 1].into()),
            cluster: String::new(),
            node: String::new(),
            control_plane: false,
            system: String::new(),
        };
        let mut node = NodeStatus {
            name: "a".to_owned(),
            ..NodeStatus::default()
        };
        for job in [Job::Look, Job::Apply] {
            keeper.begin(&software, &mut node, Some(&server), job);
            assert_eq!(keeper.busy.len(), 1, "{job:?}");
            assert_eq!(keeper.reason().await.unwrap(), Reason::News);
            assert!(keeper.busy.is_empty(), "{job:?}");
        }
    }
}
