//! The stick's addons on a real cluster, each used as people use it, without a virtual machine: `cargo test -p qemu-tests --features vm
//! --test nodes [PART-OF-A-NAME]`.

#[path = "nodes/certificates.rs"]
mod certificates;
#[path = "nodes/devices.rs"]
mod devices;
#[path = "nodes/dns.rs"]
mod dns;
#[path = "nodes/further_networks.rs"]
mod further_networks;
#[path = "nodes/gateway.rs"]
mod gateway;
#[path = "nodes/load_balancer.rs"]
mod load_balancer;
#[path = "nodes/logical_networks.rs"]
mod logical_networks;
#[path = "nodes/metrics.rs"]
mod metrics;
#[path = "nodes/network_policy.rs"]
mod network_policy;
#[path = "nodes/people.rs"]
mod people;
#[path = "nodes/pods.rs"]
mod pods;
#[path = "nodes/reservations.rs"]
mod reservations;
#[path = "nodes/router.rs"]
mod router;
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
use serde_json::Value;

/// What is installed first, with its values, and how it is used.
struct Use {
    /// With those that they need, which come first.
    addons: &'static [&'static str],
    values: &'static str,
    try_out: fn(&mut Cluster) -> Result<()>,
}

const POOL: &str = r#"{"addresses": ["172.22.0.80-172.22.0.95"]}"#;

const USES: [Use; 12] = [
    Use {
        addons: &[],
        values: "{}",
        try_out: reservations::try_out,
    },
    Use {
        addons: &[],
        values: "{}",
        try_out: certificates::try_out,
    },
    Use {
        addons: &[],
        values: "{}",
        try_out: people::try_out,
    },
    Use {
        addons: &["dns"],
        values: "{}",
        try_out: dns::try_out,
    },
    // Before `storage`, which restarts a node.
    Use {
        addons: &["multus", "whereabouts"],
        values: "{}",
        try_out: further_networks::try_out,
    },
    Use {
        addons: &["multus", "whereabouts", "nfd", "ovn"],
        values: logical_networks::VALUES,
        try_out: logical_networks::try_out,
    },
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
        addons: &["sriov", "qat"],
        values: "{}",
        try_out: devices::try_out,
    },
];

fn main() -> ExitCode {
    let part = std::env::args().nth(1).unwrap_or_default();
    let make = || {
        router::download()?;
        make_parts(&[])
    };
    let told = isolated(make, |parts, place| tell(parts, place, &part));
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
    let told = use_addons(&mut cluster, parts, &place.join("values"), part);
    if told.is_err() {
        describe(&cluster);
    }
    told
}

fn use_addons(cluster: &mut Cluster, parts: &Nodes, values: &Path, part: &str) -> Result<()> {
    let is_asked = |used: &&Use| used.addons.join(" ").contains(part);
    let uses = USES.iter().filter(is_asked);
    let mut installed = BTreeSet::new();
    for used in uses {
        let began = Instant::now();
        fs::write(values, used.values)?;
        let new = used.addons.iter().filter(|addon| installed.insert(**addon));
        for addon in new {
            let chart = parts.charts.join(addon);
            let words = ["install", addon, "--values"].map(OsStr::new);
            let files = [values.as_os_str(), chart.as_os_str()];
            cluster.command("helm", words.into_iter().chain(files))?;
        }
        let title = match used.addons {
            [] => "the nodes".to_owned(),
            addons => addons.join(" and "),
        };
        (used.try_out)(cluster).context(title.clone())?;
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

/// For whoever reads why something failed.
fn describe(cluster: &Cluster) {
    let say = |words: &str| eprintln!("{}", cluster.kubectl(words).unwrap_or_default());
    say("get pods --all-namespaces --output wide");
    say("get events --all-namespaces --field-selector type=Warning");
    let pods = cluster.get("pods --all-namespaces").unwrap_or_default();
    for pod in pods["items"].as_array().into_iter().flatten() {
        let containers = pod["status"]["containerStatuses"].as_array();
        let is_ready = |one: &Value| one["ready"] == true;
        if !containers.into_iter().flatten().all(is_ready)
            && let [Some(namespace), Some(name)] =
                ["namespace", "name"].map(|key| pod["metadata"][key].as_str())
        {
            say(&format!(
                "logs -n {namespace} {name} --all-containers --prefix --tail 5"
            ));
        }
    }
}
