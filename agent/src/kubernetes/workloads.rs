//! Pods of people on the box (`box.workloads` of site.yaml): a namespace in the box's own Kubernetes, in which all of them together have
//! what the machine has beyond the box's share, and no more.

use anyhow::{Context, Result};
use firstlight_api::{bounded, names::WORKLOADS, status::Problem};
use k8s_openapi::{
    api::core::v1::{Namespace, Node},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::apply::{apply, parse_manifest};
use crate::pki::NODE_NAME;

const MANIFEST: &str = include_str!("workloads.yaml");
const MIB: u64 = 1 << 20;
/// Memory that stays the box's: a box with a cluster uses 1.3 GB, its files are read through the rest, and the limits of its pods allow as much.
const BOX_MEMORY: u64 = 3 << 30;
/// Less is not worth a namespace.
const LEAST_MEMORY: u64 = 256 * MIB;
/// Of the partition that also holds etcd, uploads and logs.
const DISK_SHARE: u64 = 8;

/// What all pods of people have together.
#[derive(Debug, PartialEq, Eq)]
pub struct Share {
    milli_cpu: u64,
    memory: u64,
    disk: u64,
}

impl Share {
    /// Half of the processors, the memory beyond the box's, an eighth of the disk; nothing where the memory is too small for both.
    pub fn of(milli_cpu: u64, memory: u64, disk: u64) -> Option<Self> {
        let memory = memory.saturating_sub(BOX_MEMORY);
        (memory >= LEAST_MEMORY).then_some(Self {
            milli_cpu: milli_cpu / 2,
            memory,
            disk: disk / DISK_SHARE,
        })
    }

    fn of_node(node: &Node) -> Result<Option<Self>> {
        let status = node.status.as_ref();
        let capacity = status.and_then(|status| status.capacity.as_ref());
        let amount = |of: &str| {
            let found = capacity.and_then(|capacity| capacity.get(of));
            let found = found.with_context(|| format!("the box's node does not say its {of}"))?;
            milli(found).with_context(|| format!("the box's node has {of} {:?}", found.0))
        };
        let (cpu, memory, disk) = (
            amount("cpu")?,
            amount("memory")? / 1000,
            amount("ephemeral-storage")? / 1000,
        );
        Ok(Self::of(
            u64::try_from(cpu)?,
            u64::try_from(memory)?,
            u64::try_from(disk)?,
        ))
    }
}

/// In thousandths, as kubelet writes amounts: a whole number, alone or with one of these.
fn milli(quantity: &Quantity) -> Option<u128> {
    let text = quantity.0.as_str();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok()?;
    let unit: u128 = match unit {
        "m" => 1,
        "" => 1000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        _ => return None,
    };
    Some(u128::from(number) * unit)
}

/// Once the node is there. What a person is to know of it comes back.
///
/// # Errors
/// The API server does not answer, or does not take one.
pub async fn keep(client: &Client, wanted: bool) -> Result<Vec<Problem>> {
    if !wanted {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        // What runs goes on until a person ends it; nothing new comes.
        if namespaces.get_opt(WORKLOADS).await?.is_some() {
            write(client, quota(None)).await?;
        }
        return Ok(Vec::new());
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let share = Share::of_node(&nodes.get(NODE_NAME).await?)?;
    for object in parse_manifest(MANIFEST)? {
        apply(client, &object).await?;
    }
    let problem = share.is_none().then(|| Problem {
        what: bounded::sentence(&format!(
            "site.yaml has `workloads: true`, but this machine has too little memory for pods of people: the box keeps {} MiB, and they need {} MiB",
            BOX_MEMORY / MIB,
            LEAST_MEMORY / MIB
        )),
        next: "give the machine more memory, or take `workloads` out".to_owned(),
    });
    write(client, quota(share.as_ref())).await?;
    Ok(problem.into_iter().collect())
}

async fn write(client: &Client, object: Value) -> Result<()> {
    apply(client, &serde_json::from_value(object)?).await
}

/// Objects are counted, too: they are in etcd. Nothing but the box and its pods reaches a port of the node, so none is promised.
pub fn quota(share: Option<&Share>) -> Value {
    let mut hard = json!({
        "pods": if share.is_some() { "32" } else { "0" },
        "services": "32", "services.nodeports": "0", "services.loadbalancers": "0", "persistentvolumeclaims": "0",
        "configmaps": "64", "secrets": "64", "count/deployments.apps": "32", "count/replicasets.apps": "128",
        "count/statefulsets.apps": "32", "count/daemonsets.apps": "32", "count/jobs.batch": "64", "count/cronjobs.batch": "32",
    });
    if let Some(share) = share {
        for of in ["requests", "limits"] {
            hard[format!("{of}.cpu")] = json!(format!("{}m", share.milli_cpu));
            hard[format!("{of}.memory")] = json!(format!("{}Mi", share.memory / MIB));
            hard[format!("{of}.ephemeral-storage")] = json!(format!("{}Mi", share.disk / MIB));
        }
    }
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "share", "namespace": WORKLOADS}, "spec": {"hard": hard},
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn node(cpu: &str, memory: &str, disk: &str) -> Node {
        let capacity = json!({"cpu": cpu, "memory": memory, "ephemeral-storage": disk});
        serde_json::from_value(json!({"status": {"capacity": capacity}})).unwrap()
    }

    #[test]
    fn the_box_keeps_its_share_of_what_its_node_says() {
        let share = Share::of_node(&node("4", "8388608Ki", "30408704Ki")).unwrap();
        let expected = Share {
            milli_cpu: 2000,
            memory: 5 << 30,
            disk: 3_892_314_112,
        };
        assert_eq!(share, Some(expected));
        let hard = quota(share.as_ref())["spec"]["hard"].clone();
        for (of, amount) in [
            ("limits.cpu", "2000m"),
            ("requests.memory", "5120Mi"),
            ("limits.ephemeral-storage", "3712Mi"),
            ("services.nodeports", "0"),
            ("pods", "32"),
        ] {
            assert_eq!(hard[of], amount, "{of}");
        }
    }

    #[test]
    fn a_small_machine_has_no_room_for_people() {
        let small = Share::of_node(&node("2", "3145728Ki", "30408704Ki")).unwrap();
        assert_eq!(small, None);
        assert_eq!(quota(None)["spec"]["hard"]["pods"], "0");
    }

    #[test]
    fn a_node_that_says_something_else_gives_no_share() {
        for memory in ["", "Ki", "8e9", "-1Ki", "99999999999999999999Ki"] {
            assert!(
                Share::of_node(&node("2", memory, "30408704Ki")).is_err(),
                "{memory}"
            );
        }
        assert!(Share::of_node(&Node::default()).is_err());
    }
}
