//! A Service that a chart of the stick wants asked on the node that asks, while somebody answers there. It need not be the chart's own: Helm
//! leaves alone what others have made, and kubeadm writes its own anew at each upgrade.

use std::path::Path;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::wishes;

const ASKED: &str = "firstlight.internal/prefer-same-node";
const SAME_NODE: &str = "PreferSameNode";

/// A Service that is not there is nobody's to make.
pub async fn keep(client: &Client, chart: &Path) -> Result<()> {
    let Some((namespace, name)) = wishes::names(chart, ASKED) else {
        return Ok(());
    };
    let title = || format!("the Service {namespace}/{name}");
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let found = services.get_opt(&name).await.with_context(title)?;
    let spec = found.and_then(|service| service.spec);
    if spec.is_some_and(|spec| spec.traffic_distribution.as_deref() != Some(SAME_NODE)) {
        let patch = json!({"spec": {"trafficDistribution": SAME_NODE}});
        let params = PatchParams::default();
        let patched = services.patch(&name, &params, &Patch::Merge(&patch)).await;
        patched.map(drop).with_context(title)?;
    }
    Ok(())
}
