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
        Some(format!("the {kind} {name} cannot be read: {error}"))
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
    use firstlight_api::addon::Addon;
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
}
