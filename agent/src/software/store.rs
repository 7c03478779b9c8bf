//! The box's API server: Software objects, and the servers and machines that they are about.

use std::sync::Arc;

use anyhow::{Context, Result};
use firstlight_api::{
    site::SiteConfig,
    software::{self, Software, SoftwareStatus},
};
use futures_util::StreamExt;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::capi::{
    HOSTS, Listed, MACHINES, METAL3_MACHINES, Resource, read_dynamic,
    world::{Key, World, keyed},
};

const MANAGER: &str = "firstlight-software";
pub const SOFTWARE: Resource = Resource(
    software::GROUP,
    software::VERSION,
    software::KIND,
    software::PLURAL,
);

#[derive(Clone)]
pub struct Store {
    pub client: Client,
}

impl Store {
    /// Says that one of these changed.
    pub async fn follow(self, resource: Resource, changed: mpsc::Sender<()>) {
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.client, &resource.api());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                // A full channel: a look is due already.
                Ok(_) => drop(changed.try_send(())),
                Err(error) => tracing::debug!(kind = resource.2, %error, "watching again"),
            }
        }
    }

    pub async fn software(&self) -> Result<Listed<Software>> {
        self.list(SOFTWARE).await
    }

    /// As much of the world as says which server is which node.
    pub async fn world(&self, site: Arc<SiteConfig>) -> Result<World> {
        let hosts = self.list(HOSTS).await?;
        let machines = self.list(MACHINES).await?;
        let metal3_machines = self.list(METAL3_MACHINES).await?;
        Ok(World {
            site,
            hosts: keyed(hosts.objects),
            machines: keyed(machines.objects),
            metal3_machines: keyed(metal3_machines.objects),
            unreadable: [
                hosts.unreadable,
                machines.unreadable,
                metal3_machines.unreadable,
            ]
            .concat(),
            ..World::default()
        })
    }

    /// Nothing, where the kind is not served: a site without clusters has no machines.
    async fn list<T: DeserializeOwned>(&self, resource: Resource) -> Result<Listed<T>> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource.api());
        let items = match api.list(&ListParams::default()).await {
            Ok(list) => list.items,
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error).with_context(|| format!("listing {}", resource.3)),
        };
        Ok(read_dynamic(resource.2, &items))
    }

    pub async fn write_status(&self, key: &Key, status: &SoftwareStatus) -> Result<()> {
        let patch = json!({"status": status});
        let written = self
            .api(key)
            .patch_status(&key.name, &parameters(), &Patch::Merge(&patch))
            .await;
        written
            .map(drop)
            .with_context(|| format!("writing the status of {key}"))
    }

    /// It stays until no node is held for it.
    pub async fn hold(&self, software: &Software) -> Result<()> {
        if software.metadata.has_finalizer(software::FINALIZER) {
            return Ok(());
        }
        let mut finalizers = software.metadata.finalizers.clone();
        finalizers.push(software::FINALIZER.to_owned());
        self.finalizers(software, &finalizers).await
    }

    pub async fn let_go(&self, software: &Software) -> Result<()> {
        let mut finalizers = software.metadata.finalizers.clone();
        finalizers.retain(|name| name != software::FINALIZER);
        self.finalizers(software, &finalizers).await
    }

    async fn finalizers(&self, software: &Software, finalizers: &[String]) -> Result<()> {
        let (key, version) = (
            Key::of(&software.metadata),
            &software.metadata.resource_version,
        );
        let patch: Value =
            json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
        let written = self
            .api(&key)
            .patch(&key.name, &parameters(), &Patch::Merge(&patch))
            .await;
        written.map(drop).with_context(|| format!("writing {key}"))
    }

    fn api(&self, key: &Key) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &key.namespace, &SOFTWARE.api())
    }
}

fn parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
