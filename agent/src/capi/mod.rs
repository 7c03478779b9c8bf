//! Cluster API's objects and the hosts, as everybody reads and writes them who has to do with machines: one look at all of
//! them ([`world`]), writes as values ([`Action`]), and the API server ([`ProviderObjects`]).
//!
//! Must not: decide anything. To add a kind: a [`Resource`](crate::objects::Resource), a field of [`world::World`] and of [`ProviderObjects`], and its
//! line in the look.

mod action;
pub mod addresses;
mod objects;
pub mod site_networks;
pub mod world;

pub use action::{Action, Kind, Steps};
pub use objects::{
    CLUSTERS, DATA_SECRET_TYPE, HOSTS, MACHINES, MANAGER, MARKER, MARKER_LABEL, METAL3_MACHINES,
    POOLS, ProviderObjects, SECRETS, SECRETS_KEY, SPARE, secrets_key_of,
};
pub use world::NAMESPACE;
