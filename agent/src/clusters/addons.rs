//! Addons of the stick for a cluster that the box makes, each made once: those that `site.yaml` names, or the usual ones.

use std::mem;

use firstlight_api::{
    addon,
    site::{Addons, ClusterConfig},
};
use serde_json::{Value, json};

use super::marker::{self, Created};
use crate::capi::{Action, MARKER, NAMESPACE, Steps, world::World};

/// These need addresses for services.
const LOAD_BALANCER: &str = "loadbalancer";
const GATEWAY: &str = "gateway";
/// What people expect of a cluster on its first day.
const USUAL: [&str; 6] = [
    "dns",
    GATEWAY,
    LOAD_BALANCER,
    "metrics-server",
    "network-policy",
    "storage",
];

/// Those that were never made, noted in `created`. A new stick may name more of them.
pub fn plan(world: &World, config: &ClusterConfig, marker: &str, created: &mut Created) -> Steps {
    let wanted = match &world.site.addons {
        Addons::Named(names) => names.clone(),
        // A cluster that was there before its stick brought them stays as it is.
        Addons::Usual if !created.usual_addons => Vec::new(),
        Addons::Usual => usual(config),
    };
    let is_new = |name: &String| !created.addons.contains(name);
    let new: Vec<String> = wanted.into_iter().filter(is_new).collect();
    let make = |addon: &String| Action::Create(object(addon, created, marker, config));
    let steps = new.iter().map(make).collect();
    created.addons.extend(new);
    steps
}

fn usual(config: &ClusterConfig) -> Vec<String> {
    let names = USUAL.into_iter();
    names
        .filter(|name| ![GATEWAY, LOAD_BALANCER].contains(name) || config.load_balancer.is_some())
        .map(str::to_owned)
        .collect()
}

/// Addresses for services that `site.yaml` gives elsewhere than before: those of before may be leased from now on. Which they were is noted in
/// `created`.
pub fn follow(config: &ClusterConfig, marker: &str, created: &mut Created) -> Option<Action> {
    let now = marker::services(config);
    // Without a range nobody knows better ones than those that the addon has.
    if now.is_empty() || now == created.services {
        return None;
    }
    let before = mem::replace(&mut created.services, now);
    let has_addon = created.addons.iter().any(|addon| addon == LOAD_BALANCER);
    (!before.is_empty() && has_addon)
        .then(|| Action::Change(object(LOAD_BALANCER, created, marker, config)))
}

fn object(addon: &str, created: &Created, marker: &str, config: &ClusterConfig) -> Value {
    let cluster = &created.cluster;
    // Those of the site's own cluster have short names.
    let name = match marker {
        MARKER => addon.to_owned(),
        _ => format!("{cluster}-{addon}"),
    };
    let mut spec = json!({"cluster": cluster, "builtin": addon});
    if let (LOAD_BALANCER, Some(range)) = (addon, config.load_balancer) {
        spec["values"] = json!({"addresses": [range.to_string()]});
    }
    json!({
        "apiVersion": format!("{}/{}", addon::GROUP, addon::VERSION),
        "kind": addon::KIND,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    })
}
