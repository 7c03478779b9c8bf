//! What an API server does to objects, for tests of plans.

use serde_json::{Value, json};

/// A merge patch (RFC 7386).
pub fn merge(value: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *value = change.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let Value::Object(value) = value else { return };
    for (name, change) in change {
        if change.is_null() {
            value.remove(name);
        } else {
            merge(value.entry(name).or_insert(Value::Null), change);
        }
    }
}
