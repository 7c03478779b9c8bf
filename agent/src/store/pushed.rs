//! What the store has put into the registry. It is noted before it is pushed, so that a deletion takes out that, also after a
//! power cut, and nothing that came with the stick or that somebody pushed there without the store.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{
    files::{self, Access},
    keep,
};

/// A tag, and the manifests that came for it; the tagged one is last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tagged {
    pub repository: String,
    pub tag: String,
    pub manifests: Vec<String>,
}

impl Tagged {
    pub fn name(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }

    /// Of the manifest that the tag is for.
    pub fn digest(&self) -> Option<&String> {
        self.manifests.last()
    }
}

/// A file on the state partition. Changes come one after the other.
#[derive(Clone, Debug)]
pub struct Notes(Arc<Mutex<PathBuf>>);

impl Notes {
    pub fn at(path: PathBuf) -> Self {
        Self(Arc::new(Mutex::new(path)))
    }

    pub async fn load(&self) -> Result<Vec<Tagged>> {
        self.with(load).await
    }

    /// Another content under a name whose last one is not taken out yet: both are ours.
    pub async fn add(&self, pushed: Tagged) -> Result<()> {
        self.with(move |path| {
            let mut all = load(path)?;
            match all.iter_mut().find(|one| one.name() == pushed.name()) {
                Some(one) => {
                    one.manifests
                        .retain(|digest| !pushed.manifests.contains(digest));
                    one.manifests.extend(pushed.manifests);
                }
                None => all.push(pushed),
            }
            write(path, &all)
        })
        .await
    }

    /// It is taken out.
    pub async fn forget(&self, gone: Tagged) -> Result<()> {
        self.with(move |path| {
            let mut all = load(path)?;
            all.retain(|note| *note != gone);
            write(path, &all)
        })
        .await
    }

    /// On a thread that may wait for the disk.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let file = Arc::clone(&self.0);
        let work = move || work(&file.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(work).await?
    }
}

fn load(path: &Path) -> Result<Vec<Tagged>> {
    match keep::read(path, &|path| fs::read(path))? {
        Some(text) => {
            serde_json::from_slice(&text).with_context(|| format!("parsing {}", path.display()))
        }
        None => Ok(Vec::new()),
    }
}

fn write(path: &Path, all: &[Tagged]) -> Result<()> {
    files::write(path, &serde_json::to_vec(all)?, Access::Owner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tagged(tag: &str, manifests: &[&str]) -> Tagged {
        Tagged {
            repository: "web".into(),
            tag: tag.into(),
            manifests: manifests
                .iter()
                .map(|digest| (*digest).to_owned())
                .collect(),
        }
    }

    #[tokio::test]
    async fn notes_of_pushes_side_by_side_are_all_kept() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::at(dir.path().join("pushed.json"));
        let tags: Vec<String> = (0..20).map(|tag| tag.to_string()).collect();
        let adds = tags.iter().map(|tag| notes.add(tagged(tag, &["a"])));
        for added in futures_util::future::join_all(adds).await {
            added.unwrap();
        }
        assert_eq!(notes.load().await.unwrap().len(), 20);
        notes.add(tagged("1", &["b", "a"])).await.unwrap();
        notes.forget(tagged("1", &["a"])).await.unwrap();
        let all = notes.load().await.unwrap();
        assert!(all.contains(&tagged("1", &["b", "a"])), "{all:?}");
    }

    proptest::proptest! {
        #[test]
        fn notes_are_read_or_refused_and_never_overwritten(content: Vec<u8>) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("pushed.json");
            fs::write(&path, &content).unwrap();
            if load(&path).is_err() {
                proptest::prop_assert_eq!(fs::read(&path).unwrap(), content);
            }
        }
    }
}
