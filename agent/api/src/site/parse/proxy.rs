//! The key `proxy`.

use super::{Fields, Walk, networks::said};
use crate::site::{proxy::Proxy, schema, yaml::Value};

impl Walk {
    pub(super) fn proxy(&mut self, fields: &Fields<'_>) -> Option<Proxy> {
        let node = fields.get("proxy")?;
        let fields = said(self.fields(node, schema::PROXY_KEYS, "`proxy`"));
        if !matches!(node.value, Value::Map(_)) {
            return None;
        }
        let proxy = Proxy {
            http: self.value(&fields, "http", str::parse),
            https: self.value(&fields, "https", str::parse),
            except: self.all(&fields, "noProxy", str::parse),
        };
        if !fields.contains_key("http") && !fields.contains_key("https") {
            let message =
                "`proxy` has `http`, such as http://proxy.example:3128, or `https`, or both";
            self.report(node.place, message);
        }
        Some(proxy)
    }
}
