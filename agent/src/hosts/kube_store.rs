//! `BareMetalHost` objects in Kubernetes, by server-side apply: fields that others wrote stay theirs.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use firstlight_api::bmh::{self, BareMetalHost, BareMetalHostSpec, HardwareData, annotations};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{
    Api, Client,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, PartialObjectMeta, Patch,
        PatchParams, PostParams,
    },
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    object::NAMESPACE,
    store::{Amendment, HostStore, Secret},
};
use crate::capi::{Listed, read_one, value};

const MANAGER: &str = "firstlight-hosts";

#[derive(Clone)]
pub struct KubeStore {
    client: Client,
    api: Api<DynamicObject>,
    heads: Api<PartialObjectMeta<DynamicObject>>,
    hardware: Api<DynamicObject>,
}

impl KubeStore {
    pub fn new(client: Client) -> Self {
        let resource = |kind, plural| {
            let kind = GroupVersionKind::gvk(bmh::GROUP, bmh::VERSION, kind);
            ApiResource::from_gvk_with_plural(&kind, plural)
        };
        let hosts = resource(bmh::KIND, bmh::PLURAL);
        let hardware = resource(HardwareData::KIND, HardwareData::PLURAL);
        Self {
            api: Api::namespaced_with(client.clone(), NAMESPACE, &hosts),
            heads: Api::namespaced_with(client.clone(), NAMESPACE, &hosts),
            hardware: Api::namespaced_with(client.clone(), NAMESPACE, &hardware),
            client,
        }
    }
}

/// What people change of an object, and the agent does not by writing its status.
#[derive(Default)]
struct Heads(BTreeMap<String, Head>);

#[derive(PartialEq)]
struct Head {
    /// Counts changes of the spec.
    generation: Option<i64>,
    is_deleted: bool,
    annotations: Option<BTreeMap<String, String>>,
}

impl Heads {
    /// Whether the event is a reason to look at the objects.
    fn is_news(&mut self, event: Event<PartialObjectMeta<DynamicObject>>) -> bool {
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                let meta = object.metadata;
                let head = Head {
                    generation: meta.generation,
                    is_deleted: meta.deletion_timestamp.is_some(),
                    annotations: meta.annotations,
                };
                let name = meta.name.unwrap_or_default();
                if self.0.get(&name) == Some(&head) {
                    return false;
                }
                self.0.insert(name, head);
                true
            }
            Event::Delete(object) => {
                self.0.remove(&object.metadata.name.unwrap_or_default());
                true
            }
            Event::Init => false,
            // Listed again: what went meanwhile is not named.
            Event::InitDone => true,
        }
    }
}

/// One object that cannot be read holds up no other, and is no host without an object either.
fn read(objects: &[DynamicObject]) -> Listed<BareMetalHost> {
    let mut listed = Listed::default();
    for object in objects {
        match read_one(bmh::KIND, &value(object)) {
            Ok(host) => listed.objects.push(host),
            Err(sentence) => {
                listed.unreadable.push(sentence);
                listed.objects.extend(held(object));
            }
        }
    }
    listed
}

/// What is left of an object that cannot be read: whose it is, and hands off.
fn held(object: &DynamicObject) -> Option<BareMetalHost> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let mac = object.data.pointer("/spec/bootMACAddress")?.as_str()?;
    let spec = BareMetalHostSpec {
        boot_mac_address: mac.to_owned(),
        ..BareMetalHostSpec::default()
    };
    let mut host = BareMetalHost::new(name, NAMESPACE, spec);
    if let Some(annotations) = &object.metadata.annotations {
        host.metadata.annotations.clone_from(annotations);
    }
    let why = "the box, which cannot read its object".to_owned();
    host.metadata
        .annotations
        .insert(annotations::PAUSED.to_owned(), why);
    Some(host)
}

/// A merge patch (RFC 7386); the version makes it fail if anybody was faster.
fn merge_patch(object: &BareMetalHost, amendment: &Amendment) -> Value {
    let mut patch = json!({"metadata": {"resourceVersion": object.metadata.resource_version}});
    if let Some(image) = &amendment.image {
        patch["spec"]["image"] = json!(image);
    }
    if let Some(finalizers) = &amendment.finalizers {
        patch["metadata"]["finalizers"] = json!(finalizers);
    }
    for name in &amendment.forget {
        patch["metadata"]["annotations"][name] = Value::Null;
    }
    patch
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
    async fn follow(&self, changed: mpsc::Sender<()>) {
        let events = watcher::watcher(self.heads.clone(), watcher::Config::default());
        let mut events = std::pin::pin!(events.default_backoff());
        let mut heads = Heads::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if heads.is_news(event) {
                        // A full channel: a look is due already.
                        let _ = changed.try_send(());
                    }
                }
                Err(error) => tracing::debug!(%error, "watching BareMetalHosts again"),
            }
        }
    }

    async fn list(&self) -> Result<Listed<BareMetalHost>> {
        let list = self
            .api
            .list(&ListParams::default())
            .await
            .context("listing BareMetalHosts")?;
        Ok(read(&list.items))
    }

    async fn create(&self, host: &BareMetalHost) -> Result<()> {
        let name = &host.metadata.name;
        let mut new = part(host, "spec", &serde_json::to_value(&host.spec)?);
        new["metadata"]["finalizers"] = json!(host.metadata.finalizers);
        let object: DynamicObject = serde_json::from_value(new)?;
        match self.api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            created => created
                .map(drop)
                .with_context(|| format!("creating the BareMetalHost {name}")),
        }
    }

    async fn amend(&self, object: &BareMetalHost, amendment: &Amendment) -> Result<()> {
        let name = &object.metadata.name;
        let patch = merge_patch(object, amendment);
        let parameters = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let amended = self
            .api
            .patch(name, &parameters, &Patch::Merge(&patch))
            .await;
        amended
            .map(drop)
            .with_context(|| format!("changing the BareMetalHost {name}"))
    }

    async fn apply_hardware(&self, data: &HardwareData) -> Result<()> {
        let name = &data.metadata.name;
        let parameters = PatchParams::apply(MANAGER).force();
        let applied = self
            .hardware
            .patch(name, &parameters, &Patch::Apply(data))
            .await;
        applied
            .map(drop)
            .with_context(|| format!("writing the HardwareData {name}"))
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>> {
        let api: Api<KubeSecret> = Api::namespaced(self.client.clone(), namespace);
        let found = api
            .get_opt(name)
            .await
            .with_context(|| format!("reading the Secret {namespace}/{name}"))?;
        let data = |secret: KubeSecret| {
            let pairs = secret.data.unwrap_or_default().into_iter();
            pairs.map(|(key, value)| (key, value.0)).collect()
        };
        Ok(found.map(data))
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

#[cfg(test)]
mod tests {
    //! The CRD and the calls, against a live API server:
    //! `FIRSTLIGHT_KUBECONFIG=admin.conf cargo test -p firstlight-agent --lib kube_store -- --ignored`. It applies the CRD of the
    //! box, and makes and removes one object.
    #![allow(clippy::unwrap_used)]

    use std::{path::Path, time::Duration};

    use firstlight_api::bmh::{HardwareData, examples};
    use kube::config::{Config, KubeConfigOptions, Kubeconfig};

    use super::*;

    const HOSTS: &str =
        include_str!("../../../overlays/box/usr/share/firstlight/manifests/crd-baremetalhost.yaml");
    const HARDWARE: &str =
        include_str!("../../../overlays/box/usr/share/firstlight/manifests/crd-hardwaredata.yaml");
    const NAME: &str = "host-525400c0ffee";

    async fn client() -> Client {
        let path = std::env::var("FIRSTLIGHT_KUBECONFIG").unwrap();
        drop(rustls::crypto::ring::default_provider().install_default());
        let file = Kubeconfig::read_from(Path::new(&path)).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(file, &options)
            .await
            .unwrap();
        Client::try_from(config).unwrap()
    }

    async fn apply_crd(client: &Client) {
        let crd: Value = serde_json::to_value(crd(HOSTS)).unwrap();
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let parameters = PatchParams::apply(MANAGER).force();
        api.patch("baremetalhosts.metal3.io", &parameters, &Patch::Apply(&crd))
            .await
            .expect("the API server takes the CRD");
        let established = async {
            let store = KubeStore::new(client.clone());
            while store.list().await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), established)
            .await
            .expect("the CRD is served");
    }

    fn crd(text: &str) -> DynamicObject {
        crate::kubernetes::parse_manifest(text).unwrap().remove(0)
    }

    fn host() -> BareMetalHost {
        let mut host = examples::host();
        host.metadata.name = NAME.into();
        host.metadata.annotations.clear();
        host.metadata.finalizers.clear();
        host
    }

    #[test]
    fn an_object_that_cannot_be_read_is_told_and_its_host_is_let_be() {
        let object = |name: &str, online: Value| {
            let object = json!({
                "apiVersion": bmh::API_VERSION,
                "kind": bmh::KIND,
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"bootMACAddress": "52:54:00:00:00:01", "online": online},
            });
            serde_json::from_value::<DynamicObject>(object).unwrap()
        };
        let listed = read(&[object("odd", json!("perhaps")), object("good", json!(true))]);
        let paused: Vec<_> = listed
            .objects
            .iter()
            .map(|host| {
                let by = annotations::paused_by(&host.metadata.annotations);
                (host.metadata.name.as_str(), by.is_some())
            })
            .collect();
        assert_eq!(paused, [("odd", true), ("good", false)]);
        assert_eq!(listed.unreadable.len(), 1);
        assert!(listed.unreadable[0].contains("odd"), "{listed:?}");
    }

    #[tokio::test]
    #[ignore = "needs FIRSTLIGHT_KUBECONFIG: a live API server"]
    async fn a_live_api_server_keeps_every_field_that_we_write() {
        let client = client().await;
        apply_crd(&client).await;
        let store = KubeStore::new(client);
        let host = host();
        store.create(&host).await.unwrap();
        store.create(&host).await.unwrap();
        store.apply_status(&host).await.unwrap();
        let found = store.list().await.unwrap().objects;
        let found = found
            .iter()
            .find(|found| found.metadata.name == NAME)
            .unwrap();
        assert_eq!((&found.spec, &found.status), (&host.spec, &host.status));
        store
            .api
            .delete(NAME, &kube::api::DeleteParams::default())
            .await
            .unwrap();
    }

    #[tokio::test]
    #[ignore = "needs FIRSTLIGHT_KUBECONFIG: a live API server"]
    async fn an_edit_in_a_live_api_server_is_told_in_a_second_and_a_status_of_ours_is_not() {
        let client = client().await;
        apply_crd(&client).await;
        let store = KubeStore::new(client);
        let mut host = host();
        host.metadata.name = "host-525400c0ffef".into();
        let name = host.metadata.name.clone();
        store.create(&host).await.unwrap();
        let (changed, mut edits) = mpsc::channel(1);
        let follower = store.clone();
        let following = tokio::spawn(async move { follower.follow(changed).await });
        edits.recv().await.unwrap();
        // Quiet: what was there at the beginning has been told.
        let second = Duration::from_secs(1);
        while tokio::time::timeout(second, edits.recv()).await.is_ok() {}
        store.apply_status(&host).await.unwrap();
        assert!(tokio::time::timeout(second, edits.recv()).await.is_err());
        for patch in [
            json!({"spec": {"online": !host.spec.online}}),
            json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}}),
        ] {
            let patch = Patch::Merge(&patch);
            let parameters = PatchParams::default();
            store.api.patch(&name, &parameters, &patch).await.unwrap();
            let since = std::time::Instant::now();
            let told = tokio::time::timeout(second, edits.recv()).await;
            assert!(told.is_ok());
            eprintln!("told after {:?}", since.elapsed());
        }
        store
            .api
            .delete(&name, &kube::api::DeleteParams::default())
            .await
            .unwrap();
        assert!(tokio::time::timeout(second, edits.recv()).await.is_ok());
        following.abort();
    }

    #[test]
    fn what_people_change_is_news_and_a_status_is_not() {
        let object = |generation: i64, meta: Value| {
            let mut object = json!({"metadata": {"name": "a", "generation": generation}});
            for (key, value) in meta.as_object().unwrap() {
                object["metadata"][key] = value.clone();
            }
            serde_json::from_value::<PartialObjectMeta<DynamicObject>>(object).unwrap()
        };
        let mut heads = Heads::default();
        let news = [
            Event::Init,
            Event::InitApply(object(1, json!({"resourceVersion": "1"}))),
            Event::InitDone,
            Event::Apply(object(1, json!({"resourceVersion": "2"}))),
            Event::Apply(object(2, json!({}))),
            Event::Apply(object(2, json!({"annotations": {"reboot.metal3.io": ""}}))),
            Event::Apply(object(2, json!({"annotations": {"reboot.metal3.io": ""}}))),
            Event::Delete(object(2, json!({}))),
            Event::Apply(object(2, json!({"annotations": {"reboot.metal3.io": ""}}))),
        ]
        .map(|event| heads.is_news(event));
        assert_eq!(
            news,
            [false, true, true, false, true, true, false, true, true]
        );
    }

    /// The same without a server: each field of the examples is in the schema.
    #[test]
    fn the_schemas_have_every_field_of_the_examples() {
        let data: HardwareData = examples::hardware_data();
        for (text, example) in [
            (HOSTS, serde_json::to_value(examples::host()).unwrap()),
            (HARDWARE, serde_json::to_value(data).unwrap()),
        ] {
            let crd = serde_json::to_value(crd(text)).unwrap();
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            check("", &example, schema);
        }
    }

    #[test]
    fn an_amendment_touches_nothing_but_what_it_is_about() {
        let mut host = host();
        host.metadata.resource_version = "7".into();
        let amendment = Amendment {
            finalizers: Some(vec![]),
            forget: vec!["reboot.metal3.io".into()],
            image: None,
        };
        assert_eq!(
            merge_patch(&host, &amendment),
            json!({"metadata": {"resourceVersion": "7", "finalizers": [], "annotations": {"reboot.metal3.io": null}}})
        );
    }

    fn check(path: &str, value: &Value, schema: &Value) {
        assert!(
            !schema.is_null(),
            "{path} is not in the schema: the API server would drop it"
        );
        match value {
            Value::Object(fields) if path != ".metadata" => {
                for (key, value) in fields {
                    check(&format!("{path}.{key}"), value, &schema["properties"][key]);
                }
            }
            Value::Array(items) => {
                for item in items {
                    check(path, item, &schema["items"]);
                }
            }
            Value::String(text) => {
                let allowed = schema["enum"].as_array();
                assert!(
                    allowed.is_none_or(|allowed| allowed.iter().any(|one| one == text)),
                    "{path} may not be {text:?}"
                );
            }
            _ => {}
        }
    }
}
