//! How long two hundred pods take on two nodes, from one `kubectl apply` until all are Ready: on nodes of ours, or with the settings that
//! kubeadm and containerd have when nobody says anything (`-- plain`). `scripts/bench cluster` asks for both in turn.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use imagebuilder::build::nodes::Nodes;
use qemu_tests::figures;
use qemu_tests::nodes::{Cluster, Setup, isolated, make_parts, wait};
use qemu_tests::pods::find_image;
use serde_json::json;

const COUNT: usize = 200;
const LIMIT: Duration = Duration::from_mins(15);

fn main() -> ExitCode {
    let setup = match std::env::args().nth(1).as_deref() {
        None => Setup::Ours,
        Some("plain") => Setup::Plain,
        Some(_) => {
            eprintln!("usage: many_pods [plain]");
            return ExitCode::from(2);
        }
    };
    match isolated(|| make_parts(&[]), |parts, place| tell(parts, place, setup)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("many_pods: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tell(parts: &Nodes, place: &Path, setup: Setup) -> Result<()> {
    let cluster = Cluster::start_with(parts, place, setup)?;
    cluster.kubectl("-n kube-system rollout status deployment/coredns --timeout=3m")?;
    // It keeps its pods together otherwise, and the first node has others as well.
    cluster.kubectl("taint nodes node-1 node-role.kubernetes.io/control-plane-")?;
    let images = cluster.kubectl("get nodes -o jsonpath={.items[*].status.images[*].names[*]}")?;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many"},
        "spec": {
            "replicas": COUNT,
            "selector": {"matchLabels": {"app": "many"}},
            "template": {
                "metadata": {"labels": {"app": "many"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "topologySpreadConstraints": [{
                        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": "many"}},
                    }],
                    "containers": [{"name": "main", "image": find_image(&images)?}],
                },
            },
        },
    });
    let began = Instant::now();
    cluster.apply(&deployment.to_string())?;
    wait("all are Ready", LIMIT, || {
        let found = cluster.get("deployment many")?;
        let ready = found["status"]["readyReplicas"]
            .as_u64()
            .unwrap_or_default();
        ensure!(ready == COUNT as u64, "{ready} are");
        Ok(())
    })?;
    let took = began.elapsed();
    match setup {
        Setup::Plain => figures::PODS_PLAIN.record_time(took),
        Setup::Ours => {
            figures::PODS.record_time(took)?;
            let plain = figures::PODS_PLAIN.load()?;
            let plain = plain.context("nobody has measured it with plain settings")?;
            figures::PODS_RATIO.record(plain / took.as_secs_f64())
        }
    }
}
