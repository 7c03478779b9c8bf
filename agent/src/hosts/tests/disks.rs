//! Which disk of several is written, said before it is, and which are erased when their server is given back.

use firstlight_api::{
    bmh::{ConditionStatus, ROOT_DISK, RaidConfig, RootDeviceHints, SPEC_HONOURED},
    order::{DiskPolicy, DiskScope},
    report::DiskSignatures,
    site::parse_site,
    status::RootDiskState,
};
use serde_json::json;

use super::{
    life::{Machine, shows},
    server::its_disk,
    *,
};

/// Beside `/dev/vda`, and larger.
fn other(signatures: &[&str]) -> DiskSignatures {
    DiskSignatures {
        name: "/dev/vdb".into(),
        size_bytes: 16 << 30,
        serial: Some("OTHER".into()),
        signatures: signatures.iter().map(|kind| (*kind).to_owned()).collect(),
        ..DiskSignatures::default()
    }
}

/// Of its object: status, reason and message.
fn condition(site: &Site) -> Option<(ConditionStatus, String, String)> {
    let conditions = site.store.only()?.status?.conditions;
    let found = conditions.into_iter().find(|one| one.kind == ROOT_DISK)?;
    Some((found.status, found.reason, found.message))
}

fn has_reason(reason: &str) -> impl Fn(&Site, &Machine) -> bool {
    move |site, _| condition(site).is_some_and(|(_, found, _)| found == reason)
}

/// Its system is not wanted any more, and a person starts it from the network.
async fn come_back(site: &mut Site, machine: &mut Machine) {
    site.store.change(NAME, |object| object.spec.image = None);
    let away = |site: &Site| site.state() == Some(HostState::Deprovisioning);
    site.wait_for("not wanted any more", away).await;
    machine.server.power_cycle();
    machine.runs_disk = false;
    let clean = |site: &Site, _: &Machine| {
        site.ironic.cleans(&node()) == 1 && shows(site, HostState::Available)
    };
    machine.until("clean", site, clean).await;
}

#[tokio::test]
async fn a_disk_that_a_person_names_is_written_beside_data_and_it_alone_is_erased() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut machine = Machine::new(&site);
    machine.server.others = vec![other(&["LVM2_member"])];
    machine
        .until("left alone", &mut site, has_reason("NoneChosen"))
        .await;
    let (status, _, says) = condition(&site).unwrap();
    assert_eq!(status, ConditionStatus::False);
    let expected = "writes no disk; `install: wipe` would write /dev/vda (8 GB, without a serial number): the smallest of 2 disks: its disk \
                    /dev/vdb is not blank: LVM2_member found; nothing, if its data matters";
    assert!(says.starts_with(expected), "{says}");
    assert_eq!(site.ironic.state(&node()), None);

    let named = |name: &str| {
        Some(RootDeviceHints {
            device_name: name.to_owned(),
            ..RootDeviceHints::default()
        })
    };
    site.store.change(NAME, |object| {
        object.spec.root_device_hints = named("/dev/vdb");
    });
    let refused = |site: &Site, _: &Machine| {
        site.problem()
            .contains("mean, /dev/vdb (17 GB, serial OTHER), is not blank")
    };
    machine.until("refused", &mut site, refused).await;
    site.store.change(NAME, |object| {
        object.spec.root_device_hints = named("/dev/vda");
    });
    machine
        .until("chosen", &mut site, has_reason("Chosen"))
        .await;
    let disk = "/dev/vda (8 GB, without a serial number): the one that its `rootDeviceHints` mean";
    assert_eq!(condition(&site).unwrap().2, format!("would write {disk}"));
    assert_eq!(site.ironic.deploys(&node()), 0, "said before it is done");

    machine
        .until("writing", &mut site, has_reason("Writing"))
        .await;
    assert_eq!(condition(&site).unwrap().2, format!("writes {disk}"));
    let order = ordered(&site).await.unwrap();
    assert_eq!(
        (order.policy, order.scope),
        (DiskPolicy::Blank, DiskScope::Root)
    );
    assert_eq!(
        (order.disks, order.root.unwrap().name),
        (vec![its_disk()], "/dev/vda".to_owned())
    );
    let known = site.ironic.client().node(&node()).await.unwrap();
    assert_eq!(
        known.instance_info["root_device"],
        json!({"name": "s== /dev/vda"})
    );

    machine
        .until("written", &mut site, has_reason("Written"))
        .await;
    let root = site.host().unwrap().root_disk.unwrap();
    assert_eq!(
        (root.state, root.says),
        (RootDiskState::Wrote, format!("wrote {disk}"))
    );
    let provisioned = |site: &Site, _: &Machine| shows(site, HostState::Provisioned);
    machine.until("provisioned", &mut site, provisioned).await;
    site.pass(ROUND).await;
    let status = site.store.only().unwrap().status;
    assert_eq!(
        status.as_ref().unwrap().provisioning.root_device_hints,
        named("/dev/vda")
    );
    for _ in 0..20 {
        site.pass(ROUND).await;
    }
    let later = site.store.only().unwrap().status;
    assert_eq!(later, status, "nothing new, nothing written");
    // Also without a report.
    site.restart_controller();
    site.come_up();
    site.pass(ROUND).await;
    assert_eq!(condition(&site).unwrap().2, format!("wrote {disk}"));

    come_back(&mut site, &mut machine).await;
    let order = ordered(&site).await.unwrap();
    assert_eq!(
        (order.policy, order.disks),
        (DiskPolicy::GiveBack, vec![its_disk()])
    );
    assert_eq!(machine.server.others[0].signatures, ["LVM2_member"]);
}

#[tokio::test]
async fn a_rule_says_what_giving_back_erases() {
    for (clean, erased) in [("root", 1), ("all", 2)] {
        let mut site = Site::start(SitePolicy::Plain).await;
        let file = format!("cluster: none\nrules: [{{match: any, clean: {clean}}}]\n");
        site.settings.site = Arc::new(parse_site(file).unwrap());
        site.restart_controller();
        site.come_up();
        let mut machine = Machine::new(&site);
        machine.erased = erased;
        machine.server.others = vec![other(&[])];
        machine
            .until("written", &mut site, has_reason("Written"))
            .await;
        let provisioned = |site: &Site, _: &Machine| shows(site, HostState::Provisioned);
        machine.until("provisioned", &mut site, provisioned).await;
        assert_eq!(
            condition(&site).unwrap().2,
            "wrote /dev/vda (8 GB, without a serial number): the smallest of 2 disks"
        );
        // Its system has used the other one, too.
        machine.server.others = vec![other(&["ceph_bluestore"])];
        come_back(&mut site, &mut machine).await;
        assert_eq!(ordered(&site).await.unwrap().disks.len(), erased);
    }
}

#[tokio::test]
async fn a_rule_makes_two_disks_a_mirror_which_is_said_before_and_both_are_erased() {
    let mut site = super::rules::site("- {match: any, rootDisk: {mirror: true}}\n").await;
    let mut machine = Machine::new(&site);
    machine
        .until("one disk", &mut site, has_reason("NoneChosen"))
        .await;
    let (_, _, says) = condition(&site).unwrap();
    assert!(says.contains("a mirror needs two disks"), "{says}");
    assert!(says.contains("and only /dev/vda (8 GB"), "{says}");
    assert_eq!(site.ironic.deploys(&node()), 0);

    machine.server.others = vec![other(&[])];
    machine.erased = 2;
    machine
        .until("writing", &mut site, has_reason("Writing"))
        .await;
    let disks = "/dev/vda (8 GB, without a serial number) and /dev/vdb (17 GB, serial OTHER) as a mirror: the only two disks; of \
                 /dev/vdb as much is used as /dev/vda has";
    assert_eq!(condition(&site).unwrap().2, format!("writes {disks}"));
    let order = ordered(&site).await.unwrap();
    let roots: Vec<&str> = order.roots().map(|root| root.name.as_str()).collect();
    assert_eq!(roots, ["/dev/vda", "/dev/vdb"]);
    assert_eq!((order.scope, order.disks.len()), (DiskScope::Server, 2));
    machine
        .until("written", &mut site, has_reason("Written"))
        .await;
    let provisioned = |site: &Site, _: &Machine| shows(site, HostState::Provisioned);
    machine.until("provisioned", &mut site, provisioned).await;
    // Nothing of what its object asks for was left out.
    let object = site.store.only().unwrap();
    assert_eq!(object.spec.raid, Some(RaidConfig::mirror()));
    let status = object.status.unwrap();
    assert_eq!(status.provisioning.raid, object.spec.raid);
    let honoured = status
        .conditions
        .iter()
        .find(|one| one.kind == SPEC_HONOURED);
    assert!(honoured.is_none_or(|one| one.status == ConditionStatus::True));
    site.restart_controller();
    site.come_up();
    site.pass(ROUND).await;
    assert_eq!(condition(&site).unwrap().2, format!("wrote {disks}"));

    // The second half has died since, and a new disk is in its place.
    let deployment = order.deployment;
    machine.server.others = vec![DiskSignatures {
        serial: Some("NEW".into()),
        ..other(&["linux_raid_member"])
    }];
    machine.erased = 1;
    come_back(&mut site, &mut machine).await;
    let order = ordered(&site).await.unwrap();
    assert_eq!(
        (order.policy, order.deployment),
        (DiskPolicy::GiveBack, deployment)
    );
    assert_eq!((order.disks, order.mirror), (vec![its_disk()], None));
}
