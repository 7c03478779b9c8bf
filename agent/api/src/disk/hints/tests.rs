#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn disk(name: &str, gib: u64) -> Disk {
    Disk {
        name: format!("/dev/{name}"),
        model: "SAMSUNG MZ7KH  480".into(),
        size: gib << 30,
        rotational: name == "sdc",
        serial: Some(format!("S-{name}")),
        ..Disk::default()
    }
}

#[test]
fn without_hints_the_smallest_of_at_least_four_gibibytes_wins_and_ties_go_by_name() {
    let disks = [
        disk("sdd", 3),
        disk("sdc", 100),
        disk("sdb", 20),
        disk("sda", 20),
    ];
    assert_eq!(root_disk(&disks, None).unwrap().name, "/dev/sda");
    assert_eq!(root_disk(&disks[..1], None), None);
}

#[test]
fn every_operator_of_a_hint() {
    let disks = [disk("sda", 480), disk("sdb", 960), disk("sdc", 4000)];
    for (hints, wanted) in [
        (json!({"size": 960}), Some("sdb")),
        (json!({"size": ">= 900"}), Some("sdb")),
        (json!({"size": "= 900"}), Some("sdb")),
        (json!({"size": "<= 480"}), Some("sda")),
        (json!({"size": "< 480"}), None),
        (json!({"size": "> 960"}), Some("sdc")),
        (json!({"size": "!= 480"}), Some("sdb")),
        (json!({"size": "<or> 7 <or> 4000"}), Some("sdc")),
        (json!({"rotational": true}), Some("sdc")),
        (json!({"rotational": "false", "size": ">500"}), Some("sdb")),
        (json!({"name": "/dev/sdb"}), Some("sdb")),
        (json!({"name": "s== /dev/sdb"}), Some("sdb")),
        (json!({"name": "s!= /dev/sda"}), Some("sdb")),
        (json!({"name": "s> /dev/sdb"}), Some("sdc")),
        (json!({"model": "<in> mz7kh"}), Some("sda")),
        (
            json!({"model": "<all-in> samsung 480", "name": "/dev/sdb"}),
            Some("sdb"),
        ),
        (json!({"model": "samsung mz7kh 480"}), Some("sda")),
        (json!({"serial": "<or> x <or> S-sdb"}), Some("sdb")),
        (json!({"wwn": "0x5000"}), None),
    ] {
        let parsed = Hints::parse(&hints).unwrap();
        let found = root_disk(&disks, Some(&parsed)).map(|d| d.name.trim_start_matches("/dev/"));
        assert_eq!(found, wanted, "{hints}");
    }
}

#[test]
fn a_hint_that_cannot_be_understood_is_refused() {
    for hints in [
        json!({"colour": "red"}),
        json!({"size": "large"}),
        json!({"rotational": "maybe"}),
        json!({"name": ""}),
        json!([]),
    ] {
        assert!(Hints::parse(&hints).is_err(), "{hints}");
    }
}

#[test]
fn what_differs_is_named() {
    let hints = Hints::parse(
        &json!({"size": ">= 900", "serial": "s== X", "hctl": "0:0:0:0", "rotational": "false"}),
    );
    let differences = hints.unwrap().differences(&disk("sda", 480));
    assert_eq!(
        differences,
        ["it has no hctl", "serial is `S-sda`", "size is 480 GiB"]
    );
}

#[test]
fn every_hint_of_metal3_is_one_of_ironic_and_is_understood() {
    let hints = RootDeviceHints {
        device_name: "/dev/vda".into(),
        hctl: "0:0:0:0".into(),
        model: "QEMU".into(),
        vendor: "V".into(),
        serial_number: "S".into(),
        min_size_gigabytes: Some(8),
        wwn: "0x1".into(),
        wwn_with_extension: "0x12".into(),
        wwn_vendor_extension: "0x2".into(),
        rotational: Some(false),
    };
    let words = root_device(&hints).unwrap();
    assert_eq!(
        words,
        json!({
            "name": "s== /dev/vda", "hctl": "s== 0:0:0:0", "model": "<in> QEMU", "vendor": "<in> V", "serial": "s== S", "size": ">= 8",
            "wwn": "s== 0x1", "wwn_with_extension": "s== 0x12", "wwn_vendor_extension": "s== 0x2", "rotational": "false",
        })
    );
    assert!(Hints::parse(&words).is_ok());
    let by_path = "/dev/disk/by-path/pci-0000:00:1f.2-ata-3";
    let hints = RootDeviceHints {
        device_name: by_path.into(),
        ..RootDeviceHints::default()
    };
    let words = root_device(&hints).unwrap();
    assert_eq!(words, json!({"by_path": format!("s== {by_path}")}));
    assert_eq!(root_device(&RootDeviceHints::default()), None);
}

proptest! {
    #[test]
    fn any_hint_is_understood_or_refused_with_its_name(
        key in prop_oneof![Just("size"), Just("rotational"), Just("model"), Just("serial"), Just("odd")],
        operator in "(s==|s<|==|>=|<in>|<or>|<all-in>)?",
        value in ".{0,12}",
        size: u64,
    ) {
        match Hints::parse(&json!({key: format!("{operator} {value}")})) {
            Ok(hints) => {
                let disk = Disk { size, model: value, ..Disk::default() };
                root_disk(&[disk], Some(&hints));
            }
            Err(why) => prop_assert!(why.contains(key), "{why}"),
        }
    }
}
