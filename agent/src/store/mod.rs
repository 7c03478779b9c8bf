//! The box's store: what people upload, kept on the state partition until it is deleted.
//!
//! | module | subject |
//! |---|---|
//! | [`upload`] | who writes to what: an upload is an artifact only once every byte is there and its digest is right |
//! | [`catalogue`] | what there is, in memory; its lock is never held while a disk is waited for |
//! | [`usage`] | who refers to what, as controllers note it |
//! | [`identity`] | which upload is which artifact, and how it is called where it is used |
//! | [`room`] | how much may be written |
//! | [`shelf`] | the folder on the disk |
//! | [`run`](run()), [`publish`], [`registry`], [`apt`] | the task that brings artifacts to where they are used |
//!
//! Uploads block: their callers are on threads that may wait for a disk. Must not: know HTTP ([`crate::web`] does), or which
//! objects there are that use artifacts. To add a kind: a branch in [`publish`], its name in [`identity`].

pub mod apt;
mod catalogue;
mod identity;
mod publish;
mod publish_error;
mod pushed;
mod registry;
mod room;
mod run;
mod shelf;
#[cfg(test)]
mod tests;
mod upload;
mod usage;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use firstlight_api::artifact::Artifact;
use tokio::sync::{Notify, watch};

use catalogue::{Catalogue, Content};
pub use identity::ServedImage;
pub use registry::Registry;
pub use room::Room;
pub use run::{Dirs, REGISTRY, run};
use shelf::{Aside, Shelf};
pub use upload::Writer;
use usage::Usage;
pub use usage::{Reference, Target, User};

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
    room: Room,
    catalogue: Mutex<Catalogue>,
    usage: Usage,
    /// What a start could not read, and left as it is.
    aside: Vec<Aside>,
    /// Disks that servers can be given; read without any lock of the store's.
    images: watch::Sender<Arc<[ServedImage]>>,
    /// There is something to put in place or to take away.
    changed: Notify,
    /// Something is to be told: an artifact came, went, or grew.
    news: watch::Sender<()>,
}

impl Store {
    /// Reads what is there. What was being put away when the power went is put away again.
    pub fn load(dir: &Path) -> io::Result<Self> {
        Self::load_with(dir, Room::on_disk(dir))
    }

    /// The same, with another idea of how much room there is.
    pub fn load_with(dir: &Path, room: Room) -> io::Result<Self> {
        let shelf = Shelf::open(dir)?;
        let (found, aside) = shelf.scan()?;
        let store = Self(Arc::new(Inner {
            shelf,
            room,
            catalogue: Mutex::new(Catalogue::of(found)),
            usage: Usage::default(),
            aside,
            images: watch::Sender::new(Arc::new([])),
            changed: Notify::new(),
            news: watch::Sender::new(()),
        }));
        store.tell();
        Ok(store)
    }

    /// Short: nobody waits for a disk while holding it.
    fn catalogue(&self) -> MutexGuard<'_, Catalogue> {
        self.0
            .catalogue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes with what [`Self::list`] says.
    pub fn news(&self) -> watch::Receiver<()> {
        self.0.news.subscribe()
    }

    fn tell(&self) {
        let images: Arc<[ServedImage]> = self.catalogue().images().collect();
        self.0.images.send_if_modified(|old| {
            let changed = *old != images;
            *old = images;
            changed
        });
        self.0.news.send_replace(());
    }

    pub fn list(&self) -> Vec<Artifact> {
        let mut all = self.catalogue().artifacts();
        for artifact in &mut all {
            artifact.used_by = self.0.usage.shown(artifact);
        }
        all
    }

    pub fn get(&self, id: &str) -> Result<Artifact, Refusal> {
        let mut artifact = self.catalogue().get(id)?.artifact(id);
        artifact.used_by = self.0.usage.shown(&artifact);
        Ok(artifact)
    }

    /// Where the bytes of a whole artifact are.
    pub fn content(&self, id: &str) -> Result<PathBuf, Refusal> {
        match self.catalogue().get(id)?.content {
            Content::Whole { .. } => Ok(self.0.shelf.content(id)),
            _ => Err(Refusal::Conflict("not all of it is here yet".to_owned())),
        }
    }

    /// Disks that servers can be given. Waits for nobody.
    pub fn images(&self) -> Vec<ServedImage> {
        self.0.images.borrow().to_vec()
    }

    /// Notes all that these users refer to. Waits for nobody who writes.
    pub fn note(&self, user: User, references: Vec<Reference>) {
        if self.0.usage.note(user, references) {
            self.0.news.send_replace(());
        }
    }
}

fn unknown(id: &str) -> Refusal {
    Refusal::NotFound(format!("no artifact {id}; GET /api/v1/artifacts lists all"))
}

fn broken(doing: &str, error: &io::Error) -> Refusal {
    Refusal::Broken(format!(
        "{doing}: {error}; if the state partition is broken, use another stick"
    ))
}
