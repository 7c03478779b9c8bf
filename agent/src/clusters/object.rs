//! What the objects of one cluster have in common.

use firstlight_api::capi;
use serde_json::{Value, json};

use crate::capi::NAMESPACE;

pub fn control_plane_name(cluster: &str) -> String {
    format!("{cluster}-control-plane")
}

pub fn workers_name(cluster: &str) -> String {
    format!("{cluster}-workers")
}

pub fn object(api_version: &str, kind: &str, cluster: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {capi::CLUSTER_LABEL: cluster},
        },
        "spec": spec,
    })
}
