//! Hundreds of schedules: the parts of the agent that promise something to others, with a power cut at any step and other faults
//! beside it. What was acknowledged is there afterwards, and nothing else than what was meant.

use std::{collections::BTreeMap, fs, net::Ipv4Addr, time::Duration};

use faults::{Fault, Kind, Operation, Random, When};
use firstlight_agent::{
    dhcp::lease_file::LeaseFile,
    hosts::ledger::{Ledger, Ledgers},
    paths::Paths,
    pki,
    store::{Refusal, Store, User},
};
use firstlight_api::artifact::{Arch, ArtifactSpec, ArtifactState, Kind as Artifacts};
use firstlight_artifacts::hex;
use firstlight_netboot::{LeaseChange, MacAddr, Now};
use sha2::{Digest, Sha256};

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

/// Parts of an upload are as large.
const PART: usize = 20_000;
const SCHEDULES: u64 = 200;

fn content(number: u8) -> Vec<u8> {
    let length = 1 + PART * usize::from(number % 4) + 777 * usize::from(number);
    (0..length)
        .map(|at| u8::try_from(at / 7 % 256).unwrap() ^ number)
        .collect()
}

fn package(number: u8) -> ArtifactSpec {
    let content = content(number);
    ArtifactSpec {
        kind: Artifacts::Package,
        name: format!("p{number}"),
        version: "1".to_owned(),
        arch: Arch::Amd64,
        size: content.len() as u64,
        sha256: hex(&Sha256::digest(&content)),
    }
}

/// What a start must find of one upload.
#[derive(Clone, Copy, Debug, Default)]
struct Promised {
    /// Bytes that were acknowledged.
    offset: u64,
    whole: bool,
    /// Its removal was acknowledged, or it never began.
    gone: bool,
}

fn load(site: &Site) -> std::io::Result<Store> {
    let store = Store::load(&site.state("uploads"))?;
    // Nobody uses anything.
    store.note(User::Software, Vec::new());
    Ok(store)
}

/// One more part of it, or its beginning, or its removal; what the store acknowledged is in `promised`.
fn work_on(
    store: &Store,
    number: u8,
    promised: &mut Promised,
    remove: bool,
) -> Result<(), Refusal> {
    promised.gone = false;
    let id = store.begin(package(number))?.id;
    if remove {
        // From here on either is right.
        *promised = Promised::default();
        store.remove(&id)?;
        promised.gone = true;
        return Ok(());
    }
    let ArtifactState::Uploading { offset } = store.get(&id)?.state else {
        promised.whole = true;
        return Ok(());
    };
    let content = content(number);
    let at = usize::try_from(offset).unwrap();
    let mut writer = store.write(&id, offset).inspect_err(|refusal| {
        if matches!(refusal, Refusal::Offset { .. }) {
            panic!("{number}: the store itself said {offset}: {refusal}");
        }
    })?;
    writer.write(&content[at..content.len().min(at + PART)])?;
    let finished = writer.finish();
    if let Err(Refusal::Offset { wanted: 0, .. } | Refusal::Broken(_)) = finished {
        // The disk did not keep what it was given; it begins anew.
        promised.offset = 0;
    }
    match finished?.state {
        ArtifactState::Uploading { offset } => promised.offset = offset,
        _ => promised.whole = true,
    }
    Ok(())
}

/// Of what is there, each whole one is what was sent, and nothing that was acknowledged is missing.
fn check(store: &Store, seed: u64, promises: &BTreeMap<u8, Promised>) {
    for (number, promised) in promises {
        let spec = package(*number);
        let found = store
            .list()
            .into_iter()
            .find(|one| one.spec.name == spec.name);
        let what = format!("seed {seed}: {number} {promised:?} {found:?}");
        let Some(found) = found else {
            assert!(!promised.whole && promised.offset == 0, "{what}");
            continue;
        };
        assert!(!promised.gone, "{what}: it was removed");
        match found.state {
            ArtifactState::Uploading { offset } => {
                assert!(!promised.whole && offset >= promised.offset, "{what}");
            }
            _ => assert_eq!(
                fs::read(store.content(&found.id).unwrap()).unwrap(),
                content(*number),
                "{what}"
            ),
        }
    }
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn uploads_that_were_acknowledged_are_there_after_two_hundred_schedules() {
    for seed in 0..SCHEDULES {
        let mut random = Random::new(seed);
        let mut site = Site::new(SIZE);
        let mut promises: BTreeMap<u8, Promised> = BTreeMap::new();
        for _ in 0..4 {
            trouble(&site, &mut random, 90);
            if let Ok(store) = load(&site) {
                for _ in 0..15 {
                    let number = u8::try_from(random.below(4)).unwrap();
                    let gone = Promised {
                        gone: true,
                        ..Promised::default()
                    };
                    let promised = promises.entry(number).or_insert(gone);
                    let remove = random.below(8) == 0;
                    drop(work_on(&store, number, promised, remove));
                }
            }
            restart(&mut site, &mut random);
            let store = load(&site).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            check(&store, seed, &promises);
        }
        // On a disk that is well everything comes to its end.
        let store = load(&site).unwrap();
        for (number, promised) in &mut promises {
            for _ in 0..20 {
                if !promised.whole {
                    drop(work_on(&store, *number, promised, false));
                }
            }
            assert!(promised.whole, "seed {seed}: {number} {:?}", store.list());
        }
        check(&store, seed, &promises);
    }
}
