//! The API server, as the provider uses it: one look at everything, and one write at a time.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use firstlight_api::{
    bmh::annotations,
    capi::{self, Cluster, Machine, Replicated},
    capm3::{self, Metal3Cluster, Metal3DataTemplate, Metal3Machine, Metal3MachineTemplate},
    ipam::{self, IpPool},
    site::SiteConfig,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};

use super::{
    action::{Action, Kind},
    addresses::AddressObjects,
    world::{Host, Key, NAMESPACE, World, keyed},
};
use crate::{
    encryption,
    objects::{
        Applies, Objects, Part, Resource, Selection, Watches, Writer, Writers, is_overtaken,
    },
};

/// The agent's own `ConfigMap` objects: what it made, and whether a spare host is free.
pub const MARKER: &str = "firstlight-cluster";
/// On those about further clusters, which are called like it and their cluster.
pub const MARKER_LABEL: &str = "firstlight.internal/marks-cluster";
pub const SPARE: &str = "firstlight-spare";
pub const MANAGER: &str = "firstlight-machines";
/// Metadata and network data of machines, as CAPM3 types them.
pub const DATA_SECRET_TYPE: &str = "infrastructure.cluster.x-k8s.io/secret";

/// The entry of a cluster's Secret ([`secrets_key_of`]) with an `EncryptionConfiguration`.
pub const SECRETS_KEY: &str = "config";

pub const HOSTS: Resource = Resource("metal3.io", "v1alpha1", "BareMetalHost", "baremetalhosts");
pub const CLUSTERS: Resource = Resource(capi::GROUP, capi::VERSION, "Cluster", "clusters");
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

pub const POOLS: Resource = Resource(ipam::GROUP, ipam::VERSION, ipam::POOL_KIND, "ippools");
pub const SECRETS: Resource = Resource("", "v1", "Secret", "secrets");
const CONFIG_MAPS: Resource = Resource("", "v1", "ConfigMap", "configmaps");

/// All kinds that the provider looks at.
pub struct ProviderObjects {
    hosts: Objects<Host>,
    clusters: Objects<Cluster>,
    machines: Objects<Machine>,
    deployments: Objects<Replicated>,
    control_planes: Objects<Replicated>,
    metal3_clusters: Objects<Metal3Cluster>,
    metal3_machines: Objects<Metal3Machine>,
    templates: Objects<Metal3MachineTemplate>,
    data_templates: Objects<Metal3DataTemplate>,
    addresses: Box<AddressObjects>,
    pools: Objects<IpPool>,
    /// Metadata and network data of machines.
    data: Objects<Secret>,
    marker: Objects<ConfigMap>,
    further_markers: Objects<ConfigMap>,
    spare: Objects<ConfigMap>,
    writers: Writers,
}

impl ProviderObjects {
    pub fn new(watches: &mut Watches) -> Self {
        let own = |name| Selection {
            namespace: Some(NAMESPACE),
            name: Some(name),
            ..CONFIG_MAPS.into()
        };
        let further_markers = Selection {
            namespace: Some(NAMESPACE),
            label: Some(MARKER_LABEL),
            ..CONFIG_MAPS.into()
        };
        let data = Selection {
            secret_type: Some(DATA_SECRET_TYPE),
            ..SECRETS.into()
        };
        Self {
            hosts: watches.objects(HOSTS),
            clusters: watches.objects(CLUSTERS),
            machines: watches.objects(MACHINES),
            deployments: watches.objects(DEPLOYMENTS),
            control_planes: watches.objects(CONTROL_PLANES),
            metal3_clusters: watches.objects(METAL3_CLUSTERS),
            metal3_machines: watches.objects(METAL3_MACHINES),
            templates: watches.objects(TEMPLATES),
            data_templates: watches.objects(DATA_TEMPLATES),
            addresses: Box::new(AddressObjects::new(watches)),
            pools: watches.objects(Selection::perhaps(POOLS)),
            data: watches.objects(data),
            marker: watches.objects(own(MARKER)),
            further_markers: watches.objects(further_markers),
            spare: watches.objects(own(SPARE)),
            writers: watches.writers().clone(),
        }
    }

    pub fn client(&self) -> &Client {
        self.writers.client()
    }

    /// Everything, with what was written until now. Fails while one of the kinds is not served yet.
    pub async fn look(&self, site: Arc<SiteConfig>) -> Result<World> {
        let mut markers = contents(&self.marker).await?;
        markers.extend(contents(&self.further_markers).await?);
        let mut unreadable = Vec::new();
        let odd = &mut unreadable;
        Ok(World {
            site,
            hosts: keyed(self.hosts.all().await?, odd),
            clusters: keyed(self.clusters.all().await?, odd),
            machines: keyed(self.machines.all().await?, odd),
            metal3_clusters: keyed(self.metal3_clusters.all().await?, odd),
            metal3_machines: keyed(self.metal3_machines.all().await?, odd),
            templates: keyed(self.templates.all().await?, odd),
            data_templates: keyed(self.data_templates.all().await?, odd),
            addresses: Box::pin(self.addresses.look(odd)).await?,
            pools: keyed(self.pools.all().await?, odd),
            control_planes: keyed(self.control_planes.all().await?, odd),
            deployments: keyed(self.deployments.all().await?, odd),
            data: texts(&self.data, odd).await?,
            markers,
            spare: contents(&self.spare).await?.remove(SPARE),
            unreadable,
        })
    }

    /// Those that a person made beforehand have no owner, and stay.
    async fn forget_keys(&self, cluster: &Key) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client().clone(), &cluster.namespace);
        let label = format!("{}={}", capi::CLUSTER_LABEL, cluster.name);
        let found = secrets
            .list_metadata(&ListParams::default().labels(&label))
            .await?;
        for secret in found
            .items
            .iter()
            .filter(|it| !it.owner_references().is_empty())
        {
            let metadata = json!(secret.metadata);
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
            let (writer, _) = self.writers.of(&secret);
            writer.delete(&serde_json::from_value(metadata)?).await?;
        }
        Ok(())
    }

    fn writer(&self, kind: Kind) -> &Writer {
        match kind {
            Kind::Host => self.hosts.writer(),
            Kind::Metal3Cluster => self.metal3_clusters.writer(),
            Kind::Metal3Machine => self.metal3_machines.writer(),
            Kind::DataTemplate => self.data_templates.writer(),
            Kind::Machine => self.machines.writer(),
            Kind::ControlPlane => self.control_planes.writer(),
            Kind::Deployment => self.deployments.writer(),
            Kind::AddressClaim(api) => self.addresses.claim_writer(api),
        }
    }
}

impl Applies<Action> for ProviderObjects {
    async fn apply(&self, action: &Action) -> Result<()> {
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
                let writer = self.writer(*kind);
                writer.merge(key, Part::Object, &patch).await.map(drop)
            }
            Action::PauseHost { key, version, by } => {
                let api = Api::namespaced_with(self.client().clone(), &key.namespace, &HOSTS.api());
                let host: DynamicObject = api.get(&key.name).await?;
                let status = host.data.get("status").cloned();
                let status = status.unwrap_or_else(|| json!({}));
                let patch = json!({"metadata": {
                    "resourceVersion": version,
                    "annotations": {
                        annotations::PAUSED: by,
                        annotations::STATUS: status.to_string(),
                        capm3::BLOCK_MOVE_ANNOTATION: null,
                    },
                }});
                let writer = self.hosts.writer();
                writer.merge(key, Part::Object, &patch).await.map(drop)
            }
            Action::PatchStatus { kind, key, patch } => {
                let writer = self.writer(*kind);
                writer.merge(key, Part::Status, patch).await.map(drop)
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
                self.data.writer().apply(key, Part::Object, &secret).await
            }
            Action::Create(object) => {
                let (writer, key) = self.writers.of(object);
                writer.create(&key, object.clone()).await
            }
            Action::CreateSecretsKey { cluster } => {
                let (object, key) = (secrets_key(cluster)?, secrets_key_of(&cluster.name));
                let key = Key::new(&cluster.namespace, &key);
                self.data.writer().create(&key, object).await
            }
            Action::Delete(kind, meta) => self.writer(*kind).delete(meta).await,
            Action::Put(object) => {
                let (writer, key) = self.writers.of(object);
                writer.apply(&key, Part::Object, object).await
            }
            Action::Change(object) => {
                let (writer, key) = self.writers.of(object);
                match writer.merge(&key, Part::Object, object).await {
                    Err(error) if is_overtaken(&error) => Ok(()),
                    written => written.map(drop),
                }
            }
            Action::ForgetKeys(cluster) => Box::pin(self.forget_keys(cluster)).await,
        }
    }
}

/// The Secret with which the control planes of this cluster encrypt Secrets in etcd. Without it nobody reads them any more.
pub fn secrets_key_of(cluster: &str) -> String {
    format!("{cluster}-secrets-key")
}

/// It goes where the cluster goes.
fn secrets_key(cluster: &Key) -> Result<Value> {
    let config = encryption::make(&cluster.name)?;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": secrets_key_of(&cluster.name),
            "namespace": cluster.namespace,
            "labels": {capi::CLUSTER_LABEL: cluster.name, "clusterctl.cluster.x-k8s.io/move": ""},
        },
        "stringData": {SECRETS_KEY: config},
    }))
}

/// Of `ConfigMap` objects of the agent's own, by their names.
async fn contents(
    objects: &Objects<ConfigMap>,
) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    let found = objects.all().await?.objects;
    let content = |one: &ConfigMap| (one.name_any(), one.data.clone().unwrap_or_default());
    Ok(found.iter().map(|one| content(one)).collect())
}

/// The entries of Secrets that are text.
async fn texts(
    objects: &Objects<Secret>,
    unreadable: &mut Vec<String>,
) -> Result<BTreeMap<Key, BTreeMap<String, String>>> {
    let listed = objects.all().await?;
    unreadable.extend(listed.unreadable);
    let texts = |secret: &Secret| {
        let entries = secret.data.iter().flatten();
        let decoded = entries.filter_map(|(name, value)| {
            Some((name.clone(), String::from_utf8(value.0.clone()).ok()?))
        });
        let namespace = secret.namespace().unwrap_or_default();
        (Key::new(&namespace, &secret.name_any()), decoded.collect())
    };
    Ok(listed.objects.iter().map(|secret| texts(secret)).collect())
}
