//! Versions of programs whose data only go forward: what an older one may not touch.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::bounded;

/// What has data on the box's state partition, as `versions.json` calls it.
pub const PROGRAMS: [&str; 4] = ["firstlight", "kubernetes", "etcd", "ironic"];

/// By the names of [`PROGRAMS`].
pub type Versions = BTreeMap<&'static str, String>;

/// Out of a `versions.json`.
pub fn pick(all: &Value) -> Versions {
    let version = |name: &'static str| Some((name, all.get(name)?.as_str()?.to_owned()));
    PROGRAMS.into_iter().filter_map(version).collect()
}

/// The first program of `ours` that is older than the data, which are of `theirs`: a part of a sentence.
pub fn older(ours: &Versions, theirs: &Versions) -> Option<String> {
    PROGRAMS.into_iter().find_map(|name| {
        let (noted, ours) = (theirs.get(name)?, ours.get(name)?);
        let is_older = numbers(name, ours) < numbers(name, noted);
        let noted = bounded::text(noted);
        is_older.then(|| format!("{name} {ours}, and the data are of {noted}"))
    })
}

/// Of which parts it matters: patch releases of Kubernetes and etcd understand each other.
fn numbers(name: &str, version: &str) -> Vec<u64> {
    let parts = if matches!(name, "kubernetes" | "etcd") {
        2
    } else {
        3
    };
    version
        .trim_start_matches('v')
        .split(['.', '-', '+'])
        .map_while(|part| part.parse().ok())
        .take(parts)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_comes_after_nine() {
        assert!(numbers("ironic", "9.2.0") < numbers("ironic", "10.0.0"));
        assert!(numbers("kubernetes", "v1.9.9") < numbers("kubernetes", "v1.10.0"));
        assert_eq!(numbers("etcd", "v3.6.8-rc1"), [3, 6]);
    }
}
