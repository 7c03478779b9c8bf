//! `ConfigMap firstlight-cluster`, and `firstlight-cluster-NAME` of further clusters: what the agent made, so that it makes it once;
//! and whether a spare host is free, for the admission policy that refuses an upgrade which cannot work (`cluster-policy.yaml`).

use std::collections::BTreeMap;

use firstlight_api::site::{ClusterConfig, Heal, SiteConfig};
use serde_json::{Value, json};

use super::replicas;
use crate::capi::{Action, MARKER, MARKER_LABEL, NAMESPACE, SPARE, Steps, world::World};

const CLUSTER: &str = "cluster";
const STATE: &str = "state";
const FIXED: &str = "addresses";
/// Names of those that were made, so that one that a person deleted is not made again.
const ADDONS: &str = "addons";
const USUAL_ADDONS: &str = "usualAddons";
const SERVICES: &str = "loadBalancer";
const HEAL: &str = "heal";

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
    /// The addresses for services that the addon was given; empty: none, or a stick wrote this that did not note them.
    pub services: String,
    /// As `site.yaml` said when it was written.
    pub heal: Heal,
}

/// Of the `ConfigMap` about a cluster. The site's own keeps it when the site is called otherwise.
pub fn name(site: &SiteConfig, cluster: &str) -> String {
    if site.name.as_str() == cluster {
        MARKER.to_owned()
    } else {
        format!("{MARKER}-{cluster}")
    }
}

pub fn read(world: &World, marker: &str) -> Marker {
    let Some(data) = world.markers.get(marker) else {
        return Marker::Absent;
    };
    let text = |key: &str| data.get(key).cloned().unwrap_or_default();
    if text(STATE) == "created" {
        Marker::Created(Created {
            cluster: text(CLUSTER),
            addresses: text(FIXED),
            addons: text(ADDONS).split_whitespace().map(str::to_owned).collect(),
            usual_addons: text(USUAL_ADDONS) == "true",
            services: text(SERVICES),
            heal: text(HEAL).parse().unwrap_or_default(),
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

/// Addresses for services, as [`Created`] has them.
pub fn services(config: &ClusterConfig) -> String {
    let range = config.load_balancer.as_ref();
    range.map(ToString::to_string).unwrap_or_default()
}

pub fn creating(marker: &str, cluster: &str, config: &ClusterConfig) -> Value {
    object(
        marker,
        &json!({CLUSTER: cluster, STATE: "creating", FIXED: fixed(config), ADDONS: ""}),
    )
}

pub fn created(marker: &str, created: &Created) -> Value {
    object(
        marker,
        &json!({
            CLUSTER: created.cluster,
            STATE: "created",
            FIXED: created.addresses,
            ADDONS: created.addons.join(" "),
            USUAL_ADDONS: created.usual_addons.to_string(),
            SERVICES: created.services,
            HEAL: created.heal.word(),
        }),
    )
}

fn object(name: &str, data: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": data,
    });
    // By which the markers of further clusters are found.
    if ![MARKER, SPARE].contains(&name) {
        object["metadata"]["labels"] = json!({MARKER_LABEL: ""});
    }
    object
}

/// Written when it changes. Those of `clusters` have an entry of their own each, all others share one.
pub fn keep_spare(world: &World) -> Option<Steps> {
    if world.control_planes.is_empty() {
        return None;
    }
    let is_free = |cluster: &str| {
        replicas::has_spare_for_control_plane(world, NAMESPACE, cluster).to_string()
    };
    let own = ("controlPlane".to_owned(), is_free(world.site.name.as_str()));
    let further = world.site.clusters.keys().map(|name| {
        let name = name.as_str();
        (format!("controlPlane.{name}"), is_free(name))
    });
    let said: BTreeMap<String, String> = further.chain([own]).collect();
    (world.spare.as_ref() != Some(&said)).then(|| vec![Action::Put(object(SPARE, &json!(said)))])
}
