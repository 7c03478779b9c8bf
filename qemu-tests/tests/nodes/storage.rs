//! A claim with no class: its data outlive the pod and a restart of the node, and go with the claim. One that fits on no disk is refused with
//! a sentence, by the scheduler and, where somebody chose a node for it, by who makes volumes there.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qemu_tests::nodes::{Cluster, wait};
use serde_json::json;

use qemu_tests::pods::{Pod, STAYS};

use crate::pods::{create, delete, run};

const NODE: &str = "node-2";
const VOLUMES: &str = "ls /var/lib/firstlight-volumes";

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    what_fits_nowhere_is_refused(cluster)?;
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

/// More than any disk has, then more than a disk has that keeps a promise already.
fn what_fits_nowhere_is_refused(cluster: &mut Cluster) -> Result<()> {
    let name = format!("local-{NODE}");
    let left = |cluster: &Cluster| -> Result<u64> {
        let text = cluster.kubectl(&format!(
            "get csistoragecapacity {name} --namespace kube-system --output jsonpath={{.capacity}}"
        ))?;
        bytes(&text).with_context(|| format!("the capacity `{text}`"))
    };
    let before = wait("what its disk takes", Duration::from_mins(2), || {
        left(cluster)
    })?;
    claim(cluster, "huge", "1000Ti")?;
    let pod = Pod {
        name: "greedy",
        script: STAYS,
        claim: Some("huge"),
    };
    create(cluster, &pod, |_| ())?;
    event(cluster, "greedy", "did not have enough free storage")?;

    // Others use the disk of a test machine, too: there is some way between these.
    for (name, bytes, holds) in [
        ("first", before / 2, None),
        ("second", before, Some("do not fit on the disk")),
    ] {
        claim(cluster, name, &bytes.to_string())?;
        cluster.kubectl(&format!(
            "annotate pvc {name} volume.kubernetes.io/selected-node={NODE}"
        ))?;
        match holds {
            Some(sentence) => event(cluster, name, sentence)?,
            None => cluster
                .kubectl(&format!(
                    "wait --for=jsonpath={{.status.phase}}=Bound --timeout=120s pvc/{name}"
                ))
                .map(drop)?,
        }
    }
    wait("less is left", Duration::from_mins(1), || {
        let left = left(cluster)?;
        ensure!(left < before / 4 * 3, "{left} of {before}");
        Ok(())
    })?;
    for name in ["pvc/second", "pod/greedy", "pvc/huge", "pvc/first"] {
        delete(cluster, name)?;
    }
    // The provisioner looks at a helper that has refused for two minutes, and forgets it when its node restarts meanwhile.
    wait("no helper is left", Duration::from_mins(2), || {
        cluster.kubectl("-n kube-system delete pods --field-selector status.phase=Failed")?;
        let pods = cluster.kubectl("-n kube-system get pods -o name")?;
        ensure!(!pods.contains("volume-create"), "{pods}");
        Ok(())
    })?;
    wait("the promise is taken back", Duration::from_mins(2), || {
        let left = left(cluster)?;
        ensure!(left > before / 4 * 3, "{left} of {before}");
        Ok(())
    })
}

fn event(cluster: &Cluster, about: &str, sentence: &str) -> Result<()> {
    wait("an event", Duration::from_mins(2), || {
        let found = cluster.kubectl(&format!(
            "get events --field-selector involvedObject.name={about}"
        ))?;
        ensure!(found.contains(sentence), "{found}");
        Ok(())
    })
}

/// The API server writes it with a unit if it can.
fn bytes(quantity: &str) -> Option<u64> {
    let units = [
        ("Ki", 10),
        ("Mi", 20),
        ("Gi", 30),
        ("Ti", 40),
        ("k", 0),
        ("", 0),
    ];
    let (unit, power) = units
        .into_iter()
        .find(|(unit, _)| quantity.ends_with(unit))?;
    let number: u64 = quantity.strip_suffix(unit)?.parse().ok()?;
    Some(if unit == "k" {
        number * 1000
    } else {
        number << power
    })
}

fn claim(cluster: &Cluster, name: &str, size: &str) -> Result<()> {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    });
    cluster.apply(&claim.to_string()).context("a claim")
}
