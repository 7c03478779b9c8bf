//! The status of a machine while a plan is made for it.

use std::collections::BTreeMap;

use firstlight_api::{
    capm3::{Metal3Machine, Metal3MachineStatus},
    object::{ConditionUpdate, merge_conditions},
};
use serde_json::json;

use super::cluster::READY;
use crate::capi::{Action, Kind, world::Key};

pub const ASSOCIATED: &str = "AssociateBareMetalHost";

/// Reason and sentence of a condition that does not hold yet.
pub type Waits = (&'static str, String);

/// The new status of one machine, on its way.
pub struct Draft<'a> {
    pub object: &'a Metal3Machine,
    pub status: Metal3MachineStatus,
    said: BTreeMap<&'static str, ConditionUpdate>,
    now: &'a str,
}

impl<'a> Draft<'a> {
    pub fn new(object: &'a Metal3Machine, now: &'a str) -> Self {
        Self {
            object,
            status: object.status.clone(),
            said: BTreeMap::new(),
            now,
        }
    }

    /// What is said later about the same condition replaces what was said before.
    pub fn say<const N: usize>(&mut self, sayings: [ConditionUpdate; N]) {
        for saying in sayings {
            self.said.insert(saying.kind, saying);
        }
    }

    /// Not ready, and without a host.
    pub fn waits(&mut self, reason: &'static str, message: &str) {
        self.say([
            ConditionUpdate::no(ASSOCIATED, reason, message),
            ConditionUpdate::no(READY, reason, message),
        ]);
    }

    pub fn write(mut self) -> Option<Action> {
        let object = self.object;
        let said: Vec<ConditionUpdate> = self.said.into_values().collect();
        let generation = object.metadata.generation;
        self.status.conditions =
            merge_conditions(&object.status.conditions, &said, generation, self.now);
        self.status
            .last_updated
            .clone_from(&object.status.last_updated);
        if self.status == object.status {
            return None;
        }
        self.status.last_updated = Some(self.now.to_owned());
        Some(Action::PatchStatus {
            kind: Kind::Metal3Machine,
            key: Key::of(&object.metadata),
            patch: json!({"status": self.status}),
        })
    }
}
