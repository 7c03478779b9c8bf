//! The key `alarms`.

use super::{Fields, Walk};
use crate::site::{
    alarms::{Alarms, Email},
    schema,
    yaml::Value,
};

impl Walk {
    pub(super) fn alarms(&mut self, fields: &Fields<'_>) -> Option<Alarms> {
        let node = fields.get("alarms")?;
        let fields = self.fields(node, schema::ALARMS_KEYS, "`alarms`");
        if !matches!(node.value, Value::Map(_)) {
            return None;
        }
        let email = fields.get("email").and_then(|node| {
            let keys = self.fields(node, schema::EMAIL_KEYS, "`email`");
            for key in schema::EMAIL_KEYS {
                if matches!(node.value, Value::Map(_)) && !keys.contains_key(key) {
                    self.report(node.place, format!("`email` has a `{key}`"));
                }
            }
            let server = self.value(&keys, "server", str::parse);
            let from = self.value(&keys, "from", str::parse);
            let to = self.all(&keys, "to", str::parse);
            Some(Email {
                server: server?,
                from: from?,
                to,
            })
        });
        let alarms = Alarms {
            webhook: self.value(&fields, "webhook", str::parse),
            email,
        };
        if !fields.contains_key("webhook") && !fields.contains_key("email") {
            let message = "`alarms` has `webhook`, such as https://hooks.example/firstlight, or `email`, or both";
            self.report(node.place, message);
        }
        Some(alarms)
    }
}
