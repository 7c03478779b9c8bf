//! What is said of an addon: pure.

use firstlight_api::{
    addon::{Addon, AddonState, AddonStatus, Chart},
    object::{ConditionStatus, ConditionUpdate, merge_conditions},
    software::{APPROVED, PACKAGES_READY, Software},
    status::AddonLine,
};

use crate::store::{Reference, Target};

const READY: &str = "Ready";

pub use firstlight_api::addon::AddonState as Progress;

/// What one look at an addon came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub progress: Progress,
    pub message: String,
    /// As Helm calls it, if it was asked.
    pub chart: Option<String>,
    /// The wish that is installed, if that changed.
    pub installed: Option<String>,
}

impl Outcome {
    fn new(progress: Progress, message: String) -> Self {
        Self {
            progress,
            message,
            chart: None,
            installed: None,
        }
    }

    pub fn pending(message: String) -> Self {
        Self::new(AddonState::Pending, message)
    }

    pub fn installing(message: String) -> Self {
        Self::new(AddonState::Installing, message)
    }

    pub fn failed(message: String) -> Self {
        Self::new(AddonState::Failed, message)
    }

    pub fn removing(message: String) -> Self {
        Self::new(AddonState::Removing, message)
    }

    pub fn ready() -> Self {
        Self::new(AddonState::Ready, String::new())
    }

    pub fn with(self, installed: String) -> Self {
        Self {
            installed: Some(installed),
            ..self
        }
    }
}

/// In `dependsOn`: the rest names a Software.
const SOFTWARE: &str = "software/";

/// Whether packages have a say in it: what is installed as wished waits no more, when a server joins that lacks them yet.
pub fn needs_software(addon: &Addon) -> bool {
    let is_installed = !addon.status.installed.is_empty()
        && addon.status.observed_generation == addon.metadata.generation;
    !is_installed
        && addon
            .spec
            .depends_on
            .iter()
            .any(|name| name.starts_with(SOFTWARE))
}

/// The first of those that it depends on and that is not ready.
pub fn waits(addon: &Addon, all: &[Addon], software: &[Software]) -> Option<String> {
    let meta = &addon.metadata;
    addon.spec.depends_on.iter().find_map(|name| {
        if let Some(name) = name.strip_prefix(SOFTWARE) {
            let mut found = software.iter();
            let found = found
                .find(|one| one.metadata.name == name && one.metadata.namespace == meta.namespace);
            return if needs_software(addon) {
                packages(name, found)
            } else {
                None
            };
        }
        if *name == meta.name {
            return Some("it depends on itself; take its own name out of dependsOn".to_owned());
        }
        let other = all.iter().find(|other| {
            other.metadata.name == *name && other.metadata.namespace == meta.namespace
        });
        match other {
            None => Some(format!("it waits for the Addon {name}, which is not there")),
            Some(other) if other.status.state == AddonState::Ready => None,
            Some(other) => Some(format!(
                "it waits for the Addon {name}, which is {}",
                other.status.state.as_str().to_lowercase()
            )),
        }
    })
}

/// What an addon waits for: the packages, and then perhaps a person.
fn packages(name: &str, software: Option<&Software>) -> Option<String> {
    let Some(software) = software else {
        return Some(format!(
            "it waits for the Software {name}, which is not there"
        ));
    };
    let why = |kind: &str| {
        let mut conditions = software.status.conditions.iter();
        let found = conditions.find(|condition| condition.kind == kind);
        match found {
            Some(condition) if condition.observed_generation != software.metadata.generation => {
                Some("its change has not been looked at yet".to_owned())
            }
            Some(condition) if condition.status == ConditionStatus::True => None,
            Some(condition) => Some(condition.message.clone()),
            None => Some("it has not been looked at yet".to_owned()),
        }
    };
    if let Some(why) = why(PACKAGES_READY) {
        return Some(format!(
            "it waits for the packages of Software {name}: {why}"
        ));
    }
    let why = why(APPROVED)?;
    Some(format!(
        "it waits until a person approves Software {name}: {why}"
    ))
}

pub fn status(addon: &Addon, said: &Outcome, now: &str) -> AddonStatus {
    let old = &addon.status;
    let saying = match said.progress {
        AddonState::Ready => ConditionUpdate::yes(READY, READY),
        other => ConditionUpdate::no(READY, other.as_str(), said.message.clone()),
    };
    let generation = addon.metadata.generation;
    AddonStatus {
        state: said.progress,
        message: said.message.clone(),
        chart: said.chart.clone().unwrap_or_else(|| old.chart.clone()),
        installed: said
            .installed
            .clone()
            .unwrap_or_else(|| old.installed.clone()),
        observed_generation: generation,
        conditions: merge_conditions(&old.conditions, &[saying], generation, now),
    }
}

/// Which charts of the box's store addons refer to.
pub fn charts(addons: &[Addon]) -> Vec<Reference> {
    let wanted = addons.iter().filter_map(|addon| {
        let Chart { name, version, .. } = addon.spec.chart.clone()?;
        Some(Reference {
            by: format!("Addon {}", addon.metadata.name),
            to: Target::Version { name, version },
        })
    });
    wanted.collect()
}

/// For the page.
pub fn line(addon: &Addon) -> AddonLine {
    let status = &addon.status;
    AddonLine {
        name: addon.metadata.name.clone(),
        cluster: addon.spec.cluster.clone(),
        state: status.state,
        chart: status.chart.clone(),
        message: status.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addon(name: &str, state: AddonState, depends_on: &[&str]) -> Addon {
        let mut addon = Addon::default();
        name.clone_into(&mut addon.metadata.name);
        addon.status.state = state;
        addon.spec.depends_on = depends_on.iter().map(|&name| name.to_owned()).collect();
        addon
    }

    #[test]
    fn an_addon_waits_for_the_first_that_is_not_ready_and_names_it() {
        let all = [
            addon("ready", AddonState::Ready, &[]),
            addon("slow", AddonState::Installing, &[]),
        ];
        for (depends_on, said) in [
            (&["ready"][..], None),
            (&["ready", "slow"], Some("which is installing")),
            (&["none"], Some("which is not there")),
            (&["a"], Some("on itself")),
        ] {
            let waits = waits(&addon("a", AddonState::Pending, depends_on), &all, &[]);
            match said {
                None => assert_eq!(waits, None),
                Some(said) => assert!(waits.is_some_and(|waits| waits.contains(said)), "{said}"),
            }
        }
    }

    #[test]
    fn an_addon_waits_for_packages_and_for_the_person_who_approves_them() {
        let software = |ready: bool, approved: bool, seen: i64| {
            let mut software = Software::default();
            "tools".clone_into(&mut software.metadata.name);
            software.metadata.generation = 2;
            let say = |kind, holds, message: &str| {
                if holds {
                    ConditionUpdate::yes(kind, "Ready")
                } else {
                    ConditionUpdate::no(kind, "Waits", message)
                }
            };
            let sayings = [
                say(PACKAGES_READY, ready, "host-a: htop"),
                say(APPROVED, approved, "annotate it"),
            ];
            software.status.conditions = merge_conditions(&[], &sayings, seen, "10:00");
            software
        };
        let waiting = addon("a", AddonState::Pending, &["software/tools"]);
        for (software, said) in [
            (vec![], Some("Software tools, which is not there")),
            (
                vec![software(false, false, 2)],
                Some("the packages of Software tools: host-a: htop"),
            ),
            (
                vec![software(true, false, 2)],
                Some("a person approves Software tools: annotate it"),
            ),
            (
                vec![software(true, true, 1)],
                Some("not been looked at yet"),
            ),
            (vec![software(true, true, 2)], None),
        ] {
            let waits = waits(&waiting, &[], &software);
            match said {
                None => assert_eq!(waits, None),
                Some(said) => assert!(
                    waits.as_ref().is_some_and(|waits| waits.contains(said)),
                    "{said}: {waits:?}"
                ),
            }
        }
        let mut installed = waiting;
        installed.status.installed = "wish".to_owned();
        assert_eq!(waits(&installed, &[], &[]), None, "it is installed already");
        installed.metadata.generation = 1;
        assert!(
            waits(&installed, &[], &[]).is_some(),
            "its new version waits again"
        );
    }

    #[test]
    fn what_was_not_asked_stays_as_it_was() {
        let mut addon = addon("a", AddonState::Ready, &[]);
        addon.status.chart = "web-1.2.3".to_owned();
        addon.status.installed = "wish".to_owned();
        let status = status(&addon, &Outcome::pending("later".to_owned()), "10:00");
        assert_eq!(
            (status.chart.as_str(), status.installed.as_str()),
            ("web-1.2.3", "wish")
        );
        assert_eq!(status.conditions[0].reason, "Pending");
        assert_eq!(status.conditions[0].message, "later");
    }
}
