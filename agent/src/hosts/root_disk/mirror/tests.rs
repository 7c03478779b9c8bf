#![allow(clippy::unwrap_used)]

use firstlight_api::{bmh::BareMetalHostSpec, disk::Disk, order::Mark, report::DiskSignatures};
use serde_json::{Value, json};

use super::super::tests::{blank, disk, report};
use super::*;

const ID: DeploymentId = DeploymentId::new([7; 16]);

/// Of an object with this `raid` volume and these hints.
fn wanted(physical_disks: Value, hints: &Value) -> WantedDisks {
    let mut volume = json!({"level": "1"});
    if !physical_disks.is_null() {
        volume["physicalDisks"] = physical_disks;
    }
    let spec: BareMetalHostSpec = serde_json::from_value(json!({
        "online": true, "raid": {"softwareRAIDVolumes": [volume]}, "rootDeviceHints": hints,
    }))
    .unwrap();
    WantedDisks::of(&spec)
}

fn chosen(disks: Vec<(Disk, DiskSignatures)>, wanted: &WantedDisks, policy: DiskPolicy) -> String {
    match super::super::choose(&report(disks), policy, wanted, Some(ID)) {
        Ok(choice) => {
            let names: Vec<&str> = choice.disks().map(|disk| disk.name.as_str()).collect();
            assert_eq!(names.len(), 2, "{choice:?}");
            format!("{}: {}", names.join("+"), choice.why)
        }
        Err(none) => none.to_string(),
    }
}

#[test]
fn the_two_are_safe_alike_and_small_and_it_is_said_why() {
    let plain = || json!({});
    let any = wanted(Value::Null, &Value::Null);
    for (disks, expected) in [
        (
            vec![blank("a", 480, plain()), blank("b", 480, plain())],
            "a+b: the only two disks",
        ),
        (
            vec![blank("a", 960, plain()), blank("b", 480, plain())],
            "b+a: the only two disks; of a as much is used as b has",
        ),
        // Two that are alike come before a smaller one.
        (
            vec![
                blank("a", 64, plain()),
                blank("b", 480, plain()),
                blank("c", 480, plain()),
            ],
            "b+c: the smallest two of equal size of 3 disks",
        ),
        (
            vec![
                blank("a", 64, plain()),
                blank("b", 480, plain()),
                blank("c", 960, plain()),
            ],
            "a+b: the smallest two of 3 disks; of b as much is used as a has",
        ),
        (
            vec![
                blank("a", 480, plain()),
                blank("stick", 480, json!({"tran": "usb"})),
                blank("c", 960, plain()),
            ],
            "a+c: the only two disks that may be chosen; of c as much is used as a has",
        ),
        (
            vec![blank("a", 480, plain()), blank("c", 7, plain())],
            "a mirror needs two disks that fit, and only a (480 GB, serial S-a) does (c has less than 8 GB)",
        ),
        (
            vec![],
            "a mirror needs two disks that fit, and none of its disks does",
        ),
        (
            vec![
                blank("a", 480, plain()),
                blank("b", 480, json!({"logical_sectors": 4096})),
            ],
            "a mirror needs two disks that fit, and a (480 GB, serial S-a) and b (480 GB, serial S-b) have sectors of different sizes",
        ),
    ] {
        assert_eq!(chosen(disks, &any, DiskPolicy::Blank), expected);
    }
}

#[test]
fn hints_hold_for_both_or_one_for_each() {
    let fast = || json!({"rotational": false});
    let slow = || json!({"rotational": true});
    let disks = || {
        vec![
            blank("a", 480, slow()),
            disk("b", 960, fast(), &["ext"]),
            blank("c", 960, fast()),
            blank("d", 960, fast()),
        ]
    };
    let both = wanted(Value::Null, &json!({"rotational": false}));
    assert_eq!(
        chosen(disks(), &both, DiskPolicy::Blank),
        "c+d: the two that its `rootDeviceHints` mean"
    );
    let serial = |name: &str| json!({"serialNumber": format!("S-{name}")});
    let named = |one: Value, other: Value| wanted(json!([one, other]), &Value::Null);
    for (wanted, policy, expected) in [
        (
            named(serial("d"), serial("a")),
            DiskPolicy::Blank,
            "d+a: the two that its `raid` names; of d as much is used as a has",
        ),
        // What fits both entries is taken once.
        (
            named(json!({"rotational": false}), serial("c")),
            DiskPolicy::Blank,
            "d+c: the two that its `raid` names",
        ),
        (
            named(serial("c"), serial("b")),
            DiskPolicy::Blank,
            "the disk that its hints mean, b (960 GB, serial S-b), is not blank: ext found",
        ),
        (
            named(serial("c"), serial("b")),
            DiskPolicy::Wipe,
            "c+b: the two that its `raid` names; what b holds is given up (ext)",
        ),
        (
            named(serial("b"), serial("c")),
            DiskPolicy::Wipe,
            "b+c: the two that its `raid` names; what it holds is given up (ext)",
        ),
        (
            named(serial("c"), serial("c")),
            DiskPolicy::Blank,
            "a mirror needs two disks that fit, and only c (960 GB, serial S-c) does (a is not meant, b is not meant, d is not meant)",
        ),
    ] {
        assert_eq!(chosen(disks(), &wanted, policy), expected);
    }
    let none = chosen(
        disks(),
        &named(serial("a"), json!({"serialNumber": "x"})),
        DiskPolicy::Blank,
    );
    assert!(none.contains("the nearest is "), "{none}");
}

#[test]
fn an_installation_that_has_begun_on_two_disks_goes_on_there() {
    let begun = |name: &str| {
        let mut one = disk(name, 960, json!({}), &["firstlight-unfinished"]);
        one.1.mark = Some(Mark::Unfinished { deployment: ID });
        one
    };
    let any = wanted(Value::Null, &Value::Null);
    let small = || blank("a", 480, json!({}));
    let why = "the ones that this installation has begun to write";
    let disks = vec![small(), blank("b", 480, json!({})), begun("c"), begun("d")];
    assert_eq!(
        chosen(disks, &any, DiskPolicy::Blank),
        format!("c+d: {why}")
    );
    // One of them was taken out since.
    let disks = vec![small(), begun("d")];
    let said = chosen(disks, &any, DiskPolicy::Blank);
    assert!(
        said.starts_with("a+d: ") || said.starts_with("d+a: "),
        "{said}"
    );
    assert!(said.contains(why), "{said}");
}

#[test]
fn a_bios_starts_from_no_half_with_large_sectors() {
    let large = |name: &str| blank(name, 480, json!({"logical_sectors": 4096}));
    let mut report = report(vec![large("a"), large("b")]);
    let any = wanted(Value::Null, &Value::Null);
    let choose = |report: &Report| super::super::choose(report, DiskPolicy::Blank, &any, None);
    report.inventory.boot_mode = "uefi".to_owned();
    assert!(choose(&report).unwrap().mirror.is_some());
    report.inventory.boot_mode = "bios".to_owned();
    assert!(matches!(choose(&report), Err(NoChoice::Firmware(_))));
}
