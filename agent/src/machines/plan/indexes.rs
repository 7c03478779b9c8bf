//! Numbers of machines: a template's `{{ index }}`.

use std::collections::{BTreeMap, BTreeSet};

use firstlight_api::capm3::{IndexEntry, Metal3Machine};
use serde_json::json;

use crate::capi::{
    Action, Kind, Steps,
    world::{Key, World},
};

/// Numbers of machines, by template.
pub type Indexes = BTreeMap<Key, Vec<IndexEntry>>;

/// A machine keeps its number for life; a new one gets the lowest that is free.
pub fn indexes(world: &World) -> Indexes {
    let mut all = Indexes::new();
    for (key, template) in &world.data_templates {
        let users: BTreeSet<&str> = world
            .metal3_machines
            .values()
            .filter(|machine| template_key(machine).as_ref() == Some(key))
            .map(|machine| machine.metadata.name.as_str())
            .collect();
        let mut entries: Vec<IndexEntry> = template
            .status
            .indexes
            .iter()
            .filter(|entry| users.contains(entry.name.as_str()))
            .cloned()
            .collect();
        for user in users {
            if entries.iter().any(|entry| entry.name == user) {
                continue;
            }
            let free =
                (0..i32::MAX).find(|index| entries.iter().all(|entry| entry.index != *index));
            entries.extend(free.map(|index| IndexEntry {
                name: user.to_owned(),
                index,
            }));
        }
        entries.sort_by_key(|entry| entry.index);
        all.insert(key.clone(), entries);
    }
    all
}

pub fn write_indexes(world: &World, key: &Key, wanted: &[IndexEntry]) -> Option<Steps> {
    let template = world.data_templates.get(key)?;
    (template.status.indexes != wanted).then(|| {
        vec![Action::PatchStatus {
            kind: Kind::DataTemplate,
            key: key.clone(),
            patch: json!({"status": {"indexes": wanted}}),
        }]
    })
}

pub fn template_key(machine: &Metal3Machine) -> Option<Key> {
    let template = machine.spec.data_template.as_ref()?;
    Some(Key::new(&machine.metadata.namespace, &template.name))
}
