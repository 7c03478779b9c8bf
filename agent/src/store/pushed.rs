//! What the store has put into the registry. It is noted before it is pushed, so that a deletion takes out that, also after a
//! power cut, and nothing that came with the stick or that somebody pushed there without the store.

use std::{fs, io, path::PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::registry::Push;
use crate::files::{self, Access};

/// A tag, and the manifests that came for it; the tagged one is last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tagged {
    pub repository: String,
    pub tag: String,
    pub manifests: Vec<String>,
}

impl Tagged {
    pub fn of(push: &Push) -> Self {
        let digests = push.manifests.iter().map(|it| it.digest.clone());
        Self {
            repository: push.repository.clone(),
            tag: push.tag.clone(),
            manifests: digests.collect(),
        }
    }

    pub fn name(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }

    /// Of the manifest that the tag is for.
    pub fn digest(&self) -> Option<&String> {
        self.manifests.last()
    }
}

/// A file on the state partition.
#[derive(Clone, Debug)]
pub struct Notes(pub PathBuf);

impl Notes {
    pub fn load(&self) -> Result<Vec<Tagged>> {
        match fs::read(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => {
                let text = read.with_context(|| format!("reading {}", self.0.display()))?;
                serde_json::from_slice(&text)
                    .with_context(|| format!("parsing {}", self.0.display()))
            }
        }
    }

    pub fn write(&self, all: &[Tagged]) -> Result<()> {
        files::write(&self.0, &serde_json::to_vec(all)?, Access::Owner)
    }

    /// Another content under a name whose last one is not taken out yet: both are ours.
    pub fn add(&self, mut all: Vec<Tagged>, pushed: Tagged) -> Result<()> {
        match all.iter_mut().find(|one| one.name() == pushed.name()) {
            Some(one) => {
                one.manifests
                    .retain(|digest| !pushed.manifests.contains(digest));
                one.manifests.extend(pushed.manifests);
            }
            None => all.push(pushed),
        }
        self.write(&all)
    }
}
