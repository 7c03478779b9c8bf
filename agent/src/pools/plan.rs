//! From one look at all objects to everything that should be written now. Pure, and safe to ask again at any time: an address is a
//! claim's once its object is there, so that a cut between two writes gives nothing twice and loses nothing.
//!
//! To add a case: a branch in `plan/claim.rs` or `plan/pool.rs`, and a story in `plan/tests.rs`.

mod claim;
mod pool;
#[cfg(test)]
mod tests;

use super::{Action, Pools, book::kept_back};
use crate::objects::Key;

/// `now` is RFC 3339.
pub fn plan(seen: &Pools, now: &str) -> Vec<Vec<Action>> {
    let kept_back = kept_back(seen);
    let mut all = Vec::new();
    for pool in seen.pools.values() {
        all.extend(pool::plan(seen, pool, &kept_back, now));
    }
    let claims = seen.addresses.claims.values();
    let orphans = claims.filter(|claim| {
        let key = Key::new(&claim.pool_namespace, &claim.pool.name);
        let is_near = claim.pool_namespace == claim.meta.namespace;
        claim.pool.is_metal3() && !(is_near && seen.pools.contains_key(&key))
    });
    all.extend(orphans.map(|claim| claim::without_pool(seen, claim, now)));
    all.extend(claim::left_behind(seen));
    all.retain(|steps| !steps.is_empty());
    all
}
