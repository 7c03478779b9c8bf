//! What there is, in memory. Whoever works on the disk marks an entry first and lets the lock go: a marked entry is nobody else's.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use firstlight_api::artifact::{Artifact, ArtifactSpec, ArtifactState, Kind};
use sha2::Sha256;

use super::{
    Refusal, ServedImage, identity, room,
    shelf::{Found, Partial, Progress, Published},
    unknown,
};

#[derive(Debug, Default)]
pub struct Catalogue {
    pub entries: BTreeMap<String, Entry>,
    /// What somebody deletes or notes at this moment.
    pub held: BTreeSet<String>,
    /// Deletions so far: room may have come back.
    pub removals: u64,
}

#[derive(Debug)]
pub struct Entry {
    pub spec: ArtifactSpec,
    pub content: Content,
    /// Since when it is known here.
    pub since: Instant,
}

#[derive(Debug)]
pub enum Content {
    /// Its place on the disk is being made.
    Claimed,
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
pub struct Open {
    pub partial: Partial,
    pub digest: Sha256,
    /// So many of the bytes were read back from the disk.
    pub found: u64,
}

impl Content {
    pub fn arrived() -> Self {
        Self::Whole {
            state: ArtifactState::Publishing,
            published: Published::default(),
        }
    }

    pub fn is_arrived(&self) -> bool {
        matches!(
            self,
            Self::Whole {
                state: ArtifactState::Publishing,
                ..
            }
        )
    }
}

impl Entry {
    pub fn new(spec: ArtifactSpec, content: Content) -> Self {
        Self {
            spec,
            content,
            since: Instant::now(),
        }
    }

    /// Without its users.
    pub fn artifact(&self, id: &str) -> Artifact {
        let uploading = |offset| (ArtifactState::Uploading { offset }, Published::default());
        let (state, published) = match &self.content {
            Content::Claimed => uploading(0),
            Content::Resting { offset, .. } | Content::Busy { offset } => uploading(*offset),
            Content::Whole { state, published } => (state.clone(), published.clone()),
        };
        Artifact {
            id: id.to_owned(),
            spec: self.spec.clone(),
            state,
            reference: published.reference,
            checksum: published.checksum,
            used_by: Vec::new(),
        }
    }

    /// What it will still take of the disk: its own place until that is made, and what it is published as.
    fn promised(&self) -> u64 {
        let rest = room::to_publish(&self.spec);
        match &self.content {
            Content::Claimed => self.spec.size.saturating_add(rest),
            Content::Resting { .. } | Content::Busy { .. } => rest,
            content if content.is_arrived() => rest,
            Content::Whole { .. } => 0,
        }
    }
}

impl Catalogue {
    pub fn of(found: Vec<Found>) -> Self {
        let entry = |found: Found| {
            let content = match found.progress {
                Progress::Partial(offset) => Content::Resting {
                    offset: offset.min(found.spec.size),
                    open: None,
                },
                Progress::Whole => Content::arrived(),
                Progress::Published(published) => Content::Whole {
                    state: ArtifactState::Ready,
                    published,
                },
            };
            (found.id, Entry::new(found.spec, content))
        };
        Self {
            entries: found.into_iter().map(entry).collect(),
            ..Self::default()
        }
    }

    pub fn get(&self, id: &str) -> Result<&Entry, Refusal> {
        self.entries.get(id).ok_or_else(|| unknown(id))
    }

    /// For somebody who will work on it without the lock.
    pub fn hold(&mut self, id: &str) -> Result<(), Refusal> {
        if self.held.insert(id.to_owned()) {
            return Ok(());
        }
        Err(Refusal::Conflict(
            "the box is putting it away or deleting it; try again in a moment".to_owned(),
        ))
    }

    pub fn artifacts(&self) -> Vec<Artifact> {
        let all = self.entries.iter();
        all.map(|(id, entry)| entry.artifact(id)).collect()
    }

    /// What was promised to uploads and is not taken yet.
    pub fn promised(&self) -> u64 {
        self.entries
            .values()
            .fold(0, |all, entry| all.saturating_add(entry.promised()))
    }

    pub fn images(&self) -> impl Iterator<Item = ServedImage> {
        self.entries.iter().filter_map(|(id, entry)| {
            let Content::Whole {
                state: ArtifactState::Ready,
                published,
            } = &entry.content
            else {
                return None;
            };
            (entry.spec.kind == Kind::Image).then(|| ServedImage {
                id: id.clone(),
                name: entry.spec.name.clone(),
                version: entry.spec.version.clone(),
                path: published.reference.clone(),
                sha256: published.checksum.clone(),
            })
        })
    }

    /// Of this kind, all that are where they are used, or on their way there.
    pub fn references(&self, kind: Kind) -> BTreeSet<String> {
        let of_kind = self
            .entries
            .values()
            .filter(|entry| entry.spec.kind == kind);
        of_kind
            .filter_map(|entry| match &entry.content {
                Content::Whole {
                    state: ArtifactState::Publishing,
                    ..
                } => Some(identity::reference(&entry.spec)),
                Content::Whole { published, .. } => Some(published.reference.clone()),
                _ => None,
            })
            .collect()
    }

    /// Whole packages that can be used.
    pub fn packages(&self) -> Vec<(String, ArtifactSpec)> {
        let good = self.entries.iter().filter(|(_, entry)| {
            let failed = |state: &ArtifactState| matches!(state, ArtifactState::Failed { .. });
            entry.spec.kind == Kind::Package
                && matches!(&entry.content, Content::Whole { state, .. } if !failed(state))
        });
        good.map(|(id, entry)| (id.clone(), entry.spec.clone()))
            .collect()
    }

    /// What is whole and not where it is used.
    pub fn arrivals(&self) -> Vec<(String, ArtifactSpec)> {
        let new = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.content.is_arrived());
        new.map(|(id, entry)| (id.clone(), entry.spec.clone()))
            .collect()
    }
}
