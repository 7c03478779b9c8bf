//! Counters of what was refused, by reason: the counterpart of the one sentence that the sender got.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

static COUNTS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

/// `why` is a short name with dashes; it becomes a label of `firstlight_refused_total`.
pub fn count(why: &'static str) {
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    *counts.entry(why).or_default() += 1;
}

pub fn all() -> BTreeMap<&'static str, u64> {
    COUNTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}
