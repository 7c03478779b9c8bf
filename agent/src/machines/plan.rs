//! From one look at all objects to everything that should be written now. Pure, and safe to ask again at any time: each
//! step follows from what is there, so that a cut between two writes loses nothing.
//!
//! To add a case: a branch in `plan/cluster.rs` or `plan/machine.rs`, and a row in `plan/tests.rs`.

mod claims;
mod cluster;
pub mod departure;
mod draft;
mod host;
mod indexes;
mod machine;
mod release;
mod secrets;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use release::installed as left_behind;

use crate::capi::{
    Steps,
    world::{World, is_control_plane},
};

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
    let indexes = indexes::indexes(world);
    for (template, wanted) in &indexes {
        all.extend(indexes::write_indexes(world, template, wanted));
    }
    for machine in machines {
        all.push(machine::plan(world, machine, &indexes, &mut taken, now));
    }
    all.extend(departure::hooks(world));
    all.extend(release::untouched(world));
    all.extend(claims::released(world));
    all.retain(|steps| !steps.is_empty());
    all
}
