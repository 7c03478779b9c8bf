//! Each node answers for names itself.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qemu_tests::nodes::{Cluster, wait};
use qemu_tests::pods::{Pod, STAYS};

use crate::pods::{delete, run_as};

const LIMIT: Duration = Duration::from_mins(2);
const LOOKUPS: u64 = 50;

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    // As the box keeps it (agent/src/addons/locality.rs), for the addon asks for it.
    cluster.kubectl(
        r#"-n kube-system patch service kube-dns --type=merge -p {"spec":{"trafficDistribution":"PreferSameNode"}}"#,
    )?;
    cluster.kubectl("-n kube-system rollout status daemonset/coredns-node --timeout=120s")?;
    let asks = Pod {
        name: "asks",
        script: STAYS,
        claim: None,
    };
    run_as(cluster, &asks, |manifest| {
        manifest["spec"]["nodeName"] = "node-2".into();
    })?;
    // A few of them are others', who ask for names of their own.
    wait("names are answered on the node that asks", LIMIT, || {
        let before = answered(cluster)?;
        look_up(cluster)?;
        let after = answered(cluster)?;
        for (node, after) in &after {
            let here = after - before.get(node).unwrap_or(&0);
            ensure!(
                (here >= LOOKUPS) == (node == "node-2"),
                "{node} answered {here} of {LOOKUPS}"
            );
        }
        Ok(())
    })?;
    cluster.kubectl("-n kube-system scale deployment coredns --replicas=0")?;
    wait("without the others, too", LIMIT, || look_up(cluster))?;
    cluster.kubectl("-n kube-system scale deployment coredns --replicas=2")?;
    delete(cluster, "pod/asks")
}

fn look_up(cluster: &Cluster) -> Result<()> {
    let name = "kubernetes.default.svc.cluster.local";
    let script = format!(
        "python3 -c 'import socket\nfor _ in range({LOOKUPS}): socket.gethostbyname(\"{name}\")'"
    );
    cluster.exec("asks", &script).map(drop)
}

/// What has been answered on each node.
fn answered(cluster: &Cluster) -> Result<BTreeMap<String, u64>> {
    let pods = cluster
        .get("pods -n kube-system -l k8s-app=kube-dns --field-selector=status.phase=Running")?;
    let mut all = BTreeMap::new();
    for pod in pods["items"].as_array().context("a list")? {
        let [node, address] = [&pod["spec"]["nodeName"], &pod["status"]["podIP"]]
            .map(|text| text.as_str().unwrap_or_default());
        let ask = format!(
            "curl -sS --max-time 5 http://{address}:9153/metrics | sed -n 's/^coredns_dns_requests_total{{.*}} //p'"
        );
        let counts = cluster.exec("asks", &ask)?;
        let counts = counts
            .split_whitespace()
            .filter_map(|count| count.parse::<u64>().ok());
        *all.entry(node.to_owned()).or_default() += counts.sum::<u64>();
    }
    Ok(all)
}
