//! The versions whose data are on the state partition. Ironic's schema and Kubernetes' data only go forward: an older stick
//! does not touch what a newer one has written.

use std::fs;

use anyhow::{Context, Result};
use firstlight_api::{
    status::Problem,
    versions::{self, Versions, pick},
};

use crate::{
    files::{self, Access},
    paths::Paths,
};

/// Notes the stick's versions on the state partition, or says why this stick may not run on it.
pub fn check(paths: &Paths) -> Result<(), Problem> {
    let Ok(stick) = load(&paths.versions()) else {
        // A developer's machine has none.
        return Ok(());
    };
    // A damaged note is as none: it is made anew with what runs now.
    let noted = load(&paths.state_versions()).unwrap_or_default();
    if let Some(newer) = versions::older(&stick, &noted) {
        return Err(Problem {
            what: format!("this stick is older than the state partition: it brings {newer}. Nothing is started, so that nothing is damaged"),
            next: "the way to another version is `firstlight update`; start the newer system again, or restore a backup of this one's time".to_owned(),
        });
    }
    if noted != stick
        && let Err(error) = note(paths, &stick)
    {
        tracing::warn!(
            error = format!("{error:#}"),
            "the stick's versions were not noted"
        );
    }
    Ok(())
}

/// What of another system is older than what has data on the state partition.
pub fn older(paths: &Paths, system: &serde_json::Value) -> Option<String> {
    let noted = load(&paths.state_versions()).unwrap_or_default();
    versions::older(&pick(system), &noted)
}

fn load(path: &std::path::Path) -> Result<Versions> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let all =
        serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))?;
    Ok(pick(&all))
}

fn note(paths: &Paths, stick: &Versions) -> Result<()> {
    let text = serde_json::to_vec_pretty(stick).context("encoding versions")?;
    files::write(&paths.state_versions(), &text, Access::Group)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn versions(kubernetes: &str, ironic: &str) -> String {
        format!(
            r#"{{"firstlight": "0.1.0", "kubernetes": "{kubernetes}", "etcd": "v3.6.8", "ironic": "{ironic}", "images": {{"a": "b"}}}}"#
        )
    }

    #[test]
    fn an_older_stick_is_refused_and_a_newer_one_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        fs::create_dir_all(paths.share()).unwrap();
        fs::create_dir_all(paths.agent_state()).unwrap();
        assert_eq!(check(&paths), Ok(()), "a desk");
        let stick = |kubernetes: &str, ironic: &str| {
            fs::write(paths.versions(), versions(kubernetes, ironic)).unwrap();
            check(&paths)
        };
        stick("v1.36.3", "39.0.0").unwrap();
        stick("v1.36.1", "39.0.0").unwrap();
        stick("v1.37.0", "39.0.0").unwrap();
        let refused = stick("v1.36.3", "39.0.0").unwrap_err();
        assert!(
            refused
                .what
                .contains("kubernetes v1.36.3, and the data are of v1.37.0"),
            "{refused:?}"
        );
        stick("v1.37.0", "38.1.0").unwrap_err();
        stick("v1.37.0", "40.0.0").unwrap();
        stick("v1.37.0", "39.0.0").unwrap_err();
        fs::write(paths.state_versions(), "{").unwrap();
        stick("v1.36.0", "39.0.0").unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_damaged_note_is_made_anew_or_refused_in_a_short_line(
            program in prop::sample::select(&versions::PROGRAMS[..]), version in "v?[0-9]{1,25}(\\.[0-9]{1,25}){0,40}|.{0,300}",
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let paths = Paths::new(dir.path());
            fs::create_dir_all(paths.share()).unwrap();
            fs::create_dir_all(paths.agent_state()).unwrap();
            fs::write(paths.versions(), versions("v1.36.3", "39.0.0")).unwrap();
            let mut noted = serde_json::json!({ program: version }).to_string().into_bytes();
            for (at, value) in changes {
                let at = at.index(noted.len());
                noted[at] = value;
            }
            fs::write(paths.state_versions(), noted).unwrap();
            match check(&paths) {
                Ok(()) => prop_assert_eq!(load(&paths.state_versions()).unwrap(), load(&paths.versions()).unwrap()),
                Err(problem) => {
                    let line = problem.what;
                    prop_assert!(line.chars().count() < 600 && !line.contains(char::is_control), "{line}");
                }
            }
        }
    }
}
