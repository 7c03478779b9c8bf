#![allow(clippy::unwrap_used)]
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn good() -> Value {
    json!({
        "bootMac": "52:54:00:00:00:01", "bootId": "a-1", "address": "172.22.0.9",
        "inventory": {
            "disks": [{"name": "/dev/vda", "size": 8, "serial": "S1"}],
            "boot": {"current_boot_mode": "uefi"},
        },
        "disks": [{"name": "/dev/vda", "sizeBytes": 8, "signatures": ["gpt"]}],
        "lookup": "notAsked", "tpm": {"state": "absent"}, "session": "ab", "sequence": 3,
    })
}

fn parse(value: &Value) -> Result<Report, ReportError> {
    Report::parse(&serde_json::to_vec(value).unwrap())
}

fn with(pointer: &str, value: Value) -> Value {
    let mut report = good();
    *report.pointer_mut(pointer).unwrap() = value;
    report
}

#[test]
fn a_report_is_kept_as_far_as_it_is_used() {
    let report = parse(&good()).unwrap();
    assert_eq!(report.inventory.boot_mode, "uefi");
    assert_eq!(report.inventory.hardware.storage[0].serial_number, "S1");
    let fresh = Fresh {
        session: "ab".into(),
        sequence: 3,
    };
    assert_eq!((report.fresh, report.tpm), (fresh, Tpm::Absent));
}

#[test]
fn a_ramdisk_that_does_not_know_of_tpms_says_nothing_of_its_own() {
    let mut old = good();
    old.as_object_mut().unwrap().remove("tpm");
    assert_eq!(parse(&old).unwrap().tpm, Tpm::Unsaid);
    let evil = json!({"state": "silent", "reason": format!("\u{1b}[2J{}", "x".repeat(300))});
    let Tpm::Silent { reason } = parse(&with("/tpm", evil)).unwrap().tpm else {
        panic!("it is silent")
    };
    assert!(reason.chars().count() == 256 && !reason.chars().any(char::is_control));
}

#[test]
fn more_than_any_server_has_is_refused_with_a_sentence() {
    let disk = json!({"name": "/dev/vda", "sizeBytes": 8, "signatures": []});
    for (report, sentence) in [
        (
            with("/disks", json!(vec![disk; 129])),
            "129 disks; at most 128 are taken",
        ),
        (
            with("/inventory/disks", json!(vec![json!({}); 129])),
            "129 disks; at most 128 are taken",
        ),
        (
            with("/disks/0/signatures", json!(vec!["x"; 33])),
            "33 signatures on a disk; at most 32 are taken",
        ),
        (
            with("/disks/0/sizeBytes", json!(u64::MAX)),
            "sizeBytes is not what it has to be",
        ),
        (
            with("/bootMac", json!("x")),
            "bootMac is not what it has to be",
        ),
        (
            with("/bootId", json!("a b")),
            "bootId is not what it has to be",
        ),
        (
            with("/address", json!("::1")),
            "address is not what it has to be",
        ),
        (
            with("/session", json!("\u{1b}[2J")),
            "session is not what it has to be",
        ),
    ] {
        assert_eq!(parse(&report).unwrap_err().to_string(), sentence);
    }
    let long = Report::parse(&vec![b' '; LARGEST_REPORT + 1]).unwrap_err();
    assert!(long.to_string().contains("bytes in a report"), "{long}");
}

#[test]
fn a_text_is_cut_and_obeyed_by_no_terminal() {
    let evil = format!("/dev/\u{1b}[2Jvda\n\u{202e}{}", "x".repeat(300));
    let report = parse(&with("/disks/0/name", json!(evil))).unwrap();
    let name = &report.disks[0].name;
    assert!(
        name.chars().count() == 256 && !name.chars().any(char::is_control),
        "{name}"
    );
    assert!(!name.contains('\u{202e}'));
    let report = parse(&with("/inventory/disks/0/serial", json!(evil))).unwrap();
    let serial = &report.inventory.hardware.storage[0].serial_number;
    assert!(serial.chars().count() == 256 && !serial.chars().any(char::is_control));
}

#[test]
fn a_number_is_never_larger_than_kubernetes_can_hold() {
    let report = parse(&with("/inventory/disks/0/size", json!(u64::MAX))).unwrap();
    assert_eq!(
        report.inventory.hardware.storage[0].size_bytes,
        i64::MAX.unsigned_abs()
    );
}

/// Any JSON up to a few levels.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 32, 6, |inner| {
        let names = prop_oneof![
            Just("disks"),
            Just("interfaces"),
            Just("cpu"),
            Just("flags"),
            Just("boot"),
            Just("system_vendor"),
            Just("firmware"),
            Just("size"),
            Just("frequency"),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(names.prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn any_inventory_is_taken_or_refused_and_is_valid_json_after(inventory in any_json()) {
        if let Ok(report) = parse(&with("/inventory", inventory)) {
            let json = serde_json::to_string(&*report.inventory.hardware).unwrap();
            let again: HardwareDetails = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(again, (*report.inventory.hardware).clone());
            let is_short = |text: &String| text.chars().count() <= 256 && !text.contains(char::is_control);
            for disk in report.inventory.disks {
                let texts = [Some(disk.name), Some(disk.model), disk.serial, disk.wwn, disk.by_path, disk.tran];
                prop_assert!(texts.iter().flatten().all(is_short), "{texts:?}");
            }
        }
    }

    #[test]
    fn any_frequency_is_one_that_json_carries(frequency in prop_oneof![0.0..2e6_f64, any::<f64>()]) {
        let report = parse(&with("/inventory", json!({"cpu": {"frequency": frequency.to_string()}}))).unwrap();
        let json = serde_json::to_string(&*report.inventory.hardware).unwrap();
        let again: HardwareDetails = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(again, (*report.inventory.hardware).clone());
    }

    #[test]
    fn any_bytes_are_a_post_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Report::parse(&body), Progress::parse(&body), Reply::parse(&body));
    }

    /// Also where a word is wrong that the refusal quotes.
    #[test]
    fn a_refusal_is_a_short_line(word in ".{0,8}", times in 1..400_usize, field in 0..3_usize) {
        let long = json!(word.repeat(times));
        let report = with(["/lookup", "/disks", "/sequence"][field], long.clone());
        let progress = json!({"bootMac": "52:54:00:00:00:01", "bootId": "a", "phase": long});
        let reply = json!({"session": "ab", "action": long});
        let bytes = |value: &Value| serde_json::to_vec(value).unwrap();
        let refused = [
            Report::parse(&bytes(&report)).unwrap_err(),
            Progress::parse(&bytes(&progress)).unwrap_err(),
            Reply::parse(&bytes(&reply)).unwrap_err(),
        ];
        for error in refused {
            let sentence = error.to_string();
            prop_assert!(sentence.chars().count() < 1100 && !sentence.contains(char::is_control), "{sentence}");
        }
    }

    #[test]
    fn progress_and_its_reply_come_back_as_they_were_said(bytes: u64, total: u64, seconds: u32, sequence: u64, session in "[0-9a-f]{0,64}", reason in "\\PC{0,40}") {
        let fresh = Fresh { session: session.clone(), sequence };
        for phase in [Phase::Writing { bytes, total }, Phase::Failed { reason: bounded::text(&reason) }, Phase::ConfigDrive] {
            let said = Progress { boot_mac: "52:54:00:00:00:01".into(), boot_id: "a-1".into(), phase, fresh: fresh.clone() };
            prop_assert_eq!(Progress::parse(&serde_json::to_vec(&said).unwrap()).unwrap(), said);
        }
        let directive = Directive::Wait { seconds, reason: bounded::text(&reason) };
        let said = Reply { session, directive };
        prop_assert_eq!(Reply::parse(&serde_json::to_vec(&said).unwrap()).unwrap(), said);
    }

    #[test]
    fn a_reply_fits_onto_a_screen_and_into_a_post(session in "[0-9a-f]{0,80}|.{0,8}", reason in ".{0,8}", times in 0..400_usize) {
        let reply = json!({"session": session, "action": "wait", "seconds": 5, "reason": reason.repeat(times)});
        let Ok(Reply { session, directive: Directive::Wait { reason, .. } }) = Reply::parse(&serde_json::to_vec(&reply).unwrap()) else {
            return Ok(());
        };
        prop_assert!(session.len() <= 64 && session.bytes().all(|byte| byte.is_ascii_hexdigit()));
        prop_assert!(reason.chars().count() <= 1000 && !reason.contains(char::is_control));
    }
}
