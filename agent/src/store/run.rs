//! The store's task: opens it, and brings what arrives to where it is used.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use firstlight_api::{artifact::Kind, status::Problem};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Store, apt,
    publish::{self, Places, Trouble},
    pushed::Notes,
    registry::Registry,
};
use crate::{
    clock,
    status::{StatusSender, Update},
};

const RETRY: Duration = Duration::from_secs(5);
/// The registry's door for pushes (`manifests/registry.yaml`).
pub const REGISTRY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5001);

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
        let places = Places {
            registry: Registry(registry),
            images: dirs.images,
            pushed: Notes(dirs.pushed),
            apt: apt::Repository {
                dir: dirs.apt,
                key: dirs.apt_key,
            },
        };
        tokio::select! {
            ended = publish_arrivals(&store, &places, &status) => ended,
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

async fn publish_arrivals(
    store: &Store,
    places: &Places,
    status: &StatusSender,
) -> anyhow::Result<()> {
    let mut indexed = None;
    loop {
        let mut results = Vec::new();
        for (id, spec) in store.arrivals() {
            let result = publish::publish(places, &spec, &store.0.shelf.content(&id)).await;
            results.push((id, spec, result));
        }
        let refused: BTreeSet<&String> = results
            .iter()
            .filter_map(|(id, _, result)| result.is_err().then_some(id))
            .collect();
        let debs = store.debs(|id| !refused.contains(id));
        let mut waits = None;
        if indexed.as_ref() != Some(&debs) {
            let (apt, set) = (places.apt.clone(), debs.clone());
            let rebuilt =
                tokio::task::spawn_blocking(move || apt.rebuild(&set, clock::wall_seconds()))
                    .await?;
            match rebuilt {
                Ok(()) => indexed = Some(debs),
                Err(error) => waits = Some(format!("indexing packages: {error:#}")),
            }
        }
        let is_indexed = waits.is_none();
        for (id, spec, result) in results {
            if spec.kind == Kind::Package && !is_indexed {
                continue;
            }
            if let Err(Trouble::Later(why)) = &result {
                waits = Some(why.clone());
            }
            let (store, owned) = (store.clone(), id.clone());
            let settled = tokio::task::spawn_blocking(move || store.settle(&owned, result)).await?;
            if let Err(error) = settled {
                waits = Some(format!("noting where {id} is: {error}"));
            }
        }
        if let Err(error) = places.sweep_images(&store.references(Kind::Image)) {
            waits = Some(format!("removing disks that were deleted: {error}"));
        }
        let mut pushed = store.references(Kind::Container);
        pushed.extend(store.references(Kind::Chart));
        let swept = places.sweep_registry(&pushed).await;
        if let Err(Trouble::Later(why) | Trouble::Never { reason: why, .. }) = swept {
            waits = Some(format!(
                "removing what was deleted from the registry: {why}"
            ));
        }
        let problem = waits.clone().map(|what| Problem {
            what: format!("the store waits: {what}"),
            next: "nothing: the box tries again".to_owned(),
        });
        status.problems("store", problem.into_iter().collect());
        tokio::select! {
            () = store.0.changed.notified() => {}
            () = tokio::time::sleep(RETRY), if waits.is_some() => {}
        }
    }
}
