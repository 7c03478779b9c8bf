#![allow(clippy::unwrap_used)]

use firstlight_api::{order::Mark, report::Inventory};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const ID: DeploymentId = DeploymentId::new([7; 16]);
const GB: u64 = 1_000_000_000;

/// Of a report: what the inventory says of a disk, and what is on it.
pub(super) fn disk(
    name: &str,
    gb: u64,
    facts: Value,
    signatures: &[&str],
) -> (Disk, DiskSignatures) {
    let mut said = json!({"name": name, "size": gb * GB, "serial": format!("S-{name}")});
    let Value::Object(facts) = facts else {
        panic!("facts have names: {facts}");
    };
    said.as_object_mut().unwrap().extend(facts);
    let disk = Disk::from_inventory(&said);
    let id = disk.id();
    let found = DiskSignatures {
        name: name.to_owned(),
        size_bytes: id.size_bytes,
        serial: id.serial,
        wwn: id.wwn,
        signatures: signatures.iter().map(|kind| (*kind).to_owned()).collect(),
        mark: None,
    };
    (disk, found)
}

pub(super) fn blank(name: &str, gb: u64, facts: Value) -> (Disk, DiskSignatures) {
    disk(name, gb, facts, &[])
}

pub(super) fn report(disks: Vec<(Disk, DiskSignatures)>) -> Report {
    let (facts, found) = disks.into_iter().unzip();
    Report {
        inventory: Inventory {
            disks: facts,
            ..Inventory::default()
        },
        disks: found,
        ..crate::hosts::tests::a_report()
    }
}

fn says(choice: Result<Choice, NoChoice>) -> String {
    match choice {
        Ok(choice) => format!("{}: {}", choice.disk.name, choice.why),
        Err(none) => none.to_string(),
    }
}

#[test]
fn without_a_word_from_anybody_the_choice_is_safe_and_says_why() {
    let plain = || json!({});
    let boss = || json!({"model": "DELLBOSS VD", "vendor": "ATA"});
    for (disks, expected) in [
        (vec![blank("a", 480, plain())], "a: the only disk"),
        (
            vec![
                blank("a", 960, plain()),
                blank("b", 480, plain()),
                blank("c", 480, plain()),
            ],
            "b: the smallest of 3 disks",
        ),
        // Names change at each start; serial numbers do not.
        (
            vec![
                blank("a", 480, json!({"serial": "Z"})),
                blank("b", 480, json!({"serial": "Y"})),
            ],
            "b: the smallest of 2 disks",
        ),
        (
            vec![
                blank("a", 480, json!({"serial": null})),
                blank("b", 480, plain()),
            ],
            "b: the smallest of 2 disks",
        ),
        (
            vec![
                blank("a", 480, plain()),
                blank("stick", 32, json!({"tran": "usb"})),
                blank("c", 7, plain()),
            ],
            "a: the only disk that may be chosen (stick is on USB, c has less than 8 GB)",
        ),
        (vec![blank("a", 8, plain())], "a: the only disk"),
        (
            vec![blank("a", 480, plain()), blank("b", 960, boss())],
            "b: the mirrored boot device (DELLBOSS VD) of 2 disks",
        ),
        (
            vec![
                blank("a", 480, json!({"boot_order": 3})),
                blank("b", 960, json!({"boot_order": 1})),
                blank("c", 240, plain()),
            ],
            "b: the first in the firmware's boot order of 3 disks",
        ),
        // The firmware's order follows the slots more often than anybody's will.
        (
            vec![
                blank("a", 480, json!({"boot_order": 0})),
                blank("b", 960, boss()),
            ],
            "b: the mirrored boot device (DELLBOSS VD) of 2 disks",
        ),
        (
            vec![
                blank("a", 480, json!({"logical_sectors": 4096})),
                blank("b", 960, json!({"logical_sectors": 512})),
            ],
            "b: the smallest of 2 disks",
        ),
        (
            vec![blank("a", 480, json!({"logical_sectors": 4096}))],
            "a: the only disk; the image is fitted to its 4096-byte sectors",
        ),
        (
            vec![
                blank("a", 4, plain()),
                blank("b", 64, json!({"tran": "usb"})),
            ],
            "none of its disks is chosen without being named: a has less than 8 GB, b is on USB",
        ),
    ] {
        let report = report(disks);
        let choice = single(&report, DiskPolicy::Blank, None, None);
        assert!(
            choice
                .iter()
                .all(|choice| choice.scope == DiskScope::Server)
        );
        assert_eq!(says(choice), expected);
    }
}

fn hints(value: Value) -> RootDeviceHints {
    serde_json::from_value(value).unwrap()
}

#[test]
fn each_hint_names_its_disk_and_others_may_hold_data() {
    let by_path = "/dev/disk/by-path/pci-0000:00:1f.2-ata-3";
    let facts = json!({
        "model": "SSD 9000", "vendor": "ACME", "serial": "S1", "wwn": "0x5000", "wwn_with_extension": "0x5000aa",
        "wwn_vendor_extension": "0xaa", "hctl": "2:0:0:0", "by_path": by_path, "rotational": true,
    });
    let report = report(vec![
        disk("/dev/sda", 480, json!({}), &["gpt", "ext4"]),
        blank("/dev/sdb", 4000, facts),
    ]);
    for hint in [
        json!({"deviceName": "/dev/sdb"}),
        json!({"deviceName": by_path}),
        json!({"hctl": "2:0:0:0"}),
        json!({"model": "ssd"}),
        json!({"vendor": "acme"}),
        json!({"serialNumber": "S1"}),
        json!({"minSizeGigabytes": 1000}),
        json!({"wwn": "0x5000"}),
        json!({"wwnWithExtension": "0x5000aa"}),
        json!({"wwnVendorExtension": "0xaa"}),
        json!({"rotational": true}),
    ] {
        let choice = single(&report, DiskPolicy::Blank, Some(&hints(hint)), None).unwrap();
        assert_eq!(choice.scope, DiskScope::Root);
        assert_eq!(
            format!("{}: {}", choice.disk, choice.why),
            "/dev/sdb (4000 GB, serial S1): the one that its `rootDeviceHints` mean"
        );
    }
    // Nothing in them is as if there were none.
    let none = single(&report, DiskPolicy::Wipe, Some(&hints(json!({}))), None);
    assert_eq!(none.unwrap().scope, DiskScope::Server);
}

#[test]
fn no_bios_starts_from_large_sectors_also_where_somebody_names_the_disk() {
    let mut report = report(vec![
        blank("a", 480, json!({"logical_sectors": 4096})),
        blank("b", 960, json!({"logical_sectors": 512})),
    ]);
    report.inventory.boot_mode = "bios".to_owned();
    let best = single(&report, DiskPolicy::Blank, None, None).unwrap();
    assert_eq!(best.disk.name, "b");
    let named = hints(json!({"deviceName": "a"}));
    let refused = single(&report, DiskPolicy::Wipe, Some(&named), None);
    assert!(matches!(refused, Err(NoChoice::Firmware(_))), "{refused:?}");
    report.disks.truncate(1);
    let refused = single(&report, DiskPolicy::Blank, None, None);
    assert!(matches!(refused, Err(NoChoice::Firmware(_))), "{refused:?}");
}

#[test]
fn hints_that_mean_several_disks_none_or_one_with_data() {
    let disks = || {
        vec![
            disk("a", 480, json!({"model": "M1"}), &["gpt"]),
            blank("b", 960, json!({"model": "M1"})),
            blank("c", 960, json!({"model": "M2", "serial": null})),
            blank("d", 2, json!({"model": "M3"})),
            blank("e", 64, json!({"model": "M1", "tran": "usb"})),
        ]
    };
    let report = report(disks());
    for (hint, policy, expected) in [
        (
            json!({"model": "M1"}),
            DiskPolicy::Blank,
            "b: the only one of 3 disks that its `rootDeviceHints` mean which may be written",
        ),
        (
            json!({"model": "M1"}),
            DiskPolicy::Wipe,
            "a: the smallest of 2 disks that its `rootDeviceHints` mean; what it holds is given up (gpt)",
        ),
        (
            json!({"minSizeGigabytes": 800}),
            DiskPolicy::Blank,
            "b: the smallest of 2 disks that its `rootDeviceHints` mean",
        ),
        // Whoever names them gets them.
        (
            json!({"model": "M3"}),
            DiskPolicy::Blank,
            "d: the one that its `rootDeviceHints` mean",
        ),
        (
            json!({"deviceName": "e"}),
            DiskPolicy::Blank,
            "e: the one that its `rootDeviceHints` mean",
        ),
        (
            json!({"deviceName": "a"}),
            DiskPolicy::Blank,
            "the disk that its hints mean, a (480 GB, serial S-a), is not blank: gpt found",
        ),
        (
            json!({"serialNumber": "X", "model": "M2"}),
            DiskPolicy::Wipe,
            "no disk of it is what its `rootDeviceHints` say; the nearest is c (960 GB, without a serial number): it has no serial",
        ),
    ] {
        let choice = single(&report, policy, Some(&hints(hint)), None);
        assert_eq!(says(choice), expected);
    }
}

#[test]
fn who_has_begun_to_write_a_disk_goes_on_there() {
    let mut begun = blank("b", 960, json!({}));
    begun.1.signatures = vec!["firstlight-unfinished".into()];
    let deployment = ID;
    begun.1.mark = Some(Mark::Unfinished { deployment });
    let report = report(vec![blank("a", 480, json!({"boot_order": 0})), begun]);
    for policy in [DiskPolicy::Blank, DiskPolicy::Wipe] {
        let choice = single(&report, policy, None, Some(ID));
        assert_eq!(
            says(choice),
            "b: the one that this installation has begun to write of 2 disks"
        );
        assert_eq!(single(&report, policy, None, None).unwrap().disk.name, "a");
    }
}

#[test]
fn of_disks_that_only_their_names_tell_apart_none_is_named_beside_data() {
    let twin = |name: &str, by_path: Option<&str>, found: &[&str]| {
        disk(
            name,
            480,
            json!({"serial": null, "by_path": by_path}),
            found,
        )
    };
    let named = |other: &[&str], by_path: [Option<&str>; 2]| {
        let report = report(vec![
            twin("a", by_path[0], &[]),
            twin("b", by_path[1], other),
        ]);
        let hints = hints(json!({"deviceName": "a"}));
        single(&report, DiskPolicy::Wipe, Some(&hints), None)
    };
    assert!(matches!(
        named(&["gpt"], [None; 2]),
        Err(NoChoice::Unclear(_))
    ));
    assert!(matches!(
        named(&["gpt"], [Some("p"); 2]),
        Err(NoChoice::Unclear(_))
    ));
    assert_eq!(
        named(&["gpt"], [Some("p"), Some("q")]).unwrap().disk.name,
        "a"
    );
    assert_eq!(named(&[], [None; 2]).unwrap().disk.name, "a");
}

#[test]
fn a_report_that_says_less_is_enough() {
    let mut report = report(vec![blank("a", 480, json!({})), blank("b", 240, json!({}))]);
    report.inventory = Inventory::default();
    let choice = single(&report, DiskPolicy::Blank, None, None);
    assert_eq!(says(choice), "b: the smallest of 2 disks");
}

fn any_disk() -> impl Strategy<Value = (Disk, DiskSignatures)> {
    let texts = prop::option::of(prop::sample::select(
        &["", "A", "B", "s== A", "usb", "DELLBOSS VD", "\u{202e}"][..],
    ));
    let number = prop::sample::select(&[0, 1, 7, 8, 480, 1 << 33][..]);
    let found = prop::sample::subsequence(&["gpt", "ext4"][..], 0..=2);
    let facts = [texts.clone(), texts.clone(), texts.clone(), texts];
    (0..4_u8, facts, number, found, any::<bool>(), prop::option::of(any::<u64>())).prop_map(
        |(name, [serial, model, tran, by_path], gb, found, is_ours, order)| {
            let facts = json!({
                "serial": serial, "model": model, "tran": tran, "by_path": by_path, "boot_order": order, "logical_sectors": order,
            });
            let mut disk = disk(&format!("/dev/sd{name}"), gb, facts, &found);
            let deployment = Some(ID);
            disk.1.mark = is_ours.then_some(Mark::Installed { deployment });
            disk
        },
    )
}

proptest! {
    #[test]
    fn whatever_a_server_says_nothing_with_data_is_chosen_and_the_order_finds_what_was_chosen(
        disks in prop::collection::vec(any_disk(), 0..6),
        hint in prop::option::of(prop::sample::select(&["A", "B", "/dev/sd1", "usb"][..])),
        deployment in prop::sample::select(&[None, Some(ID)][..]),
    ) {
        // The kernel gives no name twice.
        let disks: std::collections::BTreeMap<_, _> = disks.into_iter().map(|disk| (disk.0.name.clone(), disk)).collect();
        let report = report(disks.into_values().collect());
        let named = hint.map(|text| {
            let mut hints = RootDeviceHints::default();
            match text {
                "/dev/sd1" => text.clone_into(&mut hints.device_name),
                _ => text.clone_into(&mut hints.serial_number),
            }
            hints
        });
        for policy in [DiskPolicy::Blank, DiskPolicy::Wipe] {
            let choice = single(&report, policy, named.as_ref(), deployment);
            prop_assert_eq!(&choice, &single(&report, policy, named.as_ref(), deployment));
            let Ok(choice) = choice else { continue };
            prop_assert!(choice.why.chars().count() < 1000 && !choice.why.contains(char::is_control));
            let is_it = |found: &&DiskSignatures| found.name == choice.disk.name && DiskId::from(*found) == choice.disk.disk;
            let mut it = report.disks.iter().filter(is_it);
            let chosen = it.next().unwrap();
            if choice.scope == DiskScope::Server {
                prop_assert!(chosen.size_bytes >= LEAST);
                continue;
            }
            prop_assert_eq!(it.next(), None);
            prop_assert!(policy == DiskPolicy::Wipe || is_free(chosen, deployment));
            prop_assert_eq!(find(&choice.disk, &report), Some(chosen));
        }
    }
}
