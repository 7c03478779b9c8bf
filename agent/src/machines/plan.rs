//! From one look at all objects to everything that should be written now. Pure, and safe to ask again at any time: each
//! step follows from what is there, so that a cut between two writes loses nothing.
//!
//! To add a case: a branch in `plan/cluster.rs` or `plan/machine.rs`, and a row in `plan/tests.rs`.

mod cluster;
mod host;
mod machine;
mod release;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::world::{Key, World, is_control_plane};

/// What is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Host,
    Metal3Cluster,
    Metal3Machine,
    DataTemplate,
    Machine,
    ControlPlane,
    Deployment,
}

/// One write. Those of one machine follow each other; the first that fails ends its list until the next look.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A JSON merge patch. With a `version` it is refused if somebody wrote in between.
    Patch {
        kind: Kind,
        key: Key,
        version: Option<String>,
        patch: Value,
    },
    PatchStatus {
        kind: Kind,
        key: Key,
        patch: Value,
    },
    /// Metadata or network data; it goes away with the machine.
    PutData {
        key: Key,
        owner: Box<firstlight_api::object::OwnerReference>,
        cluster: String,
        data: BTreeMap<String, String>,
    },
    /// An object that is there already stays as it is.
    Create(Value),
    /// As given, whoever wrote it before.
    Put(Value),
}

/// The writes for one object, in order.
pub type Steps = Vec<Action>;

/// `now` is RFC 3339.
pub fn plan(world: &World, now: &str) -> Vec<Steps> {
    let mut all: Vec<Steps> = world
        .metal3_clusters
        .values()
        .map(|cluster| cluster::plan(world, cluster, now))
        .collect();
    let mut taken = BTreeSet::new();
    let mut machines: Vec<_> = world.metal3_machines.values().collect();
    // A control plane first: without it workers are of no use.
    machines.sort_by_key(|machine| !is_control_plane(&machine.metadata));
    let indexes = machine::indexes(world);
    for (template, wanted) in &indexes {
        all.extend(machine::write_indexes(world, template, wanted));
    }
    for machine in machines {
        all.push(machine::plan(world, machine, &indexes, &mut taken, now));
    }
    all.retain(|steps| !steps.is_empty());
    all
}
