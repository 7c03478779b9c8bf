//! The store's task: opens it, and brings what arrives to where it is used.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use firstlight_api::{
    artifact::{ArtifactSpec, Kind},
    names,
    status::Problem,
};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Store,
    apt::{self, Deb},
    publish::{self, Destinations, Publication},
    publish_error::PublishError,
    pushed::Notes,
    registry::Registry,
};
use crate::{
    clock,
    status::{StatusSender, Update},
};

const RETRY: Duration = Duration::from_secs(5);
/// Behind the door for those who push: the store sees to its room itself.
pub const REGISTRY: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), names::REGISTRY_WRITE_PORT);

/// Where the store keeps its things.
#[derive(Clone, Debug)]
pub struct Dirs {
    pub store: PathBuf,
    pub apt: PathBuf,
    pub apt_key: PathBuf,
    /// Served as `/images/NAME`, after the stick's own.
    pub images: PathBuf,
    /// A note of what was put into the registry.
    pub pushed: PathBuf,
}

/// Opens the store once the state partition is there, then brings what arrives to where it is used.
pub async fn run(
    dirs: Dirs,
    registry: SocketAddr,
    mut pki: watch::Receiver<Option<Arc<crate::pki::Pki>>>,
    opened: watch::Sender<Option<Store>>,
    status: StatusSender,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let work = async {
        // Certificates are made on the same partition, after it was waited for.
        pki.wait_for(Option::is_some).await?;
        let store = open(&dirs.store, &status).await?;
        opened.send_replace(Some(store.clone()));
        let destinations = Destinations {
            registry: Registry(registry),
            images: dirs.images,
            pushed: Notes::at(dirs.pushed),
            room: store.0.room.clone(),
            apt: apt::Repository {
                dir: dirs.apt,
                key: dirs.apt_key,
            },
        };
        let publisher = Publisher {
            store: store.clone(),
            destinations,
            status: status.clone(),
            tasks: JoinSet::new(),
            under_way: BTreeMap::new(),
            pauses: BTreeMap::new(),
            checked: BTreeMap::new(),
            indexed: None,
            removals: 0,
        };
        tokio::select! {
            ended = publisher.run() => ended,
            () = show(&store, &status) => Ok(()),
        }
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// An upload changes with every piece; people see no more than this.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

async fn show(store: &Store, status: &StatusSender) {
    let mut news = store.news();
    loop {
        status.send(Update::Artifacts(store.list()));
        // The store holds the sender.
        drop(news.changed().await);
        tokio::time::sleep(SHOWN_EVERY).await;
    }
}

async fn open(dir: &Path, status: &StatusSender) -> anyhow::Result<Store> {
    loop {
        let place = dir.to_owned();
        match tokio::task::spawn_blocking(move || Store::load(&place)).await? {
            Ok(store) => {
                status.problems("store", vec![]);
                return Ok(store);
            }
            Err(error) => status.problems(
                "store",
                vec![Problem {
                    what: format!("the store of uploads cannot be opened: {error}"),
                    next: "the box tries again; if the state partition is full or read-only, write the image to another stick".to_owned(),
                }],
            ),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Artifacts of one kind that are put in place at a time. One huge one leaves a way for the others.
const SIDE_BY_SIDE: usize = 2;
/// After a failure, before it is tried again; twice as long after each further one.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// What was tried and has to wait.
#[derive(Debug)]
struct Pause {
    until: Instant,
    length: Duration,
    problem: Problem,
}

impl Pause {
    fn after(before: Option<&Self>, problem: Problem) -> Self {
        let length = before.map_or(RETRY, |before| (before.length * 2).min(LONGEST_PAUSE));
        Self {
            until: Instant::now() + length,
            length,
            problem,
        }
    }
}

type Published = (String, ArtifactSpec, Result<Publication, PublishError>);

/// Brings what arrives to where it is used, and takes away what is deleted.
struct Publisher {
    store: Store,
    destinations: Destinations,
    status: StatusSender,
    tasks: JoinSet<Published>,
    under_way: BTreeMap<String, Kind>,
    /// By artifact; what is about none of them has a name of its own.
    pauses: BTreeMap<String, Pause>,
    /// Packages that are good, and wait for the index.
    checked: BTreeMap<String, Publication>,
    indexed: Option<Vec<Deb>>,
    /// Deletions that were seen.
    removals: u64,
}

const INDEX: &str = "indexing packages";
const SWEEP: &str = "removing what was deleted";
const NOTE: &str = "noting where it is";

impl Publisher {
    async fn run(mut self) -> anyhow::Result<()> {
        loop {
            self.begin();
            self.index().await?;
            self.sweep().await;
            self.show();
            // What is over and not begun waits for the end of another.
            let (now, pauses) = (Instant::now(), self.pauses.values());
            let due = pauses.map(|pause| pause.until).filter(|until| *until > now);
            let due = due.min().unwrap_or(now + LONGEST_PAUSE);
            tokio::select! {
                Some(done) = self.tasks.join_next() => self.ended(done?).await?,
                () = self.store.0.changed.notified() => {}
                () = tokio::time::sleep_until(due) => {}
            }
        }
    }

    /// Everything whose time has come, small ones first.
    fn begin(&mut self) {
        let removals = self.store.catalogue().removals;
        if std::mem::replace(&mut self.removals, removals) != removals {
            // There may be room again.
            self.pauses.clear();
        }
        let mut arrivals = self.store.catalogue().arrivals();
        self.pauses.retain(|id, _| {
            [INDEX, SWEEP].contains(&id.as_str()) || arrivals.iter().any(|one| one.0 == *id)
        });
        arrivals.sort_by_key(|(_, spec)| spec.size);
        for (id, spec) in arrivals {
            let of_kind = self.under_way.values().filter(|kind| **kind == spec.kind);
            if of_kind.count() >= SIDE_BY_SIDE
                || self.under_way.contains_key(&id)
                || self.checked.contains_key(&id)
                || !self.is_due(&id)
            {
                continue;
            }
            self.under_way.insert(id.clone(), spec.kind);
            let (destinations, content) =
                (self.destinations.clone(), self.store.0.shelf.content(&id));
            self.tasks.spawn(async move {
                let result = publish::publish(&destinations, &spec, &content).await;
                (id, spec, result)
            });
        }
    }

    fn is_due(&self, what: &str) -> bool {
        let pause = self.pauses.get(what);
        pause.is_none_or(|pause| pause.until <= Instant::now())
    }

    async fn ended(&mut self, (id, spec, result): Published) -> anyhow::Result<()> {
        self.under_way.remove(&id);
        match result {
            // The repository is made over all of them at once.
            Ok(publication) if spec.kind == Kind::Package => {
                self.checked.insert(id, publication);
            }
            Err(PublishError::Later { reason, next }) => {
                let what = format!("{} {} {}: {reason}", spec.kind, spec.name, spec.version);
                self.wait(&id, Problem { what, next });
            }
            settled => self.settle(id, settled).await?,
        }
        Ok(())
    }

    async fn settle(
        &mut self,
        id: String,
        result: Result<Publication, PublishError>,
    ) -> anyhow::Result<()> {
        let (store, owned) = (self.store.clone(), id.clone());
        match tokio::task::spawn_blocking(move || store.settle(&owned, result)).await? {
            Ok(()) => drop(self.pauses.remove(&id)),
            Err(error) => self.wait(&id, waits(&format!("{NOTE}: {error}"))),
        }
        Ok(())
    }

    fn wait(&mut self, what: &str, problem: Problem) {
        let pause = Pause::after(self.pauses.get(what), problem);
        self.pauses.insert(what.to_owned(), pause);
    }

    async fn index(&mut self) -> anyhow::Result<()> {
        let known = self.store.catalogue().packages();
        self.checked
            .retain(|id, _| known.iter().any(|one| one.0 == *id));
        // One that is on its way is in no index before it was looked at.
        let arrivals = self.store.catalogue().arrivals();
        let waits =
            |id: &String| arrivals.iter().any(|one| one.0 == *id) && !self.checked.contains_key(id);
        let good = known.into_iter().filter(|(id, _)| !waits(id));
        let debs: Vec<Deb> = good
            .map(|(id, spec)| Deb {
                path: self.store.0.shelf.content(&id),
                size: spec.size,
                sha256: spec.sha256,
            })
            .collect();
        if self.indexed.as_ref() != Some(&debs) {
            if !self.is_due(INDEX) {
                return Ok(());
            }
            let (apt, set) = (self.destinations.apt.clone(), debs.clone());
            let rebuild = move || apt.rebuild(&set, clock::wall_seconds());
            if let Err(error) = tokio::task::spawn_blocking(rebuild).await? {
                let (PublishError::Later { reason, next } | PublishError::Never { reason, next }) =
                    error.into();
                let what = format!("{INDEX}: {reason}");
                self.wait(INDEX, Problem { what, next });
                return Ok(());
            }
            self.indexed = Some(debs);
        }
        self.pauses.remove(INDEX);
        for (id, publication) in std::mem::take(&mut self.checked) {
            self.settle(id, Ok(publication)).await?;
        }
        Ok(())
    }

    async fn sweep(&mut self) {
        if !self.is_due(SWEEP) {
            return;
        }
        match self.try_sweep().await {
            Ok(()) => drop(self.pauses.remove(SWEEP)),
            Err(PublishError::Later { reason, next } | PublishError::Never { reason, next }) => {
                let what = format!("{SWEEP}: {reason}");
                self.wait(SWEEP, Problem { what, next });
            }
        }
    }

    async fn try_sweep(&self) -> Result<(), PublishError> {
        let mut spared = BTreeSet::new();
        for aside in &self.store.0.aside {
            // What was made of it cannot be told from what is nobody's.
            let Some(published) = &aside.published else {
                return Ok(());
            };
            spared.insert(published.reference.clone());
        }
        let of = |kinds: &[Kind]| {
            let catalogue = self.store.catalogue();
            let used = kinds.iter().flat_map(|kind| catalogue.references(*kind));
            used.chain(spared.clone()).collect::<BTreeSet<_>>()
        };
        self.destinations.sweep_images(of(&[Kind::Image])).await?;
        let pushed = [Kind::Container, Kind::Chart];
        // Nothing is taken out of the registry while something is put in.
        if self.under_way.values().any(|kind| pushed.contains(kind)) {
            return Ok(());
        }
        self.destinations.sweep_registry(&of(&pushed)).await
    }

    fn show(&self) {
        let pauses = self.pauses.values().map(|pause| Problem {
            what: format!("the store waits: {}", pause.problem.what),
            next: pause.problem.next.clone(),
        });
        let aside = self.store.0.aside.iter().map(|aside| Problem {
            what: format!("the upload {} cannot be read: {}", aside.id, aside.why),
            next: aside.next(&self.store.0.shelf),
        });
        self.status
            .problems("store", pauses.chain(aside).take(MOST_SHOWN).collect());
    }
}

/// Of the store on the page at a time.
const MOST_SHOWN: usize = 5;

fn waits(what: &str) -> Problem {
    Problem {
        what: what.to_owned(),
        next: "nothing: the box tries again".to_owned(),
    }
}
