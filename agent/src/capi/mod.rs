//! Cluster API's objects and the hosts, as everybody reads and writes them who has to do with machines: one look at all of
//! them ([`world`]), writes as values ([`Action`]), and the API server ([`Store`]).
//!
//! Must not: decide anything. To add a kind: a [`Resource`], a field of [`world::World`], and its line in the look.

mod action;
mod read;
mod store;
pub mod world;

pub use action::{Action, Kind, Steps};
pub use read::{Listed, read_dynamic, read_one, value};
pub use store::{
    HOSTS, MACHINES, MARKER, METAL3_MACHINES, NAMESPACE, Resource, SPARE, Store, WATCHED, apply_all,
};
