//! Lists of objects, read one by one: an object that cannot be read holds up no other.

use firstlight_api::bounded;
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
    // The error quotes what it met.
    T::deserialize(object)
        .map_err(|error| bounded::sentence(&format!("the {kind} {name} cannot be read: {error}")))
}

/// It came as JSON and goes as JSON.
pub fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use firstlight_api::{addon::Addon, bmh::BareMetalHost, software::Software};
    use proptest::prelude::*;
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

    /// One that is read is written as it was read; one that is not is one sentence, and the one behind it is read.
    fn is_read_or_told<T: DeserializeOwned + serde::Serialize>(
        object: Value,
        good: Value,
    ) -> Result<(), TestCaseError> {
        let listed: Listed<T> = read("Kind", [object, good]);
        prop_assert_eq!(listed.objects.len() + listed.unreadable.len(), 2);
        prop_assert!(!listed.objects.is_empty(), "{:?}", listed.unreadable);
        for sentence in &listed.unreadable {
            prop_assert!(
                sentence.chars().count() <= 1000 && !sentence.contains(char::is_control),
                "{}",
                sentence
            );
        }
        for object in &listed.objects {
            let written = serde_json::to_value(object).expect("it came as JSON");
            prop_assert!(read_one::<T>("Kind", &written).is_ok());
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
        ) {
            is_read_or_told::<Addon>(addon_, addon())?;
            is_read_or_told::<Software>(software_, software())?;
            is_read_or_told::<BareMetalHost>(host_, host())?;
        }
    }
}
