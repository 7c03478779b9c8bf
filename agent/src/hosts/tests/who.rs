//! Lies: what somebody on the segment says in the name of a server that is there.

use firstlight_api::{capm3::CONTROL_PLANE_ANNOTATION, site::JoinPolicy};

use super::*;
use crate::hosts::{
    admission::Trust,
    host::Host,
    ledger::Deployment,
    who::{Claim, Patience},
};

/// Another machine that says it is the same server.
fn liar(site: &Site, server: &Server) -> Server {
    let mut liar = Server::new(site.ironic.client());
    liar.boot_id.clone_from(&server.boot_id);
    liar.key = 99;
    liar
}

async fn told(site: &mut Site, from: Speaker, report: Report) -> String {
    match site.report(from, report).await {
        Some(Directive::Wait { reason, .. }) => reason,
        other => panic!("believed: {other:?}"),
    }
}

#[tokio::test]
async fn forged_progress_makes_no_verified_image_out_of_a_half_written_disk() {
    let mut site = Site::start(SitePolicy::Plain).await;
    site.is_ironic_up = true;
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let forged = Progress {
        boot_mac: MAC.into(),
        boot_id: server.boot_id.clone(),
        phase: Phase::REBOOTING,
        fresh: server.fresh(),
    };
    let liar = liar(&site, &server).speaker();
    assert!(!site.progress(liar, forged.clone()).await);
    assert!(!site.disk[&mac()].deployment.as_ref().unwrap().written);
    assert_eq!(site.boot_target(), BootTarget::Ramdisk);
    // The same from the server itself is believed, once.
    assert!(site.progress(server.speaker(), forged.clone()).await);
    assert!(!site.progress(server.speaker(), forged).await);
}

#[tokio::test]
async fn a_forged_report_of_a_server_that_is_there_changes_nothing_and_is_told() {
    let mut site = Site::start(SitePolicy::Plain).await;
    site.is_ironic_up = true;
    let mut server = Server::new(site.ironic.client());
    server.signatures = vec!["gpt".into(), "ntfs".into()];
    server.step(&mut site).await;
    let liar = liar(&site, &server);
    let reason = told(&mut site, liar.speaker(), liar.report()).await;
    assert!(reason.contains("another machine speaks"), "{reason}");
    server.step(&mut site).await;
    assert!(
        site.problem().contains("two machines say"),
        "{}",
        site.told()
    );
    assert_eq!(site.state(), Some(HostState::Discovered));
    assert_eq!(site.ironic.state(&node()), None, "nothing was begun");
}

#[tokio::test]
async fn a_report_is_believed_from_the_address_that_it_names_alone() {
    let mut site = Site::start(SitePolicy::Plain).await;
    let server = Server::new(site.ironic.client());
    for (peer, named) in [
        ([127, 0, 0, 2], "127.0.0.1"),
        ([127, 0, 0, 1], "127.0.0.2"),
        ([10, 0, 0, 1], "10.0.0.1"),
    ] {
        let from = Speaker {
            peer: peer.into(),
            ..server.speaker()
        };
        let mut report = server.report();
        named.clone_into(&mut report.address);
        let reason = told(&mut site, from, report).await;
        assert!(
            reason.contains("from the address that it names"),
            "{reason}"
        );
    }
    assert_eq!(site.host(), None, "nobody is known by that");
}

#[tokio::test]
async fn two_servers_do_not_speak_from_one_address() {
    let mut site = Site::start(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    server.step(&mut site).await;
    let mut report = server.report();
    report.boot_mac = "52:54:00:00:00:02".into();
    let liar = liar(&site, &server).speaker();
    let reason = told(&mut site, liar, report).await;
    assert!(
        reason.contains("another server reports from this address"),
        "{reason}"
    );
    assert_eq!(site.shown.keys().collect::<Vec<_>>(), [&mac()]);
}

#[tokio::test]
async fn a_server_that_only_asked_for_an_address_is_shown_and_is_no_object() {
    let mut site = Site::start(SitePolicy::Plain).await;
    site.is_kubernetes_up = true;
    site.take(Event::Dhcp {
        mac: mac(),
        arch: Some(firstlight_netboot::ClientArch::UefiX64),
        address: None,
    })
    .await;
    assert!(site.host().is_some());
    site.pass(ROUND).await;
    let mut server = Server::new(site.ironic.client());
    assert!(site.store.only().is_none());
    server.step(&mut site).await;
    site.pass(ROUND).await;
    assert_eq!(site.store.only().unwrap().spec.boot_mac_address, MAC);
}

#[test]
fn an_approval_is_of_one_machine_and_a_wrong_code_is_told() {
    let barred = |host: &Host| host.candidate().barred(JoinPolicy::Approve);
    let (first, second) = (PublicKey::new([1; 32]), PublicKey::new([2; 32]));
    let mut host = a_host(Ledger::default());
    let speak = |host: &mut Host, key, at| {
        let claim = Claim {
            key,
            boot_id: "b",
            address: Ipv4Addr::LOCALHOST,
            sequence: 1,
            tpm: None,
            boot: None,
        };
        host.who.report(&claim, at, Patience::default()).unwrap();
    };
    speak(&mut host, first, Duration::ZERO);
    assert!(barred(&host).unwrap().what.contains("waits for a person"));
    host.approve(Some(&second.code()));
    let wrong = barred(&host).unwrap().what;
    assert!(wrong.contains("not the code of this server"), "{wrong}");
    host.approve(Some(&first.code().to_lowercase()));
    assert_eq!(barred(&host), None);
    // The annotation may go: the approval is written down.
    host.approve(None);
    assert_eq!(barred(&host), None);
    // Another machine with the same MAC, or the same after a restart, is asked for again.
    speak(&mut host, second, Duration::from_mins(10));
    assert!(barred(&host).is_some());
}

#[test]
fn who_shows_up_after_the_first_cluster_was_made_is_a_newcomer_for_good() {
    let met = |ledger, raised| {
        let mut host = a_host(ledger);
        host.reported(a_report(), &[], raised, Duration::ZERO);
        host
    };
    let trust = |host: &Host| host.candidate().trust();
    assert_eq!(trust(&met(Ledger::default(), false)), Trust::KnownBefore);
    let newcomer = met(Ledger::default(), true);
    assert_eq!(trust(&newcomer), Trust::Newcomer);
    let again = met(newcomer.ledger().clone(), false);
    assert_eq!(trust(&again), Trust::Newcomer);
    let known = Ledger {
        has_object: true,
        ..Ledger::default()
    };
    assert_eq!(trust(&met(known, true)), Trust::KnownBefore);
}

#[tokio::test]
async fn a_disk_of_another_server_is_not_wiped_by_the_word_for_all() {
    let mut site = Site::up(SitePolicy::Plain).await;
    site.settings.site = Arc::new(SiteConfig {
        install: InstallPolicy::Wipe,
        ..SiteConfig::default()
    });
    site.hosts = hosts(&site.settings, &site.disk);
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    server.finish(&mut site).await;
    site.wait_for("provisioned", |site| {
        site.state() == Some(HostState::Provisioned)
    })
    .await;
    let deployment = site.disk[&mac()].deployment.as_ref().unwrap().id;
    let mut other = liar(&site, &server);
    other.boot_id = "of-another-machine".to_owned();
    site.pass(Duration::from_mins(10)).await;
    let mut report = other.report();
    report.boot_mac = "52:54:00:00:00:02".to_owned();
    Arc::make_mut(&mut report.inventory.hardware).nics.clear();
    report.disks[0].signatures = vec!["gpt".to_owned()];
    report.disks[0].mark = Some(Mark::Installed { deployment });
    site.report(other.speaker(), report).await;
    site.pass(ROUND).await;
    let second = "52:54:00:00:00:02".parse().unwrap();
    let status = site.shown[&second].status.clone();
    let problem = status.problem.clone().unwrap();
    assert!(
        problem.what
            == format!("its disk /dev/vda holds the system that this box installed on {NAME}"),
        "{problem:?}"
    );
    assert_eq!(site.ironic.state(&node_uuid(second)), None);
    // A person knows better.
    site.store.change(&status.name, |object| {
        let word = ("firstlight.internal/install".to_owned(), "wipe".to_owned());
        object.metadata.annotations.extend([word]);
    });
    site.pass(ROUND * 2).await;
    assert_eq!(site.shown[&second].status.problem, None);
}

#[tokio::test]
async fn a_server_that_starts_from_its_second_card_is_not_taken_for_a_new_one() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    server.finish(&mut site).await;
    site.wait_for("provisioned", |site| {
        site.state() == Some(HostState::Provisioned)
    })
    .await;
    let mut other = liar(&site, &server);
    other.boot_id = "by-the-second-card".to_owned();
    site.pass(Duration::from_mins(10)).await;
    let mut report = other.report();
    report.boot_mac = "52:54:00:00:00:02".to_owned();
    // Its disks look blank: nothing but the cards says whose they are.
    Arc::make_mut(&mut report.inventory.hardware).nics = [MAC, "52:54:00:00:00:02"]
        .map(|mac| firstlight_api::bmh::Nic {
            mac: mac.to_owned(),
            ..firstlight_api::bmh::Nic::default()
        })
        .to_vec();
    site.report(other.speaker(), report).await;
    site.pass(ROUND).await;
    let second = "52:54:00:00:00:02".parse().unwrap();
    let problem = site.shown[&second].status.problem.clone().unwrap();
    assert!(
        problem.what.contains(NAME) && problem.what.contains("another network card"),
        "{problem:?}"
    );
    assert_eq!(site.ironic.state(&node_uuid(second)), None);
}

/// Who was there before the first cluster, and is told by nobody but itself since.
#[tokio::test]
async fn a_copied_mac_address_gets_no_keys_of_a_cluster_and_the_same_machine_does() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Server::new(site.ironic.client());
    server.step(&mut site).await;
    site.pass(ROUND).await;
    let trusted = |site: &Site| {
        let object = site.store.only().unwrap();
        let conditions = object.status.unwrap().conditions;
        let said = conditions.into_iter().find(|it| it.kind == "Trusted");
        said.map(|it| (it.reason, it.message)).unwrap()
    };
    assert_eq!(trusted(&site).0, "KnownBefore");

    // Another host becomes the first control plane.
    let first = "52:54:00:00:00:07".parse().unwrap();
    site.disk.insert(
        first,
        Ledger {
            deployment: Some(Deployment {
                delivered: true,
                ..Deployment::default()
            }),
            ..Ledger::default()
        },
    );
    site.restart_controller();
    site.store.change(NAME, |object| {
        let claim = CONTROL_PLANE_ANNOTATION.to_owned();
        object.metadata.annotations.insert(claim, String::new());
    });
    server.step(&mut site).await;
    site.pass(ROUND).await;
    assert_eq!(trusted(&site).0, "KnownBefore", "the same ramdisk");

    // Half an hour later a machine comes with its MAC address.
    site.pass(Duration::from_mins(30)).await;
    let mut other = liar(&site, &server);
    "of-another-machine".clone_into(&mut other.boot_id);
    for _ in 0..20 {
        other.step(&mut site).await;
        site.pass(ROUND).await;
    }
    let (reason, message) = trusted(&site);
    assert_eq!(reason, "Unproven");
    assert!(message.contains("firstlight hosts approve"), "{message}");
    assert!(site.problem().contains("gets no keys"), "{}", site.told());
    let state = site.ironic.state(&node());
    assert_eq!(state, Some(ProvisionState::Available), "nothing is written");

    // And then the server itself, which has been restarted.
    site.pass(Duration::from_mins(30)).await;
    let before = server.speaker().key;
    (server.key, server.boot_id) = (5, "after-a-restart".to_owned());
    let from = Speaker {
        follows: vec![PublicKey::new([42; 32]), before],
        ..server.speaker()
    };
    site.report(from, server.report()).await;
    site.pass(ROUND).await;
    assert_eq!(trusted(&site).0, "KnownBefore");
    assert!(!site.problem().contains("gets no keys"), "{}", site.told());
}

/// Its report was signed and right, and then it was never heard of again.
#[tokio::test]
async fn who_reported_once_and_is_silent_is_as_if_it_had_never_been_here() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Server::new(site.ironic.client());
    server.signatures = vec!["gpt".into(), "ntfs".into()];
    server.step(&mut site).await;
    site.pass(ROUND).await;
    assert!(site.store.only().is_some());
    site.pass(Duration::from_hours(23)).await;
    assert!(site.store.only().is_some(), "a day has not passed");
    site.pass(Duration::from_hours(1)).await;
    site.wait_for("nothing to be left", |site| {
        site.store.only().is_none() && site.host().is_none()
    })
    .await;
    assert!(site.disk.is_empty(), "{:?}", site.disk);
    // It is a new one, and no person removed it.
    server.signatures.clear();
    server.power_cycle();
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
}

#[tokio::test]
async fn who_is_registered_and_was_used_by_nobody_leaves_ironic_too() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::InspectWait)
        .await;
    site.pass(Duration::from_hours(25)).await;
    site.wait_for("Ironic to forget it", |site| {
        site.ironic.state(&node()).is_none() && site.store.only().is_none()
    })
    .await;
    assert!(site.disk.is_empty(), "{:?}", site.disk);
}

#[tokio::test]
async fn who_a_person_wrote_about_stays() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Server::new(site.ironic.client());
    server.signatures = vec!["gpt".into()];
    server.step(&mut site).await;
    site.pass(ROUND).await;
    site.store.change(NAME, |object| {
        let rack = ("rack".to_owned(), "7".to_owned());
        object.metadata.labels.extend([rack]);
    });
    site.pass(Duration::from_hours(72)).await;
    site.pass(ROUND).await;
    let object = site.store.only().unwrap();
    assert!(!object.is_deleted());
    assert_eq!(site.state(), Some(HostState::Discovered));
}
