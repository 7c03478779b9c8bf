//! Services of type `LoadBalancer` and a node that leaves: another node answers for their addresses before its pods go.
//!
//! Kubernetes' own label says that a node answers for no such address; `MetalLB` and others go by it. A node that nobody can take over from
//! is not labelled.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// kubeadm gives it to control planes.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Annotation: for whom the agent wrote the label.
const EXCLUDED_FOR: &str = "firstlight.internal/excluded-for";
/// Of all that could take over; one is enough.
const FEW: u32 = 20;

/// Writes the label, for `holder`; says whether another node takes over.
pub async fn exclude(client: &Client, node: &Node, holder: &str) -> Result<bool> {
    if is_excluded(node) {
        return Ok(is_excluded_for(node, holder));
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let others = ListParams::default()
        .labels(&format!("!{EXCLUDED}"))
        .fields("spec.unschedulable=false")
        .limit(FEW);
    let others = nodes.list(&others).await.context("listing nodes")?.items;
    let own = node.metadata.name.as_deref().unwrap_or_default();
    if !others
        .iter()
        .any(|other| other.metadata.name.as_deref() != Some(own) && is_ready(other))
    {
        return Ok(false);
    }
    let patch = json!({"metadata": {
        "labels": {EXCLUDED: ""},
        "annotations": {EXCLUDED_FOR: holder},
    }});
    write(&nodes, own, &patch).await.map(|()| true)
}

/// Takes the label back if it was written for `holder`.
pub async fn include(client: &Client, node: &Node, holder: &str) -> Result<()> {
    if !is_excluded_for(node, holder) {
        return Ok(());
    }
    let own = node.metadata.name.as_deref().unwrap_or_default();
    let patch = json!({"metadata": {
        "labels": {EXCLUDED: Value::Null},
        "annotations": {EXCLUDED_FOR: Value::Null},
    }});
    write(&Api::all(client.clone()), own, &patch).await
}

/// Whether it still answers for an address, as far as `MetalLB` says; another load balancer says nothing.
pub async fn answers(client: &Client, node: &str) -> Result<bool> {
    let kind = GroupVersionKind::gvk("metallb.io", "v1beta1", "ServiceL2Status");
    let resource = ApiResource::from_gvk(&kind);
    let statuses = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let own = ListParams::default()
        .labels(&format!("metallb.io/node={node}"))
        .limit(1);
    match statuses.list(&own).await {
        Ok(found) => Ok(!found.items.is_empty()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
        Err(error) => Err(error).context("listing who answers for services"),
    }
}

async fn write(nodes: &Api<Node>, name: &str, patch: &Value) -> Result<()> {
    let written = nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    written.map(drop).context("writing the node")
}

fn is_excluded(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(EXCLUDED))
}

fn is_excluded_for(node: &Node, holder: &str) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    is_excluded(node)
        && annotations
            .and_then(|all| all.get(EXCLUDED_FOR))
            .is_some_and(|found| found == holder)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.flatten();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_label_that_was_written_for_this_holder_is_taken_back() {
        let node = |labels: Value, holder: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"labels": labels, "annotations": {EXCLUDED_FOR: holder}},
            }))
            .unwrap()
        };
        let ours = node(json!({EXCLUDED: ""}), "default/a");
        assert!(is_excluded_for(&ours, "default/a"));
        assert!(!is_excluded_for(&ours, "default/b"));
        // A person took the label off meanwhile.
        assert!(!is_excluded_for(&node(json!({}), "default/a"), "default/a"));
        let control_plane: Node =
            serde_json::from_value(json!({"metadata": {"labels": {EXCLUDED: ""}}})).unwrap();
        assert!(is_excluded(&control_plane));
        assert!(!is_excluded_for(&control_plane, "default/a"));
    }
}
