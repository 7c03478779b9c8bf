//! The one decoder of objects: one that cannot be read is named, and holds up no other.

use std::{borrow::Cow, fmt::Debug, sync::Arc};

use firstlight_api::{bounded, object::Object};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{api::ApiResource, core::DynamicResourceScope};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// In memory, whatever is in it.
const LEAST: usize = 1 << 10;

/// What there is of a kind.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    pub objects: Vec<T>,
    /// A sentence for each object that cannot be read.
    pub unreadable: Vec<String>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            unreadable: Vec::new(),
        }
    }
}

impl<T: Clone> Listed<Arc<T>> {
    pub fn owned(self) -> Listed<T> {
        let objects = self.objects.into_iter();
        Listed {
            objects: objects.map(Arc::unwrap_or_clone).collect(),
            unreadable: self.unreadable,
        }
    }
}

/// A type that objects are read into: the fields that somebody uses, and no others.
pub trait Readable: Debug + DeserializeOwned + Send + Sync + 'static {
    /// What stays of an object that cannot be read; nothing, as a rule.
    fn remains(_: &Value) -> Option<Self> {
        None
    }
}

impl<S, T> Readable for Object<S, T> where Self: Debug + DeserializeOwned + Send + Sync + 'static {}
impl Readable for ConfigMap {}
impl Readable for Secret {}

/// An object of the API server, as much of it as is kept. It is read while its list is parsed, so that of a list of large
/// objects never more than one is in memory as it came.
#[derive(Debug)]
pub struct Seen<K> {
    /// Name, namespace and version.
    meta: ObjectMeta,
    pub object: Option<Arc<K>>,
    /// Why it cannot be read.
    pub error: Option<String>,
    /// In memory, about.
    pub size: usize,
}

impl<K: Readable> Seen<K> {
    fn new(value: &Value) -> Self {
        let text = |name: &str| value["metadata"][name].as_str().map(bounded::sentence);
        let meta = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        let (object, error) = match K::deserialize(value) {
            Ok(object) => (Some(object), None),
            Err(error) => (
                K::remains(value),
                Some(bounded::sentence(&error.to_string())),
            ),
        };
        let size = object.as_ref().map_or(0, |_| size(value)) + LEAST;
        Self {
            meta,
            object: object.map(Arc::new),
            error,
            size,
        }
    }

    /// For people.
    pub fn trouble(&self, kind: &str) -> Option<String> {
        let name = self.meta.name.as_deref().unwrap_or_default();
        let error = self.error.as_ref()?;
        let told = format!("the {kind} {name} cannot be read: {error}");
        Some(bounded::sentence(&told))
    }
}

// Without one of `K`: it is behind an `Arc`.
impl<K> Clone for Seen<K> {
    fn clone(&self) -> Self {
        Self {
            meta: self.meta.clone(),
            object: self.object.clone(),
            error: self.error.clone(),
            size: self.size,
        }
    }
}

impl<'de, K: Readable> Deserialize<'de> for Seen<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::new(&value))
    }
}

impl<K> kube::Resource for Seen<K> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.kind)
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.group)
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.version)
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// Texts, and what a place for each value costs.
fn size(value: &Value) -> usize {
    const PLACE: usize = size_of::<Value>();
    match value {
        Value::String(text) => PLACE + text.len(),
        Value::Array(items) => PLACE + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| PLACE + name.len() + size(value);
            PLACE + fields.iter().map(field).sum::<usize>()
        }
        _ => PLACE,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::{
        addon::Addon,
        bmh::BareMetalHost,
        capm3::Metal3Remediation,
        ipam::{ContractAddress, IpAddress, IpPool},
        software::Software,
    };
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_is_named_and_holds_up_no_other() {
        let addon = |name: &str, cluster: Value| json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"cluster": cluster, "builtin": "multus"}});
        let items = json!([
            addon("a", "lab".into()),
            addon("odd", 7.into()),
            "no object at all",
            addon("c", "lab".into()),
        ]);
        let listed: Vec<Seen<Addon>> = serde_json::from_value(items).unwrap_or_default();
        let read = listed.iter().filter_map(|seen| seen.object.as_ref());
        let names: Vec<&str> = read.map(|addon| addon.metadata.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        let told: Vec<_> = listed
            .iter()
            .filter_map(|seen| seen.trouble("Addon"))
            .collect();
        let [odd, none] = &told[..] else {
            panic!("{told:?}")
        };
        assert!(odd.starts_with("the Addon odd cannot be read: "), "{odd}");
        assert!(none.starts_with("the Addon  cannot be read: "), "{none}");
    }

    #[test]
    fn little_is_kept_of_a_large_object_that_cannot_be_read() {
        let odd = json!({"metadata": {"name": "odd"}, "spec": {"cluster": vec!["x"; 1 << 16]}, "status": 7});
        let seen: Seen<Addon> = Seen::new(&odd);
        assert!(seen.object.is_none() && seen.size == LEAST);
        assert!(seen.error.is_some_and(|error| error.len() <= 1000));
    }

    /// A valid object with one of its values replaced.
    fn objects(whole: &Value) -> impl Strategy<Value = Value> + use<> {
        let mut places = vec![String::new()];
        let mut at = 0;
        while at < places.len() {
            let place = places[at].clone();
            match whole.pointer(&place) {
                Some(Value::Object(below)) => {
                    places.extend(below.keys().map(|key| format!("{place}/{key}")));
                }
                Some(Value::Array(below)) => {
                    places.extend((0..below.len()).map(|index| format!("{place}/{index}")));
                }
                _ => {}
            }
            at += 1;
        }
        let value = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (".{0,8}", 0..400_usize).prop_map(|(word, times)| Value::from(word.repeat(times))),
            prop::collection::vec(any::<u8>(), 0..3).prop_map(Value::from),
            Just(json!({"a": {"b": "c"}})),
        ];
        let whole = whole.clone();
        (prop::sample::select(places), value).prop_map(move |(place, value)| {
            let mut object = whole.clone();
            *object.pointer_mut(&place).expect("a place in it") = value;
            object
        })
    }

    fn meta() -> Value {
        json!({"name": "a", "namespace": "default", "uid": "u", "labels": {"a": "b"}, "annotations": {"a": "b"},
            "finalizers": ["f"], "generation": 1, "resourceVersion": "1", "ownerReferences":
            [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": true}]})
    }

    /// One that is read is read again as it is written; one that is not is one sentence, and the one behind it is read.
    fn is_read_or_told<K: Readable + serde::Serialize>(
        object: &Value,
        good: &Value,
    ) -> Result<(), TestCaseError> {
        let listed: Vec<Seen<K>> = serde_json::from_value(json!([object, good])).unwrap();
        prop_assert!(listed[1].object.is_some() && listed[1].error.is_none());
        prop_assert!(listed[0].object.is_some() || listed[0].error.is_some());
        for sentence in listed.iter().filter_map(|seen| seen.trouble("Kind")) {
            prop_assert!(
                sentence.chars().count() <= 1000 && !sentence.contains(char::is_control),
                "{}",
                sentence
            );
        }
        for seen in listed.iter().filter(|seen| seen.error.is_none()) {
            let written = serde_json::to_value(seen.object.as_deref()).unwrap();
            prop_assert!(Seen::<K>::new(&written).error.is_none());
        }
        Ok(())
    }

    fn addon() -> Value {
        json!({"metadata": meta(), "spec": {"cluster": "lab", "chart": {"name": "a", "version": "1"},
            "values": {"a": 1}, "dependsOn": ["b"]}, "status": {"state": "Ready", "conditions": []}})
    }

    fn software() -> Value {
        json!({"metadata": meta(), "spec": {"packages": [{"name": "a", "version": "1"}], "selector": {"matchLabels": {"a": "b"}}},
            "status": {"servers": []}})
    }

    fn pool() -> Value {
        let range = json!({"start": "10.0.0.1", "end": "10.0.0.9", "subnet": "10.0.0.0/24", "prefix": 24, "gateway": "10.0.0.254"});
        json!({"metadata": meta(), "spec": {"namePrefix": "p", "pools": [range, {"subnet": "fd00::/64", "dnsServers": ["fd00::1"]}],
            "allocationStrategy": "random", "preAllocations": {"a": "10.0.0.3"}, "clusterName": "lab", "prefix": 64},
            "status": {"indexes": {"a": "10.0.0.3"}, "lastUpdated": "2026-01-01T00:00:00Z"}})
    }

    fn remediation() -> Value {
        json!({"metadata": meta(), "spec": {"strategy": {"type": "Reboot", "retryLimit": 2, "timeoutSeconds": 300}},
            "status": {"phase": "Deleting machine", "retryCount": 1, "lastRemediated": "2026-01-01T00:00:00Z"}})
    }

    /// In both APIs that have one.
    fn address() -> Value {
        let pool = json!({"apiGroup": "g", "kind": "K", "name": "p"});
        json!({"metadata": meta(), "spec": {"address": "10.0.0.1", "prefix": 24, "gateway": "10.0.0.254", "dnsServers": ["10.0.0.53"],
            "pool": {"name": "p", "namespace": "n"}, "claim": {"name": "c"}, "poolRef": pool, "claimRef": {"name": "c"}}})
    }

    fn host() -> Value {
        json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": meta(), "spec": {"bootMACAddress": "52:54:00:00:00:01", "online": true,
            "image": {"url": "http://a", "checksum": "b", "checksumType": "sha256"}, "userData": {"name": "s", "namespace": "n"},
            "rootDeviceHints": {"minSizeGigabytes": 8, "rotational": false}, "consumerRef": {"kind": "K", "name": "n"}},
            "status": {"operationalStatus": "OK", "errorMessage": "", "poweredOn": true, "provisioning": {"state": "provisioned", "ID": "i", "image": {"url": "u"}}, "hardware": {"ramMebibytes": 1}}})
    }

    proptest! {
        #[test]
        fn whatever_somebody_wrote_into_an_object_it_is_read_or_told(
            addon_ in objects(&addon()), software_ in objects(&software()), host_ in objects(&host()),
            pool in objects(&pool()), address in objects(&address()), remediation in objects(&remediation()),
        ) {
            is_read_or_told::<Metal3Remediation>(&remediation, &self::remediation())?;
            is_read_or_told::<IpPool>(&pool, &self::pool())?;
            is_read_or_told::<IpAddress>(&address, &self::address())?;
            is_read_or_told::<ContractAddress>(&address, &self::address())?;
            is_read_or_told::<Addon>(&addon_, &addon())?;
            is_read_or_told::<Software>(&software_, &software())?;
            is_read_or_told::<BareMetalHost>(&host_, &host())?;
        }
    }
}
