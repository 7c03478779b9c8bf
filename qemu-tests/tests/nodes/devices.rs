//! Device plugins are Ready where no device is, and stay so.

use anyhow::{Result, ensure};
use qemu_tests::nodes::Cluster;

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    for name in ["qat", "sriov"] {
        let rollout = format!("-n kube-system rollout status daemonset/{name} --timeout=120s");
        cluster.kubectl(&rollout)?;
        let pods = cluster.get(&format!("pods -n kube-system -l app={name}"))?;
        let containers = pods["items"].as_array().into_iter().flatten();
        let containers: Vec<_> = containers
            .filter_map(|pod| pod["status"]["containerStatuses"].as_array())
            .flatten()
            .collect();
        ensure!(!containers.is_empty(), "{name} has no pods");
        for container in containers {
            ensure!(container["restartCount"] == 0, "{name}: {container}");
        }
    }
    Ok(())
}
