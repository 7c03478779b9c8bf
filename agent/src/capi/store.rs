//! The API server, as the provider uses it: one look at everything, and one write at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use firstlight_api::{capi, capm3, object::Object};
use http::Request;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    action::{Action, Kind},
    read::read,
    world::{Key, World, keyed},
};

/// Where generated objects and the hosts are.
pub const NAMESPACE: &str = "default";
/// The agent's own `ConfigMap` objects: what it made, and whether a spare host is free.
pub const MARKER: &str = "firstlight-cluster";
pub const SPARE: &str = "firstlight-spare";
const MANAGER: &str = "firstlight-machines";
/// Metadata and network data of machines, as CAPM3 types them.
pub const DATA_SECRET_TYPE: &str = "infrastructure.cluster.x-k8s.io/secret";

/// Group, version, kind, plural.
#[derive(Clone, Copy, Debug)]
pub struct Resource(
    pub &'static str,
    pub &'static str,
    pub &'static str,
    pub &'static str,
);

pub const HOSTS: Resource = Resource("metal3.io", "v1alpha1", "BareMetalHost", "baremetalhosts");
const CLUSTERS: Resource = Resource(capi::GROUP, capi::VERSION, "Cluster", "clusters");
pub const MACHINES: Resource = Resource(capi::GROUP, capi::VERSION, "Machine", "machines");
const DEPLOYMENTS: Resource = Resource(
    capi::GROUP,
    capi::VERSION,
    "MachineDeployment",
    "machinedeployments",
);
const CONTROL_PLANES: Resource = Resource(
    capi::CONTROL_PLANE_GROUP,
    capi::VERSION,
    "KubeadmControlPlane",
    "kubeadmcontrolplanes",
);
const METAL3_CLUSTERS: Resource = Resource(
    capm3::GROUP,
    capm3::VERSION,
    "Metal3Cluster",
    "metal3clusters",
);
pub const METAL3_MACHINES: Resource = Resource(
    capm3::GROUP,
    capm3::VERSION,
    "Metal3Machine",
    "metal3machines",
);
const TEMPLATES: Resource = Resource(
    capm3::GROUP,
    capm3::VERSION,
    "Metal3MachineTemplate",
    "metal3machinetemplates",
);
const DATA_TEMPLATES: Resource = Resource(
    capm3::GROUP,
    capm3::VERSION,
    "Metal3DataTemplate",
    "metal3datatemplates",
);

/// A change of one of these is a reason to look again.
pub const WATCHED: [Resource; 9] = [
    HOSTS,
    CLUSTERS,
    MACHINES,
    DEPLOYMENTS,
    CONTROL_PLANES,
    METAL3_CLUSTERS,
    METAL3_MACHINES,
    TEMPLATES,
    DATA_TEMPLATES,
];

impl Resource {
    pub fn api(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.0, self.1, self.2);
        ApiResource::from_gvk_with_plural(&kind, self.3)
    }

    fn path(&self) -> String {
        format!("/apis/{}/{}/{}", self.0, self.1, self.3)
    }
}

fn resource(kind: Kind) -> Resource {
    match kind {
        Kind::Host => HOSTS,
        Kind::Metal3Cluster => METAL3_CLUSTERS,
        Kind::Metal3Machine => METAL3_MACHINES,
        Kind::DataTemplate => DATA_TEMPLATES,
        Kind::Machine => MACHINES,
        Kind::ControlPlane => CONTROL_PLANES,
        Kind::Deployment => DEPLOYMENTS,
    }
}

#[derive(Clone)]
pub struct Store {
    client: Client,
    lists: Arc<Mutex<Lists>>,
}

/// What was listed last, by path, and `None` while it is asked for. An entry goes when its watch, or a write of ours, says that
/// the list is out of date, even one that is on its way: a busy cluster changes each second, mostly in one kind. What has no
/// watch goes when nothing changed for a while.
type Lists = BTreeMap<String, Option<Value>>;

type Keyed<T> = BTreeMap<Key, T>;

impl Store {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            lists: Arc::default(),
        }
    }

    /// The next look asks for this kind again.
    pub fn forget(&self, resource: Resource) {
        self.lists().remove(&resource.path());
    }

    /// The next look asks again for what nothing watches.
    pub fn forget_unwatched(&self) {
        let watched = WATCHED.map(|resource| resource.path());
        self.lists().retain(|path, _| watched.contains(path));
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Everything, as new as its watches. Fails while one of the kinds is not served yet.
    pub async fn look(&self, site: Arc<firstlight_api::site::SiteConfig>) -> Result<World> {
        let spare = self.config_map(SPARE).await?;
        let spare = spare.and_then(|spare| spare.get("controlPlane")?.parse().ok());
        let mut unreadable = Vec::new();
        let odd = &mut unreadable;
        Ok(World {
            site,
            hosts: self.list(HOSTS, odd).await?,
            clusters: self.list(CLUSTERS, odd).await?,
            machines: self.list(MACHINES, odd).await?,
            metal3_clusters: self.list(METAL3_CLUSTERS, odd).await?,
            metal3_machines: self.list(METAL3_MACHINES, odd).await?,
            templates: self.list(TEMPLATES, odd).await?,
            data_templates: self.list(DATA_TEMPLATES, odd).await?,
            control_planes: self.list(CONTROL_PLANES, odd).await?,
            deployments: self.list(DEPLOYMENTS, odd).await?,
            data: self.data().await?,
            marker: self.config_map(MARKER).await?,
            spare,
            unreadable,
        })
    }

    /// What cannot be read is left out.
    async fn list<S, T>(
        &self,
        resource: Resource,
        unreadable: &mut Vec<String>,
    ) -> Result<Keyed<Object<S, T>>>
    where
        Object<S, T>: DeserializeOwned,
    {
        let mut list = self.current(&resource.path()).await?;
        let items = list["items"].as_array_mut().into_iter().flatten();
        let listed = read::<Object<S, T>>(resource.2, items.map(Value::take));
        unreadable.extend(listed.unreadable);
        Ok(keyed(listed.objects))
    }

    async fn current(&self, path: &str) -> Result<Value> {
        if let Some(list) = self.lists().entry(path.to_owned()).or_default() {
            return Ok(list.clone());
        }
        let request = Request::get(path)
            .body(Vec::new())
            .context("making a request")?;
        let list: Value = self
            .client
            .request(request)
            .await
            .with_context(|| format!("asking for {path}"))?;
        if let Some(asked) = self.lists().get_mut(path) {
            *asked = Some(list.clone());
        }
        Ok(list)
    }

    async fn data(&self) -> Result<Keyed<BTreeMap<String, String>>> {
        let list = self.current(&data_path()).await?;
        let mut all = BTreeMap::new();
        for item in list["items"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let key = Key {
                namespace: text(&item["metadata"]["namespace"]),
                name: text(&item["metadata"]["name"]),
            };
            let entries = item["data"].as_object().into_iter().flatten();
            let decoded = entries.filter_map(|(name, value)| {
                let bytes = STANDARD.decode(value.as_str()?).ok()?;
                Some((name.clone(), String::from_utf8(bytes).ok()?))
            });
            all.insert(key, decoded.collect());
        }
        Ok(all)
    }

    /// The content of a `ConfigMap` of the agent's own.
    async fn config_map(&self, name: &str) -> Result<Option<BTreeMap<String, String>>> {
        let path = format!(
            "/api/v1/namespaces/{NAMESPACE}/configmaps?fieldSelector=metadata.name%3D{name}"
        );
        let list = self.current(&path).await?;
        let Some(found) = list["items"].get(0) else {
            return Ok(None);
        };
        Ok(Some(
            serde_json::from_value(found["data"].clone()).unwrap_or_default(),
        ))
    }

    pub async fn apply(&self, action: &Action) -> Result<()> {
        let written = self.write(action).await;
        match action {
            Action::Patch { kind, .. } | Action::PatchStatus { kind, .. } => {
                self.forget(resource(*kind));
            }
            // Of any kind.
            Action::Create(_) | Action::Put(_) => self.lists().clear(),
            Action::PutData { .. } => {
                self.lists().remove(&data_path());
            }
        }
        written
    }

    async fn write(&self, action: &Action) -> Result<()> {
        match action {
            Action::Patch {
                kind,
                key,
                version,
                patch,
            } => {
                let mut patch = patch.clone();
                if let Some(version) = version {
                    patch["metadata"]["resourceVersion"] = json!(version);
                }
                self.api(resource(*kind), key)
                    .patch(&key.name, &parameters(), &Patch::Merge(&patch))
                    .await
                    .with_context(|| format!("writing {kind:?} {key}"))?;
            }
            Action::PatchStatus { kind, key, patch } => {
                self.api(resource(*kind), key)
                    .patch_status(&key.name, &parameters(), &Patch::Merge(patch))
                    .await
                    .with_context(|| format!("writing the status of {kind:?} {key}"))?;
            }
            Action::PutData {
                key,
                owner,
                cluster,
                data,
            } => {
                let secret = json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "type": DATA_SECRET_TYPE,
                    "metadata": {
                        "name": key.name,
                        "namespace": key.namespace,
                        "labels": {capi::CLUSTER_LABEL: cluster},
                        "ownerReferences": [owner],
                    },
                    "stringData": data,
                });
                self.put(&secret).await?;
            }
            Action::Create(object) => self.create(object).await?,
            Action::Put(object) => self.put(object).await?,
        }
        Ok(())
    }

    fn api(&self, resource: Resource, key: &Key) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &key.namespace, &resource.api())
    }

    fn api_of(&self, object: &Value) -> (Api<DynamicObject>, String) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let namespace = text(&object["metadata"]["namespace"]);
        (
            Api::namespaced_with(self.client.clone(), &namespace, &resource),
            text(&object["metadata"]["name"]),
        )
    }

    /// As the object is given, whoever wrote it before.
    async fn put(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api_of(object);
        let parameters = PatchParams::apply(MANAGER).force();
        api.patch(&name, &parameters, &Patch::Apply(object))
            .await
            .with_context(|| format!("writing {} {name}", object["kind"]))?;
        Ok(())
    }

    /// An object that is there stays as it is.
    async fn create(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api_of(object);
        let typed: DynamicObject = serde_json::from_value(object.clone())?;
        let parameters = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        match api.create(&parameters, &typed).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
            Err(error) => Err(error).with_context(|| format!("creating {} {name}", object["kind"])),
        }
    }
}

/// Of the secrets with machines' data.
fn data_path() -> String {
    format!(
        "/api/v1/secrets?fieldSelector=type%3D{}",
        DATA_SECRET_TYPE.replace('/', "%2F")
    )
}

fn parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Applies every list to its end or its first failure; a sentence for each failure.
pub async fn apply_all(store: &Store, plan: &[Vec<Action>]) -> Vec<String> {
    let mut told: BTreeSet<String> = BTreeSet::new();
    for steps in plan {
        for action in steps {
            if let Err(error) = store.apply(action).await {
                let conflict = error.downcast_ref::<kube::Error>().is_some_and(
                    |error| matches!(error, kube::Error::Api(status) if status.code == 409),
                );
                let text = format!("{error:#}");
                // Somebody wrote in between; the next look sees it.
                if conflict {
                    tracing::debug!(error = text, "looking again");
                } else if told.insert(text.clone()) {
                    tracing::warn!(
                        error = text,
                        "a write of the machines controller failed; it is tried again"
                    );
                }
                break;
            }
        }
    }
    told.into_iter().collect()
}
