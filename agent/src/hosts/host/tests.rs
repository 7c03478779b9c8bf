#![allow(clippy::unwrap_used)]
use firstlight_api::{
    bmh::BareMetalHostSpec,
    report::{DiskSignatures, Fresh, Inventory, LookupState},
    tpm::Tpm,
};

use super::*;
use crate::hosts::{ledger::Deployment, tests::a_host};

fn at(standing: Standing, image: &NodeImage) -> Site<'_> {
    Site {
        unclaimed: SitePolicy::Plain,
        image: Ok(image),
        uploads: &[],
        box_http: "http://box",
        ironic_known: true,
        standing,
        join: JoinPolicy::Open,
    }
}

fn host(policy: InstallPolicy, ledger: Ledger) -> Host {
    let mut host = a_host(ledger);
    host.rules.policy = policy;
    host
}

#[test]
fn while_the_sites_file_cannot_be_used_nothing_is_installed_and_no_data_are_handed_out() {
    let image = NodeImage {
        name: "node".into(),
        sha256: "ab".into(),
        bytes: 1000,
        ..NodeImage::default()
    };
    let now = Duration::from_secs(1);
    let mut newcomer = host(InstallPolicy::Wipe, Ledger::default());
    let report = Report {
        boot_mac: "52:54:00:00:00:01".into(),
        boot_id: "1".into(),
        address: String::new(),
        inventory: Inventory::default(),
        disks: vec![DiskSignatures {
            name: "/dev/sda".into(),
            size_bytes: 1 << 40,
            signatures: vec![],
            ..DiskSignatures::default()
        }],
        lookup: LookupState::NotAsked,
        tpm: Tpm::default(),
        fresh: Fresh::default(),
    };
    newcomer.reported(report, false, now);
    // Ahead of its claim, and claimed meanwhile.
    let deployment = Deployment {
        image: image.published("http://box"),
        token: Some("digest".into()),
        written: true,
        ..Deployment::default()
    };
    let ledger = Ledger {
        deployment: Some(deployment),
        ..Ledger::default()
    };
    let mut staged = host(InstallPolicy::Blank, ledger);
    let node = serde_json::json!({"uuid": "u", "name": "n1", "provision_state": "active", "power_state": "power on", "extra": {},
        "target_provision_state": null, "last_error": null, "reservation": null});
    staged.node = Some(serde_json::from_value(node).unwrap());
    let spec = BareMetalHostSpec {
        online: true,
        image: Some(image.published("http://box")),
        ..BareMetalHostSpec::default()
    };
    staged.object = Some(BareMetalHost::new("n1", "metal3-system", spec));

    let mut planned = |standing| {
        let site = at(standing, &image);
        newcomer.replan(&site, now);
        staged.replan(&site, now);
        let action = newcomer.plan().cloned().unwrap().action;
        (action, staged.plan().cloned().unwrap().deliver)
    };
    for held in [Standing::LastGood, Standing::Unknown] {
        assert_eq!(planned(held), (None, false), "{held:?}");
    }
    assert_eq!(
        planned(Standing::Current),
        (Some(Action::Register), true),
        "or this test shows nothing"
    );
}
