//! A claim with no class: its data outlive the pod and a restart of the node, and go with the claim.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qemu_tests::nodes::{Cluster, wait};
use serde_json::json;

use qemu_tests::pods::{Pod, STAYS};

use crate::pods::{delete, run};

const NODE: &str = "node-2";
const VOLUMES: &str = "ls /var/lib/firstlight-volumes";

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    claim(cluster, "data", "64Mi")?;
    let pod = Pod {
        name: "keeper",
        script: STAYS,
        claim: Some("data"),
    };
    run(cluster, &pod)?;
    cluster.exec("keeper", "echo kept >/data/file; sync /data/file")?;
    delete(cluster, "pod/keeper")?;
    run(cluster, &pod)?;
    let read = |cluster: &Cluster| cluster.exec("keeper", "cat /data/file");
    ensure!(read(cluster)? == "kept", "another pod reads something else");

    cluster.restart(NODE)?;
    let kept = wait("its data after a restart", Duration::from_mins(5), || {
        read(cluster)
    })?;
    ensure!(kept == "kept", "after a restart: {kept}");

    delete(cluster, "pod/keeper")?;
    delete(cluster, "pvc/data")?;
    wait("the folder is gone", Duration::from_mins(1), || {
        let left = cluster.on_node(NODE, VOLUMES)?;
        ensure!(left.is_empty(), "still there: {left}");
        Ok(())
    })
}

fn claim(cluster: &Cluster, name: &str, size: &str) -> Result<()> {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    });
    cluster.apply(&claim.to_string()).context("a claim")
}
