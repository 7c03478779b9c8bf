use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    bmh::ChecksumType,
    object::{Condition, Meta, Object},
};

/// One machine on one host.
pub type Metal3Machine = Object<Metal3MachineSpec, Metal3MachineStatus>;
/// What machines of a control plane or a deployment are cloned from.
pub type Metal3MachineTemplate = Object<Metal3MachineTemplateSpec, serde_json::Value>;

/// Upstream's `Metal3MachineSpec`. One of `image` and `customDeploy` is there; `crd-metal3machine.yaml` holds that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metal3MachineSpec {
    /// `metal3://NAMESPACE/HOST/MACHINE`, set when a host is claimed.
    #[serde(
        rename = "providerID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub provider_id: Option<String>,
    /// What is written to the host's disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<MachineImage>,
    /// Passed on to the host, which refuses it without an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// Over the labels of hosts in the same namespace; absent: any of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_selector: Option<HostSelector>,
    /// `Metal3DataTemplate` that metadata and network data are made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_template: Option<ObjectRef>,
    /// Instead of the bootstrap data that Cluster API makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretRef>,
    /// Instead of the Secret `MACHINE-metadata`, which is made here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretRef>,
    /// Instead of the Secret `MACHINE-networkdata`, which is made from `data_template`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretRef>,
    /// `metadata` or `disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automated_cleaning_mode: Option<String>,
    /// Where the host should stand, unless the `Machine` says it: preferred, not demanded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure_domain: String,
}

/// Upstream's `Image`; it becomes that of the host's spec ([`crate::bmh::Image`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineImage {
    /// As in the host's spec.
    #[serde(default)]
    pub url: String,
    /// As in the host's spec; `crd-metal3machine.yaml` says when it may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub checksum: String,
    /// As in the host's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_type: Option<ChecksumType>,
    /// `format` in the host's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_format: Option<String>,
}

/// Upstream's `CustomDeploy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomDeploy {
    /// Name of a deploy step.
    #[serde(default)]
    pub method: String,
}

/// Upstream's `HostSelector`; without any condition it selects every host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostSelector {
    /// Labels with the values that they must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Conditions that must all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// Upstream's `HostSelectorRequirement`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// Of the label.
    pub key: String,
    /// How the label must stand to `values`.
    pub operator: Operator,
    /// Any number for `In` and `NotIn`, one integer for `Greater` and `Less`, none for the others.
    #[serde(default)]
    pub values: Vec<String>,
}

/// As Kubernetes spells them in selectors (`k8s.io/apimachinery/pkg/selection`), with the spellings of label selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    /// The label is there, with one of the values.
    #[serde(rename = "in", alias = "In", alias = "=", alias = "==")]
    In,
    /// The label is not there, or has another value.
    #[serde(rename = "notin", alias = "NotIn", alias = "!=")]
    NotIn,
    /// The label is there.
    #[serde(rename = "exists", alias = "Exists")]
    Exists,
    /// The label is not there.
    #[serde(rename = "!", alias = "DoesNotExist")]
    DoesNotExist,
    /// The label is an integer above the first value.
    #[serde(rename = "gt", alias = "Gt")]
    Greater,
    /// The label is an integer below the first value.
    #[serde(rename = "lt", alias = "Lt")]
    Less,
}

impl HostSelector {
    /// Every label and every expression holds for these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.match_labels.iter().all(equal)
            && self.match_expressions.iter().all(|one| one.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = |text: &String| text.parse::<i64>().ok();
        let wanted = self.values.first().and_then(number);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Greater => value.and_then(number) > wanted && wanted.is_some(),
            Operator::Less => value
                .and_then(number)
                .zip(wanted)
                .is_some_and(|(value, wanted)| value < wanted),
        }
    }
}

impl std::fmt::Display for HostSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let labels = self
            .match_labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let expressions = self.match_expressions.iter().map(|one| {
            let values = one.values.join(",");
            match one.operator {
                Operator::In => format!("{} in ({values})", one.key),
                Operator::NotIn => format!("{} not in ({values})", one.key),
                Operator::Exists => format!("{} exists", one.key),
                Operator::DoesNotExist => format!("{} does not exist", one.key),
                Operator::Greater => format!("{} > {values}", one.key),
                Operator::Less => format!("{} < {values}", one.key),
            }
        });
        f.write_str(&labels.chain(expressions).collect::<Vec<_>>().join(", "))
    }
}

/// In the namespace of the referring object, whatever it says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Of the object.
    #[serde(default)]
    pub name: String,
    /// Not acted on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Of a Secret.
pub type SecretRef = ObjectRef;

/// Upstream's `Metal3MachineStatus`, written by `machines`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metal3MachineStatus {
    /// `Ready`, `Paused`, and what leads to `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Of the host; the one that other machines use comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Done once the host is provisioned.
    #[serde(default, skip_serializing_if = "Initialization::is_empty")]
    pub initialization: Initialization,
    /// Where its host stands.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure_domain: String,
    /// As the host was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretRef>,
    /// As the host was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretRef>,
    /// As the host was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretRef>,
    /// RFC 3339: when the status changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
}

/// Of Cluster API's contract for machines and clusters alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Initialization {
    /// `true` lets Cluster API go on; it never turns back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}

impl Initialization {
    /// Nothing was said yet; then it is not written.
    pub fn is_empty(&self) -> bool {
        self.provisioned.is_none()
    }

    /// Cluster API may go on.
    pub fn is_done(&self) -> bool {
        self.provisioned == Some(true)
    }
}

/// Cluster API's `MachineAddress`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineAddress {
    /// `InternalIP`, `Hostname` or `InternalDNS`.
    #[serde(rename = "type")]
    pub kind: String,
    /// IP address or name, without port.
    pub address: String,
}

/// Upstream's `Metal3MachineTemplateSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metal3MachineTemplateSpec {
    /// What is cloned.
    #[serde(default)]
    pub template: TemplateResource,
    /// The machine that replaces another gets the same host.
    #[serde(default)]
    pub node_reuse: bool,
}

/// Upstream's `Metal3MachineTemplateResource`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateResource {
    /// Labels and annotations that the clones get.
    #[serde(default)]
    pub metadata: Meta,
    /// That the clones get.
    #[serde(default)]
    pub spec: Metal3MachineSpec,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_table_of_selectors() {
        let labels = BTreeMap::from([
            ("rack".to_owned(), "r1".to_owned()),
            ("units".to_owned(), "8".to_owned()),
        ]);
        for (selector, matches) in [
            (serde_json::json!({}), true),
            (serde_json::json!({"matchLabels": {"rack": "r1"}}), true),
            (serde_json::json!({"matchLabels": {"rack": "r2"}}), false),
            (serde_json::json!({"matchLabels": {"row": "r1"}}), false),
            (expression("rack", "in", &["r1", "r2"]), true),
            (expression("rack", "In", &["r2"]), false),
            (expression("rack", "notin", &["r2"]), true),
            (expression("row", "NotIn", &["r2"]), true),
            (expression("rack", "exists", &[]), true),
            (expression("row", "Exists", &[]), false),
            (expression("row", "!", &[]), true),
            (expression("rack", "DoesNotExist", &[]), false),
            (expression("units", "gt", &["7"]), true),
            (expression("units", "Gt", &["8"]), false),
            (expression("units", "lt", &["9"]), true),
            (expression("row", "lt", &["9"]), false),
            (expression("row", "gt", &["9"]), false),
            (expression("units", "gt", &["many"]), false),
        ] {
            let parsed: HostSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(parsed.matches(&labels), matches, "{selector}");
        }
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> serde_json::Value {
        serde_json::json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }
}
