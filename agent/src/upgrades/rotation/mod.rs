//! One round of a rotation of a cluster's certificate authorities: look, plan, and bring at most one node one step further.
//!
//! First all nodes believe both, and pods are made anew that do not; then control planes sign by the new ones, kubelets ask for certificates of
//! them, and at last the old ones are forgotten. How far a node is says its own annotation, so that a round that was cut is begun again from anywhere.

mod plan;
mod secrets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use firstlight_api::{
    authorities::{AuthoritiesOrder, AuthoritiesStep as Step, LABEL},
    packages::Order,
    upgrade::{NodeUpgradeState, UpgradeState},
};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use self::{
    plan::{Planned, Stage, plan},
    secrets::{Next, Secrets, authority},
};
use super::{
    cluster,
    held::Share,
    job::{News, Work},
};
use crate::{
    software::Hands,
    workload::authorities::{published, renew_pods, settles_in, tell_newcomers},
};

/// The client of a round knows the kubeconfig of its beginning.
const BY_ANOTHER_WAY: &str = "the box asks the cluster by another kubeconfig from now on";
/// Pods that are named, of those that are waited for.
const MOST_NAMED: usize = 3;

impl<H: Hands, T: Fn(News) + Send + Sync> Work<H, T> {
    pub(super) async fn rotate(&self, client: &Client) -> Result<(UpgradeState, String)> {
        let told = cluster::nodes(client).await?;
        let refused = |why: String| Ok((UpgradeState::Refused, why));
        let secrets = Secrets {
            client: &self.client,
            namespace: &self.namespace,
            cluster: &self.spec.cluster,
        };
        let begun = secrets.begun(&self.uid).await?;
        if begun.as_ref().is_some_and(|next| next.is_done) {
            self.owners().let_go().await?;
            return Ok((UpgradeState::Done, String::new()));
        }
        let rotation = begun.as_ref().map(Next::rotation).transpose()?;
        let nodes = match plan(&self.spec, &self.known, &told, rotation.as_deref()) {
            Ok(nodes) => nodes,
            Err(why) => return refused(why),
        };
        let planned = nodes.iter().map(|planned| planned.node.clone());
        (self.tell)(News::Planned(planned.collect()));
        if self.spec.paused {
            let paused = "no further node is begun while the spec says `paused: true`";
            return Ok((UpgradeState::Paused, paused.to_owned()));
        }
        for share in Share::ALL {
            if let Err(why) = self.owners().hold(share, None).await? {
                self.owners().let_go().await?;
                return refused(why);
            }
        }
        let Some(next) = begun else {
            let cluster = self.known.cluster.as_ref().context("the cluster is gone")?;
            secrets.make(cluster, &self.uid).await?;
            return Ok((UpgradeState::Upgrading, String::new()));
        };
        if let Some(node) = told.iter().find(|node| !node.is_ready) {
            let why = format!("it goes on when the node {} is Ready again", node.name);
            return Ok((UpgradeState::Upgrading, why));
        }
        match Stage::of(&nodes) {
            Stage::Done => {
                tell_newcomers(client, &next.pairs["ca"].certificate).await?;
                self.owners().let_go().await?;
                secrets.finish().await?;
                Ok((UpgradeState::Done, String::new()))
            }
            Stage::Next(step, place, is_first) => {
                let current = secrets.current().await?;
                if is_first {
                    let waits = self.before(step, &secrets, &current["ca"], &next, client);
                    if let Some(why) = waits.await? {
                        return Ok((UpgradeState::Upgrading, why));
                    }
                }
                let order = order(step, &nodes, place, &current, &next)?;
                self.take(&nodes[place], order, client).await
            }
        }
    }

    /// What must be true before the first node takes this step, or what it waits for.
    async fn before(
        &self,
        step: Step,
        secrets: &Secrets<'_>,
        old: &str,
        next: &Next,
        client: &Client,
    ) -> Result<Option<String>> {
        let new = next.pairs["ca"].certificate.as_str();
        match step {
            Step::Trust | Step::Kubelet => Ok(None),
            Step::Issue => {
                let both = authority(old, Some(new), None)?.certificates;
                if secrets.believe(&both).await? {
                    return Ok(Some(BY_ANOTHER_WAY.to_owned()));
                }
                tell_newcomers(client, &both).await?;
                let published = match published(client, &both).await? {
                    Ok(published) => published,
                    Err(namespace) => {
                        let why = format!(
                            "it goes on when pods of the namespace {namespace} are given both authorities"
                        );
                        return Ok(Some(why));
                    }
                };
                tokio::time::sleep(settles_in(&published)).await;
                let left = renew_pods(client, &published, &next.rotation()?).await?;
                Ok(waits_for(&left))
            }
            Step::Forget => {
                let is_news = secrets.switch(next).await?;
                Ok(is_news.then(|| BY_ANOTHER_WAY.to_owned()))
            }
        }
    }

    async fn take(
        &self,
        planned: &Planned,
        order: AuthoritiesOrder,
        client: &Client,
    ) -> Result<(UpgradeState, String)> {
        let (node, step) = (&planned.node, order.step);
        let mark = step.mark(&order.rotation);
        self.say(node, NodeUpgradeState::Upgrading, says(step));
        if let Err(why) = self.order(Order::Authorities(order), &planned.server).await {
            self.say(node, NodeUpgradeState::Failed, &why);
            let why = format!(
                "{}: {why}. No other node is touched before this one is well; it is tried again",
                node.name
            );
            return Ok((UpgradeState::Stopped, why));
        }
        let patch = json!({"metadata": {"annotations": {LABEL: mark}}});
        let nodes: Api<Node> = Api::all(client.clone());
        let patched = nodes
            .patch(&node.name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.with_context(|| format!("writing the node {}", node.name))?;
        let state = match step {
            Step::Forget => NodeUpgradeState::Ready,
            Step::Trust | Step::Issue | Step::Kubelet => NodeUpgradeState::Waiting,
        };
        self.say(node, state, "");
        Ok((UpgradeState::Upgrading, String::new()))
    }
}

/// What is done there, for people.
const fn says(step: Step) -> &'static str {
    match step {
        Step::Trust => "step 1 of 4: it is made to believe both authorities",
        Step::Issue => "step 2 of 4: its control plane gets certificates of the new ones",
        Step::Kubelet => "step 3 of 4: its kubelet asks for a certificate of the new one",
        Step::Forget => "step 4 of 4: it forgets the old ones",
    }
}

fn waits_for(pods: &[String]) -> Option<String> {
    let named = pods.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>();
    let others = match pods.len().saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!pods.is_empty()).then(|| {
        format!(
            "it goes on when these pods have been made anew, which believe the old authority only: {}{others}. Delete those that nobody makes anew",
            named.join(", ")
        )
    })
}

fn order(
    step: Step,
    nodes: &[Planned],
    place: usize,
    current: &BTreeMap<&'static str, String>,
    next: &Next,
) -> Result<AuthoritiesOrder> {
    let node = &nodes[place].node;
    let of = |name: &str| {
        let (old, pair) = (current[name].as_str(), &next.pairs[name]);
        let new = pair.certificate.as_str();
        match step {
            Step::Trust => authority(old, Some(new), None),
            Step::Issue => authority(new, Some(old), Some(&pair.key)),
            Step::Kubelet | Step::Forget => authority(new, None, None),
        }
    };
    let of_control_plane = |name: &str| node.control_plane.then(|| of(name)).transpose();
    let others = nodes.iter().filter(|other| other.node.name != node.name);
    Ok(AuthoritiesOrder {
        step,
        rotation: next.rotation()?,
        node: node.name.clone(),
        hands_over: node.control_plane
            && step != Step::Kubelet
            && others.into_iter().any(|other| other.node.control_plane),
        cluster: of("ca")?,
        etcd: of_control_plane("etcd")?,
        front_proxy: of_control_plane("proxy")?,
    })
}
