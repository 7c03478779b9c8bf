#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const OLD: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const NEW: &str = "infrastructure.cluster.x-k8s.io/v1beta2";

fn asked(wanted: &str, objects: &[Value]) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "request": {"uid": "u-1", "desiredAPIVersion": wanted, "objects": objects},
    })
}

fn template(name: &str, format: &str) -> Value {
    json!({
        "apiVersion": OLD, "kind": "Metal3MachineTemplate",
        "metadata": {"name": name, "namespace": "rack", "uid": name, "generation": 4},
        "spec": {"template": {"spec": {"image": {"url": "http://a", "format": format}}}},
    })
}

#[test]
fn any_number_of_objects_is_converted_in_their_order_with_their_metadata() {
    let objects: Vec<Value> = (0..500)
        .map(|n| template(&format!("t{n}"), "raw"))
        .collect();
    let answer = review(asked(NEW, &objects).to_string().as_bytes()).unwrap();
    let response = &answer["response"];
    assert_eq!(response["uid"], "u-1");
    assert_eq!(response["result"], json!({"status": "Success"}));
    let converted = response["convertedObjects"].as_array().unwrap();
    assert_eq!(converted.len(), objects.len());
    for (made, given) in converted.iter().zip(&objects) {
        assert_eq!(
            (&made["metadata"], &made["apiVersion"]),
            (&given["metadata"], &json!(NEW))
        );
        assert_eq!(
            made["spec"]["template"]["spec"]["image"]["diskFormat"],
            "raw"
        );
    }
    let none = review(asked(NEW, &[]).to_string().as_bytes()).unwrap();
    assert_eq!(none["response"]["convertedObjects"], json!([]));
}

#[test]
fn one_object_that_cannot_be_converted_is_named_in_a_sentence() {
    let mut foreign = template("odd", "raw");
    foreign["kind"] = "Metal3Data".into();
    let answer = review(
        asked(NEW, &[template("t", "raw"), foreign])
            .to_string()
            .as_bytes(),
    );
    let response = &answer.unwrap()["response"];
    assert_eq!(response["convertedObjects"], json!([]));
    let message =
        "rack/odd: Metal3Data is not converted here; write infrastructure.cluster.x-k8s.io/v1beta2";
    assert_eq!(
        response["result"],
        json!({"status": "Failure", "message": message})
    );
}

#[test]
fn what_is_no_review_is_no_answer() {
    let mut beta = asked(NEW, &[]);
    beta["apiVersion"] = "apiextensions.k8s.io/v1beta1".into();
    assert_eq!(review(beta.to_string().as_bytes()), None);
    let mut answer = asked(NEW, &[]);
    answer.as_object_mut().unwrap().remove("request");
    assert_eq!(review(answer.to_string().as_bytes()), None);
}

/// JSON of some depth whose names are those that a conversion knows.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z/]{0,4}".prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "spec",
        "status",
        "template",
        "metadata",
        "annotations",
        "image",
        "format",
        "failureDomains",
        "conditions",
        "v1beta2",
        "deprecated",
        "ready",
        "indexes",
        "networkData",
        "links",
        "bonds",
        "parameters",
        "name",
        "firstlight.internal/only-in-v1beta1",
        "cluster.x-k8s.io/conversion-data",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..6).prop_map(|fields| {
                fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_bring_it_down(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        review(&bytes);
    }

    #[test]
    fn no_object_brings_it_down_and_none_of_a_kind_that_it_knows_is_refused(
        object in anything(),
        kind in prop::sample::select(vec!["Metal3Cluster", "Metal3MachineTemplate", "Metal3Machine", "Metal3DataTemplate"]),
        is_old in any::<bool>(),
    ) {
        let mut object = if object.is_object() { object } else { json!({"spec": object}) };
        let (has, wanted) = if is_old { (OLD, NEW) } else { (NEW, OLD) };
        object["apiVersion"] = has.into();
        object["kind"] = kind.into();
        let answer = review(asked(wanted, &[object]).to_string().as_bytes()).unwrap();
        prop_assert_eq!(&answer["response"]["result"]["status"], "Success");
    }
}
