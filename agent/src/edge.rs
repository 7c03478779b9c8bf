//! The edge report: machines of the site's clusters in few words, for programs that look after many sites. It is made when somebody asks,
//! of what Cluster API says and of the clusters' own nodes.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use firstlight_api::{
    bounded,
    edge::{EdgeHost, EdgeReport},
    status::{ClusterMachine, ClusterStatus},
};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::sync::Mutex;

use crate::workload;

/// So old a report is good enough: whoever asks all the time asks the clusters no more often.
const FRESH: Duration = Duration::from_secs(10);
/// For all nodes of a cluster.
const TIME: Duration = Duration::from_secs(10);
/// Nodes of a cluster, which its users may make as many of as they like.
const MOST: usize = 2000;
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// Taints of Kubernetes and Cluster API, which say how a node is and not what it is for.
const STATES: [&str; 4] = [
    CONTROL_PLANE,
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "node.cluster.x-k8s.io/",
];

/// The last one.
#[derive(Clone, Debug, Default)]
pub struct Reports(Arc<Mutex<Option<(Instant, EdgeReport)>>>);

impl Reports {
    /// Of these clusters. One that does not answer has machines that are not ready.
    pub async fn of(&self, client: &Client, clusters: &[ClusterStatus]) -> EdgeReport {
        let mut last = self.0.lock().await;
        if let Some((_, report)) = last.as_ref().filter(|(made, _)| made.elapsed() < FRESH) {
            return report.clone();
        }
        let report = report(client, clusters).await;
        *last = Some((Instant::now(), report.clone()));
        report
    }
}

/// As it is now.
pub async fn report(client: &Client, clusters: &[ClusterStatus]) -> EdgeReport {
    let looks = clusters.iter().map(|cluster| async move {
        let nodes = tokio::time::timeout(TIME, nodes(client, cluster));
        let nodes = match nodes.await {
            Ok(Ok(nodes)) => nodes,
            Ok(Err(error)) => {
                let error = format!("{error:#}");
                tracing::debug!(
                    cluster = cluster.name,
                    error,
                    "no nodes for the edge report"
                );
                BTreeMap::new()
            }
            Err(_) => BTreeMap::new(),
        };
        hosts(&cluster.machines, nodes)
    });
    let mut hosts = futures_util::future::join_all(looks).await.concat();
    hosts.sort_by(|one, other| one.hostname.cmp(&other.hostname));
    EdgeReport { hosts }
}

async fn nodes(client: &Client, cluster: &ClusterStatus) -> Result<BTreeMap<String, EdgeHost>> {
    let kubeconfig = workload::kubeconfig(client, &cluster.namespace, &cluster.name).await?;
    let kubeconfig = kubeconfig.context("the cluster has no API yet")?;
    let api: Api<Node> = Api::all(workload::client(&kubeconfig).await?);
    let mut nodes = BTreeMap::new();
    workload::each(&api, ListParams::default(), |node| {
        if nodes.len() < MOST {
            nodes.insert(node.name_any(), host(&node));
        }
    })
    .await?;
    Ok(nodes)
}

/// What the cluster says of a node, which its users may have written.
fn host(node: &Node) -> EdgeHost {
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let info = status.and_then(|status| status.node_info.as_ref());
    let text = |text: Option<&String>| text.map(|text| bounded::text(text)).unwrap_or_default();
    let mut conditions = status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    EdgeHost {
        hostname: bounded::text(&node.name_any()),
        control_plane: node.labels().contains_key(CONTROL_PLANE),
        k8s_version: text(info.map(|info| &info.kubelet_version)),
        arch: text(info.map(|info| &info.architecture)),
        os_version: text(info.map(|info| &info.os_image)),
        ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
        specialised: taints.any(is_purpose),
    }
}

fn is_purpose(taint: &Taint) -> bool {
    let is_state = STATES.iter().any(|state| taint.key.starts_with(state));
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !is_state
}

/// Machines as Cluster API has them, with what is known of their nodes; nodes that are of no machine come behind them.
fn hosts(machines: &[ClusterMachine], mut nodes: BTreeMap<String, EdgeHost>) -> Vec<EdgeHost> {
    let of_machine = |machine: &ClusterMachine| {
        let name = [&machine.node, &machine.host, &machine.name];
        let name = name.into_iter().find(|name| !name.is_empty());
        nodes.remove(&machine.node).unwrap_or_else(|| EdgeHost {
            hostname: name.cloned().unwrap_or_default(),
            control_plane: machine.control_plane,
            k8s_version: machine.version.clone(),
            ..EdgeHost::default()
        })
    };
    let mut hosts: Vec<EdgeHost> = machines.iter().map(of_machine).collect();
    hosts.extend(nodes.into_values());
    hosts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, taints: &Value, ready: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"node-role.kubernetes.io/control-plane": ""}},
            "spec": {"taints": taints},
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "nodeInfo": {
                    "kubeletVersion": "v1.36.3", "architecture": "amd64", "osImage": "Debian\u{1b}[31m 13", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "linux", "systemUUID": "",
                },
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_report_has_these_keys_and_no_others() {
        let host = host(&node("n1", &json!([]), "True"));
        assert_eq!(
            serde_json::to_value(EdgeReport { hosts: vec![host] }).unwrap(),
            json!({"hosts": [{
                "hostname": "n1", "control_plane": true, "k8s_version": "v1.36.3", "arch": "amd64", "os_version": "Debian\u{fffd}[31m 13",
                "ready": true, "specialised": false,
            }]})
        );
    }

    #[test]
    fn a_taint_of_its_owner_makes_a_node_specialised() {
        for (key, effect, specialised) in [
            ("site/gpu", "NoSchedule", true),
            ("site/gpu", "NoExecute", true),
            ("site/gpu", "PreferNoSchedule", false),
            ("node-role.kubernetes.io/control-plane", "NoSchedule", false),
            ("node.kubernetes.io/not-ready", "NoExecute", false),
            (
                "node.cloudprovider.kubernetes.io/uninitialized",
                "NoSchedule",
                false,
            ),
            ("node.cluster.x-k8s.io/uninitialized", "NoSchedule", false),
        ] {
            let taints = json!([{"key": key, "effect": effect}]);
            let found = host(&node("n1", &taints, "False"));
            assert_eq!(
                (found.specialised, found.ready),
                (specialised, false),
                "{key}"
            );
        }
    }

    #[test]
    fn a_machine_without_a_node_is_not_ready_and_a_node_without_a_machine_is_told() {
        let machine = |name: &str, node: &str| ClusterMachine {
            name: name.to_owned(),
            host: format!("host of {name}"),
            node: node.to_owned(),
            version: "v1.36.3".to_owned(),
            ..ClusterMachine::default()
        };
        let nodes = ["n1", "by hand"].map(|name| {
            let host = host(&node(name, &json!([]), "True"));
            (name.to_owned(), host)
        });
        let machines = [machine("a", "n1"), machine("b", "n2"), machine("c", "")];
        let told = hosts(&machines, nodes.into());
        let told: Vec<_> = told
            .iter()
            .map(|it| (it.hostname.as_str(), it.ready))
            .collect();
        assert_eq!(
            told,
            [
                ("n1", true),
                ("n2", false),
                ("host of c", false),
                ("by hand", true)
            ]
        );
    }
}
