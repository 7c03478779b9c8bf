//! Who refers to what. Controllers note the references of their objects; what is referred to is not deleted.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use firstlight_api::artifact::{Artifact, Kind};

use super::identity::{is_disk, reference};

/// Users of one artifact that are named.
const MOST_NAMED: usize = 3;

/// Who has looked: all objects of a kind refer to one kind of artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    Hosts,
    Addons,
    Pods,
    Software,
}

/// One object, and what it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// For people: `BareMetalHost n1`.
    pub by: String,
    pub to: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Version {
        name: String,
        version: String,
    },
    /// Every version of it, as far as anybody can tell.
    Any {
        name: String,
    },
    /// `NAME`, `NAME:VERSION`, or the address that servers fetch it at.
    Disk(String),
}

impl User {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Image => Self::Hosts,
            Kind::Chart => Self::Addons,
            Kind::Container => Self::Pods,
            Kind::Package => Self::Software,
        }
    }
}

impl Target {
    fn is(&self, artifact: &Artifact) -> bool {
        let spec = &artifact.spec;
        match self {
            Self::Version { name, version } => (name, version) == (&spec.name, &spec.version),
            Self::Any { name } => *name == spec.name,
            Self::Disk(url) => is_disk(url, &spec.name, &spec.version, &reference(spec)),
        }
    }
}

/// What was noted last, and when.
#[derive(Debug, Default)]
pub struct Usage(Mutex<BTreeMap<User, (Instant, Vec<Reference>)>>);

impl Usage {
    /// Whether that changes anything.
    pub fn note(&self, user: User, references: Vec<Reference>) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = (Instant::now(), references);
        let changed = noted.get(&user).is_none_or(|(_, old)| *old != new.1);
        noted.insert(user, new);
        changed
    }

    /// Who refers to it; `None` while nobody has looked since it is there.
    pub fn users(&self, artifact: &Artifact, since: Instant) -> Option<Vec<String>> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, references) = noted.get(&User::of(artifact.spec.kind))?;
        let users = references.iter().filter(|one| one.to.is(artifact));
        let mut users: Vec<String> = users.map(|one| one.by.clone()).collect();
        users.dedup();
        let more = users.len().saturating_sub(MOST_NAMED);
        users.truncate(MOST_NAMED);
        users.extend((more > 0).then(|| format!("{more} more")));
        (!users.is_empty() || *at >= since).then_some(users)
    }

    /// For people.
    pub fn shown(&self, artifact: &Artifact) -> Vec<String> {
        self.users(artifact, Instant::now()).unwrap_or_default()
    }
}
