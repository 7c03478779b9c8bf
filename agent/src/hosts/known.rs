//! How many hosts are remembered. What strangers invent takes no room from anybody and goes again. Pure.

use std::time::Duration;

use firstlight_netboot::MacAddr;

use super::record::{Record, Records};

/// Records in all, without those that site.yaml names.
const MOST: usize = 1024;
/// Of these, such as have sent nothing but DHCP requests.
const MOST_SILENT: usize = 128;
/// Records that reports make within a minute.
const MOST_NEW: u32 = 256;
const MINUTE: Duration = Duration::from_mins(1);
/// After this without a packet a host that only DHCP knows is forgotten.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// New records, counted by the minute.
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

impl Newcomers {
    /// May there be one record more? Makes room for it where it can.
    pub fn admit(&mut self, records: &mut Records, heard: Heard, now: Duration) -> bool {
        if heard == Heard::Report && !self.counts(now) {
            return false;
        }
        let silent = records.values().filter(|record| record.is_silent()).count();
        let full = records.len() >= MOST || (heard == Heard::Dhcp && silent >= MOST_SILENT);
        !full || forget_oldest(records)
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

/// True if there was one.
fn forget_oldest(records: &mut Records) -> bool {
    let silent = records.iter().filter(|(_, record)| record.is_silent());
    let oldest = silent
        .min_by_key(|(_, record)| record.seen)
        .map(|(mac, _)| *mac);
    oldest.is_some_and(|mac| records.remove(&mac).is_some())
}

/// Forgets whom only DHCP knows and who is silent. `named` are hosts of site.yaml.
pub fn forget_silent(records: &mut Records, named: impl Fn(MacAddr) -> bool, now: Duration) {
    let stays = |mac: MacAddr, record: &Record| {
        !record.is_silent() || named(mac) || now.saturating_sub(record.seen) < FORGOTTEN
    };
    records.retain(|mac, record| stays(*mac, record));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn mac(number: u32) -> MacAddr {
        let [a, b, c, d] = number.to_be_bytes();
        MacAddr::new([2, 0, a, b, c, d]).unwrap()
    }

    fn admit(
        records: &mut Records,
        newcomers: &mut Newcomers,
        number: u32,
        heard: Heard,
        now: Duration,
    ) -> bool {
        let admitted = newcomers.admit(records, heard, now);
        if admitted {
            let mut record = Record::new(mac(number), format!("host-{number}"), now);
            if heard == Heard::Report {
                record.reported(crate::hosts::tests::a_report(), now);
            }
            records.insert(mac(number), record);
        }
        admitted
    }

    #[test]
    fn a_hundred_thousand_invented_macs_shut_nobody_out_and_leave_nothing_behind() {
        let (mut records, mut newcomers) = (Records::new(), Newcomers::default());
        let second = Duration::from_secs(1);
        for number in 0..100_000 {
            admit(&mut records, &mut newcomers, number, Heard::Dhcp, second);
        }
        assert_eq!(records.len(), MOST_SILENT);
        assert!(admit(
            &mut records,
            &mut newcomers,
            100_000,
            Heard::Report,
            second * 2
        ));
        forget_silent(&mut records, |_| false, second + FORGOTTEN);
        assert_eq!(records.keys().collect::<Vec<_>>(), [&mac(100_000)]);
    }

    #[test]
    fn reports_make_a_limited_number_of_records_a_minute_and_in_all() {
        let (mut records, mut newcomers) = (Records::new(), Newcomers::default());
        let mut at = |minute: u32, numbers: std::ops::Range<u32>| {
            numbers
                .filter(|number| {
                    let now = MINUTE * minute;
                    admit(&mut records, &mut newcomers, *number, Heard::Report, now)
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
    fn hosts_of_site_yaml_are_not_forgotten() {
        let (mut records, mut newcomers) = (Records::new(), Newcomers::default());
        let then = Duration::ZERO;
        admit(&mut records, &mut newcomers, 1, Heard::Dhcp, then);
        forget_silent(&mut records, |known| known == mac(1), FORGOTTEN * 2);
        assert_eq!(records.len(), 1);
    }
}
