//! The way of an upload: begun, written in parts, whole, put in place, deleted. Each step claims its entry under the lock, works on
//! the disk without it, and notes what came of that.

use std::io;

use firstlight_api::artifact::{Artifact, ArtifactSpec, ArtifactState};
use firstlight_artifacts::hex;
use sha2::Digest;

use super::{
    Refusal, Store, broken,
    catalogue::{Content, Entry, Open},
    identity::identify,
    publish::Publication,
    publish_error::PublishError,
    room,
    shelf::{NotRemoved, Published},
    unknown,
};

/// For every upload that is known at a time; beyond it, somebody has a loop.
const MOST: usize = 10_000;

impl Store {
    /// Makes room for an upload, or finds the one that was begun; the same description always means the same artifact.
    pub fn begin(&self, spec: ArtifactSpec) -> Result<Artifact, Refusal> {
        spec.check().map_err(|refused| Refusal::Unfit(refused.0))?;
        let id = identify(&spec);
        if let Some(begun) = self.claim(&id, &spec)? {
            return Ok(begun);
        }
        self.tell();
        let reserved = self.0.shelf.reserve(&id, &spec);
        let mut catalogue = self.catalogue();
        let result = match reserved {
            Ok(()) => {
                let open = None;
                let content = Content::Resting { offset: 0, open };
                let entry = Entry::new(spec, content);
                let artifact = entry.artifact(&id);
                catalogue.entries.insert(id, entry);
                Ok(artifact)
            }
            Err(error) => {
                catalogue.entries.remove(&id);
                Err(match error.kind() {
                    io::ErrorKind::StorageFull
                    | io::ErrorKind::FileTooLarge
                    | io::ErrorKind::QuotaExceeded => too_large(&spec, 0),
                    _ => broken("making room", &error),
                })
            }
        };
        drop(catalogue);
        self.tell();
        result
    }

    /// The one that is there, or the right to make it.
    fn claim(&self, id: &str, spec: &ArtifactSpec) -> Result<Option<Artifact>, Refusal> {
        if let Some(aside) = self.0.aside.iter().find(|aside| aside.id == id) {
            return Err(Refusal::Conflict(format!(
                "it is here, and the box cannot read it: {}; {}",
                aside.why,
                aside.next(&self.0.shelf)
            )));
        }
        let mut catalogue = self.catalogue();
        if let Some(entry) = catalogue.entries.get(id) {
            return Ok(Some(entry.artifact(id)));
        }
        let rival = catalogue.entries.iter().find(|(_, entry)| {
            entry.spec.identity() == spec.identity() && entry.spec.sha256 != spec.sha256
        });
        if let Some((other, _)) = rival {
            return Err(Refusal::Conflict(format!(
                "{} {} {} for {} is here with other content ({other}); give it another version, or delete that one",
                spec.kind, spec.name, spec.version, spec.arch
            )));
        }
        if catalogue.entries.len() >= MOST {
            return Err(Refusal::TooLarge(format!(
                "there are {MOST} artifacts; delete what is not used"
            )));
        }
        let left = self.0.room.left();
        let left = left.map_err(|error| broken("asking for free space", &error))?;
        let left = left.saturating_sub(catalogue.promised());
        if spec.size.saturating_add(room::to_publish(spec)) > left {
            return Err(too_large(spec, left));
        }
        let entry = Entry::new(spec.clone(), Content::Claimed);
        catalogue.entries.insert(id.to_owned(), entry);
        Ok(None)
    }

    /// Takes the right to write from `offset` on. After a restart, what is there is read once for its digest.
    pub fn write(&self, id: &str, offset: u64) -> Result<Writer, Refusal> {
        let mut catalogue = self.catalogue();
        let held = catalogue.held.contains(id);
        let entry = catalogue.entries.get_mut(id).ok_or_else(|| unknown(id))?;
        let size = entry.spec.size;
        let (at, open) = match &mut entry.content {
            Content::Resting { offset, open } if !held => (*offset, open.take()),
            Content::Resting { .. } | Content::Claimed | Content::Busy { .. } => {
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
        drop(catalogue);
        let mut writer = Writer {
            store: self.clone(),
            id: id.to_owned(),
            size,
            offset: at,
            open,
        };
        if writer.open.is_none() {
            let (partial, digest) = self
                .0
                .shelf
                .resume(id, at)
                .map_err(|error| broken("opening the upload", &error))?;
            writer.open = Some(Box::new(Open {
                partial,
                digest,
                found: at,
            }));
        }
        Ok(writer)
    }

    /// Puts an artifact away for good.
    pub fn remove(&self, id: &str) -> Result<(), Refusal> {
        let mut catalogue = self.catalogue();
        let entry = catalogue.get(id)?;
        if matches!(entry.content, Content::Busy { .. } | Content::Claimed) {
            return Err(Refusal::Conflict(
                "it is being uploaded; stop that first".to_owned(),
            ));
        }
        match self.0.usage.users(&entry.artifact(id), entry.since) {
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
        catalogue.hold(id)?;
        drop(catalogue);
        let removed = self.0.shelf.remove(id);
        let mut catalogue = self.catalogue();
        catalogue.held.remove(id);
        if let Err(NotRemoved {
            error,
            intact: true,
        }) = &removed
        {
            return Err(broken("deleting it", error));
        }
        catalogue.entries.remove(id);
        catalogue.removals += 1;
        drop(catalogue);
        self.tell();
        self.0.changed.notify_one();
        removed.map_err(|not| broken("deleting it", &not.error))
    }

    /// What came of publishing it; a failure is tried again at the next start only.
    pub(super) fn settle(
        &self,
        id: &str,
        result: Result<Publication, PublishError>,
    ) -> io::Result<()> {
        let mut catalogue = self.catalogue();
        // It may have been deleted meanwhile.
        let waits = catalogue
            .entries
            .get(id)
            .is_some_and(|entry| entry.content.is_arrived());
        if !waits || catalogue.hold(id).is_err() {
            return Ok(());
        }
        drop(catalogue);
        let noted = match &result {
            Ok(publication) => self
                .0
                .shelf
                .publish(id, &publication.published, publication.keep),
            Err(_) => Ok(()),
        };
        let mut catalogue = self.catalogue();
        catalogue.held.remove(id);
        noted?;
        let (state, published) = match result {
            Ok(publication) => (ArtifactState::Ready, publication.published),
            Err(PublishError::Never { reason, next }) => {
                (ArtifactState::Failed { reason, next }, Published::default())
            }
            Err(PublishError::Later { .. }) => return Ok(()),
        };
        if let Some(entry) = catalogue.entries.get_mut(id) {
            entry.content = Content::Whole { state, published };
        }
        drop(catalogue);
        self.tell();
        Ok(())
    }

    /// Puts an upload back whose bytes ended before it was whole, with what is known of it.
    fn rest(&self, id: &str, offset: u64, open: Option<Box<Open>>) {
        if let Some(entry) = self.catalogue().entries.get_mut(id)
            && matches!(entry.content, Content::Busy { .. })
        {
            entry.content = Content::Resting { offset, open };
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
        }) = self.store.catalogue().entries.get_mut(&self.id)
        {
            *offset = after;
        }
        self.store.0.news.send_replace(());
        Ok(())
    }

    /// To the disk with it; the last byte turns it into an artifact. A wrong digest ends the upload.
    pub fn finish(mut self) -> Result<Artifact, Refusal> {
        let mut open = self.open.take().expect("open until it is finished");
        if let Err(error) = open.partial.sync() {
            // The kernel shows what it could not write, and forgets that it could not: nothing of it counts.
            self.offset = 0;
            return Err(broken("writing", &error));
        }
        let (store, id) = (self.store.clone(), self.id.clone());
        if self.offset < self.size {
            self.open = Some(open);
            drop(self);
            return store.get(&id);
        }
        let found = hex(&open.digest.finalize());
        let wanted = store.catalogue().get(&id)?.spec.sha256.clone();
        if found != wanted && open.found > 0 {
            // What a power cut left of it may not be what was sent.
            let given = std::mem::take(&mut self.offset);
            return Err(Refusal::Offset { wanted: 0, given });
        }
        if found != wanted {
            let removed = store.0.shelf.remove(&id);
            store.catalogue().entries.remove(&id);
            store.tell();
            removed.map_err(|not| broken("deleting it", &not.error))?;
            return Err(Refusal::Unfit(format!(
                "what came has the SHA-256 {found}, announced was {wanted}; it was thrown away: upload it again"
            )));
        }
        store
            .0
            .shelf
            .complete(&id)
            .map_err(|error| broken("putting it away", &error))?;
        let mut catalogue = store.catalogue();
        let entry = catalogue.entries.get_mut(&id).ok_or_else(|| unknown(&id))?;
        entry.content = Content::arrived();
        let artifact = entry.artifact(&id);
        drop(catalogue);
        store.tell();
        store.0.changed.notify_one();
        Ok(artifact)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.store.rest(&self.id, self.offset, self.open.take());
    }
}

fn too_large(spec: &ArtifactSpec, left: u64) -> Refusal {
    let copy = room::to_publish(spec);
    let also = if copy > 0 {
        format!(
            ", and {} MB to put it where it is used,",
            copy.div_ceil(1_000_000)
        )
    } else {
        String::new()
    };
    Refusal::TooLarge(format!(
        "{} MB{also} do not fit: {} MB are free for uploads; delete what is not used, or use a larger stick",
        spec.size.div_ceil(1_000_000),
        left / 1_000_000
    ))
}
