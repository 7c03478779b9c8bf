//! What has happened since the start, by reason: for `/metrics`.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// What was refused from outside: the counterpart of the one sentence that the sender got.
pub static REFUSED: Counter = Counter::new();
/// Objects of Kubernetes that could not be read or written, each time that a loop met one.
pub static ODD_OBJECTS: Counter = Counter::new();

/// By a short name with dashes, which becomes a label.
#[derive(Debug)]
pub struct Counter(Mutex<BTreeMap<&'static str, u64>>);

impl Counter {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    pub fn count(&self, label: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(label).or_default() += 1;
    }

    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
