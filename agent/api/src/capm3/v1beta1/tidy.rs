//! What an old manifest says with an empty value, the new version says by leaving it out: upstream writes no empty text or list there,
//! and its schema takes few of them. A `false` and a zero stay where the new version takes them, so that a manifest that is applied again
//! changes nothing.

use serde_json::Value;

/// Texts of the new version that are optional, and are not empty while they are there.
const TEXTS: [&str; 18] = [
    "apiGroup",
    "automatedCleaningMode",
    "bondXmitHashPolicy",
    "checksum",
    "checksumType",
    "diskFormat",
    "dnsFromIPPool",
    "failureDomain",
    "fromHostInterface",
    "fromIPPool",
    "host",
    "interface",
    "ipAddressFromIPPool",
    "kind",
    "prefix",
    "providerID",
    "string",
    "suffix",
];
/// Numbers that are not zero.
const NUMBERS: [&str; 4] = ["mtu", "port", "retryLimit", "step"];
/// Objects that say nothing while nothing in them does.
const HOLLOW: [&str; 7] = [
    "controlPlaneEndpoint",
    "fromPoolAnnotation",
    "fromPoolRef",
    "hostSelector",
    "links",
    "networks",
    "services",
];
/// What is in these is people's own.
const OPAQUE: [&str; 4] = ["annotations", "attributes", "labels", "matchLabels"];
/// Of a bond's parameter, and of a fixed text: whatever it is.
const VALUE: &str = "value";

/// Whether an optional field of this name is left out while it is empty.
pub fn may_be_empty(name: &str) -> bool {
    TEXTS.contains(&name) || NUMBERS.contains(&name)
}

/// Without what says nothing.
pub fn tidy(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (name, inner) in object.iter_mut() {
                if name != VALUE && !OPAQUE.contains(&name.as_str()) {
                    tidy(inner);
                }
            }
            object.retain(|name, inner| name == VALUE || !says_nothing(name, inner));
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn says_nothing(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) if HOLLOW.contains(&name) => fields.values().all(is_empty),
        Value::Object(fields) => fields.is_empty() && OPAQUE.contains(&name),
        Value::String(text) => text.is_empty() && TEXTS.contains(&name),
        Value::Number(_) => is_empty(value) && NUMBERS.contains(&name),
        Value::Bool(_) => false,
    }
}

/// Go's zero values.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is) => !is,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}
