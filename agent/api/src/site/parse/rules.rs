//! The key `rules`.

use std::collections::BTreeMap;

use super::{Fields, Walk, value::boolean};
use crate::{
    bmh::RootDeviceHints,
    site::{
        BmcAccount, GivenRootDisk, Gives, Rule, SiteConfig, ValueError,
        rules::{Condition, NamePattern, NumberFact, Pattern, TextFact},
        schema,
        yaml::{Node, Value},
    },
    start::KernelArguments,
};

/// Of one rule.
const MOST_LABELS: usize = 32;
/// Ours, and those of Cluster API and Metal3, mean something that a rule does not say by a label.
const KEPT: [&str; 3] = ["firstlight.internal", "cluster.x-k8s.io", "metal3.io"];

impl Walk {
    pub(super) fn rule(&mut self, node: &Node, site: &SiteConfig) -> Option<Rule> {
        let fields = self.fields(node, schema::RULE_KEYS, "a rule");
        let gives = Gives {
            name: self.value(&fields, "name", NamePattern::parse),
            role: self.value(&fields, "role", str::parse),
            cluster: self.cluster_of(&fields, site),
            install: self.value(&fields, "install", str::parse),
            labels: self.labels(&fields),
            failure_domain: self.value(&fields, "failureDomain", label_value),
            root_disk: self.root_disk(&fields),
            clean: self.value(&fields, "clean", str::parse),
            image: self.value(&fields, "image", image),
            start: self.value(&fields, "start", str::parse),
            kernel_arguments: self.value(&fields, "kernelArguments", KernelArguments::parse),
            layout: self.layout(&fields, site),
            account: self.account(&fields),
            keeps_backups: self
                .value(&fields, "keepsBackups", boolean)
                .unwrap_or(false),
        };
        let Some(matched) = fields.get("match") else {
            if matches!(node.value, Value::Map(_)) {
                self.report(
                    node.place,
                    "a rule needs `match`: `any`, or what its servers have in common, such as `vendor: Dell*`",
                );
            }
            return None;
        };
        let conditions = self.conditions(matched)?;
        Some(Rule { conditions, gives })
    }

    fn conditions(&mut self, node: &Node) -> Option<Vec<Condition>> {
        match &node.value {
            Value::Text(text) if text == "any" => return Some(Vec::new()),
            Value::Map(entries) if !entries.is_empty() => {}
            other => {
                let message = format!(
                    "`match` is `any`, or has keys ({}); found {}",
                    schema::MATCH_KEYS.join(", "),
                    other.kind()
                );
                self.report(node.place, message);
                return None;
            }
        }
        let fields = self.fields(node, schema::MATCH_KEYS, "`match`");
        let mut conditions = Vec::new();
        for fact in TextFact::ALL {
            let patterns = self.texts(&fields, fact.word());
            if !patterns.is_empty() {
                conditions.push(Condition::Text(fact, patterns));
            }
        }
        for fact in NumberFact::ALL {
            let span = self.value(&fields, fact.word(), str::parse);
            conditions.extend(span.map(|span| Condition::Number(fact, span)));
        }
        Some(conditions)
    }

    /// One, or a list. Nothing behind the key would fit every server, which nobody means.
    fn texts(&mut self, fields: &Fields<'_>, key: &str) -> Vec<Pattern> {
        let Some(node) = fields.get(key) else {
            return Vec::new();
        };
        let nodes = match &node.value {
            Value::List(items) if !items.is_empty() => items.as_slice(),
            Value::List(_) | Value::Null => {
                let message = format!("`{key}` is empty; take the key out, or write what it is");
                self.report(node.place, message);
                return Vec::new();
            }
            _ => std::slice::from_ref(*node),
        };
        let patterns = nodes.iter();
        patterns
            .filter_map(|node| self.scalar(node, Pattern::parse))
            .collect()
    }

    fn labels(&mut self, fields: &Fields<'_>) -> BTreeMap<String, String> {
        let Some(node) = fields.get("labels") else {
            return BTreeMap::new();
        };
        let Value::Map(entries) = &node.value else {
            let found = node.value.kind();
            let message = format!("labels are keys with values, such as `rack: r1`; found {found}");
            self.report(node.place, message);
            return BTreeMap::new();
        };
        if entries.len() > MOST_LABELS {
            let message = format!("a rule gives at most {MOST_LABELS} labels");
            self.report(node.place, message);
        }
        let mut labels = BTreeMap::new();
        for (key, value) in entries {
            if let Err(ValueError(message)) = label_key(&key.name) {
                self.report(key.place, message);
            } else if labels.contains_key(&key.name) {
                self.report(key.place, format!("`{}` is given twice", key.name));
            } else if let Some(value) = self.scalar(value, label_value) {
                labels.insert(key.name.clone(), value);
            }
        }
        labels
    }

    pub(super) fn root_disk(&mut self, fields: &Fields<'_>) -> Option<GivenRootDisk> {
        let node = fields.get("rootDisk")?;
        let keys = self.fields(node, schema::ROOT_DISK_KEYS, "`rootDisk`");
        let mut text = |key| self.value(&keys, key, hint).unwrap_or_default();
        let hints = RootDeviceHints {
            device_name: text("deviceName"),
            hctl: text("hctl"),
            model: text("model"),
            vendor: text("vendor"),
            serial_number: text("serialNumber"),
            wwn: text("wwn"),
            wwn_with_extension: text("wwnWithExtension"),
            wwn_vendor_extension: text("wwnVendorExtension"),
            min_size_gigabytes: self.value(&keys, "minSizeGigabytes", number),
            rotational: self.value(&keys, "rotational", boolean),
        };
        if is_empty(node) {
            let message = "`rootDisk` says nothing; write for example `minSizeGigabytes: 100`";
            self.report(node.place, message);
        }
        let mirror = self.value(&keys, "mirror", boolean).unwrap_or(false);
        Some(GivenRootDisk {
            hints: Some(hints).filter(|hints| *hints != RootDeviceHints::default()),
            mirror,
        })
    }

    fn account(&mut self, fields: &Fields<'_>) -> Option<BmcAccount> {
        let node = fields.get("bmc")?;
        let keys = self.fields(node, schema::RULE_BMC_KEYS, "`bmc`");
        if is_empty(node) {
            let message = "`bmc` says nothing; write `account: create`, or take the key out";
            self.report(node.place, message);
        }
        self.value(&keys, "account", str::parse)
    }
}

fn is_empty(map: &Node) -> bool {
    match &map.value {
        Value::Map(entries) => entries.is_empty(),
        other => matches!(other, Value::Null),
    }
}

fn number(text: &str) -> Result<u32, ValueError> {
    text.parse()
        .map_err(|_| ValueError(format!("`{text}` is no whole number")))
}

/// As a disk says it.
fn hint(text: &str) -> Result<String, ValueError> {
    if text.is_empty() || text.len() > 256 || text.contains(char::is_control) {
        return Err(ValueError(
            "a hint is a text of 1 to 256 characters, as the disk says it".to_owned(),
        ));
    }
    Ok(text.to_owned())
}

fn image(text: &str) -> Result<String, ValueError> {
    let is_address = text.starts_with("http://") || text.starts_with("https://");
    if is_address {
        return Err(ValueError(format!(
            "`{text}` comes without a digest; put the image on the box with `firstlight push` and write its name here, such as debian:13.2"
        )));
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if text.is_empty() || text.len() > 200 || !text.bytes().all(good) {
        return Err(ValueError(format!(
            "`{text}` is no image on the box; it is called NAME or NAME:VERSION, such as debian:13.2"
        )));
    }
    Ok(text.to_owned())
}

/// As Kubernetes takes it: a name, with a domain before it perhaps.
fn label_key(text: &str) -> Result<(), ValueError> {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let is_kept = |domain: &str| {
        let mut kept = KEPT.iter();
        kept.any(|kept| domain == *kept || domain.ends_with(&format!(".{kept}")))
    };
    if domain.is_some_and(is_kept) {
        return Err(ValueError(format!(
            "the label `{text}` is set by the box; `role` and `failureDomain` of the rule say such things"
        )));
    }
    let of_domain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.'
    };
    let good_domain = domain
        .is_none_or(|domain| (1..=253).contains(&domain.len()) && domain.bytes().all(of_domain));
    if name.is_empty() || !is_label_part(name) || !good_domain {
        return Err(ValueError(format!(
            "`{text}` cannot be a label; it is written like rack or example.com/rack"
        )));
    }
    Ok(())
}

fn label_value(text: &str) -> Result<String, ValueError> {
    if !is_label_part(text) {
        return Err(ValueError(format!(
            "`{text}` cannot be the value of a label; use at most 63 of A-Z, a-z, 0-9, `-`, `_` and `.`, with a letter or digit at both ends"
        )));
    }
    Ok(text.to_owned())
}

fn is_label_part(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let end = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    let mut bytes = text.bytes();
    text.len() <= 63 && text.bytes().all(inner) && end(bytes.next()) && end(text.bytes().last())
}
