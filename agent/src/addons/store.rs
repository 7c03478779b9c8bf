//! The two API servers: the box's, where addons are, and a workload cluster's, where they run.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use firstlight_api::{
    addon::{self, Addon, AddonStatus},
    software::Software,
};
use futures_util::StreamExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::health::{self, Part, Verdict};
use crate::{
    capi::{Listed, read_dynamic},
    software, workload,
};

const MANAGER: &str = "firstlight-addons";

/// `NAMESPACE/NAME`
pub fn key(addon: &Addon) -> String {
    format!("{}/{}", addon.metadata.namespace, addon.metadata.name)
}

/// Where its objects go that name no namespace.
pub fn namespace(addon: &Addon) -> &str {
    match addon.spec.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    }
}

#[derive(Clone)]
pub struct Store {
    client: Client,
}

/// A workload cluster that can be asked.
pub struct Target {
    pub kubeconfig: String,
    client: Client,
}

impl Store {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn api(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(addon::GROUP, addon::VERSION, addon::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, addon::PLURAL);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Says that some addon changed.
    pub async fn follow(self, changed: mpsc::Sender<()>) {
        let events = watcher(self.api(None), watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                // A full channel: a look is due already.
                Ok(_) => drop(changed.try_send(())),
                Err(error) => tracing::debug!(%error, "watching addons again"),
            }
        }
    }

    pub async fn addons(&self) -> Result<Listed<Addon>> {
        let list = self.api(None).list(&ListParams::default()).await;
        Ok(read_dynamic(
            addon::KIND,
            &list.context("listing Addons")?.items,
        ))
    }

    /// What addons may depend on besides each other.
    pub async fn software(&self) -> Result<Vec<Software>> {
        let client = self.client.clone();
        // Who looks after software tells what cannot be read of it.
        Ok(software::Store { client }.software().await?.objects)
    }

    pub async fn write_status(&self, addon: &Addon, status: &AddonStatus) -> Result<()> {
        let patch = json!({"status": status});
        self.patch(addon, &patch, true).await
    }

    /// It stays until what it installed is removed.
    pub async fn hold(&self, addon: &Addon) -> Result<()> {
        if addon.metadata.has_finalizer(addon::FINALIZER) {
            return Ok(());
        }
        let finalizers = [
            addon.metadata.finalizers.clone(),
            vec![addon::FINALIZER.to_owned()],
        ]
        .concat();
        self.finalizers(addon, &finalizers).await
    }

    pub async fn let_go(&self, addon: &Addon) -> Result<()> {
        let mut finalizers = addon.metadata.finalizers.clone();
        finalizers.retain(|name| name != addon::FINALIZER);
        self.finalizers(addon, &finalizers).await
    }

    async fn finalizers(&self, addon: &Addon, finalizers: &[String]) -> Result<()> {
        let version = &addon.metadata.resource_version;
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
        self.patch(addon, &patch, false).await
    }

    async fn patch(&self, addon: &Addon, patch: &Value, status: bool) -> Result<()> {
        let api = self.api(Some(&addon.metadata.namespace));
        let parameters = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let (name, patch) = (&addon.metadata.name, Patch::Merge(patch));
        let written = if status {
            api.patch_status(name, &parameters, &patch).await
        } else {
            api.patch(name, &parameters, &patch).await
        };
        written
            .map(drop)
            .with_context(|| format!("writing the Addon {name}"))
    }

    /// The cluster of an addon, or what it waits for.
    pub async fn target(&self, addon: &Addon) -> Result<Result<Target, String>> {
        let (namespace, cluster) = (&addon.metadata.namespace, &addon.spec.cluster);
        let Some(kubeconfig) = workload::kubeconfig(&self.client, namespace, cluster).await? else {
            return Ok(Err(format!("there is no API of a cluster {cluster} yet")));
        };
        let client = workload::client(&kubeconfig).await?;
        if let Err(error) = client.apiserver_version().await {
            return Ok(Err(format!(
                "the API of the cluster {cluster} does not answer: {error}"
            )));
        }
        Ok(Ok(Target { kubeconfig, client }))
    }

    /// `None`: the cluster is gone, and everything on it.
    pub async fn target_of_removal(&self, addon: &Addon) -> Result<Option<Target>> {
        let (namespace, cluster) = (&addon.metadata.namespace, &addon.spec.cluster);
        let Some(kubeconfig) = workload::kubeconfig(&self.client, namespace, cluster).await? else {
            return Ok(None);
        };
        let client = workload::client(&kubeconfig).await?;
        Ok(Some(Target { kubeconfig, client }))
    }
}

impl Target {
    pub async fn examine(&self, part: &Part) -> Result<Verdict> {
        let kind = GroupVersionKind::gvk(part.kind.group, part.kind.version, part.kind.name);
        let resource = ApiResource::from_gvk_with_plural(&kind, part.kind.plural);
        let api: Api<DynamicObject> = match &part.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let found = api.get_opt(&part.name).await;
        let Some(object) = found.with_context(|| format!("asking for {}", part.title()))? else {
            return Ok(Verdict::Gone(format!(
                "{} is gone; it is made again",
                part.title()
            )));
        };
        let object = serde_json::to_value(object)?;
        let first = health::judge(part, &object, &[]);
        if first == Verdict::Well {
            return Ok(first);
        }
        let pods = self.pods(part, &object).await?;
        Ok(health::judge(part, &object, &pods))
    }

    async fn pods(&self, part: &Part, object: &Value) -> Result<Vec<Value>> {
        let selector: BTreeMap<String, String> =
            serde_json::from_value(object["spec"]["selector"]["matchLabels"].clone())
                .unwrap_or_default();
        let (Some(namespace), false) = (&part.namespace, selector.is_empty()) else {
            return Ok(Vec::new());
        };
        let labels: Vec<String> = selector
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let kind = GroupVersionKind::gvk("", "v1", "Pod");
        let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        let list = api
            .list(&ListParams::default().labels(&labels.join(",")))
            .await;
        let list = list.with_context(|| format!("asking for the pods of {}", part.title()))?;
        list.items
            .into_iter()
            .map(|pod| Ok(serde_json::to_value(pod)?))
            .collect()
    }
}
