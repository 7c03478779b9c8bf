//! The common part of Kubernetes objects, as far as the agent reads and writes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Any object with a spec and a status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object<Spec, Status> {
    /// `GROUP/VERSION`, or only the version in the core group. Empty where it was not given.
    #[serde(default)]
    pub api_version: String,
    /// In upper camel case, as in a manifest. Empty where it was not given.
    #[serde(default)]
    pub kind: String,
    /// `metadata`: what objects of all kinds have.
    pub metadata: Meta,
    /// What is wanted; the default where the object has none.
    #[serde(default)]
    pub spec: Spec,
    /// What is so, as its controller wrote it last; the default until then.
    #[serde(default)]
    pub status: Status,
}

/// Of `metav1.ObjectMeta` what matters here. What only the API server sets is empty in an object that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Unique within kind and namespace.
    #[serde(default)]
    pub name: String,
    /// Empty: objects of this kind are in none, or it was not given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// What objects are selected by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What people and controllers say of the object, and is not selected by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// A UUID of the API server; an object that is deleted and made again has another one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Set by the API server, another text after each write. A write that carries it is refused (409) if somebody else has written
    /// since.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// 0: not read from the API server.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// RFC 3339, set by the API server: it is being deleted, and goes when its finalizers are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Controllers that still have something to do before a deleted object goes; each takes off its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// When all of these are gone, the API server deletes this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

/// A number that was not given.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

impl Meta {
    /// `Some("")` for a label without a value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// `Some("")` for an annotation without a value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Somebody deleted it, and it waits for its finalizers.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether `name` still holds it.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }

    /// The owner of this kind, whatever the version of its group.
    pub fn owner(&self, group: &str, kind: &str) -> Option<&OwnerReference> {
        let mut owners = self.owner_references.iter();
        owners.find(|owner| owner.kind == kind && group_of(&owner.api_version) == group)
    }
}

/// `cluster.x-k8s.io` of `cluster.x-k8s.io/v1beta2`; the core group is empty.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// `metav1.OwnerReference`: an object of the same namespace, or of none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// `GROUP/VERSION`; the version may be an older one than that which we read, see [`Meta::owner`].
    pub api_version: String,
    /// Of the owner, as in a manifest.
    pub kind: String,
    /// Of the owner.
    pub name: String,
    /// An object that was made again under the name of the owner is not the owner.
    pub uid: String,
    /// `true` for the one owner that manages this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// `true`: with foreground deletion the owner stays until this object is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// `metav1.Condition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `type`: what holds or does not, in `CamelCase`, one condition of each in a list.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word in `CamelCase`.
    pub reason: String,
    /// A sentence for people; empty when the reason says it all.
    #[serde(default)]
    pub message: String,
    /// `metadata.generation` of the spec that it is about; 0: not said.
    #[serde(default)]
    pub observed_generation: i64,
    /// RFC 3339, UTC.
    pub last_transition_time: String,
}

/// Written as here, in upper camel case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can tell.
    #[default]
    Unknown,
}

/// What a condition should say now; its time is added by [`merge_conditions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// [`Condition::kind`].
    pub kind: &'static str,
    /// [`Condition::status`]; the time of the condition stays while this does.
    pub status: ConditionStatus,
    /// [`Condition::reason`].
    pub reason: &'static str,
    /// [`Condition::message`].
    pub message: String,
}

impl ConditionUpdate {
    /// It holds, and there is nothing more to say.
    pub fn yes(kind: &'static str, reason: &'static str) -> Self {
        Self {
            kind,
            status: ConditionStatus::True,
            reason,
            message: String::new(),
        }
    }

    /// It does not hold; `message` says why.
    pub fn no(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: ConditionStatus::False,
            reason,
            message: message.into(),
        }
    }
}

/// The new list: what is said now, with the old time where the status did not change, and what others said.
pub fn merge_conditions(
    old: &[Condition],
    sayings: &[ConditionUpdate],
    generation: i64,
    now: &str,
) -> Vec<Condition> {
    let said = |kind: &str| sayings.iter().any(|saying| saying.kind == kind);
    let mut merged: Vec<Condition> = sayings
        .iter()
        .map(|saying| {
            let before = old.iter().find(|condition| condition.kind == saying.kind);
            Condition {
                kind: saying.kind.to_owned(),
                status: saying.status,
                reason: saying.reason.to_owned(),
                message: saying.message.clone(),
                observed_generation: generation,
                last_transition_time: before
                    .filter(|before| before.status == saying.status)
                    .map_or_else(
                        || now.to_owned(),
                        |before| before.last_transition_time.clone(),
                    ),
            }
        })
        .collect();
    merged.extend(
        old.iter()
            .filter(|condition| !said(&condition.kind))
            .cloned(),
    );
    merged.sort_by(|a, b| a.kind.cmp(&b.kind));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes_and_foreign_ones_stay() {
        let old = merge_conditions(
            &[],
            &[ConditionUpdate::no("Ready", "Waiting", "for a host")],
            1,
            "10:00",
        );
        let foreign = Condition {
            kind: "Other".to_owned(),
            ..Condition::default()
        };
        let old = [old, vec![foreign.clone()]].concat();
        let same = merge_conditions(
            &old,
            &[ConditionUpdate::no("Ready", "Waiting", "for another host")],
            2,
            "11:00",
        );
        assert_eq!(same.len(), 2);
        assert_eq!(same[0], foreign);
        assert_eq!(
            (
                same[1].message.as_str(),
                same[1].last_transition_time.as_str()
            ),
            ("for another host", "10:00")
        );
        let changed =
            merge_conditions(&same, &[ConditionUpdate::yes("Ready", "Ready")], 2, "12:00");
        assert_eq!(changed[1].last_transition_time, "12:00");
    }

    #[test]
    fn an_owner_is_found_by_group_and_kind_and_not_by_version() {
        let meta = Meta {
            owner_references: vec![OwnerReference {
                api_version: "cluster.x-k8s.io/v1beta1".to_owned(),
                kind: "Machine".to_owned(),
                name: "m".to_owned(),
                ..OwnerReference::default()
            }],
            ..Meta::default()
        };
        assert!(meta.owner("cluster.x-k8s.io", "Machine").is_some());
        assert!(meta.owner("metal3.io", "Machine").is_none());
    }
}
