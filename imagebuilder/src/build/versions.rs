//! Versions of everything on the stick: `versions.json`, and the tags of the container images.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::cache::Output;
use super::programs::required_version;
use super::settings::Settings;
use super::{debian, wheels};

const DOMAIN: &str = "firstlight.internal";
/// kubeadm counts builds of etcd's image in its tag; there is one here.
const ETCD_BUILD: &str = "0";
/// The pause program is our own; the tag is the one that this Kubernetes release asks for.
const PAUSE: &str = "3.10.2";

/// What `/usr/share/firstlight/versions.json` holds.
pub fn collect(settings: &Settings, kernel: &Output, base: &Output) -> Result<Value> {
    let debian = debian::read_member(&base.path("base.tar"), "etc/debian_version")?;
    Ok(json!({
        "firstlight": env!("CARGO_PKG_VERSION"),
        "debian": String::from_utf8_lossy(&debian).trim(),
        "kernel": fs::read_to_string(kernel.path("release"))?,
        "kubernetes": go_version(settings, "kubernetes", "k8s.io/kubernetes")?,
        "etcd": go_version(settings, "kubernetes", "go.etcd.io/etcd/server/v3")?,
        "containerd": go_version(settings, "containers", "github.com/containerd/containerd/v2")?,
        "criTools": go_version(settings, "cri-tools", "sigs.k8s.io/cri-tools")?,
        "cniPlugins": go_version(settings, "containers", "github.com/containernetworking/plugins")?,
        "coredns": go_version(settings, "containers", "github.com/coredns/coredns")?,
        "clusterApi": cluster_api_version(settings)?,
        "flannel": go_version(settings, "containers", "github.com/flannel-io/flannel")?,
        "helm": go_version(settings, "helm", "helm.sh/helm/v4")?,
        "victoriaMetrics": go_version(settings, "metrics", "github.com/VictoriaMetrics/VictoriaMetrics")?,
        "victoriaLogs": go_version(settings, "logs", "github.com/VictoriaMetrics/VictoriaLogs")?,
        "alertmanager": go_version(settings, "alerts", "github.com/prometheus/alertmanager")?,
        "registry": registry_version(settings)?,
        "ironic": ironic_version(settings)?,
        "images": image_references(settings)?,
    }))
}

/// Full references of the container images by short name.
pub fn image_references(settings: &Settings) -> Result<BTreeMap<&'static str, String>> {
    let coredns = go_version(settings, "containers", "github.com/coredns/coredns")?;
    let ironic = ironic_version(settings)?;
    let tags = [
        ("pause", PAUSE.to_owned()),
        ("coredns", coredns),
        ("cluster-api", cluster_api_version(settings)?),
        ("registry", registry_version(settings)?),
        ("ironic", ironic),
    ];
    Ok(tags
        .into_iter()
        .map(|(name, tag)| (name, format!("{DOMAIN}/{name}:{tag}")))
        .collect())
}

pub fn go_version(settings: &Settings, module: &str, dependency: &str) -> Result<String> {
    let path = settings.rootfs("go").join(module).join("go.mod");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let version = required_version(&text, dependency);
    Ok(version
        .with_context(|| format!("{} does not require {dependency}", path.display()))?
        .to_owned())
}

/// Tags of the images that kubeadm of one release of Kubernetes asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesVersions {
    pub kubernetes: String,
    pub etcd: String,
    pub coredns: String,
}

impl KubernetesVersions {
    /// `modules`: with Kubernetes and etcd, and with `CoreDNS`.
    pub fn of(settings: &Settings, modules: [&str; 2]) -> Result<Self> {
        let [kubernetes, coredns] = modules;
        let etcd = go_version(settings, kubernetes, "go.etcd.io/etcd/server/v3")?;
        Ok(Self {
            kubernetes: go_version(settings, kubernetes, "k8s.io/kubernetes")?,
            etcd: format!("{}-{ETCD_BUILD}", etcd.trim_start_matches('v')),
            coredns: go_version(settings, coredns, "github.com/coredns/coredns")?,
        })
    }
}

/// Tags of the workload cluster's images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadVersions {
    /// Of clusters when they are made.
    pub kubernetes: KubernetesVersions,
    pub pause: String,
    pub flannel: String,
}

pub fn workload_versions(settings: &Settings) -> Result<WorkloadVersions> {
    Ok(WorkloadVersions {
        kubernetes: KubernetesVersions::of(settings, ["kubernetes", "containers"])?,
        pause: PAUSE.to_owned(),
        flannel: go_version(settings, "containers", "github.com/flannel-io/flannel")?,
    })
}

fn registry_version(settings: &Settings) -> Result<String> {
    go_version(
        settings,
        "containers",
        "github.com/distribution/distribution/v3",
    )
}

fn cluster_api_version(settings: &Settings) -> Result<String> {
    go_version(settings, "cluster-api", "sigs.k8s.io/cluster-api")
}

fn ironic_version(settings: &Settings) -> Result<String> {
    let path = settings.rootfs("ironic").join(wheels::LIST);
    let ironic = wheels::load(&path)?
        .into_iter()
        .find(|wheel| wheel.name == "ironic");
    Ok(ironic
        .with_context(|| format!("{} does not pin ironic", path.display()))?
        .version)
}
