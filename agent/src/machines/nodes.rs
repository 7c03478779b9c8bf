//! For clusters whose kubelets are not given a provider ID: finds the node of a provisioned host by its label
//! `metal3.io/uuid` and writes `spec.providerID`, as CAPM3 does without a cloud provider.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::{capi, capm3::NODE_UUID_LABEL};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    capi::world::{Key, World},
    workload,
};

/// Between two visits of one cluster.
const PAUSE: Duration = Duration::from_secs(30);
/// For one visit.
const TIME: Duration = Duration::from_secs(10);
/// Visits at the same time.
const MOST_AT_ONCE: usize = 8;

/// When each cluster was visited, and the visits that are under way. A cluster is its users', and may answer late or never:
/// nobody waits for a visit.
#[derive(Default)]
pub struct Nodes {
    visited: BTreeMap<Key, Instant>,
    visits: JoinSet<()>,
}

/// One node that should have this provider ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingProviderId {
    pub host_uid: String,
    pub provider_id: String,
}

/// By cluster: provisioned machines whose node Cluster API has not found.
pub fn missing_provider_ids(world: &World) -> BTreeMap<Key, Vec<MissingProviderId>> {
    let mut all: BTreeMap<Key, Vec<MissingProviderId>> = BTreeMap::new();
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
            all.entry(cluster).or_default().push(MissingProviderId {
                host_uid: host.metadata.uid.clone(),
                provider_id: id.clone(),
            });
        }
    }
    all
}

impl Nodes {
    pub fn label(&mut self, client: &Client, world: &World, now: Instant) {
        self.begin(client, missing_provider_ids(world), now);
    }

    /// Those first that waited longest.
    fn begin(
        &mut self,
        client: &Client,
        wanted: BTreeMap<Key, Vec<MissingProviderId>>,
        now: Instant,
    ) {
        while self.visits.try_join_next().is_some() {}
        self.visited
            .retain(|cluster, _| wanted.contains_key(cluster));
        let mut due: Vec<_> = wanted
            .into_iter()
            .map(|(cluster, wanted)| (self.visited.get(&cluster).copied(), cluster, wanted))
            .filter(|(at, ..)| at.is_none_or(|at| now.duration_since(at) >= PAUSE))
            .collect();
        due.sort_by_key(|(at, ..)| *at);
        let free = MOST_AT_ONCE.saturating_sub(self.visits.len());
        for (_, cluster, wanted) in due.into_iter().take(free) {
            self.visited.insert(cluster.clone(), now);
            let client = client.clone();
            self.visits.spawn(async move {
                let visit = tokio::time::timeout(TIME, visit(&client, &cluster, &wanted)).await;
                if let Ok(Err(error)) = visit {
                    tracing::debug!(cluster = %cluster, error = format!("{error:#}"), "nodes were not looked at");
                }
            });
        }
    }
}

async fn visit(client: &Client, cluster: &Key, wanted: &[MissingProviderId]) -> Result<()> {
    let kubeconfig = workload::kubeconfig(client, &cluster.namespace, &cluster.name).await?;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kube::Config;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn clusters_that_do_not_answer_are_waited_for_beside_the_loop_and_each_has_its_turn() {
        // Connections are taken by the kernel; nobody ever answers.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let config = Config::new(address.parse().unwrap());
        let api = Client::try_from(config).unwrap();
        let names = (0..2 * MOST_AT_ONCE).map(|number| format!("cluster-{number}"));
        let wanted: BTreeMap<Key, Vec<MissingProviderId>> = names
            .map(|name| (Key::new("default", &name), Vec::new()))
            .collect();
        let mut nodes = Nodes::default();
        let now = Instant::now();
        for _ in 0..3 {
            nodes.begin(&api, wanted.clone(), now);
            assert_eq!(nodes.visits.len(), MOST_AT_ONCE);
            assert_eq!(nodes.visited.len(), MOST_AT_ONCE);
        }
        // The first are due again, and yet the others come before them.
        nodes.visits.shutdown().await;
        nodes.begin(&api, wanted.clone(), now + PAUSE);
        assert_eq!(nodes.visited.len(), 2 * MOST_AT_ONCE);
        nodes.visits.shutdown().await;
        nodes.begin(&api, wanted, now + PAUSE + PAUSE / 2);
        assert_eq!(nodes.visits.len(), MOST_AT_ONCE);
        let again = now + PAUSE + PAUSE / 2;
        let last = nodes.visited.values().filter(|at| **at == again);
        assert_eq!(last.count(), MOST_AT_ONCE);
    }
}
