//! Holds `deny.toml` without a network: licences, banned crates, where crates come from, and that each has a version.
//!
//! `cargo deny` itself takes minutes to compile and wants its list of advisories; people run it by hand. A key of `deny.toml` that
//! this test does not know fails it, so no rule stands there that nobody holds.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs, path::Path};

use cargo_metadata::{CargoOpt, MetadataCommand, Package};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: BTreeSet<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    multiple_versions: Allowed,
    wildcards: Denied,
    allow_wildcard_paths: bool,
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_registry: Denied,
    unknown_git: Denied,
}

/// The settings that this test can hold, and no others.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Denied {
    Deny,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Allowed {
    Allow,
}

impl Deny {
    /// What is wrong with this crate, a sentence each.
    fn complaints(&self, package: &Package) -> Vec<String> {
        let crate_ = format!("{} {}", package.name, package.version);
        let mut complaints = Vec::new();
        if let Some(ban) = self.bans.deny.iter().find(|ban| ban.name == *package.name) {
            complaints.push(format!("{crate_} is banned: {}", ban.reason));
        }
        if let Some(source) = &package.source
            && !source.is_crates_io()
        {
            complaints.push(format!(
                "{crate_} does not come from the default registry: {source}"
            ));
        }
        if let Some(wrong) = self.licence_complaint(package) {
            complaints.push(format!("{crate_} {wrong}"));
        }
        if package.source.is_none() {
            for dependency in &package.dependencies {
                let by_path = dependency.path.is_some() && self.bans.allow_wildcard_paths;
                if dependency.req.comparators.is_empty() && !by_path {
                    complaints.push(format!("{crate_} takes any version of {}", dependency.name));
                }
            }
        }
        complaints
    }

    fn licence_complaint(&self, package: &Package) -> Option<String> {
        let Some(text) = &package.license else {
            return Some("says no licence".to_owned());
        };
        // As cargo deny: `MIT/Apache-2.0` is how it was written once.
        let Ok(licence) = Expression::parse_mode(text, ParseMode::LAX) else {
            return Some(format!("has a licence that is no SPDX expression: {text}"));
        };
        let exceptions = &self.licenses.exceptions;
        let exception = exceptions.iter().find(|e| e.name == *package.name);
        let allowed = |name: &String| {
            self.licenses.allow.contains(name)
                || exception.is_some_and(|exception| exception.allow.contains(name))
        };
        let fits = licence.evaluate(|requirement| allowed(&requirement.to_string()));
        (!fits).then(|| format!("has a licence that deny.toml does not allow: {text}"))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn rules() -> Deny {
    toml::from_str(&fs::read_to_string(root().join("deny.toml")).unwrap()).unwrap()
}

/// All that Cargo.lock has, for all platforms and features; what no build on this one needs is fetched.
fn packages() -> Vec<Package> {
    MetadataCommand::new()
        .current_dir(root())
        .features(CargoOpt::AllFeatures)
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .unwrap()
        .packages
}

#[test]
fn every_crate_keeps_the_rules_of_deny_toml() {
    let (rules, packages) = (rules(), packages());
    assert!(packages.len() > 100, "{} crates", packages.len());
    let complaints: Vec<_> = packages.iter().flat_map(|p| rules.complaints(p)).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    for Exception { name, .. } in &rules.licenses.exceptions {
        let used = packages.iter().any(|package| *package.name == *name);
        assert!(
            used,
            "deny.toml makes an exception for {name}, which nobody uses"
        );
    }
    let Bans {
        multiple_versions: Allowed::Allow,
        wildcards: Denied::Deny,
        ..
    } = rules.bans;
    let Sources {
        unknown_registry: Denied::Deny,
        unknown_git: Denied::Deny,
    } = rules.sources;
}

#[test]
fn each_rule_finds_the_crate_that_breaks_it() {
    let rules = rules();
    let good = packages()
        .into_iter()
        .find(|package| *package.name == "serde")
        .unwrap();
    assert_eq!(rules.complaints(&good), [""; 0]);
    let complaint = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut package = serde_json::to_value(&good).unwrap();
        change(&mut package);
        let complaints = rules.complaints(&serde_json::from_value(package).unwrap());
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        complaints[0].clone()
    };
    for (key, value, wanted) in [
        ("name", "openssl-sys", "is banned: rustls with ring"),
        ("name", "aws-lc-rs", "is banned: ring"),
        ("license", "GPL-3.0-only", "does not allow: GPL-3.0-only"),
        (
            "license",
            "MIT AND AGPL-3.0-only",
            "does not allow: MIT AND",
        ),
        ("license", "as you like", "no SPDX expression"),
        (
            "source",
            "git+https://example.org/serde#0000",
            "does not come from",
        ),
        (
            "source",
            "registry+https://example.org/index",
            "does not come from",
        ),
    ] {
        let said = complaint(&|package| package[key] = value.into());
        assert!(said.contains(wanted), "{said}");
    }
    assert!(
        complaint(&|package| package["license"] = serde_json::Value::Null).contains("no licence")
    );
    let any = complaint(&|package| {
        package["source"] = serde_json::Value::Null;
        for dependency in package["dependencies"].as_array_mut().unwrap() {
            dependency["req"] = "1".into();
        }
        package["dependencies"][0]["req"] = "*".into();
    });
    assert!(any.contains("takes any version of"), "{any}");
}
