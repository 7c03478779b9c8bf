//! What people ask of a host with annotations: taken once, or refused with a sentence.

use firstlight_api::{
    bmh::{SPEC_HONOURED, annotations::INSPECT},
    status::{DiskUse, FailedStep},
    verb::{RETRY_ANNOTATION, SPARE_ANNOTATION},
};
use firstlight_ironic::ProvisionTarget;

use super::{
    life::{Machine, claim, delete, let_go, shows},
    *,
};

fn annotate<L>(site: &Site<L>, name: &str, value: &str) {
    let said = (name.to_owned(), value.to_owned());
    site.store
        .change(NAME, |object| object.metadata.annotations.extend([said]));
}

fn has<L>(site: &Site<L>, name: &str) -> bool {
    let object = site.store.only();
    object.is_some_and(|object| object.metadata.annotations.contains_key(name))
}

fn failed<L: Luck>(site: &Site<L>) -> Option<FailedStep> {
    site.host()?.control.failed
}

/// Each deployment fails, until the box gives up.
async fn given_up(site: &mut Site, server: &mut Server) {
    for _ in 0..super::super::plan::MOST_ATTEMPTS {
        server.until_ironic(site, ProvisionState::DeployWait).await;
        site.ironic.fail_deploy(&node(), "the disk is broken");
        server
            .until("its failure is seen", site, |site| {
                failed(site) == Some(FailedStep::Installation)
            })
            .await;
    }
    let given_up = |site: &Site| shows(site, HostState::Failed);
    server.until("given up", site, given_up).await;
}

#[tokio::test]
async fn a_failed_installation_begins_again_at_once_on_a_persons_word_with_all_its_attempts() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    given_up(&mut site, &mut server).await;
    for restarts in [false, true] {
        let before = site.ironic.deploys(&node());
        annotate(&site, RETRY_ANNOTATION, "now");
        if restarts {
            // Noted, and the box loses its power before anything else.
            site.pass(Duration::ZERO).await;
            site.restart_controller();
        }
        let began = site.now;
        server
            .until_ironic(&mut site, ProvisionState::DeployWait)
            .await;
        let took = site.now.saturating_sub(began);
        assert!(took < Duration::from_mins(1), "no long pause");
        server
            .until("the word is taken", &mut site, |site| {
                !has(site, RETRY_ANNOTATION)
            })
            .await;
        assert!(!site.disk[&mac()].retry, "it holds for one try");
        assert_eq!(site.host().unwrap().control.disk, DiskUse::Writing);
        // Beside the write that is under way none is begun.
        annotate(&site, RETRY_ANNOTATION, "once more");
        server
            .until("refused", &mut site, |site| !has(site, RETRY_ANNOTATION))
            .await;
        let told = site.store.told.lock().unwrap().pop().unwrap();
        assert!(told.contains("a second one is not begun"), "{told}");
        assert_eq!(site.ironic.deploys(&node()), before + 1);
        site.ironic.fail_deploy(&node(), "it is still broken");
        given_up_after_two_more(&mut site, &mut server).await;
        assert_eq!(site.ironic.deploys(&node()), before + 3, "attempts are new");
    }
}

async fn given_up_after_two_more(site: &mut Site, server: &mut Server) {
    for _ in 0..2 {
        server.until_ironic(site, ProvisionState::DeployWait).await;
        site.ironic.fail_deploy(&node(), "it is still broken");
    }
    let given_up = |site: &Site| shows(site, HostState::Failed);
    server.until("given up again", site, given_up).await;
}

#[tokio::test]
async fn where_nothing_failed_a_retry_goes_with_an_event_that_says_why() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| shows(site, HostState::Staged);
    machine.until("staged", &mut site, staged).await;
    site.store.told.lock().unwrap().clear();
    annotate(&site, RETRY_ANNOTATION, "");
    machine
        .until("it is refused", &mut site, |site, _| {
            !has(site, RETRY_ANNOTATION)
        })
        .await;
    let told = site.store.told.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "once: {told:?}");
    assert!(
        told[0].starts_with(RETRY_ANNOTATION) && told[0].contains("no step of it has failed"),
        "{told:?}"
    );
    assert_eq!((machine.writes, site.ironic.deploys(&node())), (1, 1));
    // Nobody writes into a paused object; the word waits.
    annotate(&site, "baremetalhost.metal3.io/paused", "me");
    annotate(&site, RETRY_ANNOTATION, "");
    for _ in 0..5 {
        machine.step(&mut site).await;
        site.pass(ROUND).await;
    }
    assert!(has(&site, RETRY_ANNOTATION));
}

/// It reports, and takes no part in any inspection.
async fn listens_only(site: &mut Site, server: &Server) {
    site.report(server.speaker(), server.report()).await;
    site.pass(ROUND).await;
}

/// Its inspections fail until the box gives up.
async fn uninspected(site: &mut Site, server: &Server) {
    for _ in 0..ROUNDS {
        listens_only(site, server).await;
        if site.ironic.state(&node()) == Some(ProvisionState::InspectWait) {
            let client = site.ironic.client();
            client
                .provision(&node(), &ProvisionTarget::Abort)
                .await
                .unwrap();
        }
        if shows(site, HostState::Failed) {
            assert_eq!(failed(site), Some(FailedStep::Inspection));
            return;
        }
    }
    panic!("never given up; {}", site.told());
}

#[tokio::test]
async fn a_failed_inspection_begins_again_or_is_left_out() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let server = Server::new(site.ironic.client());
    uninspected(&mut site, &server).await;
    annotate(&site, RETRY_ANNOTATION, "");
    for _ in 0..ROUNDS {
        if site.ironic.state(&node()) == Some(ProvisionState::InspectWait) {
            break;
        }
        listens_only(&mut site, &server).await;
    }
    assert_eq!(
        site.ironic.state(&node()),
        Some(ProvisionState::InspectWait),
        "{}",
        site.told()
    );
    assert_eq!(site.disk[&mac()].inspections, 1, "counted anew");
    uninspected(&mut site, &server).await;
    annotate(&site, INSPECT, "disabled");
    let mut server = server;
    // It takes part in the installation.
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let known = site.ironic.client().node(&node()).await.unwrap();
    assert_eq!(known.inspection_finished_at, None);
    assert!(has(&site, INSPECT), "it is a state, not an order");
}

#[tokio::test]
async fn an_inspection_that_is_waited_for_is_ended_when_it_is_to_be_left_out() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Server::new(site.ironic.client());
    for _ in 0..ROUNDS {
        if site.ironic.state(&node()) == Some(ProvisionState::InspectWait) {
            break;
        }
        listens_only(&mut site, &server).await;
    }
    annotate(&site, INSPECT, "disabled");
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let known = site.ironic.client().node(&node()).await.unwrap();
    assert_eq!(known.inspection_finished_at, None);
}

#[tokio::test]
async fn a_spare_is_shown_as_one_and_on_a_host_in_use_the_annotation_is_named_as_ignored() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| shows(site, HostState::Staged);
    machine.until("staged", &mut site, staged).await;
    annotate(&site, SPARE_ANNOTATION, "kept for the next failure");
    let is_spare = |site: &Site| site.host().is_some_and(|host| host.control.spare);
    machine
        .until("shown", &mut site, |site, _| is_spare(site))
        .await;
    assert_eq!(site.state(), Some(HostState::Staged), "it stays as it is");
    let ignored = |site: &Site| {
        let status = site.store.only().and_then(|object| object.status);
        let conditions = status.map(|status| status.conditions).unwrap_or_default();
        let honoured = conditions.iter().find(|it| it.kind == SPEC_HONOURED);
        honoured.map(|it| it.message.clone()).unwrap_or_default()
    };
    assert_eq!(ignored(&site), "");
    claim(&site);
    machine
        .until("named", &mut site, |site, _| {
            ignored(site).contains("m1 has it already")
        })
        .await;
}

/// As `firstlight hosts forget NAME --force` does it.
#[tokio::test]
async fn a_dead_server_is_forgotten_within_a_minute_and_left_alone_when_it_comes_back() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| shows(site, HostState::Staged);
    machine.until("staged", &mut site, staged).await;
    claim(&site);
    machine
        .until("data", &mut site, |_, machine| machine.data.is_some())
        .await;
    // Its power is gone: it does nothing any more.
    annotate(
        &site,
        "baremetalhost.metal3.io/detached",
        r#"{"force": true}"#,
    );
    let_go(&site);
    delete(&site);
    let died = site.now;
    site.wait_for("gone", |site| {
        site.store.only().is_none() && site.ironic.state(&node()).is_none()
    })
    .await;
    assert!(site.now.saturating_sub(died) < Duration::from_mins(1));

    machine.switch_on(&site);
    assert!(!machine.runs_disk, "it comes up in the ramdisk");
    for restarts in [false, true] {
        if restarts {
            site.restart_controller();
        }
        let back = |site: &Site, _: &Machine| site.problem().contains("a person removed this host");
        machine.until("left alone", &mut site, back).await;
        for _ in 0..10 {
            machine.step(&mut site).await;
            site.pass(ROUND).await;
        }
        assert_eq!(site.state(), Some(HostState::Discovered));
        assert_eq!(site.ironic.state(&node()), None);
        assert_eq!(machine.writes, 1, "what is on its disk is still there");
    }
}
