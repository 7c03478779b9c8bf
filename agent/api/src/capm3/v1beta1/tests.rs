//! `golden/` was made by upstream's own conversion (cluster-api-provider-metal3 1.14.0-rc.0, `ConvertTo` and `ConvertFrom`; its
//! `conversion.go` is that of 1.13.2) out of manifests of ours, which have every field. Its Go module cannot be had with a checksum that
//! the checksum database knows, so it is not asked anew with each run.
use serde_json::{Map, json};

use super::*;

const OLD: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const TO_NEW: &str = include_str!("golden/to-v1beta2.json");
const TO_OLD: &str = include_str!("golden/to-v1beta1.json");

fn cases(text: &str) -> Vec<(Value, Value)> {
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    let case = |mut case: Value| (case["given"].take(), case["upstream"].take());
    cases.into_iter().map(case).collect()
}

/// Without fields for which `is_nothing` holds once they have lost theirs.
fn without(value: &mut Value, is_nothing: &impl Fn(&Value) -> bool) {
    match value {
        Value::Object(fields) => {
            fields
                .values_mut()
                .for_each(|value| without(value, is_nothing));
            fields.retain(|_, value| !is_nothing(value));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| without(item, is_nothing)),
        _ => {}
    }
}

/// Upstream writes empty objects where all in them was empty, and so do we elsewhere.
fn is_hollow(value: &Value) -> bool {
    value.is_null() || *value == json!({}) || *value == json!([]) || *value == json!("")
}

/// Without what means the same as nothing; upstream leaves most of them out, and writes some that nobody said.
fn without_zeros(fields: &mut Map<String, Value>) {
    let zeros = [
        "controlPlane",
        "fromBootMAC",
        "nodeReuse",
        "offset",
        "prefix",
    ];
    fields.retain(|name, value| !(zeros.contains(&name.as_str()) && tidy::is_empty(value)));
    for value in fields.values_mut() {
        change::each(value, "", &mut without_zeros);
        change::each(value, "*", &mut without_zeros);
    }
}

fn annotations(object: &Value) -> Value {
    object["metadata"]["annotations"].clone()
}

#[test]
fn what_is_written_in_v1beta1_becomes_what_upstream_makes_of_it() {
    for (given, upstream) in cases(TO_NEW) {
        let mut made = convert(given, API_VERSION).unwrap();
        let mut upstream = upstream;
        take_annotation(&mut made, ONLY_OLD);
        for object in [&mut made, &mut upstream] {
            without(object, &is_hollow);
            change::each(object, "spec", &mut without_zeros);
        }
        assert_eq!(made, upstream);
    }
}

#[test]
fn what_is_stored_is_shown_in_v1beta1_as_upstream_shows_it() {
    for (given, upstream) in cases(TO_OLD) {
        let has_more = given.pointer("/spec/template/metadata").is_some();
        let mut made = convert(given.clone(), OLD).unwrap();
        let mut upstream = upstream;
        let kept = take_annotation(&mut made, WHOLE_NEW);
        let whole = take_annotation(&mut upstream, WHOLE_NEW);
        assert_eq!(kept.is_some(), has_more);
        assert_eq!(
            kept.unwrap_or_default(),
            if has_more {
                whole.unwrap()
            } else {
                Value::Null
            }
        );
        // Go writes a zero where its type has no other way to say nothing.
        let is_nothing = |value: &Value| is_hollow(value) || *value == json!(false);
        for object in [&mut made, &mut upstream] {
            without(object, &is_nothing);
        }
        assert_eq!(made, upstream);
    }
}

#[test]
fn what_is_read_in_the_other_version_and_written_back_is_what_it_was() {
    for (given, _) in cases(TO_OLD) {
        let old = convert(given.clone(), OLD).unwrap();
        assert_eq!(convert(old, API_VERSION).unwrap(), given);
    }
    for (given, _) in cases(TO_NEW) {
        let new = convert(given.clone(), API_VERSION).unwrap();
        let old = convert(new.clone(), OLD).unwrap();
        assert_eq!(convert(old.clone(), API_VERSION).unwrap(), new);
        // All but what says nothing; Cluster API's annotation has been heard.
        let [mut old, mut given] = [old, given];
        take_annotation(&mut old, WHOLE_NEW);
        take_annotation(&mut given, WHOLE_NEW);
        if given["spec"]["noCloudProvider"].is_null() {
            old["spec"]
                .as_object_mut()
                .unwrap()
                .remove("noCloudProvider");
        }
        for object in [&mut old, &mut given] {
            tidy::tidy(&mut object["spec"]);
            without(object, &|value| tidy::is_empty(value));
        }
        assert_eq!(old, given);
    }
}

fn cluster(spec: &Value) -> Value {
    json!({"apiVersion": OLD, "kind": "Metal3Cluster", "metadata": {"name": "lab"}, "spec": spec})
}

/// Upstream forgets it since 1.13; until then its webhook did this.
#[test]
fn without_cloud_provider_enabled_the_opposite_of_no_cloud_provider_counts() {
    let table = [
        (
            json!({"noCloudProvider": true}),
            json!({"cloudProviderEnabled": false}),
        ),
        (
            json!({"noCloudProvider": false}),
            json!({"cloudProviderEnabled": true}),
        ),
        (
            json!({"noCloudProvider": false, "cloudProviderEnabled": false}),
            json!({"cloudProviderEnabled": false}),
        ),
        (json!({"noCloudProvider": null}), json!({})),
        (json!({}), json!({})),
    ];
    for (old, new) in table {
        assert_eq!(convert(cluster(&old), API_VERSION).unwrap()["spec"], new);
    }
}

#[test]
fn what_only_v1beta1_has_waits_in_an_annotation_for_who_reads_v1beta1() {
    let machine = json!({
        "apiVersion": OLD, "kind": "Metal3Machine", "metadata": {"name": "m"},
        "spec": {"dataTemplate": {"name": "t", "kind": "Metal3DataTemplate", "uid": ""}},
        "status": {"phase": "Running"},
    });
    let mut new = convert(machine.clone(), API_VERSION).unwrap();
    let kept = json!({"/spec/dataTemplate/kind": "Metal3DataTemplate", "/status/phase": "Running"});
    assert_eq!(annotations(&new), json!({ONLY_OLD: kept.to_string()}));
    assert_eq!(new["spec"], json!({"dataTemplate": {"name": "t"}}));
    // What was about a reference goes with it.
    new["spec"] = json!({});
    let old = convert(new, OLD).unwrap();
    assert_eq!((&old["spec"], annotations(&old)), (&json!({}), Value::Null));
    assert_eq!(old["status"], machine["status"]);
}

#[test]
fn an_annotation_with_nonsense_is_dropped_and_one_with_foreign_places_changes_nothing() {
    for text in [
        "",
        "no JSON",
        "[]",
        "3",
        "{\"/spec/image\": {}, \"/metadata/name\": \"x\"}",
    ] {
        for (version, other) in [(OLD, API_VERSION), (API_VERSION, OLD)] {
            let annotations = json!({ONLY_OLD: text, WHOLE_NEW: text});
            let object = json!({
                "apiVersion": version, "kind": "Metal3MachineTemplate",
                "metadata": {"name": "m", "annotations": annotations}, "spec": {"template": {"spec": {}}},
            });
            let made = convert(object, other).unwrap();
            assert_eq!(made["metadata"], json!({"name": "m"}), "{text}");
            assert_eq!(made["spec"], json!({"template": {"spec": {}}}));
        }
    }
}

#[test]
fn only_these_kinds_have_two_versions_and_only_these_versions_are_there() {
    let refused = |object: Value, wanted: &str| convert(object, wanted).unwrap_err().to_string();
    let data = json!({"apiVersion": OLD, "kind": "Metal3Data"});
    assert!(refused(data, API_VERSION).contains("Metal3Data is not converted here"));
    let alpha = "infrastructure.cluster.x-k8s.io/v1alpha5";
    assert!(refused(cluster(&json!({})), alpha).contains(alpha));
    assert!(refused(cluster(&json!({})), "v1beta2").contains("there is no v1beta2"));
    let mut foreign = cluster(&json!({}));
    foreign["apiVersion"] = "cluster.x-k8s.io/v1beta1".into();
    assert!(refused(foreign, API_VERSION).contains("cluster.x-k8s.io/v1beta1"));
    assert_eq!(convert(json!([]), OLD), Err(Refusal::NoObject));
    let same = cluster(&json!({"noCloudProvider": true}));
    assert_eq!(convert(same.clone(), OLD), Ok(same));
}
