//! When a backup is due, which is the last, and where it has to go. Pure.

use std::{collections::BTreeMap, fmt, net::Ipv4Addr, time::Duration};

use firstlight_api::{
    backup::{BackupFile, Outside, SUFFIX},
    site::SiteConfig,
    status::{HostState, HostStatus, SiteStatus},
};
use firstlight_netboot::MacAddr;
use time::{
    OffsetDateTime, PrimitiveDateTime, format_description::BorrowedFormatItem,
    macros::format_description,
};

use crate::ssh::Node;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// In UTC: the box knows no other.
const NIGHT: std::ops::Range<i64> = 1..5;
/// A box that was switched off at night does not wait for the next one.
const LATE: i64 = DAY + 6 * HOUR;
const STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");

/// Somewhere that is not the stick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    Server { name: String, node: Node },
    Outside(Outside),
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { name, .. } => out.write_str(&server(name)),
            Self::Outside(outside) => write!(out, "{}", outside.place),
        }
    }
}

fn server(name: &str) -> String {
    format!("server {name}")
}

/// Of a backup that is made now.
pub fn name(site: &str, now: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(now).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let stamp = time.format(STAMP).unwrap_or_default();
    format!("{site}-{stamp}{SUFFIX}")
}

/// When a backup was made, by its name.
pub fn made(name: &str) -> Option<i64> {
    let (_, stamp) = name.strip_suffix(SUFFIX)?.rsplit_once('-')?;
    let time = PrimitiveDateTime::parse(stamp, STAMP).ok()?;
    Some(time.assume_utc().unix_timestamp())
}

/// The last one. What a clock made that went ahead is not taken for it.
pub fn last(files: &[BackupFile], now: i64) -> Option<(i64, &BackupFile)> {
    let dated = files
        .iter()
        .filter_map(|file| Some((made(&file.name)?, file)));
    dated
        .filter(|(made, _)| *made <= now + HOUR)
        .max_by_key(|(made, _)| *made)
}

/// `last`: when it was made.
pub fn is_due(last: Option<i64>, now: i64) -> bool {
    let Some(last) = last else {
        return true;
    };
    let is_night = NIGHT.contains(&(now.rem_euclid(DAY) / HOUR));
    let age = now.saturating_sub(last);
    age >= LATE || is_night && age >= DAY / 2
}

/// Nothing failed, and yet there is none: the box was never well enough for one. `up`: how long it has been on.
pub fn is_overdue(last: Option<i64>, now: i64, up: Duration) -> bool {
    let is_old = last.is_none_or(|last| now.saturating_sub(last) >= 3 * DAY);
    is_old && up >= Duration::from_hours(24)
}

/// Where backups go besides the stick.
pub fn locations(site: &SiteConfig, status: &SiteStatus) -> Vec<Location> {
    let keeps = |rule: Option<usize>| {
        let rule = site.rules.get(rule?.checked_sub(1)?);
        rule.map(|rule| rule.gives.keeps_backups)
    };
    let mut locations = Vec::new();
    for host in &status.hosts {
        if host.state != HostState::Running || keeps(host.rule) != Some(true) {
            continue;
        }
        let (Ok(mac), Ok(address)) = (
            host.mac.parse::<MacAddr>(),
            host.address.parse::<Ipv4Addr>(),
        ) else {
            continue;
        };
        locations.push(Location::Server {
            name: host.name.clone(),
            node: Node { mac, address },
        });
    }
    let outside = site.backup.as_ref().and_then(|plan| plan.outside.clone());
    locations.extend(outside.map(Location::Outside));
    locations
}

/// Between two attempts to bring a backup to a location that did not take it.
const PATIENCE: i64 = HOUR / 4;
/// A server that is switched off for a day is nobody's problem.
const TOLD_AFTER: i64 = DAY;

/// What is where, and what did not come there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Names of backups by their locations; on the state partition.
    there: BTreeMap<String, String>,
    failed: BTreeMap<String, Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    since: i64,
    again: i64,
    why: String,
    definite: bool,
}

impl Copies {
    pub fn new(there: BTreeMap<String, String>) -> Self {
        Self {
            there,
            ..Self::default()
        }
    }

    pub fn there(&self) -> &BTreeMap<String, String> {
        &self.there
    }

    /// Whether the location is still to get this backup, now.
    pub fn wants(&self, location: &Location, name: &str, now: i64) -> bool {
        let location = location.to_string();
        self.there.get(&location).is_none_or(|there| there != name)
            && self
                .failed
                .get(&location)
                .is_none_or(|failed| failed.again <= now)
    }

    pub fn done(&mut self, location: &Location, name: &str) {
        self.failed.remove(&location.to_string());
        self.there.insert(location.to_string(), name.to_owned());
    }

    /// `definite`: it will not mend by itself.
    pub fn failed(&mut self, location: &Location, why: String, definite: bool, now: i64) {
        let known = self.failed.get(&location.to_string());
        let failure = Failure {
            since: known.map_or(now, |known| known.since),
            again: now + PATIENCE,
            why,
            definite,
        };
        self.failed.insert(location.to_string(), failure);
    }

    /// Of those that are not named any more nothing is told, and a server that does not run its system may get another one.
    pub fn forget(&mut self, locations: &[Location], status: &SiteStatus) {
        let names: Vec<String> = locations.iter().map(ToString::to_string).collect();
        self.failed.retain(|location, _| names.contains(location));
        let away = |host: &&HostStatus| host.state != HostState::Running;
        for host in status.hosts.iter().filter(away) {
            self.there.remove(&server(&host.name));
        }
    }

    /// Places that have this backup.
    pub fn with(&self, locations: &[Location], name: &str) -> Vec<String> {
        let names = locations.iter().map(ToString::to_string);
        names
            .filter(|location| self.there.get(location).is_some_and(|there| there == name))
            .collect()
    }

    /// Places, and why the last backup is not there.
    pub fn troubles(&self, now: i64) -> Vec<(String, String)> {
        let told = self.failed.iter().filter(|(_, failed)| {
            failed.definite || now.saturating_sub(failed.since) >= TOLD_AFTER
        });
        told.map(|(location, failed)| (location.clone(), failed.why.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::site::{Gives, Rule};
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-29, 03:00:00 UTC.
    const NOW: i64 = 1_795_921_200;

    fn file(made: i64) -> BackupFile {
        BackupFile {
            name: name("lab", made),
            bytes: 1,
        }
    }

    #[test]
    fn a_name_says_when_it_was_made() {
        assert_eq!(name("lab-1", NOW), "lab-1-20261129T030000Z.backup");
        assert!(BackupFile::is_name(&name("lab-1", NOW)));
        assert_eq!(made(&name("lab-1", NOW)), Some(NOW));
        for other in [
            "lab.backup",
            "lab-x.backup",
            "lab-20261329T030000Z.backup",
            "",
        ] {
            assert_eq!(made(other), None, "{other}");
        }
    }

    #[test]
    fn one_is_made_each_night_and_at_once_where_the_night_was_missed() {
        assert!(is_due(None, NOW + 9 * HOUR));
        assert!(is_due(Some(NOW - DAY), NOW));
        assert!(
            !is_due(Some(NOW - DAY), NOW - 3 * HOUR),
            "not before the night"
        );
        assert!(!is_due(Some(NOW - HOUR), NOW), "once a night");
        assert!(!is_due(Some(NOW), NOW + 20 * HOUR));
        assert!(is_due(Some(NOW - 9 * DAY), NOW + 9 * HOUR));
        let day = Duration::from_hours(24);
        assert!(is_overdue(None, NOW, day) && is_overdue(Some(NOW - 3 * DAY), NOW, day));
        assert!(!is_overdue(Some(NOW - DAY), NOW, day), "it is on its way");
        assert!(!is_overdue(None, NOW, day / 2), "it has just come up");
        // Every night of a month, whatever the box is doing each ten minutes.
        let mut at = Some(NOW - DAY);
        let made = (0..30 * 144 - 12).filter(|step| {
            let now = NOW + step * 600;
            let due = is_due(at, now);
            at = if due { Some(now) } else { at };
            due
        });
        assert_eq!(made.count(), 30);
    }

    #[test]
    fn a_clock_that_went_ahead_is_not_waited_for() {
        let files = [file(NOW - DAY), file(NOW + 400 * DAY), file(NOW - 2 * DAY)];
        assert_eq!(last(&files, NOW).unwrap().0, NOW - DAY);
        assert_eq!(last(&files[1..2], NOW), None);
    }

    fn host(name: &str, state: HostState, rule: Option<usize>) -> HostStatus {
        HostStatus {
            name: name.to_owned(),
            mac: "52:54:00:00:00:01".to_owned(),
            address: "172.22.0.9".to_owned(),
            state,
            rule,
            ..HostStatus::default()
        }
    }

    #[test]
    fn servers_keep_them_whose_rule_says_so_and_that_run() {
        let rule = |keeps_backups| Rule {
            gives: Gives {
                keeps_backups,
                ..Gives::default()
            },
            ..Rule::default()
        };
        let site = SiteConfig {
            rules: vec![rule(false), rule(true)],
            ..SiteConfig::default()
        };
        let status = SiteStatus {
            hosts: vec![
                host("a", HostState::Running, Some(2)),
                host("b", HostState::Running, Some(1)),
                host("c", HostState::Available, Some(2)),
                host("d", HostState::Running, None),
                host("e", HostState::Running, Some(7)),
            ],
            ..SiteStatus::default()
        };
        let locations = locations(&site, &status);
        let names: Vec<String> = locations.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["server a"]);
    }

    #[test]
    fn a_place_that_did_not_take_it_is_asked_again_and_told_when_it_lasts() {
        let Some(location) = locations(
            &SiteConfig {
                rules: vec![Rule {
                    gives: Gives {
                        keeps_backups: true,
                        ..Gives::default()
                    },
                    ..Rule::default()
                }],
                ..SiteConfig::default()
            },
            &SiteStatus {
                hosts: vec![host("a", HostState::Running, Some(1))],
                ..SiteStatus::default()
            },
        )
        .pop() else {
            panic!("no location");
        };
        let mut copies = Copies::default();
        assert!(copies.wants(&location, "1", NOW));
        copies.failed(&location, "it is off".to_owned(), false, NOW);
        assert!(!copies.wants(&location, "1", NOW + 60));
        assert!(copies.wants(&location, "1", NOW + PATIENCE));
        copies.failed(&location, "it is off".to_owned(), false, NOW + PATIENCE);
        assert!(copies.troubles(NOW + HOUR).is_empty());
        assert_eq!(copies.troubles(NOW + DAY).len(), 1);
        copies.failed(&location, "another host key".to_owned(), true, NOW + HOUR);
        assert_eq!(copies.troubles(NOW + HOUR)[0].1, "another host key");
        copies.done(&location, "1");
        assert!(copies.troubles(NOW + DAY).is_empty());
        assert!(
            !copies.wants(&location, "1", NOW + DAY) && copies.wants(&location, "2", NOW + DAY)
        );
        assert_eq!(
            copies.with(std::slice::from_ref(&location), "1"),
            ["server a"]
        );
        copies.failed(&location, "it is off".to_owned(), true, NOW);
        copies.forget(&[], &SiteStatus::default());
        assert!(copies.troubles(NOW).is_empty());
        // Installed anew.
        let away = SiteStatus {
            hosts: vec![host("a", HostState::Provisioning, Some(1))],
            ..SiteStatus::default()
        };
        assert!(!copies.wants(&location, "1", NOW));
        copies.forget(&[], &away);
        assert!(copies.wants(&location, "1", NOW));
    }

    proptest! {
        #[test]
        fn any_name_has_a_time_or_none(text in "\\PC{0,40}", stamp in "[0-9TZ-]{0,20}") {
            for name in [text, format!("lab-{stamp}.backup")] {
                if let Some(made) = made(&name) {
                    prop_assert!(name.ends_with(&super::name("x", made)[1..]));
                }
            }
        }
    }
}
