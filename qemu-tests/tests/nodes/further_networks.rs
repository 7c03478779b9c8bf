//! Pods on two nodes have a second interface on one cable, by Multus, with addresses that Whereabouts gives out once and takes back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qemu_tests::nodes::{Cluster, wait};
use serde_json::{Value, json};

use crate::pods::{delete, serve_on};

const LIMIT: Duration = Duration::from_mins(2);

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    for daemons in ["multus", "whereabouts"] {
        cluster.kubectl(&format!(
            "-n kube-system rollout status daemonset/{daemons} --timeout=120s"
        ))?;
    }
    let network = json!({
        "cniVersion": "0.3.1", "name": "side", "type": "macvlan", "master": "eth0", "mode": "bridge",
        "ipam": {"type": "whereabouts", "range": "10.9.0.0/28"},
    });
    let definition = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "side"},
        "spec": {"config": network.to_string()},
    });
    cluster.apply(&definition.to_string())?;
    let mut addresses = Vec::new();
    for (name, node) in [("left", "node-1"), ("right", "node-2")] {
        serve_on(cluster, name, node, "side")?;
        let pod = cluster.get(&format!("pod {name}"))?;
        let told = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"].as_str();
        let told: Value = serde_json::from_str(told.context("Multus says nothing of the pod")?)?;
        let address = told[1]["ips"][0].as_str().context("it has one interface")?;
        addresses.push(address.to_owned());
    }
    ensure!(
        addresses[0] != addresses[1] && addresses.iter().all(|one| one.starts_with("10.9.0.")),
        "{addresses:?}"
    );
    for (from, to, name) in [("left", 1, "right"), ("right", 0, "left")] {
        let page = format!("curl -sS --max-time 2 http://{}:8080/", addresses[to]);
        let said = wait("the other node's pod answers", LIMIT, || {
            cluster.exec(from, &page)
        })?;
        ensure!(said == name, "{said}");
    }
    delete(cluster, "pod/left pod/right")?;
    wait("the addresses are free", LIMIT, || {
        let pools = cluster.get("ippools.whereabouts.cni.cncf.io -n kube-system")?;
        let pool = &pools["items"][0]["spec"];
        ensure!(pool["range"] == "10.9.0.0/28", "{pools}");
        let taken = pool["allocations"]
            .as_object()
            .map_or(0, serde_json::Map::len);
        ensure!(taken == 0, "{taken} are taken");
        Ok(())
    })?;
    delete(cluster, "network-attachment-definition/side")
}
