//! Manifests are made at random by the schema of one version, and must then fit that of the other.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, sync::LazyLock};

use firstlight_api::capm3::{self, v1beta1::convert};
use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::kubernetes::parse_manifest;

const OLD: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const NEW: &str = capm3::API_VERSION;
const DEFINITIONS: [&str; 7] = [
    include_str!("../../../../overlays/box/usr/share/firstlight/manifests/crd-metal3cluster.yaml"),
    include_str!(
        "../../../../overlays/box/usr/share/firstlight/manifests/crd-metal3clustertemplate.yaml"
    ),
    include_str!("../../../../overlays/box/usr/share/firstlight/manifests/crd-metal3machine.yaml"),
    include_str!(
        "../../../../overlays/box/usr/share/firstlight/manifests/crd-metal3machinetemplate.yaml"
    ),
    include_str!(
        "../../../../overlays/box/usr/share/firstlight/manifests/crd-metal3datatemplate.yaml"
    ),
    include_str!(
        "../../../../overlays/box/usr/share/firstlight/manifests/crd-metal3remediation.yaml"
    ),
    include_str!(
        "../../../../overlays/box/usr/share/firstlight/manifests/crd-metal3remediationtemplate.yaml"
    ),
];

/// A kind with the schemas of its versions: the new one, the old one.
struct Kind {
    name: String,
    versions: [Value; 2],
}

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let kind = |text: &&str| {
        let mut definition = parse_manifest(text).unwrap().remove(0).data;
        complete(&mut definition, "PEM");
        let spec = &definition["spec"];
        let versions = spec["versions"].as_array().unwrap();
        let names: Vec<_> = versions.iter().map(|version| &version["name"]).collect();
        assert_eq!(names, ["v1beta2", "v1beta1"]);
        let schema = |at: usize| versions[at]["schema"]["openAPIV3Schema"].clone();
        Kind {
            name: spec["names"]["kind"].as_str().unwrap().to_owned(),
            versions: [schema(0), schema(1)],
        }
    };
    DEFINITIONS.iter().map(kind).collect()
});

/// Bytes that stand for chance.
struct Chance<'a>(std::slice::Iter<'a, u8>);

impl Chance<'_> {
    fn below(&mut self, end: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or_default()) % end
    }
}

/// Something that `schema` allows.
fn make(schema: &Value, chance: &mut Chance) -> Value {
    if schema["x-kubernetes-preserve-unknown-fields"] == true || schema["type"].is_null() {
        let anything = [json!(0), json!("fast"), json!({"a": [1, ""]}), json!(false)];
        let is_object = schema["type"] == "object";
        return anything[if is_object { 2 } else { chance.below(4) }].clone();
    }
    match schema["type"].as_str().unwrap() {
        "object" => make_object(schema, chance),
        "array" => {
            // Keys of a list differ.
            let mut keys = BTreeSet::new();
            let items = (0..chance.below(3)).map(|_| make(&schema["items"], chance));
            let items: Vec<Value> = items.collect();
            let key = schema["x-kubernetes-list-map-keys"][0].as_str();
            let is_new = |item: &Value| {
                let key = key.or_else(|| item["name"].is_string().then_some("name"));
                key.is_none_or(|key| keys.insert(item[key].to_string()))
            };
            items.into_iter().filter(is_new).collect()
        }
        "boolean" => (chance.below(2) == 0).into(),
        "integer" => {
            let least = schema["minimum"].as_u64().unwrap_or(0);
            (least + u64::try_from(chance.below(3)).unwrap()).into()
        }
        "string" => match schema["enum"].as_array() {
            Some(words) => words[chance.below(words.len())].clone(),
            None if schema["format"] == "date-time" => json!("2026-11-25T20:00:00Z"),
            None if schema["pattern"].is_string() => {
                ["100s", "5m0s", "2.5h", "101s20ms"][chance.below(4)].into()
            }
            None => {
                let words = ["", "a", "b", "metal3://a/b/c"];
                let least = usize::from(schema["minLength"].as_u64() > Some(0));
                words[least + chance.below(4 - least)].into()
            }
        },
        other => panic!("{other}"),
    }
}

fn make_object(schema: &Value, chance: &mut Chance) -> Value {
    let mut made = Map::new();
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, property) in properties {
        let is_head = ["apiVersion", "kind", "metadata"].contains(&name.as_str());
        let is_top = is_head && properties.contains_key("spec");
        if !is_top && (required.contains(&json!(name)) || chance.below(3) > 0) {
            made.insert(name.clone(), make(property, chance));
        }
    }
    if !schema["additionalProperties"].is_null() {
        for name in &["east", "west", "x"][..chance.below(4)] {
            made.insert(
                (*name).to_owned(),
                make(&schema["additionalProperties"], chance),
            );
        }
    }
    made.into()
}

/// What of `value` the API server would refuse, or drop without a word.
fn complaints(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let Some(kind) = schema["type"].as_str().filter(|_| !is_open) else {
        return;
    };
    let mut complain = |what: &str| found.push(format!("{path}: {what}: {value}"));
    match (kind, value) {
        ("object", Value::Object(fields)) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                if !fields.contains_key(name.as_str().unwrap()) {
                    complain(&format!("{name} is missing"));
                }
            }
            for (name, inner) in fields {
                let path = format!("{path}.{name}");
                let own = &schema["properties"][name];
                let shared = &schema["additionalProperties"];
                match [own, shared].into_iter().find(|schema| !schema.is_null()) {
                    Some(schema) => complaints(schema, inner, &path, found),
                    None => found.push(format!("{path} is unknown")),
                }
            }
        }
        ("array", Value::Array(items)) => {
            for item in items {
                complaints(&schema["items"], item, &format!("{path}[]"), found);
            }
        }
        ("integer", Value::Number(number)) => {
            let least = schema["minimum"].as_i64();
            if least.is_some_and(|least| number.as_i64() < Some(least)) {
                complain("it is too small");
            }
        }
        ("string", Value::String(text)) => {
            let words = schema["enum"].as_array();
            if words.is_some_and(|words| !words.contains(value)) {
                complain("it is none of the words");
            }
            let least = schema["minLength"].as_u64().unwrap_or(0);
            if u64::try_from(text.len()).unwrap() < least {
                complain("it is too short");
            }
        }
        ("boolean", Value::Bool(_)) => {}
        _ => complain("it is something else"),
    }
}

fn fits(kind: &Kind, version: usize, object: &Value) {
    let mut object = object.clone();
    let fields = object.as_object_mut().unwrap();
    fields.retain(|name, _| ["spec", "status"].contains(&name.as_str()));
    let mut found = Vec::new();
    complaints(&kind.versions[version], &object, &kind.name, &mut found);
    assert!(found.is_empty(), "{found:#?}");
}

fn random(kind: &Kind, version: usize, bytes: &[u8]) -> Value {
    let mut object = make(&kind.versions[version], &mut Chance(bytes.iter()));
    object["apiVersion"] = [NEW, OLD][version].into();
    object["kind"] = kind.name.as_str().into();
    object["metadata"] = json!({"name": "a", "namespace": "b", "labels": {"c": "d"}});
    fits(kind, version, &object);
    object
}

proptest! {
    #[test]
    fn what_fits_v1beta1_fits_v1beta2_once_converted_and_comes_back(
        which in 0..DEFINITIONS.len(),
        bytes in prop::collection::vec(any::<u8>(), 1200),
    ) {
        let kind = &KINDS[which];
        let old = random(kind, 1, &bytes);
        let new = convert(old.clone(), NEW).unwrap();
        fits(kind, 0, &new);
        let back = convert(new.clone(), OLD).unwrap();
        fits(kind, 1, &back);
        // Nothing is lost by going there and back, and the next time nothing changes.
        prop_assert_eq!(&convert(back.clone(), NEW).unwrap(), &new);
        prop_assert_eq!(&convert(convert(back.clone(), NEW).unwrap(), OLD).unwrap(), &back);
    }

    #[test]
    fn what_fits_v1beta2_fits_v1beta1_once_converted_and_comes_back(
        which in 0..DEFINITIONS.len(),
        bytes in prop::collection::vec(any::<u8>(), 1200),
    ) {
        let kind = &KINDS[which];
        let new = random(kind, 0, &bytes);
        let old = convert(new.clone(), OLD).unwrap();
        fits(kind, 1, &old);
        let back = convert(old, NEW).unwrap();
        fits(kind, 0, &back);
        prop_assert_eq!(convert(convert(back.clone(), OLD).unwrap(), NEW).unwrap(), back);
    }
}

fn fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        fields(inner, &path, found);
        found.insert(path);
    }
    for (end, inner) in [("[]", "items"), ("{}", "additionalProperties")] {
        if schema[inner].is_object() {
            fields(&schema[inner], &format!("{path}{end}"), found);
        }
    }
}

/// `golden/fields.txt`: what the definitions of cluster-api-provider-metal3 1.14.0-rc.0 have, one field a line.
#[test]
fn both_versions_have_the_fields_that_upstream_publishes() {
    let upstream = include_str!("golden/fields.txt");
    let published: BTreeSet<&str> = upstream.lines().collect();
    let mut ours = BTreeSet::new();
    for kind in KINDS.iter() {
        for (version, schema) in ["v1beta2", "v1beta1"].iter().zip(&kind.versions) {
            fields(schema, &format!("{version} {}", kind.name), &mut ours);
        }
    }
    let missing: Vec<_> = published
        .iter()
        .filter(|field| !ours.contains(**field))
        .collect();
    // Refused in a condition; of Cluster API's contract.
    let own = [
        ".bridges",
        "Metal3Machine.status.failureDomain",
        "Metal3MachineTemplate.status",
    ];
    let is_own = |field: &str| own.iter().any(|own| field.contains(own));
    let more: Vec<_> = ours
        .iter()
        .filter(|field| !published.contains(field.as_str()) && !is_own(field))
        .collect();
    assert!(
        missing.is_empty() && more.is_empty(),
        "missing {missing:#?}, more {more:#?}"
    );
}

#[test]
fn who_converts_is_told_and_rules_and_columns_name_the_fields_of_their_version() {
    let mut definition = parse_manifest(DEFINITIONS[2]).unwrap().remove(0).data;
    complete(&mut definition, "PEM");
    let client = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
    let expected =
        json!({"url": "https://127.0.0.1:8444/convert", "caBundle": STANDARD.encode("PEM")});
    assert_eq!(client, &expected);
    let old = &definition["spec"]["versions"][1];
    let image = &old["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["image"];
    let rule = image["x-kubernetes-validations"][0]["rule"]
        .as_str()
        .unwrap();
    assert!(
        rule.contains("self.format == 'live-iso'") && !rule.contains("diskFormat"),
        "{rule}"
    );
    assert!(
        rule.contains("(has(self.checksum) && self.checksum != '')"),
        "{rule}"
    );
    let columns: Vec<_> = old["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    let path = |name: &str| {
        let column = columns.iter().find(|column| column["name"] == name);
        column.unwrap()["jsonPath"].as_str().unwrap()
    };
    assert_eq!(path("Provisioned"), ".status.ready");
    assert_eq!(
        path("Reason"),
        ".status.v1beta2.conditions[?(@.type=='Ready')].message"
    );
    assert_eq!(path("ProviderID"), ".spec.providerID");
    // Everything else is as it was.
    for text in [
        "kind: Secret\nspec: {names: {kind: Secret}}",
        "kind: Service\nspec: {a: 1}",
    ] {
        let before: Value = serde_saphyr::from_str(text).unwrap();
        let mut after = before.clone();
        complete(&mut after, "PEM");
        assert_eq!(after, before);
    }
}
