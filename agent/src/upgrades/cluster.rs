//! What a workload cluster says of itself, over its own API.

use super::plan::{NodeTold, Told, removed_apis};
use crate::workload;
use anyhow::{Context, Result};
use firstlight_api::{authorities::LABEL, software::CORDONED_ANNOTATION};
use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::ListParams};

/// The taint of a node that is cordoned.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Everything that a plan is made from.
pub async fn ask(client: &Client) -> Result<Told> {
    let version = client.apiserver_version().await;
    let metrics = Request::get("/metrics").body(Vec::new())?;
    let metrics = client.request_text(metrics).await;
    let configured = workload::kubeadm::version(client).await?;
    Ok(Told {
        server: version
            .context("asking the cluster's API for its version")?
            .git_version,
        configured: configured.context("kubeadm keeps nothing in this cluster")?,
        nodes: nodes(client).await?,
        removed: removed_apis(&metrics.context("asking the cluster's API which APIs are in use")?),
    })
}

pub async fn nodes(client: &Client) -> Result<Vec<NodeTold>> {
    let nodes = Api::<Node>::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await;
    let nodes = nodes.context("listing the cluster's nodes")?;
    Ok(nodes.items.into_iter().map(told).collect())
}

/// One of them; `None`: it is gone.
pub async fn node(client: &Client, name: &str) -> Result<Option<NodeTold>> {
    let node = Api::<Node>::all(client.clone()).get_opt(name).await;
    Ok(node.context("reading the node")?.map(told))
}

pub fn told(node: Node) -> NodeTold {
    let status = node.status.unwrap_or_default();
    let conditions = status.conditions.iter().flatten();
    let mut ready = conditions.filter(|one| one.type_ == "Ready");
    let spec = node.spec.unwrap_or_default();
    // Taken away by a controller manager that may have to start first: until then no pod comes here.
    let is_closed = spec.unschedulable != Some(true)
        && spec
            .taints
            .iter()
            .flatten()
            .any(|taint| taint.key == UNSCHEDULABLE);
    let is_ready = ready.any(|one| one.status == "True") && !is_closed;
    let info = status.node_info;
    let mut annotations = node.metadata.annotations.unwrap_or_default();
    NodeTold {
        name: node.metadata.name.unwrap_or_default(),
        kubelet: info.map(|info| info.kubelet_version).unwrap_or_default(),
        is_ready,
        held_for: annotations.remove(CORDONED_ANNOTATION),
        authorities: annotations.remove(LABEL),
    }
}
