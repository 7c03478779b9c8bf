//! What an API server does to objects, and chance, for tests of plans.

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

/// xorshift64; the seed is not 0.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
