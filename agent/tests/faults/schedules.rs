//! Hundreds of schedules: the parts of the agent that promise something to others, with a power cut at any step and other faults
//! beside it. What was acknowledged is there afterwards, and nothing else than what was meant.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use faults::{Fault, Kind, Operation, Random, When};
use firstlight_agent::{
    dhcp::lease_file::LeaseFile,
    hosts::ledger::{Ledger, Ledgers},
    paths::Paths,
    pki,
};
use firstlight_netboot::{LeaseChange, MacAddr, Now};

use crate::{SIZE, Site, with_library};

const NOW: i64 = 1_790_000_000;

/// A cut somewhere in the next operations.
fn cut_ahead(site: &Site, random: &mut Random, longest: u64) {
    let nth = When::Nth(1 + random.below(longest));
    let mut disk = site.mount.disk();
    disk.clear();
    disk.add(Fault::new("**", Operation::Change, nth, Kind::Cut));
}

/// A cut, and in some schedules rare errors before it.
fn trouble(site: &Site, random: &mut Random, longest: u64) {
    cut_ahead(site, random, longest);
    let mut disk = site.mount.disk();
    let rare = When::Chance {
        percent: 4,
        seed: random.number(),
    };
    match random.below(4) {
        0 => disk.add(Fault::new("**", Operation::Write, rare, Kind::Full)),
        1 => disk.add(Fault::new("**", Operation::Sync, rare, Kind::Broken)),
        2 => disk.add(Fault::new(
            "**",
            Operation::Write,
            rare,
            Kind::Torn(random.below(200)),
        )),
        _ => {}
    }
}

/// Starts again after a cut, or without one if the schedule ended before it.
fn restart(site: &mut Site, random: &mut Random) {
    site.mount.restart(random.number()).unwrap();
}

fn mac(last: u8) -> MacAddr {
    MacAddr::new([2, 0, 0, 0, 0, last]).unwrap()
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn ledgers_keep_what_they_returned_for_over_two_hundred_schedules() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut site = Site::new(SIZE);
        let ledgers = Ledgers::new(Paths::new(site.root()).host_ledgers());
        // Of each host: what may be on the disk, the oldest first; what was acknowledged begins the list anew.
        let mut possible: BTreeMap<MacAddr, Vec<Option<Ledger>>> = BTreeMap::new();
        for round in 0..3 {
            trouble(&site, &mut random, 60);
            drop(ledgers.load());
            for step in 0..12 {
                let host = mac(u8::try_from(random.below(4)).unwrap());
                let ledger = Ledger {
                    inspections: round * 100 + step,
                    ..Ledger::default()
                };
                let saved = ledgers.save(host, &ledger);
                let one = possible.entry(host).or_insert_with(|| vec![None]);
                if saved.is_ok() {
                    one.clear();
                }
                one.push(Some(ledger));
            }
            restart(&mut site, &mut random);
            assert_eq!(ledgers.put_damaged_aside(), [], "seed {seed}");
            let found = ledgers.load().unwrap();
            for (host, possible) in &mut possible {
                let found = found.get(host).cloned();
                assert!(
                    possible.contains(&found),
                    "seed {seed}: {host} {found:?} {possible:?}"
                );
                *possible = vec![found];
            }
        }
    }
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn leases_that_were_written_are_there_after_two_hundred_schedules() {
    let now = Now::from_unix_seconds(1000);
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut site = Site::new(SIZE);
        let path = Paths::new(site.root()).leases();
        let mut acknowledged = BTreeMap::new();
        for round in 0..3_u8 {
            let opened = LeaseFile::open(&path, now);
            let (mut file, table, problems) =
                opened.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
            assert_eq!(problems, [], "seed {seed}");
            for (mac, address) in &acknowledged {
                let found = table.of_mac(*mac).map(|lease| lease.address);
                assert_eq!(found, Some(*address), "seed {seed}: {mac}");
            }
            trouble(&site, &mut random, 60);
            for step in 0..30 {
                let host = mac(round * 50 + step);
                let address = Ipv4Addr::new(172, 22, 0, round * 50 + step);
                let expires = now.plus(Duration::from_hours(1));
                let change = LeaseChange::Leased {
                    mac: host,
                    address,
                    expires,
                };
                if file.append(&[change], now).is_ok() {
                    acknowledged.insert(host, address);
                }
            }
            drop(file);
            restart(&mut site, &mut random);
        }
    }
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn the_cas_of_a_first_start_stay_the_same_once_they_are_known_in_a_hundred_schedules() {
    let name = "schedules::the_cas_of_a_first_start_stay_the_same_once_they_are_known_in_a_hundred_schedules";
    with_library(name, || {
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut site = Site::new(SIZE);
            let paths = Paths::new(site.root());
            let mut known = None;
            for _ in 0..3 {
                trouble(&site, &mut random, 350);
                let made = pki::load_or_make(&paths, NOW);
                if let (Ok(made), None) = (&made, &known) {
                    known = Some(made.site.fingerprint.clone());
                }
                restart(&mut site, &mut random);
            }
            let made = pki::load_or_make(&paths, NOW)
                .unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
            let fingerprint = made.site.fingerprint;
            assert_eq!(
                known.as_ref().unwrap_or(&fingerprint),
                &fingerprint,
                "seed {seed}"
            );
        }
    });
}
