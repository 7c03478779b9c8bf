//! `BareMetalHost` objects in Kubernetes, by server-side apply: fields that others wrote stay theirs.

use anyhow::{Context, Result};
use firstlight_api::bmh::{self, BareMetalHost};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{object::NAMESPACE, store::HostStore};

const MANAGER: &str = "firstlight-hosts";

#[derive(Clone)]
pub struct KubeStore {
    api: Api<DynamicObject>,
}

impl KubeStore {
    pub fn new(client: Client) -> Self {
        let kind = GroupVersionKind::gvk(bmh::GROUP, bmh::VERSION, bmh::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, bmh::PLURAL);
        Self {
            api: Api::namespaced_with(client, NAMESPACE, &resource),
        }
    }
}

/// The part that is applied: identity, and one of `spec` and `status`.
fn part(host: &BareMetalHost, key: &str, value: &Value) -> Value {
    json!({
        "apiVersion": bmh::API_VERSION,
        "kind": bmh::KIND,
        "metadata": {"name": host.metadata.name, "namespace": NAMESPACE},
        key: value,
    })
}

impl HostStore for KubeStore {
    async fn list(&self) -> Result<Vec<BareMetalHost>> {
        let list = self
            .api
            .list(&ListParams::default())
            .await
            .context("listing BareMetalHosts")?;
        let read = |object: DynamicObject| {
            let name = object.metadata.name.clone().unwrap_or_default();
            let value = serde_json::to_value(object)?;
            serde_json::from_value(value)
                .with_context(|| format!("reading the BareMetalHost {name}"))
        };
        list.items.into_iter().map(read).collect()
    }

    async fn apply(&self, host: &BareMetalHost) -> Result<()> {
        let name = &host.metadata.name;
        let patch = part(host, "spec", &serde_json::to_value(&host.spec)?);
        let parameters = PatchParams::apply(MANAGER).force();
        let applied = self
            .api
            .patch(name, &parameters, &Patch::Apply(&patch))
            .await;
        applied
            .map(drop)
            .with_context(|| format!("writing the BareMetalHost {name}"))
    }

    async fn apply_status(&self, host: &BareMetalHost) -> Result<()> {
        let name = &host.metadata.name;
        let patch = part(host, "status", &serde_json::to_value(&host.status)?);
        let parameters = PatchParams::apply(MANAGER).force();
        let applied = self
            .api
            .patch_status(name, &parameters, &Patch::Apply(&patch))
            .await;
        applied
            .map(drop)
            .with_context(|| format!("writing the status of the BareMetalHost {name}"))
    }
}
