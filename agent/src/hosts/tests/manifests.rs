//! What people write by hand, before the server is there or after.

use firstlight_api::bmh::{
    BareMetalHost, ConditionStatus, FINALIZER, ProvisioningState, SPEC_HONOURED,
};

use super::{life::Machine, *};

/// As of a rack whose owner has used Metal3 before: in a namespace of its own, with a field that nobody here acts on.
fn manifest(site: &Site) {
    site.store.change("worker-0", |object| {
        object.metadata.namespace = "metal3".to_owned();
        object.spec.boot_mac_address = MAC.to_uppercase();
        object.spec.online = true;
        object.spec.architecture = "aarch64".to_owned();
    });
}

fn objects(site: &Site) -> Vec<Arc<BareMetalHost>> {
    site.store.objects.lock().unwrap().clone()
}

fn condition(object: &BareMetalHost, kind: &str) -> (ConditionStatus, String) {
    let conditions = &object.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|one| one.kind == kind).unwrap();
    (found.status, found.message.clone())
}

async fn rounds(site: &mut Site, machine: &mut Machine) {
    for _ in 0..20 {
        machine.step(site).await;
        site.pass(ROUND).await;
    }
}

#[tokio::test]
async fn a_manifest_takes_the_place_of_the_object_that_the_box_made() {
    for (servers_first, restart) in [(true, false), (true, true), (false, false)] {
        let mut site = Site::up(SitePolicy::Cluster).await;
        let mut machine = Machine::new(&site);
        if !servers_first {
            manifest(&site);
        }
        let staged = |site: &Site, _: &Machine| site.state() == Some(HostState::Staged);
        machine.until("staged", &mut site, staged).await;
        if servers_first {
            assert_eq!(objects(&site)[0].metadata.name, NAME);
            manifest(&site);
        }
        site.pass(ROUND).await;
        if restart {
            site.restart_controller();
        }
        rounds(&mut site, &mut machine).await;
        let case = format!("servers first: {servers_first}, restart: {restart}");
        let objects = objects(&site);
        assert_eq!(objects.len(), 1, "{case}: {objects:?}");
        let meta = &objects[0].metadata;
        assert_eq!(
            (meta.namespace.as_str(), meta.name.as_str()),
            ("metal3", "worker-0"),
            "{case}"
        );
        assert_eq!(meta.finalizers, [FINALIZER], "{case}");
        let status = objects[0].status.as_ref().unwrap();
        assert_eq!(
            status.provisioning.state,
            ProvisioningState::Available,
            "{case}"
        );
        let (honoured, why) = condition(&objects[0], SPEC_HONOURED);
        assert_eq!(honoured, ConditionStatus::False, "{case}");
        assert!(why.starts_with("spec.architecture: "), "{case}: {why}");
        assert_eq!(
            (machine.writes, site.ironic.cleans(&node())),
            (1, 0),
            "{case}"
        );
        assert_eq!(site.strays, Strays::default(), "{case}");
    }
}

#[tokio::test]
async fn an_object_that_somebody_wrote_into_is_not_replaced_and_the_other_is_told() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| site.state() == Some(HostState::Staged);
    machine.until("staged", &mut site, staged).await;
    site.store.change(NAME, |object| {
        object.spec.description = "the blue one".to_owned();
    });
    site.pass(ROUND).await;
    manifest(&site);
    rounds(&mut site, &mut machine).await;
    let objects = objects(&site);
    assert_eq!(objects.len(), 2);
    let (ready, why) = condition(&objects[1], "Ready");
    assert_eq!(ready, ConditionStatus::False);
    assert!(
        why.contains("kubectl delete bmh worker-0 -n metal3"),
        "{why}"
    );
    assert!(objects[1].metadata.finalizers.is_empty());
    assert_eq!(site.strays.problems.len(), 1);
}

#[tokio::test]
async fn an_object_that_names_no_server_is_told_so_and_goes_when_it_is_deleted() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    for (mac, says) in [
        ("", "does not say which server"),
        ("52:54", "`52:54`, which is no MAC address"),
    ] {
        site.store.change("worker-1", |object| {
            object.spec.boot_mac_address = mac.to_owned();
        });
        for _ in 0..3 {
            site.pass(ROUND).await;
        }
        let (ready, why) = condition(&objects(&site)[0], "Ready");
        assert_eq!(ready, ConditionStatus::False);
        assert!(
            why.contains(says) && why.contains("spec.bootMACAddress"),
            "{why}"
        );
        let told = &site.strays.problems[0].what;
        assert!(told.contains(says), "{told}");
    }
    // It was a host before somebody changed its address.
    site.store.change("worker-1", |object| {
        object.metadata.finalizers.push(FINALIZER.to_owned());
        object.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
    });
    for _ in 0..3 {
        site.pass(ROUND).await;
    }
    assert!(objects(&site).is_empty());
}
