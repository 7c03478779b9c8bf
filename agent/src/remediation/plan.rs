//! From one look at all objects to everything that should be written now, and what should become of nodes. Pure, and safe to ask again at
//! any time: the phase of each remediation is in its status, and every write can be done twice.
//!
//! To add a case: a branch in `plan/phase.rs`, and a story in `plan/tests.rs`.

mod phase;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use firstlight_api::{
    bmh::annotations,
    capi::{self, Cluster},
    capm3::{Metal3Remediation, REMEDIATION_POWER_OFF, RemediationPhase},
    object::Meta,
};
use serde_json::{Map, Value, json};

use super::{Action, Kind, Remediations, nodes::NodeOrder};
use crate::{
    capi::world::{Host, is_paused},
    objects::{Key, Part},
};

/// What is to be done.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    pub steps: Vec<Vec<Action>>,
    /// By UID of the remediation.
    pub nodes: BTreeMap<String, NodeOrder>,
}

/// `now` is the wall clock, in seconds.
pub fn plan(seen: &Remediations, now: i64) -> Plan {
    let mut plan = Plan::default();
    for remediation in seen.remediations.values() {
        let cluster = cluster_of(seen, &remediation.metadata);
        if !is_paused(cluster, &remediation.metadata) {
            let (steps, order) = phase::plan(seen, remediation, now);
            plan.steps.push(steps);
            let uid = &remediation.metadata.uid;
            plan.nodes.extend(order.map(|order| (uid.clone(), order)));
        }
    }
    let hosts = seen.hosts.values();
    let freed = hosts.filter_map(|host| let_go(seen, host));
    plan.steps.extend(freed.map(|action| vec![action]));
    plan.steps.retain(|steps| !steps.is_empty());
    plan
}

fn cluster_of<'a>(seen: &'a Remediations, meta: &Meta) -> Option<&'a Cluster> {
    let name = meta.label(capi::CLUSTER_LABEL)?;
    seen.clusters.get(&Key::new(&meta.namespace, name))
}

/// The value of a plain `reboot.metal3.io`: who asks.
fn asks_for(uid: &str) -> String {
    format!("metal3-remediation-{uid}")
}

/// A host is kept off by the remediation that is at it now, and is restarted for one that waits for that; what is left of others goes,
/// also where they are gone.
fn let_go(seen: &Remediations, host: &Host) -> Option<Action> {
    use RemediationPhase::{Running, Waiting};
    let meta = &host.metadata;
    let still = |uid: &str, phases: &[RemediationPhase]| {
        let mut all = seen.remediations.values();
        let Some(remediation) = all.find(|it| it.metadata.uid == uid) else {
            return seen.is_partial || is_paused(cluster_of(seen, meta), meta);
        };
        let cluster = cluster_of(seen, &remediation.metadata);
        let is_due = |phase| phases.contains(&phase) && phase::is_at(seen, remediation, host);
        is_paused(cluster, &remediation.metadata) || remediation.status.phase.is_some_and(is_due)
    };
    let left = meta.annotations.iter().filter(|(name, value)| {
        let (uid, phases) = match name.strip_prefix(REMEDIATION_POWER_OFF) {
            Some(uid) => (Some(uid), &[Running][..]),
            None if *name == annotations::REBOOT => {
                (value.strip_prefix(&asks_for("")), &[Running, Waiting][..])
            }
            None => (None, &[][..]),
        };
        uid.is_some_and(|uid| !still(uid, phases))
    });
    let left: Map<String, Value> = left.map(|(name, _)| (name.clone(), Value::Null)).collect();
    let may_write = phase::left_alone(host).is_none();
    (may_write && !left.is_empty()).then(|| annotate(Kind::Host, meta, &left.into()))
}

fn annotate(kind: Kind, meta: &Meta, annotations: &Value) -> Action {
    Action {
        kind,
        part: Part::Object,
        meta: Box::new(meta.clone()),
        patch: json!({"metadata": {"annotations": annotations}}),
    }
}

fn power_off(remediation: &Metal3Remediation) -> String {
    format!("{REMEDIATION_POWER_OFF}{}", remediation.metadata.uid)
}
