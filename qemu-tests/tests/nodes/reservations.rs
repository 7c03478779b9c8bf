//! Pods do not get the whole node.

use anyhow::{Context, Result, ensure};
use qemu_tests::nodes::Cluster;
use serde_json::Value;

/// `rootfs/debs/kubelet/10-reservations.conf`, and what kubelet begins to evict pods at.
const MEMORY: u64 = (256 + 256 + 100) << 10;
const MILLI_CPU: u64 = 200;

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    let nodes = cluster.get("nodes")?;
    for node in nodes["items"].as_array().context("no list of nodes")? {
        let status = &node["status"];
        let memory = ["capacity", "allocatable"].map(|key| kibibytes(&status[key]["memory"]));
        let [Some(capacity), Some(allocatable)] = memory else {
            anyhow::bail!("memory: {status}");
        };
        ensure!(
            capacity - allocatable == MEMORY,
            "{capacity} and {allocatable}"
        );
        let cpus = status["capacity"]["cpu"].as_str().context("processors")?;
        let left = format!("{}m", cpus.parse::<u64>()? * 1000 - MILLI_CPU);
        ensure!(
            status["allocatable"]["cpu"] == left,
            "{}",
            status["allocatable"]
        );
    }
    Ok(())
}

fn kibibytes(quantity: &Value) -> Option<u64> {
    quantity.as_str()?.strip_suffix("Ki")?.parse().ok()
}
