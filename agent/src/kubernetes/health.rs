//! Whether the box's node and the Deployments on it are well, as watches keep it: a look asks nobody.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::object::Meta;
use kube::Client;
use serde::Deserialize;

use crate::{
    objects::{Objects, Readable, Resource, Selection, Watches},
    pki::NODE_NAME,
};

const NODES: Resource = Resource("", "v1", "Node", "nodes");
const DEPLOYMENTS: Resource = Resource("apps", "v1", "Deployment", "deployments");

/// It watches as long as it lives.
pub struct Health {
    nodes: Objects<Node>,
    deployments: Objects<Deployment>,
    _watches: Watches,
}

#[derive(Debug, Deserialize)]
struct Node {
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    message: String,
}

#[derive(Debug, Deserialize)]
struct Deployment {
    metadata: Meta,
    #[serde(default)]
    status: DeploymentStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeploymentStatus {
    #[serde(default)]
    available_replicas: i32,
}

impl Readable for Node {}
impl Readable for Deployment {}

impl Health {
    pub fn watch(client: Client) -> Self {
        let mut watches = Watches::new(client, "firstlight-health", Duration::ZERO);
        Self {
            nodes: watches.objects(Selection {
                name: Some(NODE_NAME),
                ..NODES.into()
            }),
            deployments: watches.objects(DEPLOYMENTS),
            _watches: watches,
        }
    }

    pub async fn is_node_ready(&self) -> Result<()> {
        let nodes = self.nodes.all().await?.objects;
        let node = nodes.first().context("kubelet has not registered yet")?;
        let mut conditions = node.status.conditions.iter();
        let ready = conditions
            .find(|condition| condition.kind == "Ready")
            .context("kubelet has not reported yet")?;
        ensure!(
            ready.status == "True",
            "the node is not ready: {}",
            ready.message
        );
        Ok(())
    }

    pub async fn is_available(&self, namespace: &str, deployment: &str) -> Result<()> {
        let all = self.deployments.all().await?.objects;
        let mut all = all.iter();
        let found = all
            .find(|one| one.metadata.namespace == namespace && one.metadata.name == deployment)
            .with_context(|| format!("there is no Deployment {namespace}/{deployment}"))?;
        ensure!(
            found.status.available_replicas > 0,
            "no pod of {deployment} is ready"
        );
        Ok(())
    }
}
