//! Why something of the store is not where it is used.

use std::{io, path::Path};

use firstlight_artifacts::Unfit;

use crate::keep::Kept;

/// Why it is not there yet, or never will be; each with what a person can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// Tried again by itself, after a pause that grows.
    Later {
        reason: String,
        next: String,
    },
    Never {
        reason: String,
        next: String,
    },
}

impl PublishError {
    pub fn later(reason: impl Into<String>) -> Self {
        Self::Later {
            reason: reason.into(),
            next: "nothing: the box tries again".to_owned(),
        }
    }

    pub fn no_room(what: &str, left: u64) -> Self {
        Self::Later {
            reason: format!(
                "there is no room for {what}: {} MB are free for uploads",
                left / 1_000_000
            ),
            next: "delete what is not used, or use a larger stick; the box tries again".to_owned(),
        }
    }

    pub fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::later(format!("opening {}: {error}", path.display()))
    }

    pub fn refused(reason: &str) -> Self {
        Self::Never {
            reason: reason.to_owned(),
            next: "delete the artifact, mend what the reason names, and upload it again".to_owned(),
        }
    }

    pub fn stopping(_: tokio::task::JoinError) -> Self {
        Self::later("the box is stopping")
    }
}

/// Of the box's own disk.
impl From<anyhow::Error> for PublishError {
    fn from(error: anyhow::Error) -> Self {
        let reason = format!("{error:#}");
        match error.downcast::<Kept>() {
            Ok(kept) => Self::Later {
                reason,
                next: kept.next(),
            },
            Err(_) => Self::later(reason),
        }
    }
}

impl From<Unfit> for PublishError {
    fn from(unfit: Unfit) -> Self {
        Self::refused(&unfit.to_string())
    }
}
