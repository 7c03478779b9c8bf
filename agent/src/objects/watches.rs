//! Watches of the API server, and what they keep.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, anyhow, bail};
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, GroupVersionKind},
    core::PartialObjectMeta,
    runtime::{
        reflector::Store,
        watcher::{self, Config, DefaultBackoff},
    },
};
use serde_json::Value;
use tokio::{sync::Notify, task::JoinSet};

use super::{
    Key, Resource,
    copy::{Copy, ROOM, Standing, State},
    read::{Listed, Readable, Seen},
    writer::Writer,
};

/// Objects of one answer to a list: they may be large, each up to the 3 MiB that the API server takes.
const PAGE: u32 = 25;
/// For a list, or until the watch has told what we wrote.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two tries of a watch.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Which objects: all of a kind, or some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub kind: Resource,
    pub namespace: Option<&'static str>,
    pub name: Option<&'static str>,
    /// Of Secrets.
    pub secret_type: Option<&'static str>,
    /// Those that have it, with any value.
    pub label: Option<&'static str>,
    /// A kind that the API server does not know has no objects.
    pub may_lack: bool,
}

impl From<Resource> for Selection {
    fn from(kind: Resource) -> Self {
        Self {
            kind,
            namespace: None,
            name: None,
            secret_type: None,
            label: None,
            may_lack: false,
        }
    }
}

impl Selection {
    /// All of a kind that the API server may lack.
    pub fn perhaps(kind: Resource) -> Self {
        Self {
            may_lack: true,
            ..kind.into()
        }
    }

    fn config(&self) -> Config {
        let name = self.name.map(|name| format!("metadata.name={name}"));
        let kind = self.secret_type.map(|kind| format!("type={kind}"));
        // One of them at most.
        Config {
            field_selector: name.or(kind),
            label_selector: self.label.map(str::to_owned),
            ..Config::default().page_size(PAGE)
        }
    }

    pub(super) fn has(&self, kind: &ApiResource, object: &Value) -> bool {
        let is = |wanted: Option<&str>, found: &Value| wanted.is_none_or(|it| *found == *it);
        self.kind.0 == kind.group
            && self.kind.2 == kind.kind
            && is(self.namespace, &object["metadata"]["namespace"])
            && is(self.name, &object["metadata"]["name"])
            && is(self.secret_type, &object["type"])
            && self
                .label
                .is_none_or(|label| !object["metadata"]["labels"][label].is_null())
    }
}

/// All watches of one controller.
pub struct Watches {
    tasks: JoinSet<()>,
    changed: Arc<Notify>,
    coalesce: Duration,
    /// Something changed that was not told yet.
    due: bool,
    writers: Writers,
}

/// Of one controller, for objects of any kind.
#[derive(Clone)]
pub struct Writers {
    client: Client,
    manager: &'static str,
    watched: Vec<(Selection, Writer)>,
}

impl Watches {
    /// `manager`: as whom it writes; `coalesce`: how long it waits after a change for more of them.
    pub fn new(client: Client, manager: &'static str, coalesce: Duration) -> Self {
        let writers = Writers {
            client,
            manager,
            watched: Vec::new(),
        };
        Self {
            tasks: JoinSet::new(),
            changed: Arc::default(),
            coalesce,
            due: false,
            writers,
        }
    }

    /// As of now: they know of the objects that are watched already.
    pub fn writers(&self) -> &Writers {
        &self.writers
    }

    pub fn objects<K: Readable>(&mut self, selection: impl Into<Selection>) -> Objects<K> {
        let selection = selection.into();
        let kind = selection.kind.api();
        let client = self.writers.client.clone();
        let api: Api<Seen<K>> = match selection.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &kind),
            None => Api::all_with(client, &kind),
        };
        let standing: Arc<Standing> = Arc::default();
        let copy = Copy::new(kind.clone(), standing.clone(), ROOM);
        let objects = Objects {
            kind: selection.kind,
            copy: copy.reader(),
            writer: self.writers.writer(kind, standing),
        };
        let writer = objects.writer.clone();
        self.writers.watched.push((selection.clone(), writer));
        self.tasks
            .spawn(follow(api, selection, copy, self.changed.clone()));
        objects
    }

    /// Returns when something may have changed since the last time, and fails if a watch ended: none should. It may be dropped
    /// at any await.
    pub async fn changed(&mut self) -> Result<()> {
        tokio::select! {
            () = self.changed.notified(), if !self.due => self.due = true,
            () = std::future::ready(()), if self.due => {}
            Some(ended) = self.tasks.join_next() => {
                ended?;
                bail!("a watch of the box's API server ended");
            }
        }
        tokio::time::sleep(self.coalesce).await;
        // The look that comes now sees these, too.
        let _ = self.changed.notified().now_or_never();
        self.due = false;
        Ok(())
    }
}

impl Writers {
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn writer(&self, kind: ApiResource, standing: Arc<Standing>) -> Writer {
        Writer {
            client: self.client.clone(),
            kind,
            manager: self.manager,
            standing,
        }
    }

    /// For objects of a kind that nothing watches.
    pub fn unwatched(&self, kind: Resource) -> Writer {
        self.writer(kind.api(), Arc::default())
    }

    /// For an object of whatever kind, watched or not, by what it says of itself. Its plural is the usual one.
    pub fn of(&self, object: &Value) -> (Writer, Key) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let mut watched = self.watched.iter();
        let watched = watched.find(|(selection, _)| selection.has(&kind, object));
        let standing = watched.map_or_else(Arc::default, |(_, writer)| writer.standing.clone());
        let meta = &object["metadata"];
        let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
        (self.writer(kind, standing), Key { namespace, name })
    }
}

/// All objects of a selection.
pub struct Objects<K: 'static> {
    kind: Resource,
    copy: Store<Seen<K>>,
    writer: Writer,
}

impl<K: Readable> Objects<K> {
    /// In the order of their names, with everything that was written through this selection's [`Writer`]; an error if the
    /// API server cannot be asked what there is.
    pub async fn all(&self) -> Result<Listed<Arc<K>>> {
        let plural = self.kind.3;
        let mut state = self.writer.standing.subscribe();
        let mut verdict = None;
        let come = state.wait_for(|state| {
            verdict = state.verdict();
            verdict.is_some()
        });
        let come = tokio::time::timeout(PATIENCE, come).await.is_ok();
        match verdict {
            Some(Err(trouble)) => bail!("listing {plural}: {trouble}"),
            None if !come => {
                self.writer.standing.send_modify(State::give_up);
                bail!("listing {plural}: the watch is late");
            }
            _ => {}
        }
        let mut listed = self.known();
        if state.borrow().is_crowded {
            listed.unreadable.push(format!(
                "of all {plural} some are left out: together they are larger than the {} MiB that the box has for them",
                ROOM >> 20
            ));
        }
        Ok(listed)
    }

    /// What has come until now.
    pub fn known(&self) -> Listed<Arc<K>> {
        use kube::ResourceExt;
        let mut all = self.copy.state();
        all.sort_by_cached_key(|seen| (seen.namespace(), seen.name_any()));
        Listed {
            objects: all.iter().filter_map(|seen| seen.object.clone()).collect(),
            unreadable: all
                .iter()
                .filter_map(|seen| seen.trouble(self.kind.2))
                .collect(),
        }
    }

    pub fn writer(&self) -> &Writer {
        &self.writer
    }
}

/// For ever. After an error everything is listed again: kube's watch does not tell when it works again, a list does.
async fn follow<K: Readable>(
    api: Api<Seen<K>>,
    selection: Selection,
    mut copy: Copy<K>,
    changed: Arc<Notify>,
) {
    let mut pauses = DefaultBackoff::default();
    loop {
        let mut asked = copy.ask();
        let mut standing = copy.standing();
        let mut events = std::pin::pin!(watcher::watcher(api.clone(), selection.config()));
        let error = loop {
            let event = tokio::select! {
                event = events.next() => event,
                _ = standing.wait_for(|state| state.has_doubts_since(asked)) => break None,
            };
            match event {
                Some(Ok(event)) => {
                    let is_list =
                        matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
                    let begins = matches!(event, watcher::Event::Init);
                    if !copy.hear(event) {
                        break None;
                    }
                    if begins {
                        asked = copy.ask();
                    }
                    if !is_list {
                        changed.notify_one();
                    }
                }
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        let is_unknown = matches!(
            &error,
            Some(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404
        );
        match error {
            Some(_) if is_unknown && selection.may_lack => copy.be_empty(),
            // The API server has forgotten what came before: a list tells it anew, and nothing is wrong.
            Some(error) if is_expired(&error) => {}
            Some(error) => {
                let error = format!("{:#}", anyhow!(error));
                tracing::debug!(kind = selection.kind.2, error, "watching again");
                copy.fail(error);
                changed.notify_one();
            }
            None => {}
        }
        if is_unknown {
            defined(api.clone().into_client(), selection.kind).await;
        }
        let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
        tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
    }
}

/// Returns when there is a definition of the kind, which may not be served yet, or when that cannot be followed.
async fn defined(client: Client, kind: Resource) {
    let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client);
    let name = format!("metadata.name={}.{}", kind.3, kind.0);
    let config = Config::default().fields(&name);
    let mut events = std::pin::pin!(watcher::watcher(definitions, config));
    while let Some(Ok(event)) = events.next().await {
        if matches!(
            event,
            watcher::Event::InitApply(_) | watcher::Event::Apply(_)
        ) {
            return;
        }
    }
}

/// HTTP 410, as the answer to a watch or in the middle of it.
fn is_expired(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status)
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 410,
        _ => false,
    }
}
