//! A condition as all of Kubernetes writes it (`meta/v1`).

use serde::{Deserialize, Serialize};

/// `metav1.Condition`; [`crate::object::Condition`] is the same for kinds that are not Metal3's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `type`: what holds or does not, in `CamelCase`, one condition of each in a list.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// `metadata.generation` of the spec that it is about; absent: not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// RFC 3339, UTC: when `status` changed.
    pub last_transition_time: String,
    /// One word in `CamelCase`.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// Written as here, in upper camel case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can tell.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Condition {
    /// The condition as of `now`; if `before` has the same status, its time stays.
    pub fn new(
        kind: &str,
        status: ConditionStatus,
        reason: &str,
        message: impl Into<String>,
        before: &[Self],
        now: &str,
    ) -> Self {
        let since = before
            .iter()
            .find(|old| old.kind == kind && old.status == status)
            .map_or(now, |old| old.last_transition_time.as_str());
        Self {
            kind: kind.to_owned(),
            status,
            observed_generation: None,
            last_transition_time: since.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}
