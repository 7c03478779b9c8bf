//! The stick's addons on a real cluster, each used as people use it, without a virtual machine: `cargo test -p qemu-tests --features vm
//! --test nodes [PART-OF-A-NAME]`.

#[path = "nodes/devices.rs"]
mod devices;
#[path = "nodes/further_networks.rs"]
mod further_networks;
#[path = "nodes/gateway.rs"]
mod gateway;
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

use std::collections::BTreeSet;
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
    /// With those that they need, which come first.
    addons: &'static [&'static str],
    values: &'static str,
    try_out: fn(&mut Cluster) -> Result<()>,
}

const POOL: &str = r#"{"addresses": ["172.22.0.80-172.22.0.95"]}"#;

const USES: [Use; 7] = [
    Use {
        addons: &["storage"],
        values: "{}",
        try_out: storage::try_out,
    },
    Use {
        addons: &["loadbalancer"],
        values: POOL,
        try_out: load_balancer::try_out,
    },
    Use {
        addons: &["loadbalancer", "gateway"],
        values: POOL,
        try_out: gateway::try_out,
    },
    Use {
        addons: &["network-policy"],
        values: "{}",
        try_out: network_policy::try_out,
    },
    Use {
        addons: &["metrics-server"],
        values: "{}",
        try_out: metrics::try_out,
    },
    Use {
        addons: &["multus", "whereabouts"],
        values: "{}",
        try_out: further_networks::try_out,
    },
    Use {
        addons: &["sriov", "qat"],
        values: "{}",
        try_out: devices::try_out,
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
    let is_asked = |used: &&Use| used.addons.iter().any(|addon| addon.contains(part));
    let uses = USES.iter().filter(is_asked);
    let values = place.join("values");
    let mut installed = BTreeSet::new();
    for used in uses.clone() {
        fs::write(&values, used.values)?;
        let new = used.addons.iter().filter(|addon| installed.insert(**addon));
        for addon in new {
            let chart = parts.charts.join(addon);
            let words = ["install", addon, "--values"].map(OsStr::new);
            let files = [values.as_os_str(), chart.as_os_str()];
            cluster.command("helm", words.into_iter().chain(files))?;
        }
    }
    for used in uses {
        let began = Instant::now();
        let title = used.addons.join(" and ");
        (used.try_out)(&mut cluster).context(title.clone())?;
        eprintln!("{title}: {} s", began.elapsed().as_secs());
    }
    wait("all pods are Ready", Duration::from_mins(3), || {
        let running = "--all-namespaces --field-selector=status.phase!=Succeeded";
        cluster.kubectl(&format!(
            "wait --for=condition=Ready pods {running} --timeout=5s"
        ))
    })?;
    Ok(())
}
