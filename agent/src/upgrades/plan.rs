//! Whether a cluster can go to a version, and in which order its nodes do: pure.

use std::fmt::Write as _;

use firstlight_api::{
    capi::{Cluster, Machine},
    upgrade::{ClusterUpgradeSpec, NodeUpgrade, NodeUpgradeState, Release},
};

use crate::software::Server;

/// What the box knows of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub cluster: Option<Cluster>,
    pub machines: Vec<Machine>,
    pub servers: Vec<Server>,
    /// Of the packages of kubeadm on the box.
    pub packages: Vec<String>,
    /// Images of the version that the box lacks.
    pub missing: Vec<String>,
}

/// What the cluster says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Of its API server.
    pub server: String,
    /// What kubeadm keeps for nodes that join.
    pub configured: String,
    pub nodes: Vec<NodeTold>,
    /// APIs that somebody asked for and that go with a minor version: `autoscaling/v2beta2 horizontalpodautoscalers (1.37)`.
    pub removed: Vec<RemovedApi>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTold {
    pub name: String,
    pub kubelet: String,
    pub is_ready: bool,
    /// Who has cordoned it, if the box did.
    pub held_for: Option<String>,
    /// The last step of a rotation of authorities here.
    pub authorities: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedApi {
    pub name: String,
    pub minor: Release,
}

/// A way that can be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of the packages.
    pub package: String,
    /// In their order.
    pub nodes: Vec<(NodeUpgrade, Server)>,
}

/// Or a sentence that says why not, and what to do.
pub fn plan(spec: &ClusterUpgradeSpec, known: &Known, told: &Told) -> Result<Plan, String> {
    let target = Release::parse(&spec.version).ok_or("the version is none of Kubernetes")?;
    check_cluster(spec, known)?;
    check_skew(target, told)?;
    let package = package(&spec.version, &known.packages)?;
    if !known.missing.is_empty() {
        return Err(format!(
            "the box lacks images of {}: {}; push them, or use a stick that brings this version (`firstlight build --kubernetes {}.{}`)",
            spec.version,
            known.missing.join(", "),
            target.major,
            target.minor
        ));
    }
    // Half-way there is nothing to be gained by staying.
    let has_begun = told.configured == spec.version;
    if !spec.allow_removed_apis && !has_begun {
        check_apis(target, told)?;
    }
    let is_there = |node: &NodeTold| node.kubelet == spec.version;
    let nodes = in_order(known, &told.nodes, is_there, true)?;
    Ok(Plan { package, nodes })
}

/// That its nodes may be worked on at all.
pub fn check_cluster(spec: &ClusterUpgradeSpec, known: &Known) -> Result<(), String> {
    let cluster = known.cluster.as_ref();
    let cluster = cluster.ok_or_else(|| format!("there is no cluster {}", spec.cluster))?;
    if cluster.spec.paused == Some(true) {
        return Err(
            "the cluster is paused: `kubectl patch cluster` with `paused: false` first".to_owned(),
        );
    }
    let mut machines = known.machines.iter();
    match machines.find(|machine| machine.metadata.is_deleting()) {
        None => Ok(()),
        Some(machine) => Err(format!(
            "the machine {} is being deleted: wait until it has gone",
            machine.metadata.name
        )),
    }
}

fn check_skew(target: Release, told: &Told) -> Result<(), String> {
    let from = Release::parse(&told.server).ok_or("the cluster's API server says no version")?;
    if target < from {
        return Err(format!(
            "the cluster runs {}: Kubernetes has no way back to an older version",
            told.server
        ));
    }
    if !target.is_minor_of(from) && !target.is_next_of(from) {
        return Err(format!(
            "the cluster runs {}: one minor version after the other, so v{}.{} comes first",
            told.server,
            from.major,
            from.minor + 1
        ));
    }
    // Kubelets may be older, but not by as much as kubeadm would refuse.
    let old = told
        .nodes
        .iter()
        .find(|node| Release::parse(&node.kubelet).is_none_or(|own| own.minor + 1 < target.minor));
    match old {
        None => Ok(()),
        Some(node) => Err(format!(
            "the node {} is at {}: bring it to v{}.{} first",
            node.name,
            node.kubelet,
            target.major,
            target.minor - 1
        )),
    }
}

/// The newest of those that have the version.
fn package(version: &str, packages: &[String]) -> Result<String, String> {
    let upstream = version.trim_start_matches('v');
    let has = |package: &&String| package.split('-').next() == Some(upstream);
    let found = packages.iter().filter(has).max();
    found.cloned().ok_or_else(|| {
        let mut there: Vec<_> = packages
            .iter()
            .map(|package| format!("v{}", package.split('-').next().unwrap_or_default()))
            .collect();
        there.sort();
        there.dedup();
        format!(
            "the box has no packages of {version}; it has {}. A stick with more is made by `firstlight build --kubernetes MINOR`",
            there.join(", ")
        )
    })
}

fn check_apis(target: Release, told: &Told) -> Result<(), String> {
    let gone =
        |api: &&RemovedApi| (api.minor.major, api.minor.minor) <= (target.major, target.minor);
    let names: Vec<&str> = told
        .removed
        .iter()
        .filter(gone)
        .map(|api| api.name.as_str())
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(format!(
        "somebody asks the cluster for APIs that v{}.{} no longer serves: {}. Bring whoever does to a newer one, or say `allowRemovedApis: true`",
        target.major,
        target.minor,
        names.join(", ")
    ))
}

/// Control planes first, for a kubelet may not be newer than its API server; by name among equals.
pub fn in_order(
    known: &Known,
    told: &[NodeTold],
    is_there: impl Fn(&NodeTold) -> bool,
    all_ready: bool,
) -> Result<Vec<(NodeUpgrade, Server)>, String> {
    let mut nodes = Vec::new();
    for node in told {
        let server = known
            .servers
            .iter()
            .find(|server| server.node == node.name)
            .ok_or_else(|| {
                format!(
                    "the node {} is on no server of this box, or its server is not installed",
                    node.name
                )
            })?;
        if let Some((_, why)) = server.waits() {
            return Err(format!("{}: {why}", server.name));
        }
        let is_there = is_there(node);
        if all_ready && !node.is_ready && !is_there {
            return Err(format!(
                "the node {} is not Ready: mend it, or take it out of the cluster",
                node.name
            ));
        }
        let state = if is_there {
            NodeUpgradeState::Ready
        } else {
            NodeUpgradeState::Waiting
        };
        let node = NodeUpgrade {
            name: node.name.clone(),
            host: server.name.clone(),
            control_plane: server.control_plane,
            version: node.kubelet.clone(),
            state,
            message: String::new(),
        };
        nodes.push((node, server.clone()));
    }
    nodes.sort_by(|(a, _), (b, _)| (!a.control_plane, &a.name).cmp(&(!b.control_plane, &b.name)));
    match nodes.first() {
        Some((first, _)) if first.control_plane => Ok(nodes),
        _ => Err("none of the cluster's nodes is a control plane that this box knows".to_owned()),
    }
}

/// What an API server's metrics say of APIs that go: `apiserver_requested_deprecated_apis`.
pub fn removed_apis(metrics: &str) -> Vec<RemovedApi> {
    const NAME: &str = "apiserver_requested_deprecated_apis{";
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(NAME));
    let read = |line: &str| {
        let (labels, value) = line.split_once('}')?;
        let label = |name: &str| {
            let mut all = labels.split(',');
            all.find_map(|one| {
                one.strip_prefix(name)?
                    .strip_prefix("=\"")?
                    .strip_suffix('"')
            })
        };
        let minor = Release::parse(label("removed_release")?)?;
        if value.trim() == "0" {
            return None;
        }
        let mut name = String::new();
        match label("group") {
            Some(group) if !group.is_empty() => write!(name, "{group}/").ok()?,
            _ => {}
        }
        write!(name, "{} {}", label("version")?, label("resource")?).ok()?;
        Some(RemovedApi { name, minor })
    };
    lines.filter_map(read).collect()
}

/// Versions of kubeadm in the index of an apt repository (`Packages`).
pub fn kubeadm_versions(index: &str) -> Vec<String> {
    let stanzas = index.split("\n\n");
    let of = |stanza: &str| {
        let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name));
        (field("Package: ") == Some("kubeadm")).then(|| field("Version: ").map(str::to_owned))?
    };
    stanzas.filter_map(of).collect()
}
