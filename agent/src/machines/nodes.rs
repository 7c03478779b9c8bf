//! For clusters whose kubelets are not given a provider ID: finds the node of a provisioned host by its label
//! `metal3.io/uuid` and writes `spec.providerID`, as CAPM3 does without a cloud provider.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::{capi, capm3::NODE_UUID_LABEL};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    capi::{
        Store,
        world::{Key, World},
    },
    workload,
};

/// Between two visits of one cluster.
const PAUSE: Duration = Duration::from_secs(30);
/// For one visit.
const TIME: Duration = Duration::from_secs(10);

/// When each cluster was visited.
#[derive(Default)]
pub struct Nodes {
    visited: BTreeMap<Key, Instant>,
}

/// One node that should have this provider ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub host_uid: String,
    pub provider_id: String,
}

/// By cluster: provisioned machines whose node Cluster API has not found.
pub fn wanted(world: &World) -> BTreeMap<Key, Vec<Wanted>> {
    let mut all: BTreeMap<Key, Vec<Wanted>> = BTreeMap::new();
    for machine in world.metal3_machines.values() {
        let meta = &machine.metadata;
        let cluster = meta
            .label(capi::CLUSTER_LABEL)
            .map(|name| Key::new(&meta.namespace, name));
        let (Some(cluster), Some(owner), Some(host), Some(id)) = (
            cluster,
            world.owner_machine(machine),
            world.host_of(machine),
            &machine.spec.provider_id,
        ) else {
            continue;
        };
        let others_do_it = world.metal3_clusters.values().any(|candidate| {
            candidate.metadata.namespace == meta.namespace
                && candidate.metadata.label(capi::CLUSTER_LABEL) == Some(&cluster.name)
                && candidate.spec.cloud_provider_enabled == Some(true)
        });
        if machine.status.initialization.is_done()
            && owner.status.node_ref.is_none()
            && !others_do_it
        {
            all.entry(cluster).or_default().push(Wanted {
                host_uid: host.metadata.uid.clone(),
                provider_id: id.clone(),
            });
        }
    }
    all
}

impl Nodes {
    pub async fn label(&mut self, store: &Store, world: &World, now: Instant) {
        for (cluster, wanted) in wanted(world) {
            let recently = self
                .visited
                .get(&cluster)
                .is_some_and(|at| now.duration_since(*at) < PAUSE);
            if recently {
                continue;
            }
            self.visited.insert(cluster.clone(), now);
            let visit = tokio::time::timeout(TIME, visit(store, &cluster, &wanted)).await;
            if let Ok(Err(error)) = visit {
                tracing::debug!(cluster = %cluster, error = format!("{error:#}"), "nodes were not looked at");
            }
        }
    }
}

async fn visit(store: &Store, cluster: &Key, wanted: &[Wanted]) -> Result<()> {
    let kubeconfig =
        workload::kubeconfig(store.client(), &cluster.namespace, &cluster.name).await?;
    let kubeconfig = kubeconfig.context("the cluster has no kubeconfig yet")?;
    let client = workload::client(&kubeconfig).await?;
    let nodes: Api<Node> = Api::all(client);
    for one in wanted {
        let label = format!("{NODE_UUID_LABEL}={}", one.host_uid);
        let found = nodes
            .list(&ListParams::default().labels(&label))
            .await
            .context("listing nodes")?;
        // A provider ID can be written once only.
        let unnamed = found.items.into_iter().find(|node| {
            let spec = node.spec.as_ref();
            spec.is_none_or(|spec| spec.provider_id.as_deref().unwrap_or_default().is_empty())
        });
        let Some(name) = unnamed.and_then(|node| node.metadata.name) else {
            continue;
        };
        let patch = json!({"spec": {"providerID": one.provider_id}});
        nodes
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("writing the provider ID of node {name}"))?;
    }
    Ok(())
}
