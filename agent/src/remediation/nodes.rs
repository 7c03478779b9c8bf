//! Nodes of machines that are remediated: each is visited beside the loop, for a cluster is its users', and may answer late or never.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{objects::Key, workload};

/// Between two visits for one remediation.
const PAUSE: Duration = Duration::from_secs(10);
/// For one visit.
const TIME: Duration = Duration::from_secs(10);
/// Visits at the same time.
const MOST_AT_ONCE: usize = 8;
/// Kubernetes' word for a node that is off for certain: its pods are forgotten, and its volumes move.
const OUT_OF_SERVICE: (&str, &str, &str) = (
    "node.kubernetes.io/out-of-service",
    "nodeshutdown",
    "NoExecute",
);

/// What is to become of the taint [`OUT_OF_SERVICE`] of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOrder {
    pub cluster: Key,
    pub node: String,
    pub taint: TaintOrder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintOrder {
    /// Its server is off.
    On,
    Off,
    OffWhenReady,
}

impl TaintOrder {
    /// Whether it is there afterwards.
    pub fn keeps(self, is_ready: bool, is_tainted: bool) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
            Self::OffWhenReady => is_tainted && !is_ready,
        }
    }
}

/// What a visit for the present order has found, and left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeView {
    /// The cluster has no such node.
    Absent,
    There {
        is_ready: bool,
        is_tainted: bool,
    },
    /// Its cluster has not answered for this long.
    Silent(Duration),
}

/// The visits that are under way, and what came of others, by UID of the remediation.
#[derive(Default)]
pub struct Nodes {
    visited: BTreeMap<String, Visited>,
    visits: JoinSet<(String, Option<NodeView>)>,
}

struct Visited {
    /// Nobody asks any more for one that is absent, and its last visit has not ended.
    order: Option<NodeOrder>,
    /// The next one begins when it has ended: what it writes late undoes nothing.
    is_under_way: bool,
    /// The visit under way was for another order.
    is_overtaken: bool,
    ended: Option<Instant>,
    view: Option<NodeView>,
    silent_since: Option<Instant>,
}

impl Nodes {
    pub fn views(&self, now: Instant) -> BTreeMap<String, NodeView> {
        let view = |visited: &Visited| {
            let silent = visited.silent_since.map(|since| now.duration_since(since));
            silent.map(NodeView::Silent).or(visited.view.clone())
        };
        let all = self.visited.iter();
        all.filter_map(|(uid, visited)| Some((uid.clone(), view(visited)?)))
            .collect()
    }

    /// Begins what is due.
    pub fn visit(
        &mut self,
        client: &Client,
        mut orders: BTreeMap<String, NodeOrder>,
        now: Instant,
    ) {
        for (uid, visited) in &mut self.visited {
            let order = orders.remove(uid);
            if order != visited.order {
                *visited = Visited {
                    is_overtaken: visited.is_under_way,
                    ..Visited::new(order, visited.is_under_way)
                };
            }
        }
        let new = orders.into_iter();
        let new = new.map(|(uid, order)| (uid, Visited::new(Some(order), false)));
        self.visited.extend(new);
        self.visited
            .retain(|_, visited| visited.order.is_some() || visited.is_under_way);
        let is_due = |visited: &Visited| {
            let rested = |at| now.duration_since(at) >= PAUSE;
            !visited.is_under_way && visited.ended.is_none_or(rested)
        };
        let due = self.visited.iter_mut().filter(|(_, it)| is_due(it));
        let mut due: Vec<_> = due.collect();
        // Those first that waited longest.
        due.sort_by_key(|(_, visited)| visited.ended);
        let free = MOST_AT_ONCE.saturating_sub(self.visits.len());
        for (uid, visited) in due.into_iter().take(free) {
            let Some(order) = visited.order.clone() else {
                continue;
            };
            visited.is_under_way = true;
            let (client, uid) = (client.clone(), uid.clone());
            self.visits.spawn(async move {
                let visit = tokio::time::timeout(TIME, visit(&client, &order)).await;
                let view = visit.unwrap_or_else(|late| Err(late.into()));
                if let Err(error) = &view {
                    let error = format!("{error:#}");
                    tracing::debug!(cluster = %order.cluster, node = order.node, error, "a node was not looked at");
                }
                (uid, view.ok())
            });
        }
    }

    /// Returns when a visit has told something new. It may be dropped at any await.
    pub async fn news(&mut self) {
        loop {
            let Some(ended) = self.visits.join_next().await else {
                return std::future::pending().await;
            };
            if let Ok((uid, view)) = ended
                && self.ended(&uid, view, Instant::now())
            {
                return;
            }
        }
    }

    /// Whether there is a reason to plan again.
    fn ended(&mut self, uid: &str, view: Option<NodeView>, now: Instant) -> bool {
        let Some(visited) = self.visited.get_mut(uid) else {
            return false;
        };
        visited.is_under_way = false;
        if std::mem::take(&mut visited.is_overtaken) {
            return true;
        }
        visited.ended = Some(now);
        let is_new = view != visited.view;
        match view {
            Some(view) => (visited.view, visited.silent_since) = (Some(view), None),
            None => visited.silent_since = visited.silent_since.or(Some(now)),
        }
        is_new
    }
}

impl Visited {
    fn new(order: Option<NodeOrder>, is_under_way: bool) -> Self {
        Self {
            order,
            is_under_way,
            is_overtaken: false,
            ended: None,
            view: None,
            silent_since: None,
        }
    }
}

async fn visit(client: &Client, order: &NodeOrder) -> Result<NodeView> {
    let Key { namespace, name } = &order.cluster;
    let kubeconfig = workload::kubeconfig(client, namespace, name).await?;
    let kubeconfig = kubeconfig.context("the cluster has no kubeconfig yet")?;
    let nodes: Api<Node> = Api::all(workload::client(&kubeconfig).await?);
    let node = nodes.get_opt(&order.node).await;
    let Some(node) = node.context("reading the node")? else {
        return Ok(NodeView::Absent);
    };
    let (is_ready, was_tainted) = (is_ready(&node), is_tainted(&node));
    let is_tainted = order.taint.keeps(is_ready, was_tainted);
    if is_tainted != was_tainted {
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints(node, is_tainted)},
        });
        let parameters = PatchParams::default();
        let written = nodes
            .patch(&order.node, &parameters, &Patch::Merge(patch))
            .await;
        written.context("writing the taints of the node")?;
    }
    Ok(NodeView::There {
        is_ready,
        is_tainted,
    })
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

fn is_ours(taint: &Taint) -> bool {
    let (key, value, effect) = OUT_OF_SERVICE;
    taint.key == key && taint.effect == effect && taint.value.as_deref() == Some(value)
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(is_ours))
}

/// Those that it has, with or without ours.
fn taints(node: Node, with_ours: bool) -> Vec<Taint> {
    let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    taints.retain(|taint| !is_ours(taint));
    if with_ours {
        let (key, value, effect) = OUT_OF_SERVICE;
        taints.push(Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            effect: effect.to_owned(),
            time_added: None,
        });
    }
    taints
}

#[cfg(test)]
mod tests;
