//! What a power cut and a bad disk leave of the lease file.

use proptest::prelude::*;

use super::*;
use crate::testing::{ip, mac};

fn leased(host: u8, address: &str, expires: u64) -> LeaseChange {
    LeaseChange::Leased {
        mac: mac(host),
        address: ip(address),
        expires: Now::from_unix_seconds(expires),
    }
}

#[test]
fn the_file_is_text_that_a_person_can_read() {
    let table = LeaseTable::default();
    let mut file = compact(&table, Now::from_unix_seconds(0));
    file.extend(encode_records(&[
        leased(1, "172.22.0.100", 1_795_222_800),
        LeaseChange::Released {
            mac: mac(1),
            at: Now::from_unix_seconds(1_795_220_000),
        },
        LeaseChange::Quarantined {
            address: ip("172.22.0.101"),
            until: Now::from_unix_seconds(1_795_223_600),
        },
    ]));
    let wanted = r#"firstlight-leases 1
2e171bd0 {"leased":{"mac":"52:54:00:aa:00:01","address":"172.22.0.100","expires":1795222800}}
9e24672d {"released":{"mac":"52:54:00:aa:00:01","at":1795220000}}
09bdefa9 {"quarantined":{"address":"172.22.0.101","until":1795223600}}
"#;
    assert_eq!(String::from_utf8(file).unwrap(), wanted);
}

#[test]
fn an_empty_file_and_a_torn_header_are_a_new_log() {
    for file in ["", "first", "firstlight-leases 1"] {
        assert_eq!(
            decode_log(file.as_bytes()),
            Ok(DecodedLog::default()),
            "{file:?}"
        );
    }
}

#[test]
fn a_file_of_something_else_is_not_taken_for_an_empty_log() {
    for file in ["firstlight-leases 2\n", "{}\n", "\0\0\0\0"] {
        assert!(decode_log(file.as_bytes()).is_err(), "{file:?}");
    }
}

#[test]
fn a_damaged_line_is_skipped_and_named() {
    let mut file = compact(&LeaseTable::default(), Now::from_unix_seconds(0));
    file.extend(encode_records(&[
        leased(1, "172.22.0.100", 10),
        leased(2, "172.22.0.101", 10),
    ]));
    let position = file.iter().position(|b| *b == b'{').unwrap() + 20;
    file[position] ^= 1;
    let decoded = decode_log(&file).unwrap();
    assert_eq!(decoded.damaged, [2]);
    assert_eq!(decoded.records, 1);
    assert_eq!(
        decoded.table.of_mac(mac(2)).unwrap().address,
        ip("172.22.0.101")
    );
}

#[test]
fn of_what_was_written_last_any_sector_may_be_missing() {
    const SECTOR: usize = 512;
    let mut file = compact(&LeaseTable::default(), Now::from_unix_seconds(0));
    let first = encode_records(&[leased(1, "172.22.0.100", 10)]);
    file.extend(&first);
    let held = file.len();
    file.resize(8 * SECTOR, b'\n');
    let last: Vec<_> = (2..30).map(|n| leased(n, "172.22.0.101", 10)).collect();
    let last = encode_records(&last);
    assert!(last.len() > 4 * SECTOR);
    for missing in 0..1_u32 << 6 {
        let mut after = file.clone();
        after[held..held + last.len()].copy_from_slice(&last);
        for sector in (0..6).filter(|sector| missing >> sector & 1 == 1) {
            let there = sector * SECTOR..(sector + 1) * SECTOR;
            after[there.clone()].copy_from_slice(&file[there]);
        }
        let decoded = decode_log(&after).unwrap();
        assert_eq!(decoded.damaged, [0; 0], "{missing:b}");
        let lease = decoded.table.of_mac(mac(1)).unwrap();
        assert_eq!(lease.address, ip("172.22.0.100"), "{missing:b}");
    }
}

#[test]
fn a_compacted_file_says_the_same_in_fewer_lines() {
    let now = Now::from_unix_seconds(1000);
    let changes: Vec<_> = (0..100).map(|n| leased(1, "172.22.0.100", n)).collect();
    let mut file = compact(&LeaseTable::default(), now);
    file.extend(encode_records(&changes));
    let long = decode_log(&file).unwrap();
    let short = decode_log(&compact(&long.table, now)).unwrap();
    assert_eq!(short.table, long.table);
    assert_eq!((long.records, short.records), (100, 1));
}

fn change() -> impl Strategy<Value = LeaseChange> {
    let mac = (1..6_u8).prop_map(mac);
    let address = (1..8_u8).prop_map(|n| std::net::Ipv4Addr::new(172, 22, 0, n));
    let time = (0..5000_u64).prop_map(Now::from_unix_seconds);
    prop_oneof![
        (mac.clone(), address.clone(), time.clone()).prop_map(|(mac, address, expires)| {
            LeaseChange::Leased {
                mac,
                address,
                expires,
            }
        }),
        (mac, time.clone()).prop_map(|(mac, at)| LeaseChange::Released { mac, at }),
        (address, time).prop_map(|(address, until)| LeaseChange::Quarantined { address, until }),
    ]
}

proptest! {
    /// Cut anywhere: what is left is the state after the changes that are whole.
    #[test]
    fn every_prefix_is_a_valid_earlier_state(changes in proptest::collection::vec(change(), 0..12), cut in any::<prop::sample::Index>()) {
        let mut file = compact(&LeaseTable::default(), Now::from_unix_seconds(0));
        let header = file.len();
        let mut states = vec![(header, LeaseTable::default())];
        let mut table = LeaseTable::default();
        for change in &changes {
            table.apply(change);
            file.extend(encode_records(&[*change]));
            states.push((file.len(), table.clone()));
        }
        let cut = cut.index(file.len() + 1);
        let decoded = decode_log(&file[..cut]).unwrap();
        let (valid, state) = states.iter().rev().find(|(end, _)| *end <= cut).cloned().unwrap_or_default();
        prop_assert_eq!(decoded.valid_bytes, valid);
        prop_assert_eq!(decoded.table, state);
        prop_assert!(decoded.damaged.is_empty());
    }

    /// Room behind the lines changes nothing, nor does it hide a line behind it.
    #[test]
    fn room_is_no_line(changes in proptest::collection::vec(change(), 0..12), at in any::<prop::sample::Index>(), room in 0..40_usize) {
        let at = at.index(changes.len() + 1);
        let mut file = compact(&LeaseTable::default(), Now::from_unix_seconds(0));
        let mut roomy = file.clone();
        file.extend(encode_records(&changes));
        roomy.extend(encode_records(&changes[..at]));
        roomy.resize(roomy.len() + room, b'\n');
        roomy.extend(encode_records(&changes[at..]));
        let (without, with) = (decode_log(&file).unwrap(), decode_log(&roomy).unwrap());
        prop_assert_eq!((with.table, with.records), (without.table, without.records));
        prop_assert!(with.damaged.is_empty());
    }

    /// Garbage behind the valid part, as some file systems leave it, changes nothing.
    #[test]
    fn garbage_at_the_end_is_left_out(changes in proptest::collection::vec(change(), 0..5), garbage in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut file = compact(&LeaseTable::default(), Now::from_unix_seconds(0));
        file.extend(encode_records(&changes));
        let before = decode_log(&file).unwrap();
        file.extend(garbage);
        prop_assert_eq!(decode_log(&file).unwrap(), before);
    }

    #[test]
    fn no_file_brings_the_decoder_down(file in proptest::collection::vec(any::<u8>(), 0..400)) {
        drop(decode_log(&file));
    }

    #[test]
    fn compaction_keeps_every_lease_and_every_quarantine_that_holds(changes in proptest::collection::vec(change(), 0..30), now in 0..5000_u64) {
        let now = Now::from_unix_seconds(now);
        let mut table = LeaseTable::default();
        for change in &changes {
            table.apply(change);
        }
        let again = decode_log(&compact(&table, now)).unwrap().table;
        prop_assert!(again.iter().eq(table.iter()));
        for n in 1..8 {
            let address = std::net::Ipv4Addr::new(172, 22, 0, n);
            prop_assert_eq!(again.is_quarantined(address, now), table.is_quarantined(address, now));
        }
    }
}
