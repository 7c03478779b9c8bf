//! Nodes of workers that leave: each is asked to give the addresses of services up, and looked at until another one answers for
//! them, beside the loop, for a cluster is its users', and may answer late or never.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::{sync::Semaphore, task::JoinSet};

use super::plan::departure;
use crate::{
    capi::{
        Steps,
        world::{Key, World},
    },
    workload::{self, load_balancer},
};

/// Until its drain begins in any case: nobody waits for a load balancer that has hung itself up.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(1);
/// Watched at the same time.
const MOST_AT_ONCE: usize = 8;

/// Machines that wait for their drain.
pub struct Departures {
    /// Watched now.
    watched: BTreeSet<Key>,
    /// That need not wait any longer.
    over: BTreeSet<Key>,
    watches: JoinSet<Key>,
    places: Arc<Semaphore>,
}

impl Default for Departures {
    fn default() -> Self {
        Self {
            watched: BTreeSet::new(),
            over: BTreeSet::new(),
            watches: JoinSet::new(),
            places: Arc::new(Semaphore::new(MOST_AT_ONCE)),
        }
    }
}

impl Departures {
    /// Begins to watch who is new, and lets go who need not wait.
    pub fn plan(&mut self, client: &Client, world: &World) -> Vec<Steps> {
        let mut waiting = BTreeSet::new();
        for (machine, node) in departure::leaving(world) {
            let key = Key::of(machine);
            waiting.insert(key.clone());
            if self.over.contains(&key) || !self.watched.insert(key.clone()) {
                continue;
            }
            let Some(cluster) = world.cluster_of(machine) else {
                continue;
            };
            let (client, cluster) = (client.clone(), Key::of(&cluster.metadata));
            let (node, places) = (node.to_owned(), self.places.clone());
            self.watches.spawn(async move {
                let _place = places.acquire().await;
                let left = leave(&client, &cluster, &node, &key);
                match tokio::time::timeout(PATIENCE, left).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        let error = format!("{error:#}");
                        tracing::warn!(node, error, "nobody was asked to take over from it");
                    }
                    Err(_) => tracing::warn!(node, "it answers for services until its end"),
                }
                key
            });
        }
        self.over.retain(|key| waiting.contains(key));
        self.over
            .iter()
            .map(|key| vec![departure::let_go(key)])
            .collect()
    }

    /// Returns when one need not wait any longer. It may be dropped at any await.
    pub async fn news(&mut self) {
        loop {
            match self.watches.join_next().await {
                Some(Ok(key)) => {
                    self.watched.remove(&key);
                    self.over.insert(key);
                    return;
                }
                // It broke off; the next look begins again.
                Some(Err(_)) => self.watched.clear(),
                None => std::future::pending().await,
            }
        }
    }
}

async fn leave(client: &Client, cluster: &Key, node: &str, machine: &Key) -> Result<()> {
    let kubeconfig = workload::kubeconfig(client, &cluster.namespace, &cluster.name).await?;
    let Some(kubeconfig) = kubeconfig else {
        return Ok(());
    };
    let client = workload::client(&kubeconfig).await?;
    let Some(found) = Api::<Node>::all(client.clone()).get_opt(node).await? else {
        return Ok(());
    };
    if !load_balancer::exclude(&client, &found, &machine.to_string()).await? {
        return Ok(());
    }
    while load_balancer::answers(&client, node).await? {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
