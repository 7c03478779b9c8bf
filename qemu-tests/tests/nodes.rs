//! The stick's addons on a real cluster, each used as people use it, without a virtual machine: `cargo test -p qemu-tests --features vm
//! --test nodes [PART-OF-A-NAME]`.

#[path = "nodes/load_balancer.rs"]
mod load_balancer;
#[path = "nodes/metrics.rs"]
mod metrics;
#[path = "nodes/network_policy.rs"]
mod network_policy;
#[path = "nodes/pods.rs"]
mod pods;
#[path = "nodes/storage.rs"]
mod storage;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use imagebuilder::build::nodes::Nodes;
use qemu_tests::nodes::{Cluster, isolated, make_parts, wait};

/// What is installed first, with its values, and how it is used.
struct Use {
    addon: &'static str,
    values: &'static str,
    try_out: fn(&mut Cluster) -> Result<()>,
}

const USES: [Use; 4] = [
    Use {
        addon: "storage",
        values: "{}",
        try_out: storage::try_out,
    },
    Use {
        addon: "loadbalancer",
        values: r#"{"addresses": ["172.22.0.80-172.22.0.95"]}"#,
        try_out: load_balancer::try_out,
    },
    Use {
        addon: "network-policy",
        values: "{}",
        try_out: network_policy::try_out,
    },
    Use {
        addon: "metrics-server",
        values: "{}",
        try_out: metrics::try_out,
    },
];

fn main() -> ExitCode {
    let part = std::env::args().nth(1).unwrap_or_default();
    let told = isolated(make_parts, |parts, place| tell(parts, place, &part));
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nodes: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tell(parts: &Nodes, place: &Path, part: &str) -> Result<()> {
    let began = Instant::now();
    let mut cluster = Cluster::start(parts, None, place, 2)?;
    eprintln!("two nodes are Ready after {} s", began.elapsed().as_secs());
    let uses = USES.iter().filter(|used| used.addon.contains(part));
    for used in uses.clone() {
        let (chart, values) = (parts.charts.join(used.addon), place.join("values"));
        fs::write(&values, used.values)?;
        let words = ["install", used.addon, "--values"].map(OsStr::new);
        let files = [values.as_os_str(), chart.as_os_str()];
        cluster.command("helm", words.into_iter().chain(files))?;
    }
    for used in uses {
        eprintln!("{}:", used.addon);
        (used.try_out)(&mut cluster).context(used.addon)?;
    }
    wait("all pods are Ready", Duration::from_mins(3), || {
        let ready = "wait --for=condition=Ready pods --all --all-namespaces --timeout=5s";
        cluster.kubectl(ready)
    })?;
    Ok(())
}
