//! Addons: what runs on a workload cluster besides Kubernetes, out of the box's store or from the stick.
//!
//! One task looks at all [`Addon`] objects, and at each change again; each addon is visited ([`visit`]) in a task of its own,
//! because Helm and a cluster may take long. [`plan`] (pure) says what an addon waits for and what it has become; [`helm`] installs and removes with the real program; [`health`] (pure) reads from objects whether what was
//! installed runs, and which one is to blame if not. Plain manifests become a chart first ([`chart`]), so there is one way to
//! install, to upgrade, to remove, and to leave alone what somebody made by hand: Helm refuses to take that over.
//!
//! Images that are not on the box are told before ([`images`]). A chart of the stick may ask for a certificate of the site's CA ([`certificate`]),
//! and for a Service to be asked on its own node first ([`locality`]).
//!
//! Must not: keep anything that Kubernetes and Helm do not know. After a restart everything is read again.

mod certificate;
mod chart;
mod health;
mod helm;
mod images;
mod locality;
mod plan;
mod target;
mod visit;
mod wishes;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use firstlight_api::{
    addon::{self, Addon},
    software::Software,
};
use kube::Client;
use tokio::{
    sync::watch,
    task::{self, JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use helm::Helm;
use plan::Progress;
use visit::{Memory, Tools, Visit, Visited};

use crate::{
    objects::{Key, Objects, Resource, Selection, Watches},
    pki::{Authority, Pki},
    reconcile::{self, Applied, Reason, Reconciler, Teller},
    software::SOFTWARE,
    status::{StatusSender, Update},
    store::{Store as Artifacts, User},
};

const MANAGER: &str = "firstlight-addons";
const ADDONS: Resource = Resource(addon::GROUP, addon::VERSION, addon::KIND, addon::PLURAL);
/// Between two looks without a change, while something is not ready and when all is.
const BUSY: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(30);
/// After a change: more of them come together.
const COALESCE: Duration = Duration::from_millis(500);

/// Where an addon's parts are on the box.
#[derive(Clone, Debug)]
pub struct Places {
    pub helm: PathBuf,
    /// Folders of addons that the stick brings.
    pub builtin: PathBuf,
    /// In memory: kubeconfigs lie there.
    pub scratch: PathBuf,
    /// On the box.
    pub registry: SocketAddr,
}

/// Runs until `stop`.
pub async fn run(
    places: Places,
    mut kubernetes: watch::Receiver<Option<Client>>,
    artifacts: watch::Receiver<Option<Artifacts>>,
    mut pki: watch::Receiver<Option<Arc<Pki>>>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let work = async {
        let Some(client) = kubernetes.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        let Some(pki) = pki.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        reconcile(places, client, artifacts, pki.site.clone(), status).await
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// For ever: look, visit, wait for a change.
pub async fn reconcile(
    places: Places,
    client: Client,
    artifacts: watch::Receiver<Option<Artifacts>>,
    authority: Authority,
    status: StatusSender,
) -> Result<()> {
    let mut watches = Watches::new(client.clone(), MANAGER, COALESCE);
    let addons: Objects<Addon> = watches.objects(ADDONS);
    let keeper = Keeper {
        tools: Arc::new(Tools {
            helm: Helm::new(places.helm.clone()),
            places,
            client,
            authority,
            writer: addons.writer().clone(),
        }),
        addons,
        software: watches.objects(Selection::perhaps(SOFTWARE)),
        watches,
        artifacts,
        status: status.clone(),
        visits: JoinSet::new(),
        visited: HashMap::new(),
        missed: BTreeSet::new(),
        memories: BTreeMap::new(),
        failures: Vec::new(),
    };
    let teller = Teller::new(
        "addons",
        &status,
        ["addons-loop", "addons are not looked after"],
        ["addons-objects", "an Addon is left as it is"],
    );
    reconcile::run(keeper, teller).await
}

struct Keeper {
    tools: Arc<Tools>,
    watches: Watches,
    addons: Objects<Addon>,
    /// What addons may depend on besides each other.
    software: Objects<Software>,
    artifacts: watch::Receiver<Option<Artifacts>>,
    status: StatusSender,
    visits: JoinSet<Visited>,
    /// Whom they visit.
    visited: HashMap<task::Id, Key>,
    /// Who was to be visited again before a visit had ended.
    missed: BTreeSet<Key>,
    memories: BTreeMap<Key, Memory>,
    /// Of visits that have ended since the last round.
    failures: Vec<String>,
}

/// One look at everything.
struct Look {
    addons: Arc<Vec<Addon>>,
    software: Arc<Vec<Software>>,
    unreadable: Vec<String>,
}

impl Reconciler for Keeper {
    type Seen = Look;

    async fn look(&mut self) -> Result<Look> {
        let listed = self.addons.all().await?.owned();
        let addons = listed.objects;
        // What an object that cannot be read refers to stays in use.
        if let (Some(artifacts), true) = (&*self.artifacts.borrow(), listed.unreadable.is_empty()) {
            artifacts.note(User::Addons, plan::charts(&addons));
        }
        // Who looks after software tells what cannot be read of it.
        let software = if addons.iter().any(plan::needs_software) {
            self.software.all().await?.owned().objects
        } else {
            Vec::new()
        };
        Ok(Look {
            addons: Arc::new(addons),
            software: Arc::new(software),
            unreadable: listed.unreadable,
        })
    }

    async fn apply(&mut self, seen: Look) -> Result<Applied> {
        while let Some(ended) = self.visits.try_join_next_with_id() {
            self.hear(ended);
        }
        let is_there = |key: &Key| {
            let mut addons = seen.addons.iter();
            addons.any(|addon| Key::of(&addon.metadata) == *key)
        };
        self.memories.retain(|key, _| is_there(key));
        for addon in seen.addons.iter() {
            self.visit(addon, &seen);
        }
        let lines = seen.addons.iter().map(plan::line);
        self.status.send(Update::Addons(lines.collect()));
        let failures = [std::mem::take(&mut self.failures), seen.unreadable].concat();
        let mut states = seen.addons.iter().map(|addon| addon.status.state);
        let is_quiet = failures.is_empty() && states.all(|state| state == Progress::Ready);
        let rest = if is_quiet { IDLE } else { BUSY };
        Ok(Applied { failures, rest })
    }

    async fn reason(&mut self) -> Result<Reason> {
        loop {
            tokio::select! {
                Some(ended) = self.visits.join_next_with_id() => if self.hear(ended) {
                    return Ok(Reason::News);
                },
                changed = self.watches.changed() => return changed.map(|()| Reason::Change),
            }
        }
    }
}

impl Keeper {
    /// One visit of an addon at a time.
    fn visit(&mut self, addon: &Addon, seen: &Look) {
        let key = Key::of(&addon.metadata);
        if self.visited.values().any(|other| *other == key) {
            self.missed.insert(key);
            return;
        }
        let visit = Visit {
            tools: self.tools.clone(),
            addon: addon.clone(),
            all: seen.addons.clone(),
            software: seen.software.clone(),
            memory: self.memories.remove(&key).unwrap_or_default(),
        };
        let task = self.visits.spawn(visit.run());
        self.visited.insert(task.id(), key);
    }

    /// Whether the addon is to be visited again.
    fn hear(&mut self, ended: Result<(task::Id, Visited), JoinError>) -> bool {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(key) = self.visited.remove(&id) else {
            return false;
        };
        let is_missed = self.missed.remove(&key);
        match ended {
            Ok((_, Visited { memory, failure })) => {
                self.memories.insert(key, memory);
                self.failures.extend(failure);
            }
            Err(error) => {
                let broke_off = format!("the box's own work on the Addon {key} broke off: {error}");
                self.failures.push(broke_off);
            }
        }
        is_missed
    }
}
