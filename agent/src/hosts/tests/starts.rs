//! How an installed system is started the first time, and what is remembered of that.

use firstlight_api::{
    site::parse_site,
    start::{self, Start, StartOrder},
    verb::KEXEC_ANNOTATION,
};
use serde_json::{Value, json};

use super::*;
use crate::hosts::{
    ledger::{Model, Started},
    plan::BOOTS,
};

const KEXEC: Phase = Phase::Rebooting {
    start: Start::Kexec,
};

const AUTO: &str = "- {match: any, start: auto}";

/// As the servers of these tests call themselves.
fn model() -> Model {
    Model {
        vendor: "QEMU".into(),
        product: "Standard PC".into(),
    }
}

/// With a site.yaml that has these rules.
async fn site(rules: &str) -> Site {
    let mut site = Site::start(SitePolicy::Plain).await;
    let file = parse_site(format!("cluster: none\nrules:\n{rules}")).unwrap();
    site.settings.site = Arc::new(file);
    site.restart_controller();
    site.come_up();
    site
}

/// A server of the model did not come up, before the box was started.
async fn site_with_memory(rules: &str) -> Site {
    let mut site = site(rules).await;
    let failed = Ledger {
        no_kexec: Some(model()),
        removed: true,
        ..Ledger::default()
    };
    site.disk.insert(OTHER.parse().unwrap(), failed);
    site.restart_controller();
    site
}

async fn ordered(site: &Site) -> StartOrder {
    let known = site.ironic.client().node(&node()).await.unwrap();
    StartOrder::of_node(&json!({"extra": known.extra})).unwrap()
}

/// Up to the moment in which its ramdisk writes.
async fn installs(site: &mut Site) -> Server {
    let mut server = Server::new(site.ironic.client());
    server.until_ironic(site, ProvisionState::DeployWait).await;
    server
}

/// Its system is started by kexec, and Ironic has heard that the ramdisk is gone.
async fn started_by_kexec(site: &mut Site) {
    let server = installs(site).await;
    server.tell(site, KEXEC).await;
    let step = site.host().unwrap().step;
    assert_eq!(step, "its kernel is started without a restart (kexec)");
    assert_eq!(site.boot_target(), BootTarget::Disk, "at its next start");
    site.ironic.finish_deploy(&node());
    site.wait_for("provisioned", |site| {
        site.state() == Some(HostState::Provisioned)
    })
    .await;
    assert_eq!(started(site), Started::Kexec);
}

fn started(site: &Site) -> Started {
    site.disk[&mac()].deployment.as_ref().unwrap().started
}

async fn answers(site: &mut Site) {
    let (mac, answers) = (mac(), true);
    site.take(Event::Ssh { mac, answers }).await;
}

#[tokio::test]
async fn a_server_is_told_to_start_its_system_by_kexec_and_it_comes_up() {
    let mut site = site(AUTO).await;
    started_by_kexec(&mut site).await;
    let order = StartOrder {
        kexec: true,
        kernel_arguments: None,
    };
    assert_eq!(ordered(&site).await, order);
    answers(&mut site).await;
    assert_eq!(started(&site), Started::Held);
    assert_eq!(site.disk[&mac()].no_kexec, None);
    site.pass(BOOTS * 2).await;
    assert_eq!(
        (started(&site), site.problem()),
        (Started::Held, String::new())
    );
}

#[tokio::test]
async fn a_system_that_does_not_come_up_is_told_and_remembered_of_its_model_over_a_restart_of_the_box()
 {
    let mut site = site(AUTO).await;
    started_by_kexec(&mut site).await;
    // The time in which the box was away does not count.
    site.pass(BOOTS / 2).await;
    site.restart_controller();
    site.pass(BOOTS / 2).await;
    assert_eq!(
        (started(&site), site.problem()),
        (Started::Kexec, String::new())
    );
    site.pass(BOOTS).await;
    assert_eq!(started(&site), Started::Failed);
    let problem = site.host().unwrap().problem.unwrap();
    assert!(problem.what.contains("(kexec)") && problem.what.contains("10 minutes"));
    assert!(problem.next.starts_with("switch the server off and on"));
    site.restart_controller();
    site.pass(ROUND).await;
    assert!(site.problem().contains("(kexec)"));
    // A person has pressed the button.
    answers(&mut site).await;
    assert_eq!(
        (started(&site), site.problem()),
        (Started::Unknown, String::new())
    );
    site.pass(Duration::from_mins(5)).await;
    assert_eq!(site.problem(), "", "silent later is another matter");
    assert!(site.disk[&mac()].no_kexec.is_some());
}

#[tokio::test]
async fn a_server_whose_firmware_runs_again_did_not_come_up() {
    let mut site = site(AUTO).await;
    started_by_kexec(&mut site).await;
    let arch = Some(firstlight_netboot::ClientArch::UefiX64);
    let (mac, address) = (mac(), None);
    site.take(Event::Dhcp { mac, arch, address }).await;
    site.pass(ROUND).await;
    assert_eq!(started(&site), Started::Failed);
}

#[tokio::test]
async fn a_server_of_a_model_that_did_not_come_up_is_restarted() {
    let mut site = site_with_memory(AUTO).await;
    let server = installs(&mut site).await;
    let hardware = site.host().unwrap().hardware.unwrap();
    assert_eq!(
        (hardware.vendor, hardware.model),
        (model().vendor, model().product)
    );
    assert_eq!(ordered(&site).await, StartOrder::default());
    let reason = "its kernel has no signature".to_owned();
    let start = Start::Restart { reason };
    server.tell(&mut site, Phase::Rebooting { start }).await;
    let step = site.host().unwrap().step;
    assert!(
        step.ends_with("kexec does not do here: its kernel has no signature"),
        "{step}"
    );
    site.ironic.finish_deploy(&node());
    site.pass(BOOTS * 2).await;
    assert_eq!(started(&site), Started::Unknown);
}

#[tokio::test]
async fn a_rule_tries_it_all_the_same_and_a_start_that_holds_is_forgiven_to_the_model() {
    let rule = "- {match: any, start: kexec, kernelArguments: 'hugepages=64 iommu=pt'}";
    let mut site = site_with_memory(rule).await;
    // The other server is there, too.
    let other: MacAddr = OTHER.parse().unwrap();
    let arch = Some(firstlight_netboot::ClientArch::UefiX64);
    let (mac, address) = (other, None);
    site.take(Event::Dhcp { mac, arch, address }).await;
    started_by_kexec(&mut site).await;
    let known = site.ironic.client().node(&node()).await.unwrap();
    let told: &Value = &known.extra[start::EXTRA];
    assert_eq!(
        told,
        &json!({"kexec": true, "kernelArguments": "hugepages=64 iommu=pt"})
    );
    assert!(site.disk[&other].no_kexec.is_some());
    answers(&mut site).await;
    site.pass(ROUND).await;
    assert_eq!(site.disk[&other].no_kexec, None);
}

const OTHER: &str = "52:54:00:00:00:99";

fn says_kexec(site: &Site) {
    site.store.change(NAME, |object| {
        let said = &mut object.metadata.annotations;
        said.insert(KEXEC_ANNOTATION.to_owned(), String::new());
    });
}

fn has_said(site: &Site) -> bool {
    let object = site.store.only().unwrap();
    object.metadata.annotations.contains_key(KEXEC_ANNOTATION)
}

#[tokio::test]
async fn what_is_remembered_of_a_model_is_told_and_forgotten_on_a_persons_word() {
    let rule = "- {match: any, start: auto, install: never}";
    let mut site = site_with_memory(rule).await;
    let mut server = Server::new(site.ironic.client());
    let told = |site: &Site| site.host().is_some_and(|host| host.control.no_kexec);
    server.until("told", &mut site, told).await;
    let line = site.host().unwrap().kexec_line();
    assert!(
        line.contains("did not come up by kexec") && line.contains(NAME),
        "{line}"
    );
    let known = |site: &Site| site.store.only().is_some();
    server.until("known", &mut site, known).await;
    says_kexec(&site);
    server
        .until("taken", &mut site, |site| !has_said(site))
        .await;
    // Its host has not shown up since the start.
    assert_eq!(site.disk[&OTHER.parse().unwrap()].no_kexec, None);
    assert!(!told(&site));
    site.restart_controller();
    for _ in 0..5 {
        server.step(&mut site).await;
        site.pass(ROUND).await;
    }
    assert!(!told(&site));
    // There is nothing to forget any more.
    says_kexec(&site);
    server
        .until("refused", &mut site, |site| !has_said(site))
        .await;
    let events = site.store.told.lock().unwrap().clone();
    let refused = "nothing is remembered against kexec";
    assert!(
        events.iter().any(|note| note.contains(refused)),
        "{events:?}"
    );
}

#[tokio::test]
async fn without_a_word_of_a_rule_a_server_is_restarted() {
    let mut site = site("- match: any").await;
    installs(&mut site).await;
    assert_eq!(ordered(&site).await, StartOrder::default());
}
