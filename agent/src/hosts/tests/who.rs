//! Lies: what somebody on the segment says in the name of a server that is there.

use firstlight_api::site::JoinPolicy;

use super::*;
use crate::hosts::{admission::Trust, record::Record, who::Claim};

/// Another machine that says it is the same server.
fn liar(site: &Site, server: &Server) -> Server {
    let mut liar = Server::new(site.ironic.client());
    liar.boot_id.clone_from(&server.boot_id);
    liar.key = 99;
    liar
}

async fn told(site: &Site, from: Speaker, report: Report) -> String {
    match site.fleet.report(from, report).await {
        Directive::Wait { reason, .. } => reason,
        other => panic!("believed: {other:?}"),
    }
}

#[tokio::test]
async fn forged_progress_makes_no_verified_image_out_of_a_half_written_disk() {
    let mut site = Site::patient(free_port().await).await;
    site.ironic_comes_up();
    let mut server = Server::new(site.ironic.client());
    server.until(&mut site, ProvisionState::DeployWait).await;
    let forged = Progress {
        boot_mac: MAC.into(),
        boot_id: server.boot_id.clone(),
        phase: Phase::Rebooting,
        fresh: server.fresh(),
    };
    let believed = site
        .fleet
        .progress(liar(&site, &server).speaker(), forged.clone());
    assert!(!believed.await);
    assert!(
        !Ledgers::new(site.state.path().join("hosts"))
            .load()
            .unwrap()[&mac()]
            .deployment
            .as_ref()
            .unwrap()
            .written
    );
    assert_eq!(site.fleet.boot_target(mac()), BootTarget::Ramdisk);
    // The same from the server itself is believed, once.
    assert!(site.fleet.progress(server.speaker(), forged.clone()).await);
    assert!(!site.fleet.progress(server.speaker(), forged).await);
}

#[tokio::test]
async fn a_forged_report_of_a_server_that_is_there_changes_nothing_and_is_told() {
    let mut site = Site::patient(free_port().await).await;
    site.ironic_comes_up();
    let mut server = Server::new(site.ironic.client());
    server.signatures = vec!["gpt".into(), "ntfs".into()];
    server.step(&site.fleet).await;
    let liar = liar(&site, &server);
    let reason = told(&site, liar.speaker(), liar.report()).await;
    assert!(reason.contains("another machine speaks"), "{reason}");
    server.step(&site.fleet).await;
    let disputed = site
        .wait_for("the dispute on the page", |host| {
            let problem = host.problem.as_ref();
            problem.is_some_and(|problem| problem.what.contains("two machines say"))
        })
        .await;
    assert_eq!(disputed.state, HostState::Discovered);
    assert_eq!(site.ironic.state(&node()), None, "nothing was begun");
}

#[tokio::test]
async fn a_report_is_believed_from_the_address_that_it_names_alone() {
    let site = Site::patient(free_port().await).await;
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
        let reason = told(&site, from, report).await;
        assert!(
            reason.contains("from the address that it names"),
            "{reason}"
        );
    }
    assert_eq!(site.host(), None, "nobody is known by that");
}

#[tokio::test]
async fn two_servers_do_not_speak_from_one_address() {
    let mut site = Site::patient(free_port().await).await;
    let mut server = Server::new(site.ironic.client());
    server.step(&site.fleet).await;
    let mut report = server.report();
    report.boot_mac = "52:54:00:00:00:02".into();
    let reason = told(&site, liar(&site, &server).speaker(), report).await;
    assert!(
        reason.contains("another server reports from this address"),
        "{reason}"
    );
    site.wait_for("the first", |host| host.mac == MAC).await;
    assert_eq!(site.hosts.borrow().len(), 1);
}

#[tokio::test]
async fn a_server_that_only_asked_for_an_address_is_shown_and_is_no_object() {
    let mut site = Site::patient(free_port().await).await;
    site.kubernetes_comes_up();
    site.fleet.tell(Input::Dhcp {
        mac: mac(),
        arch: Some(firstlight_netboot::ClientArch::UefiX64),
        address: None,
    });
    site.wait_for("it on the page", |host| host.mac == MAC)
        .await;
    let mut server = Server::new(site.ironic.client());
    assert!(site.store.only().is_none());
    server.step(&site.fleet).await;
    wait_for_object(&site, |object| object.spec.boot_mac_address == MAC).await;
}

#[test]
fn an_approval_is_of_one_machine_and_a_wrong_code_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let ledgers = Ledgers::new(dir.path());
    ledgers.load().unwrap();
    let barred = |record: &Record| record.candidate().barred(JoinPolicy::Approve);
    let (first, second) = (PublicKey::new([1; 32]), PublicKey::new([2; 32]));
    let mut record = Record::new(mac(), "n1".into(), Duration::ZERO);
    let speak = |record: &mut Record, key, at| {
        let claim = Claim {
            key,
            boot_id: "b",
            address: Ipv4Addr::LOCALHOST,
            sequence: 1,
            tpm: None,
        };
        record.who.report(&claim, at, Patience::default()).unwrap();
    };
    speak(&mut record, first, Duration::ZERO);
    assert!(barred(&record).unwrap().what.contains("waits for a person"));
    record.approve(Some(&second.code()), &ledgers);
    assert!(
        barred(&record)
            .unwrap()
            .what
            .contains("not the code of this server")
    );
    record.approve(Some(&first.code().to_lowercase()), &ledgers);
    assert_eq!(barred(&record), None);
    // The annotation may go: the approval is written down.
    record.approve(None, &ledgers);
    assert_eq!(barred(&record), None);
    assert_eq!(ledgers.load().unwrap()[&mac()], record.ledger);
    // Another machine with the same MAC, or the same after a restart, is asked for again.
    speak(&mut record, second, Duration::from_mins(10));
    assert!(barred(&record).is_some());
}

#[test]
fn who_shows_up_after_the_first_cluster_was_made_is_a_newcomer_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let ledgers = Ledgers::new(dir.path());
    let met = |raised| {
        let mut record = Record::new(mac(), "n1".into(), Duration::ZERO);
        record.met(raised, &ledgers);
        record
    };
    assert_eq!(met(false).candidate().trust(), Trust::KnownBefore);
    assert_eq!(met(true).candidate().trust(), Trust::Newcomer);
    assert!(ledgers.load().unwrap()[&mac()].newcomer);
    let mut known = met(false);
    known.ledger.has_object = true;
    known.met(true, &ledgers);
    assert_eq!(known.candidate().trust(), Trust::KnownBefore);
}
