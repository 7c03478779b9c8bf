//! Lists of objects, read one by one: an object that cannot be read holds up no other.

use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a list gave.
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

pub fn read<T: DeserializeOwned>(kind: &str, items: impl IntoIterator<Item = Value>) -> Listed<T> {
    let mut listed = Listed::default();
    for item in items {
        match read_one(kind, &item) {
            Ok(object) => listed.objects.push(object),
            Err(sentence) => listed.unreadable.push(sentence),
        }
    }
    listed
}

/// As `kube` lists them.
pub fn read_dynamic<T: DeserializeOwned>(kind: &str, objects: &[DynamicObject]) -> Listed<T> {
    read(kind, objects.iter().map(value))
}

/// Or a sentence.
pub fn read_one<T: DeserializeOwned>(kind: &str, object: &Value) -> Result<T, String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    T::deserialize(object).map_err(|error| format!("the {kind} {name} cannot be read: {error}"))
}

/// It came as JSON and goes as JSON.
pub fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use firstlight_api::addon::Addon;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_is_named_and_holds_up_no_other() {
        let addon = |name: &str, cluster: Value| json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"cluster": cluster, "builtin": "multus"}});
        let items = [
            addon("a", "lab".into()),
            addon("odd", 7.into()),
            json!("no object at all"),
            addon("c", "lab".into()),
        ];
        let listed: Listed<Addon> = read("Addon", items);
        let names: Vec<&str> = listed
            .objects
            .iter()
            .map(|addon| addon.metadata.name.as_str())
            .collect();
        assert_eq!(names, ["a", "c"]);
        let [odd, none] = &listed.unreadable[..] else {
            panic!("{:?}", listed.unreadable)
        };
        assert!(odd.starts_with("the Addon odd cannot be read: "), "{odd}");
        assert!(none.starts_with("the Addon  cannot be read: "), "{none}");
    }
}
