//! A node's way to another version of Kubernetes, a step an order: kubeadm of that version, what it does to this node, and then,
//! when the node's pods have left, the kubelet.

use anyhow::{Result, bail, ensure};
use firstlight_api::{
    packages::{KubernetesOrder, KubernetesStep, PackageOrder, Report, is_release},
    software::{PackageSpec, PackageState, Presence},
    upgrade::Release,
};
use serde_json::json;

use super::{
    Server, apt,
    control_plane::{systemctl, while_another_answers},
    keep, report,
};
use crate::files::NewFile;

/// What kubeadm is told; it needs no copy after a restart.
const FILE: &str = "run/firstlight-upgrade.yaml";
/// Of the pods that kubeadm writes: without it they would lose what a cluster has laid over them.
const PATCHES: &str = "/etc/kubernetes/patches";
/// kubeadm's own, five minutes, is for fast disks and processors.
const PATIENCE: &str = "20m0s";

pub fn step(server: &mut impl Server, order: &KubernetesOrder) -> Result<Report> {
    let names: &[&str] = match order.step {
        KubernetesStep::Cluster | KubernetesStep::Node => &["kubeadm"],
        KubernetesStep::Kubelet => &["kubectl", "kubelet"],
    };
    only_forward(server, order)?;
    let kept = keep(server, &packages(names, order))?;
    if let Some(package) = failed(&kept) {
        bail!("{package}");
    }
    let _lock = server.lock()?;
    match order.step {
        KubernetesStep::Cluster => kubeadm(server, order, "apply")?,
        KubernetesStep::Node => kubeadm(server, order, "node")?,
        // Also where the package was there: an order that was cut off may not have come to this.
        KubernetesStep::Kubelet => restart_kubelet(server)?,
    }
    report(server, kept.packages, true)
}

/// What the newer kubelet or control plane has written, an older one may not understand: kubeadm has no way back.
fn only_forward(server: &mut impl Server, order: &KubernetesOrder) -> Result<()> {
    let format = ["-W", "-f", "${Package} ${Version}\n", "kubeadm", "kubelet"];
    let said = server.run("dpkg-query", &format)?.text;
    for (name, have) in said.lines().filter_map(|line| line.split_once(' ')) {
        let upstream = have.split('-').next().unwrap_or_default();
        if Release::parse(upstream) > Release::parse(&order.release()) {
            bail!(
                "this node has {name} {upstream}: Kubernetes has no way back to an older version"
            );
        }
    }
    Ok(())
}

/// For a node that has not joined yet: all of Kubernetes is of this release (`v1.37.2`), if any of it is here at all.
pub fn become_release(server: &mut impl Server, release: &str) -> Result<()> {
    ensure!(
        is_release(release),
        "`{release}` is no version of Kubernetes"
    );
    let upstream = &release[1..];
    let format = ["-W", "-f", "${db:Status-Status} ${Version}", "kubelet"];
    let said = server.run("dpkg-query", &format)?.text;
    let Some(have) = said.strip_prefix("installed ") else {
        return Ok(());
    };
    if have.split('-').next() == Some(upstream) {
        return Ok(());
    }
    let names = ["kubeadm", "kubectl", "kubelet"];
    let wanted = names.map(|name| format!("{name}={upstream}-*"));
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let _lock = server.lock()?;
    apt::repair(server)?;
    let said = apt::install_newest(server, &wanted)?;
    ensure!(
        said.is_success,
        "installing Kubernetes {release} of this server's cluster: {}",
        said.text
            .lines()
            .rfind(|line| line.starts_with("E:"))
            .unwrap_or(said.text.trim())
    );
    Ok(())
}

fn packages(names: &[&str], order: &KubernetesOrder) -> PackageOrder {
    let packages = names.iter().map(|name| PackageSpec {
        name: (*name).to_owned(),
        version: order.version.clone(),
    });
    PackageOrder {
        state: Presence::Present,
        packages: packages.collect(),
        dry_run: false,
        repository: order.repository.clone(),
    }
}

fn failed(report: &Report) -> Option<String> {
    let mut packages = report.packages.iter();
    let package = packages.find(|package| package.state != PackageState::Ready)?;
    let (name, wanted, reason) = (&package.name, &package.wanted, &package.reason);
    Some(format!("{name} {wanted}: {reason}"))
}

fn kubeadm(server: &mut impl Server, order: &KubernetesOrder, verb: &str) -> Result<()> {
    let mut wish = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "UpgradeConfiguration",
        "timeouts": {
            "controlPlaneComponentHealthCheck": PATIENCE,
            "etcdAPICall": PATIENCE,
            "kubeletHealthCheck": PATIENCE,
            "kubernetesAPICall": PATIENCE,
            "upgradeManifests": PATIENCE,
        },
    });
    if server.is_there(PATCHES) {
        for part in ["apply", "node"] {
            wish[part]["patches"] = json!({"directory": PATCHES});
        }
    }
    server.write(&[NewFile::new(FILE, 0o600, wish.to_string())])?;
    let (file, release) = (format!("/{FILE}"), order.release());
    let mut arguments = vec!["upgrade", verb, "--config", &file];
    if order.step == KubernetesStep::Cluster {
        arguments.extend(["--yes", &release]);
    }
    let said = if order.hands_over {
        let said = while_another_answers(server, |server| server.run("kubeadm", &arguments))?;
        said?
    } else {
        server.run("kubeadm", &arguments)?
    };
    ensure!(
        said.is_success,
        "kubeadm upgrade {verb}: {}",
        reason(&said.text)
    );
    Ok(())
}

/// What kubeadm found before it began, or else its last words.
fn reason(said: &str) -> String {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let found: Vec<&str> = lines().filter(|line| line.starts_with("[ERROR")).collect();
    if !found.is_empty() {
        return found.join("; ");
    }
    let error = lines().rfind(|line| line.starts_with("error"));
    error.or(lines().next_back()).unwrap_or_default().to_owned()
}

fn restart_kubelet(server: &mut impl Server) -> Result<()> {
    systemctl(server, &["daemon-reload"])?;
    systemctl(server, &["restart", "kubelet"])
}
