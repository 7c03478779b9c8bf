//! What people and controllers say of a host with annotations, as Metal3 publishes them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::BareMetalHostStatus;

/// Nobody touches the host or writes to the object while it is there; the value says who asked.
pub const PAUSED: &str = "baremetalhost.metal3.io/paused";
/// Ironic forgets the host, and the host goes on undisturbed. The value may be JSON, see [`Detached`].
pub const DETACHED: &str = "baremetalhost.metal3.io/detached";
/// Inspect again; with the value `disabled`: never inspect.
pub const INSPECT: &str = "inspect.metal3.io";
/// Restart once (the annotation goes away). With `/KEY` behind it the host stays off until the annotation is taken away; without a BMC it
/// restarts once for each key. The value may be JSON, see [`is_hard`].
pub const REBOOT: &str = "reboot.metal3.io";
/// Upstream's: an inventory that somebody wrote by hand. Not acted on.
pub const HARDWARE_DETAILS: &str = "inspect.metal3.io/hardwaredetails";
/// The status of an object that is on its way from one management cluster to another, as JSON: a status does not travel.
pub const STATUS: &str = "baremetalhost.metal3.io/status";
/// `clusterctl move` writes it, in place of all other annotations, when it deletes an object that the other cluster has by then.
pub const DELETED_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";

/// What [`INSPECT`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspection {
    /// Nothing is said: once, after registration.
    Once,
    /// Once more; the controller takes the annotation away afterwards.
    Again,
    /// The host is used without an inventory.
    Never,
}

/// What deleting a detached host does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DetachedDelete {
    /// The object goes away at once, and the host keeps what it has.
    #[default]
    Delete,
    /// The object waits until the annotation is gone.
    Delay,
}

/// What [`DETACHED`] says in JSON; another value means the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Detached {
    /// `deleteAction`: what follows if the object is deleted meanwhile.
    pub delete_action: DetachedDelete,
    /// Also in the middle of an operation.
    pub force: bool,
}

/// Who paused the host, if anybody; `somebody` without a value.
pub fn paused_by(annotations: &BTreeMap<String, String>) -> Option<&str> {
    if annotations.contains_key(DELETED_FOR_MOVE) {
        return Some("clusterctl, which moves it away");
    }
    let by = annotations.get(PAUSED)?.as_str();
    Some(if by.is_empty() { "somebody" } else { by })
}

/// Any value counts, as published; only JSON carries options.
pub fn detached(annotations: &BTreeMap<String, String>) -> Option<Detached> {
    let value = annotations.get(DETACHED)?;
    Some(serde_json::from_str(value).unwrap_or_default())
}

/// What [`STATUS`] says; or why it cannot be read.
pub fn status(
    annotations: &BTreeMap<String, String>,
) -> Option<Result<BareMetalHostStatus, String>> {
    let text = annotations.get(STATUS)?;
    Some(serde_json::from_str(text).map_err(|error| error.to_string()))
}

/// Any value but `disabled` asks for another inspection.
pub fn inspection(annotations: &BTreeMap<String, String>) -> Inspection {
    match annotations.get(INSPECT).map(String::as_str) {
        None => Inspection::Once,
        Some("disabled") => Inspection::Never,
        Some(_) => Inspection::Again,
    }
}

/// Does the value of [`REBOOT`] say `{"mode": "hard"}`: off at once, without asking the system?
pub fn is_hard(value: &str) -> bool {
    #[derive(Deserialize)]
    struct Reboot {
        mode: String,
    }
    serde_json::from_str(value).is_ok_and(|reboot: Reboot| reboot.mode == "hard")
}

/// The names of all annotations that ask for a restart.
pub fn reboots(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = &str> {
    annotations.keys().map(String::as_str).filter(|name| {
        name.strip_prefix(REBOOT)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn each_annotation_is_read_as_published() {
        let none = with(&[("other", "1")]);
        assert_eq!(
            (paused_by(&none), detached(&none), inspection(&none)),
            (None, None, Inspection::Once)
        );
        assert_eq!(
            paused_by(&with(&[(PAUSED, "metal3.io/capm3")])),
            Some("metal3.io/capm3")
        );
        assert_eq!(paused_by(&with(&[(PAUSED, "")])), Some("somebody"));
        assert_eq!(inspection(&with(&[(INSPECT, "")])), Inspection::Again);
        assert_eq!(
            inspection(&with(&[(INSPECT, "disabled")])),
            Inspection::Never
        );
        let cases = [
            ("", Detached::default()),
            ("any word", Detached::default()),
            (
                r#"{"deleteAction": "delay"}"#,
                Detached {
                    delete_action: DetachedDelete::Delay,
                    force: false,
                },
            ),
            (
                r#"{"force": true}"#,
                Detached {
                    force: true,
                    ..Detached::default()
                },
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(
                detached(&with(&[(DETACHED, value)])),
                Some(expected),
                "{value}"
            );
        }
    }

    #[test]
    fn a_restart_is_asked_for_with_and_without_a_key_and_by_nothing_that_only_looks_like_it() {
        let asked = with(&[
            ("reboot.metal3.io", ""),
            ("reboot.metal3.io/a", ""),
            ("reboot.metal3.ion", ""),
        ]);
        assert_eq!(
            reboots(&asked).collect::<Vec<_>>(),
            ["reboot.metal3.io", "reboot.metal3.io/a"]
        );
    }

    proptest! {
        /// Whoever may annotate may write anything.
        #[test]
        fn any_annotation_means_one_thing(
            values in prop::collection::btree_map("(baremetalhost.metal3.io/(paused|detached|status)|clusterctl.cluster.x-k8s.io/delete-for-move|inspect.metal3.io|reboot.metal3.io)?.{0,4}", ".{0,20}|disabled|\\{\"(force|deleteAction)\": ?(true|1|\"delay\"|null)\\}", 0..6),
        ) {
            prop_assert_eq!(status(&values).is_some(), values.contains_key(STATUS));
            prop_assert_eq!(detached(&values).is_some(), values.contains_key(DETACHED));
            prop_assert!(paused_by(&values).is_none_or(|by| !by.is_empty()));
            let never = values.get(INSPECT).is_some_and(|value| value == "disabled");
            prop_assert_eq!(inspection(&values) == Inspection::Never, never);
            prop_assert!(reboots(&values).all(|name| name == REBOOT || name.starts_with("reboot.metal3.io/")));
        }
    }
}
