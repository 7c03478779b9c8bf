//! The pod network: the stick's flannel manifest (`manifests/workload/flannel.yaml`) by a `ClusterResourceSet`. Cluster API
//! applies it to the new cluster as soon as that answers.

use firstlight_api::{capi, site::ClusterConfig};
use serde_json::{Value, json};

use super::{object::object, stick::Stick};
use crate::capi::NAMESPACE;

/// On a `Cluster`: which pod network it gets.
pub const LABEL: &str = "firstlight.internal/pod-network";
pub const LABEL_VALUE: &str = "flannel";

pub fn render(cluster: &str, config: &ClusterConfig, stick: &Stick) -> [Value; 2] {
    let name = format!("{cluster}-flannel");
    let ipv6 = config
        .ipv6
        .map(|ipv6| format!(" \"EnableIPv6\": true, \"IPv6Network\": \"{}\",", ipv6.pods));
    let manifest = stick
        .flannel
        .replace("@POD_CIDR@", &config.pod_cidr.to_string())
        .replace("@IPV6@", &ipv6.unwrap_or_default());
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {capi::CLUSTER_LABEL: cluster},
        },
        "data": {"flannel.yaml": manifest},
    });
    let set = object(
        "addons.cluster.x-k8s.io/v1beta2",
        "ClusterResourceSet",
        cluster,
        &name,
        &json!({
            "strategy": "ApplyOnce",
            "clusterSelector": {"matchLabels": {capi::CLUSTER_LABEL: cluster, LABEL: LABEL_VALUE}},
            "resources": [{"kind": "ConfigMap", "name": name}],
        }),
    );
    [config_map, set]
}
