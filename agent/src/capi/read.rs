//! Lists of objects, read one by one: an object that cannot be read holds up no other.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a list gave.
#[derive(Clone, Debug, Default)]
pub struct Listed<T> {
    pub objects: Vec<T>,
    /// A sentence for each object that cannot be read.
    pub unreadable: Vec<String>,
}

pub fn read<T: DeserializeOwned>(kind: &str, items: impl IntoIterator<Item = Value>) -> Listed<T> {
    let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
    for item in items {
        let name = item["metadata"]["name"].as_str().unwrap_or_default();
        let unread = format!("the {kind} {name} cannot be read");
        match serde_json::from_value(item) {
            Ok(object) => objects.push(object),
            Err(error) => unreadable.push(format!("{unread}: {error}")),
        }
    }
    Listed {
        objects,
        unreadable,
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
