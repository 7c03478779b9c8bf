//! Objects that `clusterctl move` takes to another management cluster, or brings from there.

use firstlight_api::bmh::{
    BareMetalHostStatus, Image, ProvisioningState, SPEC_HONOURED, annotations,
};

use super::{
    life::{Machine, is_in},
    *,
};

/// As our machines controller pauses the host of a paused cluster.
fn pause(site: &Site) {
    site.store.change(NAME, |object| {
        let status = serde_json::to_string(&object.status).unwrap();
        let said = &mut object.metadata.annotations;
        said.insert(annotations::PAUSED.into(), "metal3.io/capm3".into());
        said.insert(annotations::STATUS.into(), status);
    });
}

/// A server with a system, and its object as it is then.
async fn installed() -> (Site, Machine, BareMetalHost) {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut machine = Machine::new(&site);
    let runs = |site: &Site, _: &Machine| is_in(site, ProvisioningState::Provisioned);
    machine.until("installed", &mut site, runs).await;
    pause(&site);
    site.pass(ROUND).await;
    let object = site.store.only().unwrap();
    (site, machine, object)
}

async fn rounds(site: &mut Site, machine: &mut Machine) {
    for _ in 0..60 {
        machine.step(site).await;
        site.pass(ROUND).await;
    }
}

#[tokio::test]
async fn a_host_that_is_moved_away_is_neither_cleaned_nor_made_again() {
    let (mut site, mut machine, _) = installed().await;
    // `clusterctl` writes this over all annotations, deletes, and takes the finalizers off.
    site.store.change(NAME, |object| {
        let said = &mut object.metadata.annotations;
        said.clear();
        said.insert(annotations::DELETED_FOR_MOVE.into(), String::new());
        object.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".into());
    });
    rounds(&mut site, &mut machine).await;
    assert_eq!(site.ironic.state(&node()), Some(ProvisionState::Active));
    for restarts in [false, true] {
        if restarts {
            site.restart_controller();
            site.come_up();
        }
        site.store.objects.lock().unwrap().clear();
        rounds(&mut site, &mut machine).await;
        assert_eq!(site.store.only(), None, "others have it now");
        assert_eq!(site.ironic.state(&node()), None);
        let asks = Event::Dhcp {
            mac: mac(),
            arch: Some(firstlight_netboot::ClientArch::UefiX64),
            address: None,
        };
        site.take(asks).await;
        site.pass(ROUND).await;
        assert_eq!(site.boot_target(), BootTarget::Disk);
        assert_eq!((machine.writes, site.ironic.cleans(&node())), (1, 0));
        assert!(site.problem().contains("moved"), "{}", site.told());
    }
}

#[tokio::test]
async fn a_pause_that_ends_leaves_everything_as_it_was() {
    let (mut site, mut machine, _) = installed().await;
    site.store.change(NAME, |object| {
        object.metadata.annotations.remove(annotations::PAUSED);
    });
    rounds(&mut site, &mut machine).await;
    let object = site.store.only().unwrap();
    assert_eq!(
        object.metadata.annotations.get(annotations::STATUS),
        None,
        "its status is where it belongs"
    );
    assert_eq!(machine.writes, 1);
    site.store.objects.lock().unwrap().clear();
    rounds(&mut site, &mut machine).await;
    assert!(site.store.only().is_some(), "an object that got lost");
}

#[tokio::test]
async fn a_host_that_is_moved_here_is_taken_over_as_it_is() {
    let (_, _, object) = installed().await;
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut machine = Machine::new(&site);
    machine.server.signatures = vec!["gpt".into()];
    site.store.change(NAME, |moved| {
        moved.metadata.annotations = object.metadata.annotations.clone();
        moved.spec = object.spec.clone();
    });
    site.pass(ROUND).await;
    let paused = site.store.only().unwrap();
    assert_eq!(paused.status, None, "nobody touches it yet");
    site.store.change(NAME, |moved| {
        moved.metadata.annotations.remove(annotations::PAUSED);
    });
    rounds(&mut site, &mut machine).await;
    assert_eq!(site.ironic.state(&node()), Some(ProvisionState::Active));
    assert_eq!(site.boot_target(), BootTarget::Disk);
    assert_eq!((machine.writes, site.ironic.deploys(&node())), (0, 0));
    let found = site.store.only().unwrap();
    assert!(found.metadata.annotations.is_empty());
    let (before, after) = (object.status.unwrap(), found.status.unwrap());
    assert_eq!(after.hardware, before.hardware);
    assert_eq!(after.provisioning.image, before.provisioning.image);
    assert_eq!(
        after.operation_history.provision,
        before.operation_history.provision
    );
}

#[tokio::test]
async fn what_a_status_that_is_brought_says_of_others_is_not_believed() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    server
        .until("made", &mut site, |site| site.store.only().is_some())
        .await;
    site.pass(ROUND).await;
    // Its status is there: an annotation says nothing.
    let mut lie = BareMetalHostStatus::default();
    lie.provisioning.state = ProvisioningState::Provisioned;
    lie.provisioning.image = Some(Image::default());
    for said in [serde_json::to_string(&lie).unwrap(), "nonsense".to_owned()] {
        site.store.change(NAME, |object| {
            let annotations = &mut object.metadata.annotations;
            annotations.insert(annotations::STATUS.into(), said.clone());
        });
        for _ in 0..3 {
            site.pass(ROUND).await;
        }
        let object = site.store.only().unwrap();
        let status = object.status.unwrap();
        assert_ne!(status.provisioning.state, ProvisioningState::Provisioned);
        let stays = object
            .metadata
            .annotations
            .contains_key(annotations::STATUS);
        assert_eq!(stays, said == "nonsense");
        let honoured = status.conditions.iter().find(|it| it.kind == SPEC_HONOURED);
        let message = &honoured.unwrap().message;
        assert_eq!(message.contains("no status of a host"), stays, "{message}");
    }
}
