//! On each node: says to the scheduler how much its disk still takes, so that a pod whose claim does not fit goes to another node, or is told
//! why it goes to none. The object is its pod's own, and goes with it.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use k8s_openapi::api::{core::v1::Node, storage::v1::CSIStorageCapacity};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::disk::{Disk, Share};

const NAMESPACE: &str = "kube-system";
const MANAGER: &str = "firstlight-volumes";
const HOST: &str = "kubernetes.io/hostname";
const LOOK: Duration = Duration::from_secs(5);
/// It is written again by then, should somebody have changed or removed it.
const AGAIN: u32 = 12;

struct Settings {
    class: String,
    node: String,
    pod: (String, String),
    disk: Disk,
}

impl Settings {
    fn load() -> Result<Self> {
        let variable =
            |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
        let base = PathBuf::from(variable("VOLUMES")?);
        Ok(Self {
            class: variable("STORAGE_CLASS")?,
            node: variable("NODE_NAME")?,
            pod: (variable("POD_NAME")?, variable("POD_UID")?),
            disk: Disk::new(&base, Share::load()?),
        })
    }
}

pub async fn run() -> Result<()> {
    let settings = Settings::load()?;
    let client = Client::try_default().await?;
    let node: Api<Node> = Api::all(client.clone());
    let node = node.get(&settings.node).await.context("reading the node")?;
    // A person may have given it another one than its name.
    let host = node
        .metadata
        .labels
        .and_then(|labels| labels.get(HOST).cloned());
    let host = host.unwrap_or_else(|| settings.node.clone());
    let objects: Api<CSIStorageCapacity> = Api::namespaced(client, NAMESPACE);
    let name = format!("{}-{}", settings.class, settings.node);
    let mut told = None;
    let mut ticks = tokio::time::interval(LOOK);
    for round in 0_u32.. {
        ticks.tick().await;
        let left = settings.disk.left()?;
        if told == Some(left) && round % AGAIN != 0 {
            continue;
        }
        let object = object(&settings, &name, &host, left);
        let params = PatchParams::apply(MANAGER).force();
        match objects.patch(&name, &params, &Patch::Apply(&object)).await {
            Ok(_) if told == Some(left) => {}
            Ok(_) => {
                tracing::info!(bytes = left, "left for volumes");
                told = Some(left);
            }
            Err(error) => {
                tracing::warn!(reason = %error, "the scheduler is not told what is left");
                told = None;
            }
        }
    }
    Ok(())
}

fn object(settings: &Settings, name: &str, host: &str, left: u64) -> serde_json::Value {
    let (pod, uid) = &settings.pod;
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}],
        },
        "storageClassName": settings.class,
        "nodeTopology": {"matchLabels": {HOST: host}},
        "capacity": left.to_string(),
        "maximumVolumeSize": left.to_string(),
    })
}
