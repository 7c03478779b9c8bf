//! A node of a workload cluster around a restart: cordoned, emptied, and uncordoned when it is well again.
//!
//! Pods leave by the eviction API, so a budget holds them as long as it must. A node that somebody else had cordoned stays so:
//! only the annotation says that it was this agent.

use anyhow::{Context, Result};
use firstlight_api::{bounded, software::CORDONED_ANNOTATION};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{EvictParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::workload::{self, load_balancer};

/// Too many at the moment: a budget, or a busy API server.
const NOT_NOW: u16 = 429;
const NOT_FOUND: u16 = 404;
const HELD: &str = " may not go: ";

/// One node of one cluster, and for whom it is held.
#[derive(Clone)]
pub struct Member {
    /// Of the box.
    pub client: Client,
    pub namespace: String,
    pub cluster: String,
    pub node: String,
    /// `NAMESPACE/NAME` of the Software.
    pub holder: String,
}

/// How far a drain is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drained {
    Empty,
    /// What is left, for people.
    Waits(String),
}

/// What is to become of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It belongs to the node, or has ended.
    Stays,
    Evict,
    /// It was told to go.
    Goes,
}

impl Member {
    /// The cluster's API and the node in it; `None` where one of them is gone.
    async fn reach(&self) -> Result<Option<(Client, Node)>> {
        let kubeconfig = workload::kubeconfig(&self.client, &self.namespace, &self.cluster).await?;
        let Some(kubeconfig) = kubeconfig else {
            return Ok(None);
        };
        let client = workload::client(&kubeconfig).await?;
        let node = Api::<Node>::all(client.clone()).get_opt(&self.node).await;
        Ok(node.context("reading the node")?.map(|node| (client, node)))
    }

    async fn patch(&self, client: Client, patch: &Value) -> Result<()> {
        let nodes: Api<Node> = Api::all(client);
        let patched = nodes
            .patch(&self.node, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.map(drop).context("writing the node")
    }

    /// One step: no new pods come, addresses of services move, and those that may go are told to.
    pub async fn drain(&self) -> Result<Drained> {
        let Some((client, node)) = self.reach().await? else {
            return Ok(Drained::Empty);
        };
        if let Some(patch) = cordon(&node, &self.holder) {
            self.patch(client.clone(), &patch).await?;
        }
        load_balancer::exclude(&client, &node, &self.holder).await?;
        let here = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let pods = Api::<Pod>::all(client.clone())
            .list(&here)
            .await
            .context("listing pods")?;
        let mut left = Vec::new();
        for pod in &pods.items {
            let found = match fate(pod) {
                Fate::Stays => None,
                Fate::Goes => Some(title(pod)),
                Fate::Evict => evict(&client, pod).await?,
            };
            left.extend(found);
        }
        Ok(told(&left).map_or(Drained::Empty, Drained::Waits))
    }

    /// Whether kubelet of this start of the kernel has said that it is well.
    pub async fn is_back(&self, boot_id: &str) -> Result<bool> {
        let found = self.reach().await?;
        Ok(found.is_none_or(|(_, node)| is_well(&node, boot_id)))
    }

    /// Whether it was cordoned for us and not uncordoned since.
    pub async fn is_held(&self) -> Result<bool> {
        let found = self.reach().await?;
        Ok(found.is_some_and(|(_, node)| is_held(&node, &self.holder)))
    }

    /// If it was cordoned for us.
    pub async fn uncordon(&self) -> Result<()> {
        let Some((client, node)) = self.reach().await? else {
            return Ok(());
        };
        load_balancer::include(&client, &node, &self.holder).await?;
        if !is_held(&node, &self.holder) {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"annotations": {CORDONED_ANNOTATION: null}},
            "spec": {"unschedulable": null},
        });
        self.patch(client, &patch).await
    }
}

/// What is left of it: nothing if it is gone already.
async fn evict(client: &Client, pod: &Pod) -> Result<Option<String>> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(client.clone(), &text(&pod.metadata.namespace));
    match api
        .evict(&text(&pod.metadata.name), &EvictParams::default())
        .await
    {
        Ok(_) => Ok(Some(title(pod))),
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(None),
        Err(kube::Error::Api(status)) if status.code == NOT_NOW => {
            let why = status.message.trim_end_matches('.');
            Ok(Some(format!("{}{HELD}{why}", title(pod))))
        }
        Err(error) => Err(error).with_context(|| format!("evicting {}", title(pod))),
    }
}

/// `None`: it is cordoned already, by whomever.
fn cordon(node: &Node, holder: &str) -> Option<Value> {
    let is_cordoned = node
        .spec
        .as_ref()
        .is_some_and(|spec| spec.unschedulable == Some(true));
    (!is_cordoned).then(|| {
        json!({
            "metadata": {"annotations": {CORDONED_ANNOTATION: holder}},
            "spec": {"unschedulable": true},
        })
    })
}

fn is_held(node: &Node, holder: &str) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(CORDONED_ANNOTATION))
        .is_some_and(|found| found == holder)
}

fn is_well(node: &Node, boot_id: &str) -> bool {
    let Some(status) = &node.status else {
        return false;
    };
    let conditions = status.conditions.iter().flatten();
    let ready = conditions
        .filter(|one| one.type_ == "Ready")
        .any(|one| one.status == "True");
    // The word of before the restart holds for a while after it.
    ready
        && status
            .node_info
            .as_ref()
            .is_some_and(|info| info.boot_id == boot_id)
}

fn title(pod: &Pod) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    format!(
        "{}/{}",
        text(&pod.metadata.namespace),
        text(&pod.metadata.name)
    )
}

fn fate(pod: &Pod) -> Fate {
    let meta = &pod.metadata;
    let annotations = meta.annotations.as_ref();
    let is_mirror = annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror"));
    let mut owners = meta.owner_references.iter().flatten();
    let is_daemon = owners.any(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true));
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if is_mirror || is_daemon || matches!(phase, Some("Succeeded" | "Failed")) {
        Fate::Stays
    } else if meta.deletion_timestamp.is_some() {
        Fate::Goes
    } else {
        Fate::Evict
    }
}

/// Those that may not go are told first. Names and reasons are the cluster's words.
fn told(left: &[String]) -> Option<String> {
    let held = left.iter().find(|pod| pod.contains(HELD));
    let first = bounded::sentence(held.or(left.first())?);
    Some(match left.len() - 1 {
        0 => format!("its pods are moved away: {first}"),
        others => format!("its pods are moved away: {first}, and {others} more"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pods_of_the_node_itself_stay_and_all_others_go() {
        for (pod, expected) in [
            (json!({}), Fate::Evict),
            (
                json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
                Fate::Stays,
            ),
            (
                json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true}]}}),
                Fate::Stays,
            ),
            (
                json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "d", "uid": "u", "controller": true}]}}),
                Fate::Evict,
            ),
            (json!({"status": {"phase": "Succeeded"}}), Fate::Stays),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                Fate::Goes,
            ),
        ] {
            let read: Pod = serde_json::from_value(pod.clone()).unwrap();
            assert_eq!(fate(&read), expected, "{pod}");
        }
    }

    #[test]
    fn only_what_was_cordoned_for_this_software_is_uncordoned() {
        let node = |unschedulable: bool, holder: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"annotations": {CORDONED_ANNOTATION: holder}},
                "spec": {"unschedulable": unschedulable},
            }))
            .unwrap()
        };
        assert!(cordon(&node(false, ""), "default/a").is_some());
        assert!(cordon(&node(true, ""), "default/a").is_none());
        assert!(is_held(&node(true, "default/a"), "default/a"));
        assert!(!is_held(&node(true, "default/b"), "default/a"));
    }

    #[test]
    fn a_node_is_back_when_its_new_kernel_says_so() {
        let node = |ready: &str, boot_id: &str| -> Node {
            let info = json!({"bootID": boot_id, "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""});
            serde_json::from_value(json!({"status": {
                "conditions": [{"type": "Ready", "status": ready}], "nodeInfo": info,
            }}))
            .unwrap()
        };
        for (ready, boot_id, well) in [
            ("True", "2", true),
            ("True", "1", false),
            ("Unknown", "2", false),
        ] {
            assert_eq!(
                is_well(&node(ready, boot_id), "2"),
                well,
                "{ready} {boot_id}"
            );
        }
    }

    #[test]
    fn a_pod_that_its_budget_holds_is_told_first() {
        let left = ["a/one".to_owned(), "a/two may not go: budget".to_owned()];
        let said = told(&left).unwrap();
        assert_eq!(
            said,
            "its pods are moved away: a/two may not go: budget, and 1 more"
        );
        assert_eq!(told(&[]), None);
    }

    /// Any JSON at the places that are looked at.
    fn said() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "(Ready|True|False|DaemonSet|Succeeded|2026-01-01T00:00:00Z|.{0,8})".prop_map(Value::from),
            (".{0,8}", 0..400_usize).prop_map(|(word, times)| Value::from(word.repeat(times))),
            ".{0,8}".prop_map(|word| json!([{"type": word, "status": word, "kind": word, "name": word}])),
            ".{0,8}".prop_map(|word| json!({ CORDONED_ANNOTATION: word, "kubernetes.io/config.mirror": word, "bootID": word })),
        ]
    }

    proptest! {
        /// A cluster is its users': its pods and nodes may say anything.
        #[test]
        fn whatever_a_cluster_says_of_its_pods_is_a_short_line(
            name in said(), namespace in said(), annotations in said(), owners in said(), deleted in said(), phase in said(),
            why in ".{0,2000}", is_held in any::<bool>(), others in 0..3_usize,
        ) {
            let pod = json!({
                "metadata": {"name": name, "namespace": namespace, "annotations": annotations, "ownerReferences": owners, "deletionTimestamp": deleted},
                "status": {"phase": phase},
            });
            let Ok(pod) = serde_json::from_value::<Pod>(pod) else {
                return Ok(());
            };
            let stays = matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
            prop_assert!(!stays || fate(&pod) == Fate::Stays);
            prop_assert!(fate(&pod) != Fate::Goes || pod.metadata.deletion_timestamp.is_some());
            let mut left = vec![title(&pod); others];
            left.push(if is_held { format!("{}{HELD}{why}", title(&pod)) } else { title(&pod) });
            let line = told(&left).unwrap();
            prop_assert!(line.chars().count() < 1100 && !line.contains(char::is_control), "{line}");
        }

        #[test]
        fn whatever_a_cluster_says_of_a_node_only_one_that_is_held_for_us_is_ours(
            annotations in said(), unschedulable in said(), conditions in said(), info in said(), holder in "[a-z]{0,4}/[a-z]{0,4}", boot_id in ".{0,8}",
        ) {
            let node = json!({
                "metadata": {"annotations": annotations}, "spec": {"unschedulable": unschedulable},
                "status": {"conditions": conditions, "nodeInfo": info},
            });
            let Ok(mut node) = serde_json::from_value::<Node>(node) else {
                return Ok(());
            };
            is_well(&node, &boot_id);
            let is_cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
            let patch = cordon(&node, &holder);
            prop_assert_eq!(patch.is_none(), is_cordoned);
            prop_assert!(!is_held(&node, &holder));
            node.metadata.annotations.get_or_insert_default().insert(CORDONED_ANNOTATION.to_owned(), holder.clone());
            prop_assert!(is_held(&node, &holder));
        }
    }
}
