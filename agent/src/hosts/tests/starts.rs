//! How an installed system is started the first time, and what is remembered of that.

use firstlight_api::{
    bmh::{HardwareDetails, ProvisioningState},
    site::parse_site,
    start::{self, Start, StartOrder},
    verb::KEXEC_ANNOTATION,
};
use firstlight_ironic::fake::Switch;
use serde_json::{Value, json};

use super::{power::Racked, *};
use crate::hosts::{
    ledger::{Deployment, Model, Started},
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
    assert_eq!(start_order(&site).await, order);
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
        (Started::Restarted, String::new())
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
    assert_eq!(start_order(&site).await, StartOrder::default());
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
async fn without_a_word_of_a_rule_a_server_is_started_by_kexec_and_with_one_it_is_restarted() {
    for (rules, kexec) in [
        ("- match: any", true),
        ("- {match: any, start: restart}", false),
    ] {
        let mut site = site(rules).await;
        installs(&mut site).await;
        assert_eq!(start_order(&site).await.kexec, kexec, "{rules}");
    }
}

/// Its system runs, and nobody but its BMC could have switched it on.
async fn provisioned_with_bmc() -> (Site, Racked) {
    let mut site = site(AUTO).await;
    let mut server = Racked::new(&site);
    power::credentials(&site.store, "hunter2");
    power::manifest(&site, power::image);
    let provisioned = power::is(ProvisioningState::Provisioned);
    server.until("provisioned", &mut site, provisioned).await;
    (site, server)
}

#[tokio::test]
async fn a_server_with_a_bmc_is_not_restarted_by_it() {
    let (mut site, mut server) = provisioned_with_bmc().await;
    assert_eq!(started(&site), Started::Kexec);
    let never_off = async |site: &Site| {
        let known = site.ironic.client().node(&node()).await.unwrap();
        known.disable_power_off.unwrap()
    };
    server.rounds(&mut site, 10).await;
    assert!(!never_off(&site).await, "it was for the deployment alone");
    answers(&mut site).await;
    assert_eq!(started(&site), Started::Held);
    assert_eq!(server.done, [Switch::Network], "for the inspection");
    assert_eq!(server.machine.writes, 1);
    assert_eq!(power::status(&site).error_message, "");
}

#[tokio::test]
async fn a_server_with_a_bmc_that_did_not_come_up_is_restarted_by_it_once() {
    let (mut site, mut server) = provisioned_with_bmc().await;
    site.pass(BOOTS).await;
    server.rounds(&mut site, 10).await;
    assert_eq!(
        server.done,
        [Switch::Network, Switch::Off, Switch::Disk],
        "{}",
        site.told()
    );
    assert_eq!(site.disk[&mac()].no_kexec, Some(model()));
    answers(&mut site).await;
    site.pass(BOOTS).await;
    server.rounds(&mut site, 10).await;
    assert_eq!(server.done.len(), 3);
    assert_eq!(site.problem(), "");
}

/// Another server of the model is there, which has come so far.
async fn ordered_beside(other: Started) -> StartOrder {
    let mut site = site(AUTO).await;
    site.store.change("other", |object| {
        object.spec.boot_mac_address = "52:54:00:00:00:99".to_owned();
        let mut hardware = HardwareDetails::default();
        hardware.system_vendor.manufacturer = model().vendor;
        hardware.system_vendor.product_name = model().product;
        object.status.get_or_insert_default().hardware = Some(hardware.into());
    });
    let ledger = Ledger {
        deployment: Some(Deployment {
            started: other,
            ..Deployment::default()
        }),
        ..Ledger::default()
    };
    site.disk
        .insert("52:54:00:00:00:99".parse().unwrap(), ledger);
    site.restart_controller();
    installs(&mut site).await;
    start_order(&site).await
}

#[tokio::test]
async fn the_first_server_of_a_model_tries_it_alone() {
    for (other, kexec) in [
        (Started::Unknown, true),
        (Started::Ordered, false),
        (Started::Kexec, false),
        (Started::Held, true),
    ] {
        assert_eq!(ordered_beside(other).await.kexec, kexec, "{other:?}");
    }
}

#[tokio::test]
async fn a_ramdisk_that_cannot_lets_the_next_server_try() {
    let mut site = site(AUTO).await;
    let server = installs(&mut site).await;
    assert_eq!(started(&site), Started::Ordered);
    server.finish(&mut site).await;
    site.pass(ROUND).await;
    assert_eq!(started(&site), Started::Unknown);
}

/// A server whose system runs, and is to go.
async fn goes(site: &mut Site) {
    let server = installs(site).await;
    server.finish(site).await;
    site.wait_for("provisioned", |site| {
        site.state() == Some(HostState::Provisioned)
    })
    .await;
    answers(site).await;
    site.pass(ROUND).await;
    assert_eq!(site.state(), Some(HostState::Running));
    answers(site).await;
    site.store.change(NAME, |object| object.spec.image = None);
    site.wait_for("it goes", |site| {
        site.state() == Some(HostState::Deprovisioning)
    })
    .await;
}

async fn firmware_asks(site: &mut Site) {
    let arch = Some(firstlight_netboot::ClientArch::UefiX64);
    let (mac, address) = (mac(), None);
    site.take(Event::Dhcp { mac, arch, address }).await;
}

fn step(site: &Site) -> String {
    site.host().unwrap().step
}

#[tokio::test]
async fn a_system_that_goes_starts_the_ramdisk_and_its_disks_are_cleaned_as_ever() {
    let mut site = site(AUTO).await;
    goes(&mut site).await;
    assert_eq!(
        step(&site),
        "its system ends, and starts the ramdisk (kexec)"
    );
    assert_eq!((site.direct, site.restarts), (1, 0));
    assert!(site.disk[&mac()].returns);
    site.pass(BOOTS / 2).await;
    let mut server = Server::new(site.ironic.client());
    server.power_cycle();
    server
        .until("its system is taken away", &mut site, |site| {
            site.ironic.state(&node()) != Some(ProvisionState::Active)
        })
        .await;
    assert!(!site.disk[&mac()].returns);
    assert_eq!(site.disk[&mac()].no_kexec, None);
    assert_eq!((site.direct, site.restarts), (1, 0));
}

#[tokio::test]
async fn a_system_whose_kernel_refuses_is_restarted_at_once_and_that_is_no_fault_of_its_model() {
    let mut site = site(AUTO).await;
    let why = "the running kernel does not take it: ENOSYS";
    site.kexec = Some(Err(why.to_owned()));
    goes(&mut site).await;
    assert_eq!((site.direct, site.restarts), (1, 1));
    assert!(step(&site).ends_with(why), "{}", step(&site));
    site.pass(Duration::from_mins(5)).await;
    site.pass(Duration::from_mins(5)).await;
    assert_eq!(site.direct, 1);
    assert!(site.restarts > 1);
    let ledger = &site.disk[&mac()];
    assert_eq!((ledger.returns, ledger.no_kexec.clone()), (false, None));
}

#[tokio::test]
async fn a_ramdisk_that_does_not_come_is_told_and_remembered_of_the_model_over_a_restart_of_the_box()
 {
    let mut site = site(AUTO).await;
    goes(&mut site).await;
    site.pass(BOOTS / 2).await;
    site.restart_controller();
    site.pass(BOOTS / 2).await;
    assert_eq!(site.disk[&mac()].no_kexec, None);
    site.pass(BOOTS).await;
    site.pass(ROUND).await;
    assert_eq!(site.disk[&mac()].no_kexec, Some(model()));
    assert!(!site.disk[&mac()].returns);
    let problem = site.host().unwrap().problem.unwrap();
    assert!(problem.next.starts_with("switch the server off and on"));
    assert_eq!(site.direct, 1, "it is restarted from now on");
    assert!(site.restarts > 0);
}

#[tokio::test]
async fn a_firmware_that_runs_in_its_place_is_remembered_of_the_model_whenever_the_order_is_answered()
 {
    let mut first = site(AUTO).await;
    goes(&mut first).await;
    firmware_asks(&mut first).await;
    first.pass(ROUND).await;
    assert_eq!(first.disk[&mac()].no_kexec, Some(model()));

    let mut late = site(AUTO).await;
    late.kexec = None;
    goes(&mut late).await;
    firmware_asks(&mut late).await;
    let (mac, result) = (mac(), Ok(()));
    late.take(Event::RamdiskStarted { mac, result }).await;
    late.pass(ROUND).await;
    let ledger = &late.disk[&mac];
    assert_eq!(
        (ledger.no_kexec.clone(), ledger.returns),
        (Some(model()), false)
    );
}

#[tokio::test]
async fn by_a_word_of_a_rule_or_by_a_bad_memory_a_system_that_goes_is_restarted() {
    let mut restarted = site("- {match: any, start: restart}").await;
    goes(&mut restarted).await;
    assert_eq!((restarted.direct, restarted.restarts), (0, 1));
    let mut known = site_with_memory(AUTO).await;
    goes(&mut known).await;
    assert_eq!((known.direct, known.restarts), (0, 1));
    let mut told = site_with_memory("- {match: any, start: kexec}").await;
    goes(&mut told).await;
    assert_eq!((told.direct, told.restarts), (1, 0));
}
