//! `v1beta1` of the kinds of CAPM3: what is written in it becomes `v1beta2`, and is shown in it again.
//!
//! One table says where the versions differ ([`differences`]). Objects are converted by it in both ways ([`convert`]), and the API
//! server's schema of `v1beta1` is made by it out of that of `v1beta2` ([`definition`]): a field that is converted is never unknown, and
//! one that is known is converted. What differs, and how, is upstream's (`api/v1beta1/conversion.go` of cluster-api-provider-metal3 1.13
//! and 1.14); `golden/` has what upstream's code makes of manifests with every field.
//!
//! Here as there, an empty text or list of `v1beta1` is one that is not there ([`tidy`]). Other than there, nothing that a
//! person wrote is lost: what only `v1beta1` has waits in an annotation ([`ONLY_OLD`]), and `noCloudProvider` counts where
//! `cloudProviderEnabled` is not said.
//!
//! Must not fail because of what an object holds: one that cannot be converted hides all of its kind. To add a field that differs: a line
//! in the table, and in `golden/` a manifest with what upstream makes of it.

mod change;
mod duration;
mod schema;
mod tidy;

#[cfg(test)]
mod tests;

use serde_json::Value;

use self::change::{Change, Difference, Old};
pub use self::schema::definition;
use super::{API_VERSION, GROUP};

/// The version that is converted.
pub const VERSION: &str = "v1beta1";
/// Where that is asked for.
pub const PATH: &str = "/convert";

/// On an object of `v1beta2`: JSON of what only `v1beta1` has a place for, by its place there.
const ONLY_OLD: &str = "firstlight.internal/only-in-v1beta1";
/// On an object of `v1beta1`: the whole of `v1beta2`, if that has more; the name and form are Cluster API's, which other tools know.
const WHOLE_NEW: &str = "cluster.x-k8s.io/conversion-data";

const CLUSTER_SPEC: &[Difference] = &[
    Difference(
        "",
        Change::Opposite {
            old: "noCloudProvider",
            new: "cloudProviderEnabled",
        },
    ),
    Difference("", FAILURE_DOMAINS),
];
const FAILURE_DOMAINS: Change = Change::Listed {
    field: "failureDomains",
    key: "name",
    value: None,
    by: "name",
};
const CLUSTER_STATUS: &[Difference] = &[
    CONDITIONS[0],
    CONDITIONS[1],
    CONDITIONS[2],
    CONDITIONS[3],
    CONDITIONS[4],
    Difference("", FAILURE_DOMAINS),
];
/// What the status of every kind that has one says in other places.
const CONDITIONS: [Difference; 5] = [
    moved("conditions", "deprecated/v1beta1/conditions"),
    moved("v1beta2/conditions", "conditions"),
    moved("failureReason", "deprecated/v1beta1/failureReason"),
    moved("failureMessage", "deprecated/v1beta1/failureMessage"),
    moved("ready", "initialization/provisioned"),
];
const MACHINE_SPEC: &[Difference] = &[
    Difference("image", renamed("format", "diskFormat")),
    Difference("dataTemplate", OBJECT_REFERENCE),
];
/// A reference was one of Kubernetes' own; name and namespace are what is left of it.
const OBJECT_REFERENCE: Change =
    Change::OnlyOld(&["apiVersion", "kind", "uid", "resourceVersion", "fieldPath"]);
const MACHINE_STATUS: &[Difference] = &[
    CONDITIONS[0],
    CONDITIONS[1],
    CONDITIONS[2],
    CONDITIONS[3],
    CONDITIONS[4],
    Difference("", Change::OnlyOld(&["phase"])),
    Difference("renderedData", OBJECT_REFERENCE),
];
const TEMPLATE: &[Difference] = &[Difference("", Change::OnlyNew("metadata"))];
const DATA_SPEC: &[Difference] = &[
    Difference("", Change::OnlyOld(&["templateReference"])),
    Difference(
        "metaData",
        renamed("ipAddressesFromIPPool", "ipAddressesFromPool"),
    ),
    Difference(
        "metaData",
        renamed("prefixesFromIPPool", "prefixesFromPool"),
    ),
    Difference(
        "metaData",
        renamed("gatewaysFromIPPool", "gatewaysFromPool"),
    ),
    Difference(
        "metaData",
        renamed("dnsServersFromIPPool", "dnsServersFromPool"),
    ),
    Difference(
        "networkData/links/bonds/*",
        Change::Listed {
            field: "parameters",
            key: "name",
            value: Some("value"),
            by: "name",
        },
    ),
];
const DATA_STATUS: &[Difference] = &[Difference(
    "",
    Change::Listed {
        field: "indexes",
        key: "name",
        value: Some("index"),
        by: "index",
    },
)];
const STRATEGY: &[Difference] = &[Difference(
    "strategy",
    Change::Seconds {
        old: "timeout",
        new: "timeoutSeconds",
    },
)];

const fn moved(old: &'static str, new: &'static str) -> Difference {
    Difference("", Change::Moved { old, new })
}

const fn renamed(old: &'static str, new: &'static str) -> Change {
    Change::Renamed { old, new }
}

/// Where objects of `kind` differ, in the order in which an old one becomes a new one. `None`: it has one version only.
fn differences(kind: &str) -> Option<&'static [(&'static str, &'static [Difference])]> {
    Some(match kind {
        "Metal3Cluster" => &[("spec", CLUSTER_SPEC), ("status", CLUSTER_STATUS)],
        "Metal3ClusterTemplate" => &[
            ("spec/template/spec", CLUSTER_SPEC),
            ("spec/template", TEMPLATE),
        ],
        "Metal3Machine" => &[("spec", MACHINE_SPEC), ("status", MACHINE_STATUS)],
        "Metal3MachineTemplate" => &[
            ("spec/template/spec", MACHINE_SPEC),
            ("spec/template", TEMPLATE),
        ],
        "Metal3DataTemplate" => &[("spec", DATA_SPEC), ("status", DATA_STATUS)],
        "Metal3Remediation" => &[("spec", STRATEGY)],
        "Metal3RemediationTemplate" => &[("spec/template/spec", STRATEGY)],
        _ => return None,
    })
}

/// Each difference of `kind` with its whole path, as [`differences`] has them.
fn paths(kind: &str) -> Option<Vec<(String, Change)>> {
    let path = |root: &str, at: &str| [root, at].join("/").trim_end_matches('/').to_owned();
    let of = |(root, all): &(&str, &'static [Difference])| {
        let root = (*root).to_owned();
        all.iter()
            .map(move |Difference(at, change)| (path(&root, at), *change))
    };
    Some(differences(kind)?.iter().flat_map(of).collect())
}

/// Why an object stays what it is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Whose it is cannot be told.
    #[error("it is no object of Kubernetes: apiVersion and kind are missing")]
    NoObject,
    /// Of this kind.
    #[error("{0} is not converted here; write {API_VERSION}")]
    Kind(String),
    /// This `apiVersion`.
    #[error("there is no {0} of this group; {API_VERSION} and {GROUP}/{VERSION} are served")]
    Version(String),
}

/// `object` in the version that `wanted` names (an `apiVersion`). One that has it already stays as it is.
///
/// # Errors
/// The object, or what is wanted, is not of the two versions of a kind that has two.
pub fn convert(mut object: Value, wanted: &str) -> Result<Value, Refusal> {
    let text = |name: &str| Some(object.get(name)?.as_str()?.to_owned());
    let (Some(has), Some(kind)) = (text("apiVersion"), text("kind")) else {
        return Err(Refusal::NoObject);
    };
    let paths = paths(&kind).ok_or(Refusal::Kind(kind))?;
    let old = format!("{GROUP}/{VERSION}");
    for version in [&has, wanted] {
        if version != API_VERSION && *version != old {
            return Err(Refusal::Version(version.to_owned()));
        }
    }
    if has != wanted {
        if wanted == API_VERSION {
            to_new(&mut object, &paths);
        } else {
            to_old(&mut object, &paths);
        }
        object["apiVersion"] = wanted.into();
    }
    Ok(object)
}

fn to_new(object: &mut Value, paths: &[(String, Change)]) {
    take_annotation(object, ONLY_OLD);
    let whole = take_annotation(object, WHOLE_NEW).unwrap_or_default();
    let mut only_old = Old::new();
    for (path, change) in paths {
        change::each(object, path, &mut |parent| match change {
            Change::OnlyOld(fields) => {
                let found = fields
                    .iter()
                    .filter_map(|field| Some((format!("/{path}/{field}"), parent.remove(*field)?)));
                only_old.extend(found.filter(|(_, value)| !tidy::is_empty(value)));
            }
            Change::OnlyNew(field) => {
                if let Some(value) = whole.pointer(&format!("/{path}/{field}")) {
                    parent.insert((*field).to_owned(), value.clone());
                }
            }
            change => change.to_new(parent),
        });
    }
    if let Some(spec) = object.get_mut("spec") {
        tidy::tidy(spec);
    }
    if !only_old.is_empty() {
        annotate(object, ONLY_OLD, &Value::Object(only_old));
    }
}

fn to_old(object: &mut Value, paths: &[(String, Change)]) {
    take_annotation(object, WHOLE_NEW);
    let only_old = take_annotation(object, ONLY_OLD).unwrap_or_default();
    let mut whole = object.clone();
    let mut has_more = false;
    for (path, change) in paths.iter().rev() {
        change::each(object, path, &mut |parent| match change {
            Change::OnlyOld(fields) => {
                for field in *fields {
                    if let Some(value) = only_old.get(format!("/{path}/{field}")) {
                        parent.insert((*field).to_owned(), value.clone());
                    }
                }
            }
            Change::OnlyNew(field) => has_more |= parent.remove(*field).is_some(),
            change => change.to_old(parent),
        });
    }
    if has_more {
        if let Some(whole) = whole.as_object_mut() {
            whole.remove("metadata");
        }
        annotate(object, WHOLE_NEW, &whole);
    }
}

/// An annotation of ours that holds JSON; what is no JSON is gone.
fn take_annotation(object: &mut Value, name: &str) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(name)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    serde_json::from_str(text.as_str()?).ok()
}

fn annotate(object: &mut Value, name: &str, value: &Value) {
    let annotations = change::entry(object, "metadata")
        .and_then(|metadata| change::entry(metadata, "annotations"))
        .and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.insert(name.to_owned(), value.to_string().into());
    }
}
