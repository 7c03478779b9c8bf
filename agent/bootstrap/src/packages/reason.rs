//! Of everything that apt and dpkg say, the line that tells a person what is wrong: pure.

use std::collections::BTreeMap;

use firstlight_api::packages::PackageReport;

/// dpkg's own lines, in contrast to those of a package's scripts.
const PROGRESS: [&str; 8] = [
    "Setting up ",
    "Unpacking ",
    "Preparing to ",
    "Selecting ",
    "Removing ",
    "Processing triggers ",
    "(Reading ",
    "Get:",
];

/// Why packages are not as wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    own: BTreeMap<String, String>,
    common: String,
    updating: String,
}

impl Refused {
    pub fn new(text: &str) -> Self {
        Self {
            own: own(text),
            common: first_error(text),
            updating: String::new(),
        }
    }

    pub fn because(why: String) -> Self {
        Self {
            common: why,
            ..Self::default()
        }
    }

    /// Packages of which apt knows other versions.
    pub fn without_version(&self) -> Vec<String> {
        let lost = |why: &&String| why.starts_with("there is no version ");
        let own = self.own.iter().filter(|(_, why)| lost(why));
        own.map(|(name, _)| name.clone()).collect()
    }

    /// `madison`: what `apt-cache madison` says of it.
    pub fn there_are(&mut self, name: &str, madison: &str) {
        let mut versions: Vec<&str> = madison
            .lines()
            .filter_map(|line| line.split(" | ").nth(1))
            .map(str::trim)
            .collect();
        versions.dedup();
        if let (Some(why), false) = (self.own.get_mut(name), versions.is_empty()) {
            *why = format!("{why}; there are {}", versions.join(", "));
        }
    }

    pub fn not_updated(&mut self, text: &str) {
        // What comes first is the cause of what follows.
        let mut marked = text
            .lines()
            .filter_map(|line| error(line).or_else(|| line.strip_prefix("W: ")));
        marked
            .next()
            .unwrap_or_default()
            .clone_into(&mut self.updating);
    }

    pub fn of(&self, package: &PackageReport) -> String {
        let why = match self.own.get(&package.name) {
            Some(why) => why,
            None if self.common.is_empty() => &package.reason,
            None => &self.common,
        };
        let why = if why.is_empty() {
            "apt said nothing about it"
        } else {
            why
        };
        if self.updating.is_empty() {
            why.to_owned()
        } else {
            format!("{why} (the list of packages is old: {})", self.updating)
        }
    }
}

/// Reasons that name their package.
fn own(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if let Some(name) = failed(line) {
            let why = lines.get(at + 1).map_or("", |line| line.trim());
            let said = at.checked_sub(1).map_or("", |before| lines[before].trim());
            let is_script = why.contains("script subprocess");
            let is_news = !said.is_empty() && !PROGRESS.iter().any(|word| said.starts_with(word));
            let why = if is_script && is_news {
                format!("{why}; it said: {said}")
            } else {
                why.to_owned()
            };
            all.insert(name.to_owned(), why);
        } else if let Some(rest) = error(line) {
            let mut quoted = rest.split('\'').skip(1).step_by(2);
            if let (true, Some(version), Some(name)) =
                (rest.starts_with("Version "), quoted.next(), quoted.next())
            {
                all.insert(name.to_owned(), format!("there is no version {version}"));
            } else if let Some(name) = rest.strip_prefix("Unable to locate package ") {
                let why = "there is no such package in the box's repository; put it there with `firstlight push`";
                all.insert(name.trim().to_owned(), why.to_owned());
            }
        } else if let Some((name, why)) = line.trim().split_once(" : ")
            && line.starts_with(' ')
        {
            let name = name.split(':').next().unwrap_or(name);
            all.entry(name.to_owned())
                .or_insert_with(|| why.trim().to_owned());
        }
    }
    all
}

/// `… package NAME (--configure):`, or `… archive /path/NAME_VERSION_ARCH.deb (--unpack):`.
fn failed(line: &str) -> Option<&str> {
    let (what, _) = line
        .strip_prefix("dpkg: error processing ")?
        .split_once(" (")?;
    match what.strip_prefix("archive ") {
        Some(path) => path.rsplit('/').next()?.split('_').next(),
        None => what.strip_prefix("package ")?.split(':').next(),
    }
}

/// apt's mark of an error, before version 3 and since.
fn error(line: &str) -> Option<&str> {
    line.strip_prefix("E: ")
        .or_else(|| line.strip_prefix("Error: "))
}

fn first_error(text: &str) -> String {
    let found = text.lines().find_map(error);
    let found = found.or_else(|| text.lines().find_map(|line| line.strip_prefix("W: ")));
    found.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use firstlight_api::software::PackageState;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_apt_prints_there_is_a_reason(
            text in "((E: |W: |dpkg: error processing package |Setting up |)(\'|\\PC){0,30}\n){0,8}",
            madison in "(\\PC{0,6} \\| ){0,3}\\PC{0,6}",
        ) {
            let mut refused = Refused::new(&text);
            for name in refused.without_version() {
                refused.there_are(&name, &madison);
            }
            refused.not_updated(&text);
            let report = PackageReport {
                name: "nano".into(),
                state: PackageState::Failed,
                wanted: "1".into(),
                have: String::new(),
                reason: String::new(),
            };
            prop_assert!(!refused.of(&report).is_empty());
        }
    }
}
