//! Objects of one API server, as plain values.

use std::{collections::BTreeMap, time::Instant};

use firstlight_agent::objects::Resource;
use kube::{
    Api, Client, Config,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::PATIENCE;

#[derive(Clone)]
pub struct Objects {
    pub client: Client,
    /// Of everything that is asked for by its kind.
    namespace: String,
}

const INFRA: &str = "infrastructure.cluster.x-k8s.io";
const KINDS: [Resource; 22] = [
    Resource("cluster.x-k8s.io", "v1beta2", "MachineSet", "machinesets"),
    Resource(
        "firstlight.internal",
        "v1alpha1",
        "ClusterUpgrade",
        "clusterupgrades",
    ),
    Resource("firstlight.internal", "v1alpha1", "Software", "softwares"),
    Resource("firstlight.internal", "v1alpha1", "Addon", "addons"),
    Resource("metal3.io", "v1alpha1", "BareMetalHost", "baremetalhosts"),
    Resource("metal3.io", "v1alpha1", "HardwareData", "hardwaredata"),
    Resource("cluster.x-k8s.io", "v1beta2", "Cluster", "clusters"),
    Resource("cluster.x-k8s.io", "v1beta2", "Machine", "machines"),
    Resource(
        "cluster.x-k8s.io",
        "v1beta2",
        "MachineDeployment",
        "machinedeployments",
    ),
    Resource(
        "controlplane.cluster.x-k8s.io",
        "v1beta2",
        "KubeadmControlPlane",
        "kubeadmcontrolplanes",
    ),
    Resource(INFRA, "v1beta2", "Metal3Cluster", "metal3clusters"),
    Resource(INFRA, "v1beta2", "Metal3Machine", "metal3machines"),
    Resource(
        INFRA,
        "v1beta2",
        "Metal3MachineTemplate",
        "metal3machinetemplates",
    ),
    Resource(
        "cluster.x-k8s.io",
        "v1beta2",
        "MachineHealthCheck",
        "machinehealthchecks",
    ),
    Resource(INFRA, "v1beta2", "Metal3Remediation", "metal3remediations"),
    Resource(
        INFRA,
        "v1beta2",
        "Metal3RemediationTemplate",
        "metal3remediationtemplates",
    ),
    Resource("ipam.metal3.io", "v1alpha1", "IPPool", "ippools"),
    Resource("ipam.metal3.io", "v1alpha1", "IPClaim", "ipclaims"),
    Resource("ipam.metal3.io", "v1alpha1", "IPAddress", "ipaddresses"),
    Resource(
        "ipam.cluster.x-k8s.io",
        "v1beta2",
        "IPAddressClaim",
        "ipaddressclaims",
    ),
    Resource("", "v1", "Secret", "secrets"),
    Resource("events.k8s.io", "v1", "Event", "events"),
];

/// As a kubelet writes an object: an API server that is busy, or kept from etcd while that gets a member, is asked again.
async fn pause_after(error: kube::Error, object: &Value, since: Instant) {
    assert!(
        since.elapsed() < PATIENCE / 5,
        "{} {}: {error}",
        object["kind"],
        object["metadata"]["name"]
    );
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
}

impl Objects {
    pub async fn of(kubeconfig: &str) -> Self {
        let file = Kubeconfig::from_yaml(kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .unwrap();
        Self {
            client: Client::try_from(config).unwrap(),
            namespace: "default".to_owned(),
        }
    }

    pub fn within(&self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = KINDS
            .iter()
            .find(|resource| resource.2 == kind)
            .unwrap_or_else(|| panic!("{kind}"));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource.api())
    }

    /// By what the object says of itself; without a namespace it is the cluster's.
    fn api_for(&self, object: &Value) -> (Api<DynamicObject>, String) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind_of = GroupVersionKind::gvk(group, version, &kind);
        // Not every plural has an s.
        let known = KINDS.iter().find(|it| it.0 == group && it.2 == kind);
        let resource = match known {
            Some(known) => ApiResource::from_gvk_with_plural(&kind_of, known.3),
            None => ApiResource::from_gvk(&kind_of),
        };
        let api = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        (api, text(&object["metadata"]["name"]))
    }

    pub async fn apply(&self, object: &Value) {
        let (api, name) = self.api_for(object);
        let (since, params) = (Instant::now(), PatchParams::apply("test").force());
        // Its definition may not be served yet.
        while let Err(error) = api.patch(&name, &params, &Patch::Apply(object)).await {
            pause_after(error, object, since).await;
        }
    }

    pub async fn create(&self, object: Value) -> kube::Result<()> {
        let (api, _) = self.api_for(&object);
        api.create(
            &PostParams::default(),
            &serde_json::from_value(object).unwrap(),
        )
        .await
        .map(drop)
    }

    pub async fn status(&self, object: &Value) {
        let since = Instant::now();
        while let Err(error) = self.try_status(object).await {
            pause_after(error, object, since).await;
        }
    }

    /// Somebody may have removed it meanwhile.
    pub async fn status_if_there(&self, object: &Value) {
        let since = Instant::now();
        while let Err(error) = self.try_status(object).await {
            if matches!(&error, kube::Error::Api(status) if status.is_not_found()) {
                return;
            }
            pause_after(error, object, since).await;
        }
    }

    pub async fn try_status(&self, object: &Value) -> kube::Result<()> {
        let (api, name) = self.api_for(object);
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(object))
            .await
            .map(drop)
    }

    pub async fn list(&self, kind: &str) -> Vec<Value> {
        let since = Instant::now();
        loop {
            match self.try_list(kind).await {
                Ok(found) => return found,
                Err(error) => pause_after(error, &json!({"kind": kind}), since).await,
            }
        }
    }

    pub async fn try_list(&self, kind: &str) -> kube::Result<Vec<Value>> {
        let found = self.api(kind).list(&ListParams::default()).await?;
        let value = |item| serde_json::to_value(item).unwrap();
        Ok(found.items.into_iter().map(value).collect())
    }

    pub async fn get(&self, kind: &str, name: &str) -> Value {
        let since = Instant::now();
        loop {
            match self.api(kind).get_opt(name).await {
                Ok(found) => {
                    return found.map_or(Value::Null, |found| serde_json::to_value(found).unwrap());
                }
                Err(error) => pause_after(error, &json!({"kind": kind}), since).await,
            }
        }
    }

    /// Of any kind.
    pub async fn find(&self, version: &str, kind: &str, name: &str) -> Value {
        self.try_find(version, kind, name).await.unwrap()
    }

    pub async fn try_find(&self, version: &str, kind: &str, name: &str) -> kube::Result<Value> {
        let found = self.api_of(version, kind, name).get_opt(name).await?;
        Ok(found.map_or(Value::Null, |found| serde_json::to_value(found).unwrap()))
    }

    pub async fn try_find_all(&self, version: &str, kind: &str) -> kube::Result<Vec<Value>> {
        let api = self.api_of(version, kind, "");
        let found = api.list(&ListParams::default()).await?;
        let value = |item| serde_json::to_value(item).unwrap();
        Ok(found.items.into_iter().map(value).collect())
    }

    fn api_of(&self, version: &str, kind: &str, name: &str) -> Api<DynamicObject> {
        let mut metadata = json!({"name": name});
        if kind != "Node" {
            metadata["namespace"] = self.namespace.clone().into();
        }
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
        self.api_for(&object).0
    }

    /// The whole object, as it was read and changed.
    pub async fn replace(&self, object: &Value) -> kube::Result<()> {
        let (api, name) = self.api_for(object);
        let object = serde_json::from_value(object.clone()).unwrap();
        api.replace(&name, &PostParams::default(), &object)
            .await
            .map(drop)
    }

    pub async fn secret(&self, name: &str) -> BTreeMap<String, String> {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let found = self.get("Secret", name).await;
        let data = found["data"]
            .as_object()
            .unwrap_or_else(|| panic!("the Secret {name} is there"))
            .clone();
        data.into_iter()
            .map(|(key, value)| {
                (
                    key,
                    String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap(),
                )
            })
            .collect()
    }

    pub async fn patch(&self, kind: &str, name: &str, change: Value) {
        self.try_patch(kind, name, change).await.unwrap();
    }

    pub async fn try_patch(&self, kind: &str, name: &str, change: Value) -> kube::Result<()> {
        self.api(kind)
            .patch(name, &PatchParams::default(), &Patch::Merge(&change))
            .await
            .map(drop)
    }

    pub async fn patch_status(&self, kind: &str, name: &str, change: Value) {
        self.api(kind)
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&change))
            .await
            .unwrap();
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.api(kind)
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Of any kind.
    pub async fn remove(&self, object: &Value) {
        let (api, name) = self.api_for(object);
        api.delete(&name, &DeleteParams::default()).await.unwrap();
    }

    /// All that are there still.
    pub async fn delete_all(&self, kind: &str) {
        self.api(kind)
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .unwrap();
    }

    pub async fn wait_for(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) {
        let is_so = async || holds(&self.get(kind, name).await);
        if !self.comes(is_so).await {
            let object = self.get(kind, name).await;
            panic!("not within {PATIENCE:?}: {kind} {name} {what}; it is {object}");
        }
    }

    pub async fn wait_until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        assert!(self.comes(holds).await, "not within {PATIENCE:?}: {what}");
    }

    /// Everything that is there is told when it does not come.
    async fn comes(&self, holds: impl AsyncFn() -> bool) -> bool {
        let since = Instant::now();
        while !holds().await {
            if since.elapsed() > PATIENCE {
                self.dump().await;
                return false;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        true
    }

    pub async fn dump(&self) {
        for kind in KINDS
            .iter()
            .map(|resource| resource.2)
            .filter(|kind| *kind != "Secret")
        {
            // Not every site has every kind.
            for mut object in self.try_list(kind).await.unwrap_or_default() {
                object["metadata"]["managedFields"] = Value::Null;
                eprintln!("{kind}: {object:#}");
            }
        }
    }
}
