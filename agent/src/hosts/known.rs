//! How many hosts are remembered. What strangers invent takes no room from anybody and goes again. Pure.

use std::time::Duration;

use firstlight_netboot::MacAddr;

use super::host::{All, Host};

/// Hosts in all, without those that site.yaml names.
const MOST: usize = 1024;
/// Of these, such as have sent nothing but DHCP requests.
const MOST_SILENT: usize = 128;
/// Hosts that reports make within a minute.
const MOST_NEW: u32 = 256;
const MINUTE: Duration = Duration::from_mins(1);
/// After this without a packet a host that only DHCP knows is forgotten.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// After this without a packet a host that has reported, and that nobody has used, is forgotten.
const UNUSED: Duration = Duration::from_hours(24);
/// From so many hosts on it goes as fast as one that only DHCP knows.
const CROWDED: usize = MOST * 3 / 4;

/// New ones, counted by the minute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Newcomers {
    since: Duration,
    count: u32,
}

/// Where a MAC that nobody knows was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    Dhcp,
    Report,
}

/// May there be one host more?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Refused,
    Admitted,
    /// This one has to go.
    InPlaceOf(MacAddr),
}

impl Newcomers {
    pub fn admit(&mut self, hosts: &All, heard: Heard, now: Duration) -> Admission {
        if heard == Heard::Report && !self.counts(now) {
            return Admission::Refused;
        }
        let silent = hosts.values().filter(|host| host.is_silent());
        let full =
            hosts.len() >= MOST || (heard == Heard::Dhcp && silent.clone().count() >= MOST_SILENT);
        if !full {
            return Admission::Admitted;
        }
        let oldest = silent.min_by_key(|host| host.seen);
        oldest.map_or(Admission::Refused, |host| Admission::InPlaceOf(host.mac))
    }

    fn counts(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.since) >= MINUTE {
            *self = Self {
                since: now,
                count: 0,
            };
        }
        self.count += 1;
        self.count <= MOST_NEW
    }
}

/// Those who have reported, of whom nobody made any use, and who are silent: for a day, or since lately where others need the room.
pub fn of_no_use(hosts: &All, now: Duration) -> Vec<MacAddr> {
    let patience = if hosts.len() >= CROWDED {
        FORGOTTEN
    } else {
        UNUSED
    };
    let goes = |host: &&Host| host.is_of_no_use() && now.saturating_sub(host.seen) >= patience;
    hosts.values().filter(goes).map(|host| host.mac).collect()
}

/// Those whom only DHCP knows and who are silent. Hosts of site.yaml stay.
pub fn silent(hosts: &All, now: Duration) -> Vec<MacAddr> {
    let goes = |host: &&Host| {
        host.is_silent() && !host.rules.named && now.saturating_sub(host.seen) >= FORGOTTEN
    };
    hosts.values().filter(goes).map(|host| host.mac).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::site::InstallPolicy;

    use super::{
        super::{
            host::{PolicyOf, Rules},
            ledger::Ledger,
        },
        *,
    };

    fn mac(number: u32) -> MacAddr {
        let [a, b, c, d] = number.to_be_bytes();
        MacAddr::new([2, 0, a, b, c, d]).unwrap()
    }

    fn admit(
        hosts: &mut All,
        newcomers: &mut Newcomers,
        number: u32,
        heard: Heard,
        now: Duration,
    ) -> bool {
        match newcomers.admit(hosts, heard, now) {
            Admission::Refused => return false,
            Admission::Admitted => {}
            Admission::InPlaceOf(mac) => drop(hosts.remove(&mac)),
        }
        let rules = Rules {
            twin: false,
            policy: InstallPolicy::Blank,
            policy_of: PolicyOf::AllHosts,
            hints: false,
            clean: None,
            start: None,
            kernel_arguments: None,
            cluster: None,
            named: false,
            wrong_code: false,
        };
        let (mac, name) = (mac(number), format!("host-{number}"));
        let mut host = Host::new(mac, name, rules, Ledger::default(), now);
        if heard == Heard::Report {
            host.reported(crate::hosts::tests::a_report(), &[], false, now);
        }
        hosts.insert(mac, host);
        true
    }

    fn forget(hosts: &mut All, now: Duration) {
        for mac in silent(hosts, now) {
            hosts.remove(&mac);
        }
    }

    #[test]
    fn a_hundred_thousand_invented_macs_shut_nobody_out_and_leave_nothing_behind() {
        let (mut hosts, mut newcomers) = (All::new(), Newcomers::default());
        let second = Duration::from_secs(1);
        for number in 0..100_000 {
            admit(&mut hosts, &mut newcomers, number, Heard::Dhcp, second);
        }
        assert_eq!(hosts.len(), MOST_SILENT);
        assert!(admit(
            &mut hosts,
            &mut newcomers,
            100_000,
            Heard::Report,
            second * 2
        ));
        forget(&mut hosts, second + FORGOTTEN);
        assert_eq!(hosts.keys().collect::<Vec<_>>(), [&mac(100_000)]);
    }

    #[test]
    fn reports_make_a_limited_number_of_hosts_a_minute_and_in_all() {
        let (mut hosts, mut newcomers) = (All::new(), Newcomers::default());
        let mut at = |minute: u32, numbers: std::ops::Range<u32>| {
            numbers
                .filter(|number| {
                    let now = MINUTE * minute;
                    admit(&mut hosts, &mut newcomers, *number, Heard::Report, now)
                })
                .count()
        };
        assert_eq!(at(1, 0..1000), 256);
        assert_eq!(at(2, 1000..2000), 256);
        assert_eq!(at(3, 2000..3000), 256);
        assert_eq!(at(4, 3000..4000), 256);
        assert_eq!(at(5, 4000..5000), 0, "1024 are there");
    }

    #[test]
    fn who_needs_room_waits_no_day_for_those_who_left() {
        let (mut hosts, mut newcomers) = (All::new(), Newcomers::default());
        for number in 0..1024 {
            let now = MINUTE * (number / 200);
            let heard = Heard::Report;
            assert!(admit(&mut hosts, &mut newcomers, number, heard, now));
        }
        let last = MINUTE * 6;
        assert!(!admit(
            &mut hosts,
            &mut newcomers,
            5000,
            Heard::Report,
            last
        ));
        assert!(of_no_use(&hosts, last).is_empty());
        let later = MINUTE * 2 + FORGOTTEN;
        assert_eq!(
            of_no_use(&hosts, later).len(),
            600,
            "those of three minutes"
        );
        // A few of them have all the time that there is.
        hosts.retain(|mac, _| *mac < self::mac(300));
        assert!(of_no_use(&hosts, later).is_empty());
        assert_eq!(of_no_use(&hosts, MINUTE + UNUSED).len(), 300);
        hosts.get_mut(&mac(1)).unwrap().rules.named = true;
        assert_eq!(of_no_use(&hosts, MINUTE + UNUSED).len(), 299);
    }

    #[test]
    fn hosts_of_site_yaml_are_not_forgotten() {
        let (mut hosts, mut newcomers) = (All::new(), Newcomers::default());
        let then = Duration::ZERO;
        admit(&mut hosts, &mut newcomers, 1, Heard::Dhcp, then);
        hosts.get_mut(&mac(1)).unwrap().rules.named = true;
        forget(&mut hosts, FORGOTTEN * 2);
        assert_eq!(hosts.len(), 1);
    }
}
