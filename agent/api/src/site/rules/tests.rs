#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;
use crate::status::DiskSummary;

fn server() -> HardwareSummary {
    HardwareSummary {
        vendor: "Dell Inc.".into(),
        model: "PowerEdge R650 (SKU=0A)".into(),
        serial: "7XK9Q3".into(),
        cpus: 64,
        memory_mib: 65_240,
        nics: 4,
        nic_gbps: 25,
        disks: vec![DiskSummary::default(); 2],
        disk_gb: 480,
        ..HardwareSummary::default()
    }
}

fn mac() -> MacAddr {
    "52:54:00:12:34:56".parse().unwrap()
}

fn number(fact: NumberFact, span: &str) -> Condition {
    Condition::Number(fact, span.parse().unwrap())
}

fn text(fact: TextFact, patterns: &[&str]) -> Condition {
    let patterns = patterns.iter().map(|text| Pattern::parse(text).unwrap());
    Condition::Text(fact, patterns.collect())
}

#[test]
fn the_table_of_conditions() {
    use NumberFact::{Cpus, DiskSize, Disks, Memory, NicSpeed, Nics};
    use TextFact::{Mac, Product, Serial, Vendor};
    for (condition, holds) in [
        (text(Mac, &["52:54:00:*"]), true),
        (text(Mac, &["52:54:00:12:34:57"]), false),
        (text(Serial, &["7xk9q3"]), true),
        (text(Serial, &["7XK9Q"]), false),
        (text(Serial, &["other", "*Q3"]), true),
        (text(Vendor, &["dell*"]), true),
        (text(Product, &["*r650*0a)"]), true),
        (text(Product, &["*r650*r650*"]), false),
        (text(Product, &["*"]), true),
        (number(Cpus, "64"), true),
        (number(Cpus, "65+"), false),
        (number(Memory, "64"), true),
        (number(Memory, "128+"), false),
        (number(Nics, "2-4"), true),
        (number(NicSpeed, "10+"), true),
        (number(Disks, "0-1"), false),
        (number(DiskSize, "400+"), true),
    ] {
        assert_eq!(
            condition.holds(mac(), &server()).is_ok(),
            holds,
            "{condition:?}"
        );
    }
    let why = number(Cpus, "128+").holds(mac(), &server());
    assert_eq!(why.unwrap_err(), "cpus is 64, not 128+");
    let why = text(Vendor, &["HPE", "Lenovo*"]).holds(mac(), &server());
    assert_eq!(
        why.unwrap_err(),
        "vendor is `Dell Inc.`, not hpe or lenovo*"
    );
}

#[test]
fn names_are_made_of_what_firmware_says() {
    let name = |pattern: &str, hardware: &HardwareSummary| {
        let pattern = NamePattern::parse(pattern).unwrap();
        pattern
            .fill(mac(), hardware, 7)
            .map(|name| name.to_string())
    };
    let good = server();
    assert_eq!(name("node-{serial}", &good).unwrap(), "node-7xk9q3");
    assert_eq!(
        name("{product}-{mac}", &good).unwrap(),
        "poweredge-r650-sku-0a-525400123456"
    );
    assert_eq!(name("gateway", &good).unwrap(), "gateway");
    assert_eq!(name("worker-{n}", &good).unwrap(), "worker-7");
    assert_eq!(
        name("{product}-{n}", &good).unwrap(),
        "poweredge-r650-sku-0a-7"
    );
    assert!(NamePattern::parse("worker-{n}").unwrap().is_numbered());
    assert!(!NamePattern::parse("node-{serial}").unwrap().is_numbered());
    // Five digits have to have room.
    assert!(NamePattern::parse(&format!("{}-{{n}}", "x".repeat(58))).is_err());
    let silent = HardwareSummary {
        serial: " - ".into(),
        model: "x".repeat(80),
        ..server()
    };
    assert!(
        name("node-{serial}", &silent)
            .unwrap_err()
            .contains("says no serial")
    );
    assert!(
        name("{product}", &silent)
            .unwrap_err()
            .contains("at most 63")
    );
    for wrong in ["Node", "n_{serial}", "{number}", "{serial", "-{mac}", ""] {
        assert!(NamePattern::parse(wrong).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn whatever_firmware_says_a_name_is_a_name_or_refused(
        pattern in "[a-z{}-]{0,12}(\\{serial\\})?(\\{product\\})?[a-z]?",
        serial in any::<String>(),
        model in any::<String>(),
    ) {
        let hardware = HardwareSummary { model, serial, ..HardwareSummary::default() };
        if let Ok(pattern) = NamePattern::parse(&pattern)
            && let Ok(name) = pattern.fill(mac(), &hardware, 7)
        {
            prop_assert_eq!(HostName::parse(name.as_str()), Ok(name.clone()));
        }
    }

    #[test]
    fn a_star_stands_for_anything(head in "[a-c]{0,3}", middle in "[a-c]{0,6}", tail in "[a-c]{0,3}") {
        let whole = format!("{head}{middle}{tail}");
        for pattern in [format!("{head}*{tail}"), format!("*{middle}*"), whole.clone()] {
            prop_assert!(Pattern(pattern).fits(&whole.to_uppercase()));
        }
    }

    #[test]
    fn a_span_is_read_as_it_is_written(text in "[0-9]{1,4}([+]|-[0-9]{1,4})?") {
        if let Ok(span) = text.parse::<Span>() {
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }
    }
}
