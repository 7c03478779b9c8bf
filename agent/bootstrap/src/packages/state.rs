//! What dpkg says is there, beside what is wanted: pure.

use std::collections::BTreeMap;

use firstlight_api::{
    packages::{PackageOrder, PackageReport},
    software::{NONE, PackageState},
};

/// For `dpkg-query --showformat`.
pub const FORMAT: &str = "${Package}\\t${Version}\\t${db:Status-Status}\\t${db:Status-Eflag}\\n";

/// A package that dpkg knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    /// In dpkg's word for how far it came.
    Halfway(String, String),
    Installed(String),
}

/// Of each package of the order, in its order.
pub fn compare(order: &PackageOrder, text: &str) -> Vec<PackageReport> {
    let found = parse(text);
    let one = |package| {
        let package: &firstlight_api::software::PackageSpec = package;
        let wanted = order.state.of(package).to_owned();
        let (have, reason) = match found.get(package.name.as_str()) {
            None => (NONE.to_owned(), String::new()),
            Some(Found::Installed(version)) => (version.clone(), String::new()),
            Some(Found::Halfway(version, how)) => (
                version.clone(),
                format!("dpkg was interrupted: it is {how}"),
            ),
        };
        let is_ready = have == wanted && reason.is_empty();
        PackageReport {
            name: package.name.clone(),
            state: if is_ready {
                PackageState::Ready
            } else {
                PackageState::Pending
            },
            wanted,
            have,
            reason,
        }
    };
    order.packages.iter().map(one).collect()
}

/// Lines that are not in our format are dpkg's complaints about unknown names. Of two architectures the whole one counts.
fn parse(text: &str) -> BTreeMap<&str, Found> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, version, status, flag] = fields[..] else {
            continue;
        };
        let found = match (status, flag) {
            ("not-installed" | "config-files", _) => continue,
            ("installed" | "triggers-awaited" | "triggers-pending", "ok") => {
                Found::Installed(version.to_owned())
            }
            (status, _) => Found::Halfway(version.to_owned(), status.to_owned()),
        };
        let known = all.entry(name).or_insert_with(|| found.clone());
        *known = found.max(known.clone());
    }
    all
}

#[cfg(test)]
mod tests {
    use firstlight_api::software::{PackageSpec, Presence};
    use proptest::prelude::*;

    use super::*;

    fn order(state: Presence, version: &str) -> PackageOrder {
        PackageOrder {
            state,
            packages: vec![PackageSpec {
                name: "hello".to_owned(),
                version: version.to_owned(),
            }],
            ..PackageOrder::default()
        }
    }

    #[test]
    fn only_a_whole_package_of_the_wanted_version_is_ready() {
        let line = |status: &str, flag: &str| format!("hello\t1:2.0-1\t{status}\t{flag}\n");
        let unknown = "dpkg-query: no packages found matching hello\n".to_owned();
        let both = format!("{}{}", line("installed", "ok"), line("unpacked", "ok"));
        for (text, state, version, have, ready) in [
            (
                line("installed", "ok"),
                Presence::Present,
                "1:2.0-1",
                "1:2.0-1",
                true,
            ),
            (both, Presence::Present, "1:2.0-1", "1:2.0-1", true),
            (
                line("installed", "ok"),
                Presence::Present,
                "1:2.0-2",
                "1:2.0-1",
                false,
            ),
            (
                line("installed", "reinstreq"),
                Presence::Present,
                "1:2.0-1",
                "1:2.0-1",
                false,
            ),
            (
                line("half-configured", "ok"),
                Presence::Present,
                "1:2.0-1",
                "1:2.0-1",
                false,
            ),
            (
                line("config-files", "ok"),
                Presence::Present,
                "1:2.0-1",
                "none",
                false,
            ),
            (unknown.clone(), Presence::Present, "1:2.0-1", "none", false),
            (
                line("installed", "ok"),
                Presence::Absent,
                "",
                "1:2.0-1",
                false,
            ),
            (
                line("half-installed", "ok"),
                Presence::Absent,
                "",
                "1:2.0-1",
                false,
            ),
            (
                line("config-files", "ok"),
                Presence::Absent,
                "",
                "none",
                true,
            ),
            (unknown, Presence::Absent, "", "none", true),
        ] {
            let found = compare(&order(state, version), &text);
            let is_ready = found[0].state == PackageState::Ready;
            assert_eq!(
                (found[0].have.as_str(), is_ready),
                (have, ready),
                "{text} {state:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_dpkg_prints_each_package_of_the_order_is_told_once(
            text in "((nano|\\PC{0,8})\t(1|\\PC{0,4})\t(installed|half-installed|\\PC{0,4})\t(ok|reinstreq)\n){0,5}\\PC{0,20}",
        ) {
            let order = order(Presence::Present, "1");
            let told = compare(&order, &text);
            let names = |name: &String| told.iter().filter(|report| report.name == *name).count();
            prop_assert_eq!(told.len(), order.packages.len());
            prop_assert!(order.packages.iter().all(|package| names(&package.name) == 1));
        }
    }
}
