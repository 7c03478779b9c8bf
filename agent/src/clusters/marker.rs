//! `ConfigMap firstlight-cluster`: what the agent made, so that it makes it once; and whether a spare host is free, for the
//! admission policy that refuses an upgrade which cannot work (`cluster-policy.yaml`).

use firstlight_api::site::ClusterConfig;
use serde_json::{Value, json};

use super::replicas;
use crate::capi::{Action, MARKER, NAMESPACE, SPARE, Steps, world::World};

const CLUSTER: &str = "cluster";
const STATE: &str = "state";
const FIXED: &str = "addresses";
/// Names of those that were made, so that one that a person deleted is not made again.
const ADDONS: &str = "addons";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    Absent,
    Creating,
    Created {
        cluster: String,
        config: String,
        addons: Vec<String>,
    },
}

pub fn read(world: &World) -> Marker {
    let Some(data) = &world.marker else {
        return Marker::Absent;
    };
    let text = |key: &str| data.get(key).cloned().unwrap_or_default();
    if text(STATE) == "created" {
        Marker::Created {
            cluster: text(CLUSTER),
            config: text(FIXED),
            addons: text(ADDONS).split_whitespace().map(str::to_owned).collect(),
        }
    } else {
        Marker::Creating
    }
}

/// What cannot be changed in a running cluster.
pub fn fixed(config: &ClusterConfig) -> String {
    format!(
        "endpoint {}, podCidr {}, serviceCidr {}",
        config.endpoint,
        config.pod_networks().join(" and "),
        config.service_networks().join(" and ")
    )
}

pub fn creating(cluster: &str, config: &ClusterConfig) -> Value {
    marker(cluster, &fixed(config), "creating", &[])
}

pub fn created(cluster: &str, fixed: &str, addons: &[String]) -> Value {
    marker(cluster, fixed, "created", addons)
}

fn marker(cluster: &str, fixed: &str, state: &str, addons: &[String]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": MARKER, "namespace": NAMESPACE},
        "data": {CLUSTER: cluster, STATE: state, FIXED: fixed, ADDONS: addons.join(" ")},
    })
}

/// Written when it changes.
pub fn keep_spare(world: &World) -> Option<Steps> {
    if world.control_planes.is_empty() {
        return None;
    }
    let free = replicas::has_spare_for_control_plane(world, NAMESPACE);
    (world.spare != Some(free)).then(|| {
        vec![Action::Put(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": SPARE, "namespace": NAMESPACE},
            "data": {"controlPlane": free.to_string()},
        }))]
    })
}
