//! `BareMetalHost` objects in Kubernetes, by server-side apply: fields that others wrote stay theirs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use firstlight_api::{
    bmh::{self, BareMetalHost, BareMetalHostSpec, HardwareData, annotations},
    object::Meta,
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ObjectReference, Secret as KubeSecret},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};

use super::{
    account::{LABEL, MADE},
    intent::UNREADABLE,
    store::{Amendment, HostEvent, HostStore, Secret, SpecBmc, Versions},
};
use crate::{
    capi::{HOSTS, SECRETS},
    objects::{Key, Listed, Objects, Part, Readable, Resource, Selection, Watches, Writers},
};

const MANAGER: &str = "firstlight-hosts";
/// Many are written at once.
const COALESCE: Duration = Duration::from_millis(500);
/// Characters that the API server takes for sure: it counts to 1024 bytes.
const NOTE: usize = 340;
/// Until a change is noticed: to look at what has changed is to look at all.
const NOTICED: Duration = Duration::from_millis(50);
/// For an Event.
const PATIENCE: Duration = Duration::from_secs(5);
/// Its plural is its singular.
const HARDWARE: Resource = Resource(HOSTS.0, HOSTS.1, HardwareData::KIND, HardwareData::PLURAL);

#[derive(Clone)]
pub struct KubeStore {
    hosts: Arc<Objects<BareMetalHost>>,
    writers: Writers,
    watches: Arc<Mutex<Watches>>,
    secrets: Arc<Objects<SecretHead>>,
    secret_watches: Arc<Mutex<Watches>>,
    events: Recorder,
}

/// What is kept of a Secret: whoever needs what is in it reads it then.
#[derive(Debug, Deserialize)]
struct SecretHead {
    metadata: Meta,
}

impl Readable for SecretHead {}

impl KubeStore {
    pub fn new(client: Client) -> Self {
        let reporter = Reporter {
            controller: MANAGER.to_owned(),
            instance: None,
        };
        let events = Recorder::new(client.clone(), reporter);
        let mut watches = Watches::new(client.clone(), MANAGER, NOTICED);
        let mut secret_watches = Watches::new(client, MANAGER, COALESCE);
        Self {
            // Without the large ones, of Helm and of clusters. Of others no version is known: a change is seen when Ironic is told again.
            secrets: Arc::new(secret_watches.objects(Selection {
                secret_type: Some("Opaque"),
                ..SECRETS.into()
            })),
            secret_watches: Arc::new(Mutex::new(secret_watches)),
            hosts: Arc::new(watches.objects(HOSTS)),
            writers: watches.writers().clone(),
            watches: Arc::new(Mutex::new(watches)),
            events,
        }
    }
}

/// What people change of an object, and the agent does not by writing its status.
#[derive(PartialEq)]
struct Head {
    /// Counts changes of the spec.
    generation: i64,
    is_deleted: bool,
    annotations: BTreeMap<String, String>,
}

fn heads(hosts: &[Arc<BareMetalHost>]) -> BTreeMap<Key, Head> {
    let head = |host: &Arc<BareMetalHost>| {
        let head = Head {
            generation: host.metadata.generation,
            is_deleted: host.is_deleted(),
            annotations: host.metadata.annotations.clone(),
        };
        (key(host), head)
    };
    hosts.iter().map(head).collect()
}

fn versions(secrets: &[Arc<SecretHead>]) -> Versions {
    let version = |secret: &Arc<SecretHead>| {
        let meta = &secret.metadata;
        (Key::of(meta), meta.resource_version.clone())
    };
    Arc::new(secrets.iter().map(version).collect())
}

impl Readable for BareMetalHost {
    /// Whose it is, and hands off: a host whose object cannot be read is no host without an object.
    fn remains(object: &Value) -> Option<Self> {
        let meta = &object["metadata"];
        let mac = object.pointer("/spec/bootMACAddress")?.as_str()?;
        let spec = BareMetalHostSpec {
            boot_mac_address: mac.to_owned(),
            ..BareMetalHostSpec::default()
        };
        let text = |name: &str| meta[name].as_str().unwrap_or_default();
        let mut host = Self::new(text("name"), text("namespace"), spec);
        let said = meta["annotations"].clone();
        host.metadata.annotations = serde_json::from_value(said).unwrap_or_default();
        let paused = annotations::PAUSED.to_owned();
        host.metadata
            .annotations
            .insert(paused, UNREADABLE.to_owned());
        Some(host)
    }
}

fn key(host: &BareMetalHost) -> Key {
    Key::of(&host.metadata)
}

/// A merge patch (RFC 7386); the version makes it fail if anybody was faster.
fn merge_patch(object: &BareMetalHost, amendment: &Amendment) -> Value {
    let anew = amendment.anew.as_deref();
    let mut patch = anew.map_or_else(|| json!({}), |new| changes(&told(object), &told(new)));
    patch["metadata"]["resourceVersion"] = json!(object.metadata.resource_version);
    if let Some(image) = &amendment.image {
        patch["spec"]["image"] = json!(image);
    }
    if let Some(finalizers) = &amendment.finalizers {
        patch["metadata"]["finalizers"] = json!(finalizers);
    }
    for name in &amendment.forget {
        patch["metadata"]["annotations"][name] = Value::Null;
    }
    if let Some(bmc) = &amendment.bmc {
        name_bmc(&mut patch, bmc);
    }
    patch
}

fn name_bmc(patch: &mut Value, bmc: &SpecBmc) {
    match bmc {
        SpecBmc::Named {
            details,
            may_be_off,
        } => {
            patch["metadata"]["annotations"][MADE] = json!(details.address);
            // What somebody else has left there goes.
            patch["spec"]["bmc"] = json!({
                "address": details.address,
                "credentialsName": details.credentials_name,
                "disableCertificateVerification": null,
            });
            if *may_be_off {
                patch["spec"]["disablePowerOff"] = json!(false);
            }
        }
        SpecBmc::Gone { stays_on } => {
            patch["spec"]["bmc"] = Value::Null;
            if *stays_on {
                patch["spec"]["disablePowerOff"] = json!(true);
            }
        }
        SpecBmc::Forgotten => patch["metadata"]["annotations"][MADE] = Value::Null,
    }
}

/// What people tell by an object.
fn told(object: &BareMetalHost) -> Value {
    let meta = &object.metadata;
    json!({
        "metadata": {"labels": meta.labels, "annotations": meta.annotations},
        "spec": object.spec,
    })
}

/// The merge patch that makes `new` of `old`.
fn changes(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter_map(|(key, new)| match old.get(key) {
        Some(old) if old == new => None,
        Some(old) => Some((key.clone(), changes(old, new))),
        None => Some((key.clone(), new.clone())),
    });
    gone.chain(changed).collect()
}

/// The part that is applied: identity, and one of `spec` and `status`.
fn part(host: &BareMetalHost, key: &str, value: &Value) -> Value {
    json!({
        "apiVersion": bmh::API_VERSION,
        "kind": bmh::KIND,
        "metadata": {"name": host.metadata.name, "namespace": host.metadata.namespace},
        key: value,
    })
}

impl HostStore for KubeStore {
    async fn follow(&self, changed: mpsc::Sender<()>) {
        let mut watches = self.watches.lock().await;
        let mut old = BTreeMap::new();
        while watches.changed().await.is_ok() {
            let new = heads(&self.hosts.known().objects);
            if new != old {
                // A full channel: a look is due already.
                let _ = changed.try_send(());
            }
            old = new;
        }
    }

    async fn follow_secrets(&self, changed: mpsc::Sender<Versions>) {
        let mut watches = self.secret_watches.lock().await;
        let mut old = None;
        while watches.changed().await.is_ok() {
            let new = Some(versions(&self.secrets.known().objects));
            if new != old
                && let Some(new) = new.clone()
                && changed.send(new).await.is_err()
            {
                return;
            }
            old = new;
        }
    }

    async fn list(&self) -> Result<Listed<Arc<BareMetalHost>>> {
        self.hosts.all().await
    }

    async fn create(&self, host: &BareMetalHost) -> Result<()> {
        let mut new = part(host, "spec", &serde_json::to_value(&host.spec)?);
        let (new_meta, meta) = (&mut new["metadata"], &host.metadata);
        new_meta["finalizers"] = json!(meta.finalizers);
        new_meta["labels"] = json!(meta.labels);
        new_meta["annotations"] = json!(meta.annotations);
        self.hosts.writer().create(&key(host), new).await
    }

    async fn amend(&self, object: &BareMetalHost, amendment: &Amendment) -> Result<()> {
        let patch = merge_patch(object, amendment);
        let writer = self.hosts.writer();
        let amended = writer.merge(&key(object), Part::Object, &patch).await;
        amended.map(drop)
    }

    async fn apply_hardware(&self, data: &HardwareData) -> Result<()> {
        let object = serde_json::to_value(data)?;
        let key = Key::new(&data.metadata.namespace, &data.metadata.name);
        let writer = self.writers.unwatched(HARDWARE);
        writer.apply(&key, Part::Object, &object).await
    }

    async fn delete(&self, object: &BareMetalHost) -> Result<()> {
        self.hosts.writer().delete(&object.metadata).await
    }

    async fn forget_hardware(&self, object: &BareMetalHost) -> Result<()> {
        self.writers
            .unwatched(HARDWARE)
            .delete_any(&key(object))
            .await
    }

    async fn tell(&self, host: &BareMetalHost, events: Vec<HostEvent>) {
        let about = ObjectReference {
            api_version: Some(bmh::API_VERSION.to_owned()),
            kind: Some(bmh::KIND.to_owned()),
            name: Some(host.metadata.name.clone()),
            namespace: Some(host.metadata.namespace.clone()),
            uid: Some(host.metadata.uid.clone()),
            ..ObjectReference::default()
        };
        for event in events {
            let type_ = if event.is_warning {
                EventType::Warning
            } else {
                EventType::Normal
            };
            let event = Event {
                type_,
                reason: event.reason.to_owned(),
                note: Some(event.note.chars().take(NOTE).collect()),
                action: event.reason.to_owned(),
                secondary: None,
            };
            let told = self.events.publish(&event, &about);
            if let Ok(Err(error)) = tokio::time::timeout(PATIENCE, told).await {
                tracing::debug!(%error, "an Event was not written");
            }
        }
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>> {
        let api: Api<KubeSecret> = Api::namespaced(self.writers.client().clone(), namespace);
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

    async fn keep_secret(&self, host: &BareMetalHost, name: &str, data: &Secret) -> Result<()> {
        let api = self.account_secrets(host);
        let what = || format!("writing the Secret {}/{name}", host.metadata.namespace);
        let mut secret = account_secret(host, name, data);
        let done = match api.get_opt(name).await.with_context(what)? {
            None => api.create(&PostParams::default(), &secret).await,
            Some(old) => {
                ensure!(
                    is_account_of(&old, host),
                    "there is a Secret {name} of somebody else; rename or delete it"
                );
                secret.metadata.resource_version = old.metadata.resource_version;
                api.replace(name, &PostParams::default(), &secret).await
            }
        };
        done.map(drop).with_context(what)
    }

    async fn forget_secret(&self, host: &BareMetalHost, name: &str) -> Result<()> {
        let api = self.account_secrets(host);
        let what = || format!("deleting the Secret {}/{name}", host.metadata.namespace);
        let Some(old) = api.get_opt(name).await.with_context(what)? else {
            return Ok(());
        };
        if !is_account_of(&old, host) {
            return Ok(());
        }
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: old.metadata.uid,
                resource_version: old.metadata.resource_version,
            }),
            ..DeleteParams::default()
        };
        let deleted = api.delete(name, &parameters).await;
        deleted.map(drop).with_context(what)
    }

    async fn apply_status(&self, host: &BareMetalHost) -> Result<()> {
        let patch = part(host, "status", &serde_json::to_value(&host.status)?);
        let writer = self.hosts.writer();
        writer.apply(&key(host), Part::Status, &patch).await
    }
}

impl KubeStore {
    fn account_secrets(&self, host: &BareMetalHost) -> Api<KubeSecret> {
        Api::namespaced(self.writers.client().clone(), &host.metadata.namespace)
    }
}

/// It goes with the host.
fn account_secret(host: &BareMetalHost, name: &str, data: &Secret) -> KubeSecret {
    let data = data.iter();
    KubeSecret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(host.metadata.namespace.clone()),
            labels: Some(BTreeMap::from([(
                LABEL.to_owned(),
                label_of(&host.spec.boot_mac_address),
            )])),
            owner_references: Some(vec![OwnerReference {
                api_version: bmh::API_VERSION.to_owned(),
                kind: bmh::KIND.to_owned(),
                name: host.metadata.name.clone(),
                uid: host.metadata.uid.clone(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        data: Some(
            data.map(|(key, value)| (key.clone(), ByteString(value.clone())))
                .collect(),
        ),
        type_: Some("Opaque".to_owned()),
        ..KubeSecret::default()
    }
}

fn is_account_of(secret: &KubeSecret, host: &BareMetalHost) -> bool {
    let labels = secret.metadata.labels.as_ref();
    let of = labels.and_then(|labels| labels.get(LABEL));
    of.is_some_and(|of| *of == label_of(&host.spec.boot_mac_address))
}

/// A label has no colons.
fn label_of(mac: &str) -> String {
    mac.to_lowercase().replace(':', "")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use firstlight_api::bmh::{HardwareData, RootDeviceHints, examples};
    use kube::api::DynamicObject;

    use super::*;
    use crate::{
        hosts::{account, made},
        objects::{Seen, testing::merge},
    };

    const CRD: &str =
        include_str!("../../../overlays/box/usr/share/firstlight/manifests/crd-baremetalhost.yaml");
    const HARDWARE_CRD: &str =
        include_str!("../../../overlays/box/usr/share/firstlight/manifests/crd-hardwaredata.yaml");

    fn crd(text: &str) -> DynamicObject {
        crate::kubernetes::parse_manifest(text).unwrap().remove(0)
    }

    #[test]
    fn what_is_written_is_served_under_the_name_that_it_is_written_to() {
        for (text, written) in [(CRD, HOSTS), (HARDWARE_CRD, HARDWARE)] {
            let served = &crd(text).data["spec"];
            let kind = written.api();
            assert_eq!(
                [
                    &served["group"],
                    &served["names"]["kind"],
                    &served["names"]["plural"]
                ],
                [&json!(kind.group), &json!(kind.kind), &json!(kind.plural)]
            );
            assert_eq!(served["versions"][0]["name"], kind.version);
        }
    }

    #[test]
    fn an_object_that_cannot_be_read_is_told_and_its_host_is_let_be() {
        let object = |name: &str, online: Value| {
            let object = json!({
                "apiVersion": bmh::API_VERSION,
                "kind": bmh::KIND,
                "metadata": {"name": name, "namespace": "metal3"},
                "spec": {"bootMACAddress": "52:54:00:00:00:01", "online": online},
            });
            serde_json::from_value::<Seen<BareMetalHost>>(object).unwrap()
        };
        let listed = [object("odd", json!("perhaps")), object("good", json!(true))];
        let hosts = listed.iter().filter_map(|seen| seen.object.as_ref());
        let paused: Vec<_> = hosts
            .map(|host| {
                let by = annotations::paused_by(&host.metadata.annotations);
                (host.metadata.name.as_str(), by.is_some())
            })
            .collect();
        assert_eq!(paused, [("odd", true), ("good", false)]);
        let told: Vec<_> = listed
            .iter()
            .filter_map(|seen| seen.trouble(bmh::KIND))
            .collect();
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("odd"), "{told:?}");
    }

    #[test]
    fn what_people_change_is_news_and_a_status_is_not() {
        let head = |generation: i64, meta: Value| {
            let mut object = json!({"metadata": {"name": "a", "generation": generation}});
            object["apiVersion"] = bmh::API_VERSION.into();
            object["kind"] = bmh::KIND.into();
            for (key, value) in meta.as_object().unwrap() {
                object["metadata"][key] = value.clone();
            }
            heads(&[Arc::new(serde_json::from_value(object).unwrap())])
        };
        let reboot = || json!({"annotations": {"reboot.metal3.io": ""}});
        let all = [
            BTreeMap::new(),
            head(1, json!({"resourceVersion": "1"})),
            head(1, json!({"resourceVersion": "2"})),
            head(2, json!({})),
            head(2, reboot()),
            head(2, reboot()),
            head(2, json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})),
            BTreeMap::new(),
            head(2, reboot()),
        ];
        let news: Vec<bool> = all.windows(2).map(|two| two[0] != two[1]).collect();
        assert_eq!(news, [true, false, true, true, false, true, true, true]);
    }

    /// The same without a server: each field of the examples is in the schema.
    #[test]
    fn the_schemas_have_every_field_of_the_examples() {
        let data: HardwareData = examples::hardware_data();
        for (text, example) in [
            (CRD, serde_json::to_value(examples::host()).unwrap()),
            (HARDWARE_CRD, serde_json::to_value(data).unwrap()),
        ] {
            let crd = serde_json::to_value(crd(text)).unwrap();
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            check("", &example, schema);
        }
    }

    #[test]
    fn an_amendment_touches_nothing_but_what_it_is_about() {
        let mut host = examples::host();
        host.metadata.resource_version = "7".into();
        let amendment = Amendment {
            finalizers: Some(vec![]),
            forget: vec!["reboot.metal3.io".into()],
            ..Amendment::default()
        };
        assert_eq!(
            merge_patch(&host, &amendment),
            json!({"metadata": {"resourceVersion": "7", "finalizers": [], "annotations": {"reboot.metal3.io": null}}})
        );
    }

    #[test]
    fn an_object_that_is_made_anew_is_what_it_shall_be() {
        let (mut old, mut new) = (examples::host(), examples::host());
        for object in [&mut old, &mut new] {
            object.metadata.labels.clear();
            object.spec.root_device_hints = None;
        }
        old.metadata.labels.insert("a".into(), "1".into());
        new.metadata.labels.insert("b".into(), "2".into());
        old.spec.root_device_hints = Some(RootDeviceHints {
            model: "lie".into(),
            vendor: "lie".into(),
            ..RootDeviceHints::default()
        });
        for (old, new) in [(&old, &new), (&new, &old)] {
            let amendment = Amendment {
                anew: Some(Box::new(new.clone())),
                ..Amendment::default()
            };
            let mut merged = told(old);
            merge(&mut merged, &merge_patch(old, &amendment));
            let version = merged["metadata"].as_object_mut().unwrap();
            version.remove("resourceVersion");
            assert_eq!(merged, told(new));
        }
    }

    #[test]
    fn the_box_names_its_own_bmc_and_takes_that_back_without_a_trace() {
        let spec = made::spec("52:54:00:00:00:01".to_owned(), None);
        let before = BareMetalHost::new("n1", "metal3", spec);
        let amended = |host: &BareMetalHost, bmc| {
            let amendment = Amendment {
                bmc: Some(bmc),
                ..Amendment::default()
            };
            let mut object = serde_json::to_value(host).unwrap();
            merge(&mut object, &merge_patch(host, &amendment));
            serde_json::from_value::<BareMetalHost>(object).unwrap()
        };
        let details = account::details(&before, "ipmi://10.0.0.9");
        let named = SpecBmc::Named {
            details,
            may_be_off: true,
        };
        let named = amended(&before, named);
        assert_eq!(account::named(&named), account::Named::Ours);
        assert!(made::is_as_made(&named) && !named.spec.disable_power_off);
        let gone = amended(&named, SpecBmc::Gone { stays_on: true });
        assert_eq!(account::named(&gone), account::Named::Nothing);
        assert!(made::is_as_made(&gone) && gone.metadata.annotations.contains_key(MADE));
        assert_eq!(amended(&gone, SpecBmc::Forgotten), before);
    }

    #[test]
    fn the_secret_of_an_account_goes_with_its_host_and_others_are_not_touched() {
        let mut host = examples::host();
        host.metadata.uid = "u-1".into();
        let data = Secret::from([("password".to_owned(), b"s3cret".to_vec())]);
        let mut secret = account_secret(&host, "n1-bmc-account", &data);
        let owners = secret.metadata.owner_references.clone().unwrap();
        assert_eq!(
            (owners[0].uid.as_str(), owners[0].kind.as_str()),
            ("u-1", bmh::KIND)
        );
        assert!(is_account_of(&secret, &host));
        let mut other = host.clone();
        other.spec.boot_mac_address = "52:54:00:00:00:77".into();
        assert!(!is_account_of(&secret, &other));
        secret.metadata.labels = None;
        assert!(!is_account_of(&secret, &host), "a person's");
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
