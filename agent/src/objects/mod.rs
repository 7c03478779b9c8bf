//! Objects of the box's Kubernetes, as every controller has them: a copy in memory of all of a kind that a watch keeps new
//! ([`Objects`]), a signal when something changed ([`Watches`]), and writes that carry the version that was seen ([`Writer`]).
//!
//! Must not: know what an object means. To add a kind: its [`Resource`], a type that is [`Readable`], [`Watches::objects`].

mod copy;
mod read;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
mod watches;
mod writer;

use firstlight_api::object::Meta;
use kube::api::{ApiResource, GroupVersionKind};

pub use read::{Listed, Readable, Seen};
pub use watches::{Objects, Selection, Watches, Writers};
pub use writer::{Applies, Part, Writer, apply_all, is_overtaken};

/// Group, version, kind, plural.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource(
    pub &'static str,
    pub &'static str,
    pub &'static str,
    pub &'static str,
);

impl Resource {
    pub fn api(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.0, self.1, self.2);
        ApiResource::from_gvk_with_plural(&kind, self.3)
    }
}

/// Namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub fn of(meta: &Meta) -> Self {
        Self::new(&meta.namespace, &meta.name)
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
