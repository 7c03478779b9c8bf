//! One round of an upgrade, on the cluster's API and over SSH: look, plan, and bring at most one node to the version. It tells what it
//! does, and at the end what came of it; whatever was cut is done again by the next round and changes nothing that is done.

use std::time::Duration;

use anyhow::Result;
use firstlight_api::{
    bounded,
    packages::{KubernetesOrder, KubernetesStep, Order},
    upgrade::{ClusterUpgradeSpec, NodeUpgrade, NodeUpgradeState, UpgradeState},
};
use kube::Client;
use tokio::time::Instant;

use super::{
    Stock, cluster,
    held::{Owners, Share},
    plan::{Known, Plan, Told, plan},
};
use crate::{
    software::{Drained, End, Hands, Member, Server, ssh_node},
    workload,
};

/// Large packages, images over a slow network, slow disks.
const WORK_TIME: Duration = Duration::from_mins(45);
/// For a kubelet to say that it is the new one, and well.
const RETURN_TIME: Duration = Duration::from_mins(20);
const PAUSE: Duration = Duration::from_secs(5);

/// What a round tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Planned(Vec<NodeUpgrade>),
    Node(String, NodeUpgradeState, String),
    /// The end of the round.
    Ended(UpgradeState, String),
}

/// Everything that one round needs.
pub struct Work<H, T> {
    pub hands: H,
    pub stock: Stock,
    /// Of the box.
    pub client: Client,
    pub namespace: String,
    /// `NAMESPACE/NAME` of the upgrade.
    pub holder: String,
    /// Of the upgrade.
    pub uid: String,
    pub spec: ClusterUpgradeSpec,
    /// Without what is in stock.
    pub known: Known,
    pub tell: T,
}

impl<H: Hands, T: Fn(News) + Send + Sync> Work<H, T> {
    pub async fn run(mut self) {
        let broke_off = "the box's own work on it broke off; it is tried again".to_owned();
        let mut end = End {
            tell: &self.tell,
            news: Some(News::Ended(UpgradeState::Stopped, broke_off)),
        };
        if !self.spec.rotate_authorities {
            self.known.packages = self.stock.packages().await;
            self.known.missing = self.stock.missing(&self.spec.version).await;
        }
        let (state, message) = self.round().await.unwrap_or_else(|error| {
            let why = format!("{error:#}; it is tried again");
            (UpgradeState::Refused, why)
        });
        end.news = Some(News::Ended(state, bounded::sentence(&message)));
    }

    pub(super) fn owners(&self) -> Owners {
        Owners {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            cluster: self.spec.cluster.clone(),
            holder: self.holder.clone(),
        }
    }

    fn member(&self, node: &str) -> Member {
        Member {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            cluster: self.spec.cluster.clone(),
            node: node.to_owned(),
            holder: self.holder.clone(),
        }
    }

    async fn workload(&self) -> Result<Option<Client>> {
        let kubeconfig =
            workload::kubeconfig(&self.client, &self.namespace, &self.spec.cluster).await?;
        match kubeconfig {
            None => Ok(None),
            Some(text) => workload::client(&text).await.map(Some),
        }
    }

    async fn round(&self) -> Result<(UpgradeState, String)> {
        let Some(client) = self.workload().await? else {
            let why = format!(
                "there is no way to the API of the cluster {} yet",
                self.spec.cluster
            );
            return Ok((UpgradeState::Refused, why));
        };
        if self.spec.rotate_authorities {
            return self.rotate(&client).await;
        }
        let told = cluster::ask(&client).await?;
        let plan = match plan(&self.spec, &self.known, &told) {
            Ok(plan) => plan,
            Err(why) => return Ok((UpgradeState::Refused, why)),
        };
        let nodes = plan.nodes.iter().map(|(node, _)| node.clone()).collect();
        (self.tell)(News::Planned(nodes));
        let left = |share: Share| {
            let mut nodes = plan.nodes.iter().map(|(node, _)| node);
            nodes.any(|node| {
                node.control_plane == (share == Share::ControlPlane)
                    && node.state != NodeUpgradeState::Ready
            })
        };
        let (control_planes, workers) = (left(Share::ControlPlane), left(Share::Workers));
        if self.spec.paused && (control_planes || workers) {
            let first = "it is planned, and begins when the spec no longer says `paused: true`";
            return Ok((UpgradeState::Paused, first.to_owned()));
        }
        // Both from the beginning: workers of another version than their control plane's must not be made meanwhile.
        for share in Share::ALL {
            let version = Some(self.spec.version.as_str());
            if let Err(why) = self.owners().hold(share, version).await? {
                self.owners().let_go().await?;
                return Ok((UpgradeState::Refused, why));
            }
        }
        // A round that was cut, or whose server was lost, in the last moment.
        for node in &told.nodes {
            let is_done = node.is_ready && node.kubelet == self.spec.version;
            if is_done && node.held_for.as_ref() == Some(&self.holder) {
                self.member(&node.name).uncordon().await?;
            }
        }
        if !control_planes {
            self.owners()
                .record(Share::ControlPlane, &self.spec.version)
                .await?;
        }
        if !control_planes && !workers {
            self.owners()
                .record(Share::Workers, &self.spec.version)
                .await?;
            return Ok((UpgradeState::Done, String::new()));
        }
        if let Some(node) = told.nodes.iter().find(|node| !node.is_ready) {
            let why = format!("it goes on when the node {} is Ready again", node.name);
            return Ok((UpgradeState::Upgrading, why));
        }
        self.next(&plan, &told, &client).await
    }

    /// The first node that is not there yet.
    async fn next(
        &self,
        plan: &Plan,
        told: &Told,
        client: &Client,
    ) -> Result<(UpgradeState, String)> {
        let mut nodes = plan.nodes.iter().enumerate();
        let next = nodes.find(|(_, (node, _))| node.state != NodeUpgradeState::Ready);
        let Some((place, (node, server))) = next else {
            return Ok((UpgradeState::Upgrading, String::new()));
        };
        // What the cluster keeps for all nodes is changed on the first; whoever was cut there does it again.
        let is_first = place == 0 || told.configured != self.spec.version;
        let step = if node.control_plane && is_first {
            KubernetesStep::Cluster
        } else {
            KubernetesStep::Node
        };
        let mut others = plan
            .nodes
            .iter()
            .filter(|(other, _)| other.name != node.name);
        let order = KubernetesOrder {
            step,
            version: plan.package.clone(),
            hands_over: node.control_plane && others.any(|(other, _)| other.control_plane),
            repository: None,
        };
        let done = self.bring(order, node, server, client).await;
        Ok(match done {
            Ok(()) => {
                self.say(node, NodeUpgradeState::Ready, "");
                (UpgradeState::Upgrading, String::new())
            }
            Err(why) => {
                self.say(node, NodeUpgradeState::Failed, &why);
                let why = format!(
                    "{}: {why}. No other node is touched before this one is well; it is tried again",
                    node.name
                );
                (UpgradeState::Stopped, why)
            }
        })
    }

    pub(super) fn say(&self, node: &NodeUpgrade, state: NodeUpgradeState, message: &str) {
        let message = bounded::sentence(message);
        (self.tell)(News::Node(node.name.clone(), state, message));
    }

    async fn bring(
        &self,
        order: KubernetesOrder,
        node: &NodeUpgrade,
        server: &Server,
        client: &Client,
    ) -> Result<(), String> {
        self.say(node, NodeUpgradeState::Upgrading, "kubeadm is at work");
        self.order(Order::Kubernetes(order.clone()), server).await?;
        let member = self.member(&node.name);
        self.say(node, NodeUpgradeState::Draining, "its pods are moved away");
        loop {
            match member.drain().await {
                Ok(Drained::Empty) => break,
                Ok(Drained::Waits(what)) => self.say(node, NodeUpgradeState::Draining, &what),
                Err(error) => self.say(node, NodeUpgradeState::Draining, &format!("{error:#}")),
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.say(
            node,
            NodeUpgradeState::Restarting,
            "its kubelet starts again",
        );
        let order = KubernetesOrder {
            step: KubernetesStep::Kubelet,
            hands_over: false,
            ..order
        };
        self.order(Order::Kubernetes(order), server).await?;
        self.comes_back(node, client).await?;
        member
            .uncordon()
            .await
            .map_err(|error| format!("{error:#}"))
    }

    pub(super) async fn order(&self, order: Order, server: &Server) -> Result<(), String> {
        let node = ssh_node(server).ok_or("its address is not known")?;
        let done = self.hands.order(&node, &order, WORK_TIME).await;
        done.map(drop).map_err(|error| error.message)
    }

    async fn comes_back(&self, node: &NodeUpgrade, client: &Client) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let why = match cluster::node(client, &node.name).await {
                Ok(Some(now)) if now.kubelet == self.spec.version && now.is_ready => return Ok(()),
                Ok(Some(now)) if now.kubelet == self.spec.version => {
                    "it is not Ready yet".to_owned()
                }
                Ok(Some(now)) => format!("its kubelet is still {}", now.kubelet),
                Ok(None) => "its node is gone".to_owned(),
                Err(error) => format!("{error:#}"),
            };
            if began.elapsed() > RETURN_TIME {
                return Err(why);
            }
            self.say(node, NodeUpgradeState::Restarting, &why);
            tokio::time::sleep(PAUSE).await;
        }
    }
}
