//! The API server of the workload cluster that an addon runs on.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use firstlight_api::addon::Addon;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;

use super::health::{self, Part, Verdict};
use crate::workload;

/// A workload cluster that can be asked.
pub struct Target {
    pub kubeconfig: String,
    pub client: Client,
}

impl Target {
    /// The cluster of an addon, or what it waits for.
    pub async fn of(api: &Client, addon: &Addon) -> Result<Result<Self, String>> {
        let cluster = &addon.spec.cluster;
        let Some(target) = Self::for_removal(api, addon).await? else {
            return Ok(Err(format!("there is no API of a cluster {cluster} yet")));
        };
        if let Err(error) = target.client.apiserver_version().await {
            return Ok(Err(format!(
                "the API of the cluster {cluster} does not answer: {error}"
            )));
        }
        Ok(Ok(target))
    }

    /// `None`: the cluster is gone, and everything on it.
    pub async fn for_removal(api: &Client, addon: &Addon) -> Result<Option<Self>> {
        let (namespace, cluster) = (&addon.metadata.namespace, &addon.spec.cluster);
        let Some(kubeconfig) = workload::kubeconfig(api, namespace, cluster).await? else {
            return Ok(None);
        };
        let client = workload::client(&kubeconfig).await?;
        Ok(Some(Self { kubeconfig, client }))
    }

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
