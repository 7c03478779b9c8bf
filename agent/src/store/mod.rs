//! The box's store: what people upload, kept on the state partition until it is deleted.
//!
//! [`shelf`] is the folder on the disk, [`run`](run()) the task; this module knows what is in it, who writes to what, and what may not be. An upload is
//! visible as an artifact only once every byte of it is there and its digest is right; until then it can be gone on with, also
//! after a power cut. Blocking throughout: callers are on threads that may wait for a disk.
//!
//! Must not: know HTTP ([`crate::web`] does), or what an artifact is good for ([`publish`] does, with [`registry`]).

pub mod apt;
mod publish;
mod pushed;
mod registry;
mod run;
mod shelf;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use firstlight_api::{
    addon::Chart,
    artifact::{Artifact, ArtifactSpec, ArtifactState, Kind},
    software::PackageSpec,
};
use firstlight_artifacts::hex;
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, watch};

use apt::Deb;
use publish::{Place, Trouble};
pub use run::{Dirs, REGISTRY, run};
use shelf::{Partial, Progress, Published, Shelf};

/// What stays free on the state partition for everything else that lives there.
const RESERVE: u64 = 1 << 30;

/// Pods that are named as users of an image.
const MOST_PODS: usize = 3;

/// Why the store does not do something; each is a sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    /// The next byte that is wanted is another one.
    #[error("the upload goes on at byte {wanted}; {given} was given")]
    Offset { wanted: u64, given: u64 },
    #[error("{0}")]
    TooLarge(String),
    #[error("{0}")]
    Unfit(String),
    #[error("{0}")]
    Broken(String),
}

#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shelf: Shelf,
    entries: Mutex<BTreeMap<String, Entry>>,
    /// There is something to put in place or to take away.
    changed: Notify,
    /// Something is to be told: an artifact came, went, or grew.
    news: watch::Sender<()>,
}

#[derive(Debug)]
struct Entry {
    spec: ArtifactSpec,
    content: Content,
    /// What refers to it, once somebody has looked.
    users: Option<Vec<String>>,
}

#[derive(Debug)]
enum Content {
    /// Somebody may go on; what is open already waits here.
    Resting {
        offset: u64,
        open: Option<Box<Open>>,
    },
    /// Somebody is writing.
    Busy { offset: u64 },
    Whole {
        state: ArtifactState,
        published: Published,
    },
}

/// A partial file with the digest of what is in it.
#[derive(Debug)]
struct Open {
    partial: Partial,
    digest: Sha256,
}

impl Store {
    /// Reads what is there. What was being put away when the power went is put away again.
    pub fn load(dir: &Path) -> io::Result<Self> {
        let shelf = Shelf::open(dir)?;
        let mut entries = BTreeMap::new();
        for found in shelf.scan()? {
            let content = match found.progress {
                Progress::Partial(offset) => Content::Resting {
                    offset: offset.min(found.spec.size),
                    open: None,
                },
                Progress::Whole => Content::Whole {
                    state: ArtifactState::Publishing,
                    published: Published::default(),
                },
                Progress::Published(published) => Content::Whole {
                    state: ArtifactState::Ready,
                    published,
                },
            };
            let entry = Entry {
                spec: found.spec,
                content,
                users: None,
            };
            entries.insert(found.id, entry);
        }
        Ok(Self(Arc::new(Inner {
            shelf,
            entries: Mutex::new(entries),
            changed: Notify::new(),
            news: watch::Sender::new(()),
        })))
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes with what [`Self::list`] says.
    pub fn news(&self) -> watch::Receiver<()> {
        self.0.news.subscribe()
    }

    fn tell(&self) {
        self.0.news.send_replace(());
    }

    pub fn list(&self) -> Vec<Artifact> {
        let entries = self.entries();
        entries
            .iter()
            .map(|(id, entry)| entry.artifact(id))
            .collect()
    }

    pub fn get(&self, id: &str) -> Result<Artifact, Refusal> {
        let entries = self.entries();
        let entry = entries.get(id).ok_or_else(|| unknown(id))?;
        Ok(entry.artifact(id))
    }

    /// Where the bytes of a whole artifact are.
    pub fn content(&self, id: &str) -> Result<PathBuf, Refusal> {
        match self.entries().get(id) {
            Some(Entry {
                content: Content::Whole { .. },
                ..
            }) => Ok(self.0.shelf.content(id)),
            Some(_) => Err(Refusal::Conflict("not all of it is here yet".to_owned())),
            None => Err(unknown(id)),
        }
    }

    /// Makes room for an upload, or finds the one that was begun; the same description always means the same artifact.
    pub fn begin(&self, spec: ArtifactSpec) -> Result<Artifact, Refusal> {
        spec.check().map_err(|refused| Refusal::Unfit(refused.0))?;
        let id = identify(&spec);
        let mut entries = self.entries();
        if let Some(entry) = entries.get(&id) {
            return Ok(entry.artifact(&id));
        }
        let rival = entries.iter().find(|(_, entry)| {
            entry.spec.identity() == spec.identity() && entry.spec.sha256 != spec.sha256
        });
        if let Some((other, _)) = rival {
            return Err(Refusal::Conflict(format!(
                "{} {} {} for {} is here with other content ({other}); give it another version, or delete that one",
                spec.kind, spec.name, spec.version, spec.arch
            )));
        }
        let free = self
            .0
            .shelf
            .free()
            .map_err(|error| broken("asking for free space", &error))?;
        let left = free.saturating_sub(RESERVE);
        if spec.size > left {
            return Err(too_large(spec.size, left));
        }
        self.0
            .shelf
            .reserve(&id, &spec)
            .map_err(|error| match error.raw_os_error() {
                Some(nix::libc::ENOSPC | nix::libc::EFBIG | nix::libc::EDQUOT) => {
                    too_large(spec.size, left)
                }
                _ => broken("making room", &error),
            })?;
        let entry = Entry {
            spec,
            content: Content::Resting {
                offset: 0,
                open: None,
            },
            users: None,
        };
        let artifact = entry.artifact(&id);
        entries.insert(id, entry);
        self.tell();
        Ok(artifact)
    }

    /// Takes the right to write from `offset` on. After a restart, what is there is read once for its digest.
    pub fn write(&self, id: &str, offset: u64) -> Result<Writer, Refusal> {
        let mut entries = self.entries();
        let entry = entries.get_mut(id).ok_or_else(|| unknown(id))?;
        let size = entry.spec.size;
        let (at, open) = match &mut entry.content {
            Content::Resting { offset, open } => (*offset, open.take()),
            Content::Busy { .. } => {
                return Err(Refusal::Conflict(
                    "somebody else is uploading it now; wait for them, then ask where to go on"
                        .to_owned(),
                ));
            }
            Content::Whole { .. } => {
                return Err(Refusal::Conflict("all of it is here already".to_owned()));
            }
        };
        if at != offset {
            entry.content = Content::Resting { offset: at, open };
            return Err(Refusal::Offset {
                wanted: at,
                given: offset,
            });
        }
        entry.content = Content::Busy { offset: at };
        drop(entries);
        let mut writer = Writer {
            store: self.clone(),
            id: id.to_owned(),
            size,
            offset: at,
            open,
        };
        if writer.open.is_none() {
            let open = self
                .0
                .shelf
                .resume(id, at)
                .map_err(|error| broken("opening the upload", &error))?;
            writer.open = Some(Box::new(Open {
                digest: open.1,
                partial: open.0,
            }));
        }
        Ok(writer)
    }

    /// Puts an artifact away for good.
    pub fn remove(&self, id: &str) -> Result<(), Refusal> {
        let mut entries = self.entries();
        let entry = entries.get(id).ok_or_else(|| unknown(id))?;
        if matches!(entry.content, Content::Busy { .. }) {
            return Err(Refusal::Conflict(
                "it is being uploaded; stop that first".to_owned(),
            ));
        }
        match &entry.users {
            Some(users) if !users.is_empty() => {
                return Err(Refusal::Conflict(format!(
                    "it is used by {}; change that first",
                    users.join(", ")
                )));
            }
            // After a start it takes a moment until the objects of Kubernetes are read.
            None if matches!(entry.content, Content::Whole { .. }) => {
                return Err(Refusal::Conflict(
                    "nobody has looked yet who uses it; try again in a minute, when the box is ready"
                        .to_owned(),
                ));
            }
            _ => {}
        }
        self.0
            .shelf
            .remove(id)
            .map_err(|error| broken("deleting it", &error))?;
        entries.remove(id);
        self.tell();
        self.0.changed.notify_one();
        Ok(())
    }

    /// Disks that servers can be given.
    pub fn images(&self) -> Vec<ServedImage> {
        let entries = self.entries();
        entries.iter().filter_map(served).collect()
    }

    /// Notes which hosts refer to which disks: pairs of a host's name and its `spec.image.url`.
    pub fn hosts_want(&self, wanted: &[(String, String)]) {
        self.note(Kind::Image, |id, entry| {
            let image = served((id, entry));
            let is_meant = |url: &str| image.as_ref().is_some_and(|image| image.is_meant_by(url));
            let users = wanted.iter().filter(|(_, url)| is_meant(url));
            users
                .map(|(host, _)| format!("BareMetalHost {host}"))
                .collect()
        });
    }

    /// Notes which addons refer to which charts: each addon with the chart's name and version.
    pub fn addons_want(&self, wanted: &[(String, Chart)]) {
        self.note(Kind::Chart, |_, entry| {
            let is_meant = |chart: &Chart| {
                (&chart.name, &chart.version) == (&entry.spec.name, &entry.spec.version)
            };
            let users = wanted.iter().filter(|(_, chart)| is_meant(chart));
            users.map(|(addon, _)| format!("Addon {addon}")).collect()
        });
    }

    /// Notes which pods run which images: pairs of a pod's name and what it calls the image.
    pub fn pods_want(&self, wanted: &[(String, String)]) {
        self.note(Kind::Container, |_, entry| {
            let spec = &entry.spec;
            let is_meant = |image: &str| names_image(image, &spec.name, &spec.version);
            let mut users: Vec<String> = wanted
                .iter()
                .filter(|(_, image)| is_meant(image))
                .map(|(pod, _)| pod.clone())
                .collect();
            users.dedup();
            let more = users.len().saturating_sub(MOST_PODS);
            users.truncate(MOST_PODS);
            users.extend((more > 0).then(|| format!("{more} more")));
            users
        });
    }

    /// Notes which Software refers to which packages: each with a package's name and version.
    pub fn software_wants(&self, wanted: &[(String, PackageSpec)]) {
        self.note(Kind::Package, |_, entry| {
            let is_meant = |package: &PackageSpec| {
                (&package.name, &package.version) == (&entry.spec.name, &entry.spec.version)
            };
            let users = wanted.iter().filter(|(_, package)| is_meant(package));
            users
                .map(|(software, _)| format!("Software {software}"))
                .collect()
        });
    }

    /// Who refers to each artifact of this kind.
    fn note(&self, kind: Kind, users: impl Fn(&String, &Entry) -> Vec<String>) {
        let mut entries = self.entries();
        let of_kind = entries
            .iter_mut()
            .filter(|(_, entry)| entry.spec.kind == kind);
        for (id, entry) in of_kind {
            let users = users(id, entry);
            if entry.users.as_ref() != Some(&users) {
                entry.users = Some(users);
                self.tell();
            }
        }
    }

    /// Of everything of this kind that is in use.
    fn references(&self, kind: Kind) -> BTreeSet<String> {
        let entries = self.entries();
        let of_kind = entries.values().filter(|entry| entry.spec.kind == kind);
        of_kind
            .filter_map(|entry| match &entry.content {
                Content::Whole { published, .. } => Some(published.reference.clone()),
                _ => None,
            })
            .collect()
    }

    /// Whole packages that pass.
    fn debs(&self, passes: impl Fn(&String) -> bool) -> Vec<Deb> {
        let entries = self.entries();
        let is_good = |entry: &Entry| {
            entry.spec.kind == Kind::Package
                && matches!(
                    &entry.content,
                    Content::Whole {
                        state: ArtifactState::Publishing | ArtifactState::Ready,
                        ..
                    }
                )
        };
        let good = entries
            .iter()
            .filter(|(id, entry)| is_good(entry) && passes(id));
        good.map(|(id, entry)| Deb {
            path: self.0.shelf.content(id),
            size: entry.spec.size,
            sha256: entry.spec.sha256.clone(),
        })
        .collect()
    }

    /// What is whole and not where it is used.
    fn arrivals(&self) -> Vec<(String, ArtifactSpec)> {
        let is_new = |entry: &Entry| {
            matches!(
                &entry.content,
                Content::Whole {
                    state: ArtifactState::Publishing,
                    ..
                }
            )
        };
        let entries = self.entries();
        let new = entries.iter().filter(|(_, entry)| is_new(entry));
        new.map(|(id, entry)| (id.clone(), entry.spec.clone()))
            .collect()
    }

    /// What came of publishing it; a failure is tried again at the next start only.
    fn settle(&self, id: &str, result: Result<Place, Trouble>) -> io::Result<()> {
        let mut entries = self.entries();
        // It may have been deleted meanwhile.
        let Some(entry) = entries.get_mut(id) else {
            return Ok(());
        };
        let (state, published) = match result {
            Ok(place) => {
                self.0.shelf.publish(id, &place.published, place.keep)?;
                (ArtifactState::Ready, place.published)
            }
            Err(Trouble::Never { reason, next }) => {
                (ArtifactState::Failed { reason, next }, Published::default())
            }
            Err(Trouble::Later(_)) => return Ok(()),
        };
        entry.content = Content::Whole { state, published };
        self.tell();
        Ok(())
    }

    /// Puts an upload back whose bytes ended before it was whole, with what is known of it.
    fn rest(&self, id: &str, offset: u64, open: Option<Box<Open>>) {
        if let Some(entry) = self.entries().get_mut(id)
            && matches!(entry.content, Content::Busy { .. })
        {
            entry.content = Content::Resting { offset, open };
        }
    }
}

impl Entry {
    fn artifact(&self, id: &str) -> Artifact {
        let (state, published) = match &self.content {
            Content::Resting { offset, .. } | Content::Busy { offset } => {
                let state = ArtifactState::Uploading { offset: *offset };
                (state, Published::default())
            }
            Content::Whole { state, published } => (state.clone(), published.clone()),
        };
        Artifact {
            id: id.to_owned(),
            spec: self.spec.clone(),
            state,
            reference: published.reference,
            checksum: published.checksum,
            used_by: self.users.clone().unwrap_or_default(),
        }
    }
}

/// Whether a pod's `image` is this one, by whatever name of the registry. By a digest any version may be meant.
fn names_image(image: &str, name: &str, version: &str) -> bool {
    let (image, digest) = match image.split_once('@') {
        Some((image, _)) => (image, true),
        None => (image, false),
    };
    let (_, path) = image.split_once('/').unwrap_or_default();
    match path.split_once(':') {
        Some((path, tag)) => (path, tag) == (name, version),
        None => path == name && (digest || version == "latest"),
    }
}

fn served((id, entry): (&String, &Entry)) -> Option<ServedImage> {
    match &entry.content {
        Content::Whole {
            state: ArtifactState::Ready,
            published,
        } if entry.spec.kind == Kind::Image => Some(ServedImage {
            id: id.clone(),
            name: entry.spec.name.clone(),
            version: entry.spec.version.clone(),
            path: published.reference.clone(),
            sha256: published.checksum.clone(),
        }),
        _ => None,
    }
}

/// A disk of the store as servers get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedImage {
    pub id: String,
    pub name: String,
    pub version: String,
    /// `/images/…`
    pub path: String,
    /// Of the file there.
    pub sha256: String,
}

impl ServedImage {
    /// Whether `url` names it (`NAME` or `NAME:VERSION`) or is its address.
    pub fn is_meant_by(&self, url: &str) -> bool {
        match url.split_once("://") {
            Some((_, address)) => address
                .find('/')
                .is_some_and(|at| address[at..] == self.path),
            None => match url.split_once(':') {
                Some((name, version)) => (name, version) == (&self.name, &self.version),
                None => url == self.name,
            },
        }
    }
}

/// The right to write to one upload; given back when it is dropped.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    id: String,
    size: u64,
    offset: u64,
    open: Option<Box<Open>>,
}

impl Writer {
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let after = self.offset + bytes.len() as u64;
        if after > self.size {
            return Err(Refusal::Unfit(format!(
                "{after} bytes came where {} were announced; begin again with the right size",
                self.size
            )));
        }
        let open = self.open.as_mut().expect("open until it is finished");
        if let Err(error) = open.partial.append(bytes) {
            // A part of them may be on the disk and in no digest: whoever goes on reads it anew.
            self.open = None;
            return Err(broken("writing", &error));
        }
        open.digest.update(bytes);
        self.offset = after;
        if let Some(Entry {
            content: Content::Busy { offset },
            ..
        }) = self.store.entries().get_mut(&self.id)
        {
            *offset = after;
        }
        self.store.tell();
        Ok(())
    }

    /// To the disk with it; the last byte turns it into an artifact. A wrong digest ends the upload.
    pub fn finish(mut self) -> Result<Artifact, Refusal> {
        let mut open = self.open.take().expect("open until it is finished");
        if let Err(error) = open.partial.sync() {
            return Err(broken("writing", &error));
        }
        if self.offset < self.size {
            self.open = Some(open);
            let (store, id) = (self.store.clone(), self.id.clone());
            drop(self);
            return store.get(&id);
        }
        let (store, id) = (self.store.clone(), self.id.clone());
        let found = hex(&open.digest.finalize());
        let mut entries = store.entries();
        let entry = entries.get_mut(&id).ok_or_else(|| unknown(&id))?;
        if found != entry.spec.sha256 {
            let wanted = entry.spec.sha256.clone();
            let removed = store.0.shelf.remove(&id);
            entries.remove(&id);
            removed.map_err(|error| broken("deleting it", &error))?;
            return Err(Refusal::Unfit(format!(
                "what came has the SHA-256 {found}, announced was {wanted}; it was thrown away: upload it again"
            )));
        }
        store
            .0
            .shelf
            .complete(&id)
            .map_err(|error| broken("putting it away", &error))?;
        entry.content = Content::Whole {
            state: ArtifactState::Publishing,
            published: Published::default(),
        };
        store.tell();
        store.0.changed.notify_one();
        Ok(entry.artifact(&id))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.store.rest(&self.id, self.offset, self.open.take());
    }
}

/// The same for the same artifact, for ever.
fn identify(spec: &ArtifactSpec) -> String {
    let (kind, name, version, arch) = spec.identity();
    let text = format!("{kind}\n{name}\n{version}\n{arch}\n{}", spec.sha256);
    hex(&Sha256::digest(text))[..24].to_owned()
}

fn unknown(id: &str) -> Refusal {
    Refusal::NotFound(format!("no artifact {id}; GET /api/v1/artifacts lists all"))
}

fn too_large(size: u64, free: u64) -> Refusal {
    Refusal::TooLarge(format!(
        "{} MB do not fit: {} MB are free for uploads; delete what is not used, or use a larger stick",
        size.div_ceil(1_000_000),
        free / 1_000_000
    ))
}

fn broken(doing: &str, error: &io::Error) -> Refusal {
    Refusal::Broken(format!(
        "{doing}: {error}; if the state partition is broken, use another stick"
    ))
}
