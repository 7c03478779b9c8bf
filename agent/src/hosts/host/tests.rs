#![allow(clippy::unwrap_used)]
use firstlight_api::{
    bmh::BareMetalHostSpec,
    capm3::CONTROL_PLANE_ANNOTATION,
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
        networks: None,
    }
}

fn host(policy: InstallPolicy, ledger: Ledger) -> Host {
    let mut host = a_host(ledger);
    host.rules.policy = policy;
    host
}

fn image() -> NodeImage {
    NodeImage {
        name: "node".into(),
        sha256: "ab".into(),
        bytes: 1000,
        ..NodeImage::default()
    }
}

fn staged(image: &NodeImage) -> Deployment {
    Deployment {
        image: image.published("http://box"),
        token: Some("digest".into()),
        written: true,
        ..Deployment::default()
    }
}

/// Its system waits for its data.
fn claimed(ledger: Ledger, image: &NodeImage) -> Host {
    let mut staged = host(InstallPolicy::Blank, ledger);
    let node = serde_json::json!({"uuid": "u", "name": "n1", "provision_state": "active", "power_state": "power on", "extra": {},
        "target_provision_state": null, "last_error": null, "reservation": null});
    staged.node = Some(serde_json::from_value(node).unwrap());
    let spec = BareMetalHostSpec {
        online: true,
        image: Some(image.published("http://box")),
        ..BareMetalHostSpec::default()
    };
    staged.object = Some(BareMetalHost::new("n1", "metal3-system", spec).into());
    staged
}

/// It was claimed while it was trusted; another machine has had its disk written since.
#[test]
fn a_control_planes_data_are_for_who_is_trusted_at_that_moment() {
    let image = image();
    let key = |number: u8| PublicKey::new([number; 32]).to_string();
    for (wrote, role, delivers) in [
        (1, Some(CONTROL_PLANE_ANNOTATION), true),
        (2, Some(CONTROL_PLANE_ANNOTATION), false),
        (2, None, true),
    ] {
        let deployment = Deployment {
            key: Some(key(wrote)),
            ..staged(&image)
        };
        let ledger = Ledger {
            known: Some(key(1)),
            deployment: Some(deployment),
            ..Ledger::default()
        };
        let mut host = claimed(ledger, &image);
        let object = Arc::make_mut(host.object.as_mut().unwrap());
        let role = role.map(|name| (name.to_owned(), String::new()));
        object.metadata.annotations.extend(role);
        host.replan(&at(Standing::Current, &image), Duration::from_secs(1));
        let plan = host.plan().unwrap();
        assert_eq!(plan.deliver, delivers, "{wrote}");
        let told = plan.problem.as_ref().map(|problem| problem.what.as_str());
        let is_told = told.is_some_and(|what| what.contains("gets no keys of the cluster"));
        assert_eq!(is_told, !delivers, "{told:?}");
    }
}

#[test]
fn while_the_sites_file_cannot_be_used_nothing_is_installed_and_no_data_are_handed_out() {
    let image = image();
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
        follows: Vec::new(),
        fresh: Fresh::default(),
    };
    newcomer.reported(report, &[], false, now);
    // Ahead of its claim, and claimed meanwhile.
    let ledger = Ledger {
        deployment: Some(staged(&image)),
        ..Ledger::default()
    };
    let mut staged = claimed(ledger, &image);

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
