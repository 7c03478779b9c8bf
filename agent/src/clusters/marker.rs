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
const USUAL_ADDONS: &str = "usualAddons";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    Absent,
    Creating,
    Created(Created),
}

/// Of the cluster that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    pub cluster: String,
    /// As [`fixed`] writes them.
    pub addresses: String,
    /// That were made for it.
    pub addons: Vec<String>,
    /// The stick that made it had the usual addons for it.
    pub usual_addons: bool,
}

pub fn read(world: &World) -> Marker {
    let Some(data) = &world.marker else {
        return Marker::Absent;
    };
    let text = |key: &str| data.get(key).cloned().unwrap_or_default();
    if text(STATE) == "created" {
        Marker::Created(Created {
            cluster: text(CLUSTER),
            addresses: text(FIXED),
            addons: text(ADDONS).split_whitespace().map(str::to_owned).collect(),
            usual_addons: text(USUAL_ADDONS) == "true",
        })
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
    marker(&json!({CLUSTER: cluster, STATE: "creating", FIXED: fixed(config), ADDONS: ""}))
}

pub fn created(created: &Created) -> Value {
    marker(&json!({
        CLUSTER: created.cluster,
        STATE: "created",
        FIXED: created.addresses,
        ADDONS: created.addons.join(" "),
        USUAL_ADDONS: created.usual_addons.to_string(),
    }))
}

fn marker(data: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": MARKER, "namespace": NAMESPACE},
        "data": data,
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
