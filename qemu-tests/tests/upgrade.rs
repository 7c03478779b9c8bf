//! A cluster's way to the next minor version of Kubernetes, node by node and in place, with the orders that the box gives, while somebody
//! outside asks a service ten times a second. Without a virtual machine: `scripts/test-upgrade`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use imagebuilder::build::nodes::Nodes;
use qemu_tests::figures;
use qemu_tests::nodes::{ApiVisitor, Cluster, isolated, longest_silence, make_parts, timed, wait};
use qemu_tests::pods::Visitor;
use serde_json::{Value, json};

const MINOR: &str = "1.37";

fn main() -> ExitCode {
    let told = match std::env::args().nth(1).as_deref() {
        Some("three") => isolated(|| make_parts(&[MINOR]), three),
        _ => isolated(|| make_parts(&[MINOR]), two),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("upgrade: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A control plane and a worker, with a service that goes on.
fn two(parts: &Nodes, place: &Path) -> Result<()> {
    let mut cluster = Cluster::start(parts, None, place, 2)?;
    let (from, to) = packages(parts)?;
    let address = cluster.serve_web(parts, place)?;
    cluster.kubectl("create configmap before --from-literal=kept=yes")?;
    // Skipping none: kubeadm itself refuses what is no neighbour.
    let visitor = Visitor::begin(format!("http://{address}/"));
    let mut longest = Duration::ZERO;
    for (node, step) in [("node-1", "cluster"), ("node-2", "node")] {
        let kubeadm = order(step, &to);
        let ours = upgrade(&mut cluster, node, &kubeadm, &to).with_context(|| node.to_owned())?;
        longest = longest.max(ours);
        runs_again(&cluster)?;
    }
    let (all, lost) = visitor.end();
    eprintln!("{lost} of {all} requests were lost");
    figures::UPGRADE_OURS.record_time(longest)?;
    figures::UPGRADE_LOST.record_thousandths(lost, all)?;
    ensure!(lost * 100 <= all, "{lost} of {all} requests were lost");
    is_whole(&cluster, &to)?;
    // The way back is none.
    let back = order("cluster", &from);
    let refused = cluster
        .order("node-1", &back)
        .err()
        .context("a downgrade was taken")?;
    ensure!(
        format!("{refused:#}").contains("no way back"),
        "{refused:#}"
    );
    is_whole(&cluster, &to)
}

/// Three control planes, whose API goes on.
fn three(parts: &Nodes, place: &Path) -> Result<()> {
    let mut cluster = Cluster::start_three(parts, place)?;
    let (_, to) = packages(parts)?;
    cluster.kubectl("create configmap before --from-literal=kept=yes")?;
    cluster.kubectl("-n kube-system rollout status deployment/coredns --timeout=3m")?;
    let visitor = ApiVisitor::begin(&cluster, place)?;
    for (node, step) in [
        ("node-1", "cluster"),
        ("node-2", "node"),
        ("node-3", "node"),
    ] {
        let mut kubeadm = order(step, &to);
        // As the box says it where there are others.
        kubeadm["kubernetes"]["handsOver"] = json!(true);
        upgrade(&mut cluster, node, &kubeadm, &to).with_context(|| node.to_owned())?;
        let answers = visitor.answers();
        let silence = longest_silence(&answers).context("nobody asked")?;
        eprintln!(
            "{node}: {:.2} s without an answer at most",
            silence.as_secs_f64()
        );
    }
    let silence = longest_silence(&visitor.end()).context("nobody asked")?;
    figures::UPGRADE_SILENCE.record_time(silence)?;
    is_whole(&cluster, &to)
}

/// Versions of the packages: of the cluster as it begins, and of the one that it goes to.
fn packages(parts: &Nodes) -> Result<(String, String)> {
    let list = fs::read_to_string(parts.repository.join("packages"))?;
    let mut versions: Vec<&str> = list
        .lines()
        .filter_map(|file| file.strip_prefix("kubeadm_")?.strip_suffix("_amd64.deb"))
        .collect();
    versions.sort_unstable();
    match versions[..] {
        [from, to] => Ok((from.to_owned(), to.to_owned())),
        _ => anyhow::bail!("kubeadm in {versions:?}"),
    }
}

fn order(step: &str, version: &str) -> Value {
    json!({"kubernetes": {"step": step, "version": version}})
}

/// What of it was ours: everything but kubeadm.
fn upgrade(cluster: &mut Cluster, node: &str, kubeadm: &Value, version: &str) -> Result<Duration> {
    let package = json!({"packages": {"state": "present", "packages": [{"name": "kubeadm", "version": version}]}});
    let before = timed("kubeadm is there", || cluster.order(node, &package))?;
    timed("kubeadm has done its part", || cluster.order(node, kubeadm))?;
    let drained = timed("its pods have left", || {
        cluster.kubectl(&format!(
            "drain {node} --ignore-daemonsets --delete-emptydir-data --timeout=5m"
        ))
    })?;
    let release = release(version);
    let after = timed("its kubelet is the new one, and Ready", || {
        cluster.order(node, &order("kubelet", version))?;
        wait("the node says so", Duration::from_mins(3), || {
            let object = cluster.get(&format!("node {node}"))?;
            let said = &object["status"]["nodeInfo"]["kubeletVersion"];
            ensure!(*said == *release, "its kubelet is {said}");
            cluster.kubectl(&format!(
                "wait --for=condition=Ready node/{node} --timeout=1s"
            ))
        })
    })?;
    cluster.kubectl(&format!("uncordon {node}"))?;
    Ok(before + drained + after)
}

fn runs_again(cluster: &Cluster) -> Result<String> {
    wait("everything runs again", Duration::from_mins(3), || {
        cluster.kubectl("rollout status deployment/web --timeout=5s")
    })
}

fn release(version: &str) -> String {
    format!("v{}", version.split('-').next().unwrap_or_default())
}

fn is_whole(cluster: &Cluster, version: &str) -> Result<()> {
    let release = release(version);
    let said = cluster.kubectl("version -o json")?;
    let said: Value = serde_json::from_str(&said)?;
    ensure!(said["serverVersion"]["gitVersion"] == *release, "{said}");
    ensure!(
        cluster.kubectl("get configmap before -o jsonpath={.data.kept}")? == "yes",
        "etcd has lost what was in it"
    );
    cluster.kubectl("-n kube-system rollout status daemonset/kube-proxy --timeout=2m")?;
    cluster.kubectl("-n kube-system rollout status deployment/coredns --timeout=2m")?;
    let images = cluster.kubectl("get pods -A -o jsonpath={.items[*].spec.containers[*].image}")?;
    for name in [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
    ] {
        let mut all = images
            .split_whitespace()
            .filter(|image| image.contains(&format!("/{name}:")));
        ensure!(
            all.all(|image| image.ends_with(&release)),
            "{name}: {images}"
        );
    }
    eprintln!("  {images}");
    Ok(())
}
