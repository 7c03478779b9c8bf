#![allow(clippy::unwrap_used)]
use firstlight_api::site::parse_site;

use super::*;

#[test]
fn the_wires_host_stays_out_of_everybodys_way() {
    let plan = |text: &str| {
        plan_wire(&parse_site(text.as_bytes()).unwrap(), None)
            .host_address
            .to_string()
    };
    assert_eq!(plan(""), "172.22.0.2");
    assert_eq!(
        plan("provisioning: {address: 10.1.0.2/24, range: 10.1.0.3-10.1.0.9}"),
        "10.1.0.10"
    );
    assert_eq!(
        plan("hosts: [{mac: '52:54:00:00:00:01', address: 172.22.0.2}]"),
        "172.22.0.3"
    );
}

#[test]
fn what_a_killed_lab_left_is_removed_and_a_running_one_is_not() {
    let base = tempfile::tempdir().unwrap();
    let (dead, own) = (
        base.path().join("999999999-0"),
        base.path().join(format!("{}-0", std::process::id())),
    );
    for dir in [&dead, &own] {
        fs::create_dir(dir).unwrap();
    }
    sweep(base.path());
    assert!(!dead.exists() && own.exists());
}
