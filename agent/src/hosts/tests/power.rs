//! Servers with a BMC: nobody but Ironic touches their button.

use std::{
    net::{SocketAddr, TcpListener},
    sync::LazyLock,
};

use firstlight_api::{
    bmh::{
        BmcDetails, ErrorType, Image, OperationalStatus, ProvisioningState, SPEC_HONOURED,
        annotations::REBOOT,
    },
    status::{FailedStep, HostPower},
};
use firstlight_ironic::fake::Switch;
use serde_json::json;

use super::{life::Machine, *};

pub const HOST: &str = "worker-0";
pub const SECRET: &str = "worker-0-bmc";
pub const DEAD: &str = "Unable to connect to its BMC";

/// Of all BMCs: somebody takes connections there, and says nothing.
static DOOR: LazyLock<SocketAddr> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    address
});

pub fn bmc() -> SocketAddr {
    *DOOR
}

/// A server that is off until its BMC switches it on.
pub struct Racked {
    pub machine: Machine,
    is_on: bool,
    pub firmware: Firmware,
    /// All that its BMC did.
    pub done: Vec<Switch>,
}

/// What it can start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Firmware {
    Network,
    Disk,
}

impl Racked {
    pub fn new<L>(site: &Site<L>) -> Self {
        Self {
            machine: Machine::new(site),
            is_on: false,
            firmware: Firmware::Network,
            done: Vec::new(),
        }
    }

    pub async fn step<L: Luck>(&mut self, site: &mut Site<L>) {
        for switch in site.ironic.switched(&node()) {
            self.done.push(switch);
            self.is_on = switch != Switch::Off;
            if self.is_on {
                self.machine.server.power_cycle();
                self.machine.runs_disk = match (switch, self.firmware) {
                    // It asks the network first; only what the box answers is another matter.
                    (Switch::Cd, _) | (Switch::Network, Firmware::Network) => false,
                    (_, Firmware::Network) => site.boot_target() == BootTarget::Disk,
                    (_, Firmware::Disk) => true,
                };
            }
        }
        if self.is_on {
            self.machine.step(site).await;
        }
        site.pass(ROUND).await;
    }

    pub async fn until(&mut self, what: &str, site: &mut Site, reached: impl Fn(&Site) -> bool) {
        for _ in 0..ROUNDS {
            if reached(site) {
                return;
            }
            self.step(site).await;
        }
        panic!("waited for {what}; {:?}; {}", self.done, site.told());
    }

    pub async fn rounds(&mut self, site: &mut Site, rounds: usize) {
        for _ in 0..rounds {
            self.step(site).await;
        }
    }
}

pub fn credentials(store: &MemoryStore, password: &str) {
    let pair = |key: &str, value: &str| (key.to_owned(), value.as_bytes().to_vec());
    let secret = Secret::from([pair("username", "admin"), pair("password", password)]);
    let mut secrets = store.secrets.lock().unwrap();
    secrets.insert(SECRET.to_owned(), secret);
}

/// A rack's owner writes the object before anybody has seen the server.
pub fn manifest<L: Luck>(site: &Site<L>, change: impl FnOnce(&mut BareMetalHost)) {
    site.store.change(HOST, |object| {
        object.spec.boot_mac_address = MAC.to_owned();
        object.spec.online = true;
        object.spec.bmc = Some(BmcDetails {
            address: format!("redfish://{}/redfish/v1/Systems/1", bmc()),
            credentials_name: SECRET.to_owned(),
            ..BmcDetails::default()
        });
        change(object);
    });
}

pub fn image(object: &mut BareMetalHost) {
    object.spec.image = Some(Image {
        url: "http://172.22.0.1/images/node.raw.zst".into(),
        checksum: "ab".repeat(32),
        ..Image::default()
    });
}

pub fn status<L: Luck>(site: &Site<L>) -> firstlight_api::bmh::BareMetalHostStatus {
    site.store.only().unwrap().status.unwrap_or_default()
}

pub fn is(state: ProvisioningState) -> impl Fn(&Site) -> bool {
    move |site: &Site| status(site).provisioning.state == state
}

pub fn off(site: &Site) -> bool {
    !status(site).powered_on
}

pub fn on(site: &Site) -> bool {
    status(site).powered_on
}

async fn provisioned() -> (Site, Racked) {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Racked::new(&site);
    credentials(&site.store, "hunter2");
    manifest(&site, image);
    server
        .until("provisioned", &mut site, is(ProvisioningState::Provisioned))
        .await;
    (site, server)
}

#[tokio::test]
async fn a_server_that_is_off_goes_all_the_way_by_its_bmc_and_back() {
    let (mut site, mut server) = provisioned().await;
    // For the inspection, whose ramdisk writes the image and starts the system.
    assert_eq!(server.done, [Switch::Network]);
    assert_eq!(server.machine.writes, 1);
    let (driver, info) = site.ironic.driver(&node()).unwrap();
    assert_eq!(
        (driver.as_str(), info),
        (
            "redfish",
            json!({
                "redfish_address": format!("https://{}", bmc()), "redfish_system_id": "/redfish/v1/Systems/1",
                "redfish_username": "admin", "redfish_password": "hunter2", "redfish_verify_ca": true,
            })
        )
    );
    let said = status(&site);
    let honoured = said.conditions.iter().find(|one| one.kind == SPEC_HONOURED);
    assert_eq!(honoured.unwrap().message, "");
    assert_eq!((said.error_type, said.powered_on), (None, true));

    server.done.clear();
    site.store.change(HOST, |object| object.spec.image = None);
    server
        .until("available", &mut site, is(ProvisioningState::Available))
        .await;
    assert_eq!(site.ironic.cleans(&node()), 1);
    assert_eq!(server.done[..2], [Switch::Off, Switch::Network]);

    site.store.change(HOST, |object| {
        object.metadata.deletion_timestamp = Some("2026-11-21T00:00:00Z".into());
    });
    let gone = |site: &Site| site.store.only().is_none();
    server.until("gone", &mut site, gone).await;
    assert_eq!(site.ironic.state(&node()), None);
}

#[tokio::test]
async fn online_and_annotations_switch_it() {
    let (mut site, mut server) = provisioned().await;
    server.done.clear();
    site.store.change(HOST, |object| object.spec.online = false);
    server.until("off", &mut site, off).await;
    server.rounds(&mut site, 20).await;
    assert_eq!(server.done, [Switch::Off], "and it stays off");
    assert_eq!(status(&site).operational_status, OperationalStatus::Ok);
    site.store.change(HOST, |object| object.spec.online = true);
    server.until("on", &mut site, on).await;
    assert_eq!(server.done, [Switch::Off, Switch::Disk]);

    server.done.clear();
    let annotate = |name: &str, value: &str| {
        let (name, value) = (name.to_owned(), value.to_owned());
        move |object: &mut BareMetalHost| drop(object.metadata.annotations.insert(name, value))
    };
    site.store
        .change(HOST, annotate(REBOOT, r#"{"mode": "hard"}"#));
    let done = |site: &Site| {
        let object = site.store.only().unwrap();
        on(site) && !object.metadata.annotations.contains_key(REBOOT)
    };
    server.until("restarted", &mut site, done).await;
    server.rounds(&mut site, 20).await;
    assert_eq!(server.done, [Switch::Off, Switch::Disk], "once");

    // A fence: off until it goes, also over a restart of the box.
    server.done.clear();
    let fence = "reboot.metal3.io/capm3";
    site.store.change(HOST, annotate(fence, ""));
    server.until("fenced", &mut site, off).await;
    site.restart_controller();
    server.rounds(&mut site, 20).await;
    assert_eq!(server.done, [Switch::Off]);
    assert!(
        site.store
            .only()
            .unwrap()
            .metadata
            .annotations
            .contains_key(fence)
    );
    site.store.change(HOST, |object| {
        object.metadata.annotations.remove(fence);
    });
    server.until("on again", &mut site, on).await;
    assert_eq!(server.done, [Switch::Off, Switch::Disk]);

    // A person pressed the button: what the object says is what holds.
    server.done.clear();
    site.ironic.press_button(&node());
    server.rounds(&mut site, 10).await;
    assert_eq!(server.done, [Switch::Disk]);
    assert_eq!(server.machine.writes, 1);
}

/// As `firstlight hosts power off --hard` writes it.
#[tokio::test]
async fn off_at_once_is_a_restart_after_which_the_spec_keeps_it_off() {
    let (mut site, mut server) = provisioned().await;
    let power = |site: &Site| site.host().unwrap().control.power;
    assert_eq!(power(&site), HostPower::On);
    server.done.clear();
    site.store.change(HOST, |object| {
        object.spec.online = false;
        let hard = (REBOOT.to_owned(), r#"{"mode":"hard"}"#.to_owned());
        object.metadata.annotations.extend([hard]);
    });
    let done = |site: &Site| {
        let object = site.store.only().unwrap();
        off(site) && !object.metadata.annotations.contains_key(REBOOT)
    };
    server.until("off", &mut site, done).await;
    site.restart_controller();
    server.rounds(&mut site, 20).await;
    assert_eq!(server.done, [Switch::Off], "and it stays off");
    assert_eq!(power(&site), HostPower::Off);
    site.store.change(HOST, |object| object.spec.online = true);
    server.until("on", &mut site, on).await;
    assert_eq!(server.done, [Switch::Off, Switch::Disk]);
}

#[tokio::test]
async fn another_protocol_reaches_ironic_while_the_server_runs() {
    let (mut site, mut server) = provisioned().await;
    server.done.clear();
    site.store.change(HOST, |object| {
        object.spec.bmc.as_mut().unwrap().address = "ipmi://127.0.0.1:6230".to_owned();
    });
    let told = |site: &Site| site.ironic.driver(&node()).unwrap().0 == "ipmi";
    server.until("told", &mut site, told).await;
    server.rounds(&mut site, 10).await;
    assert_eq!(server.done, []);
    let said = status(&site);
    assert_eq!((said.error_type, said.error_message.as_str()), (None, ""));
    assert_eq!(said.provisioning.state, ProvisioningState::Provisioned);
    // It is switched by that.
    site.store.change(HOST, |object| object.spec.online = false);
    server.until("off", &mut site, off).await;
}

#[tokio::test]
async fn what_must_never_be_off_is_restarted_with_one_order() {
    let (mut site, mut server) = provisioned().await;
    let fence = "reboot.metal3.io/capm3";
    site.store
        .change(HOST, |object| object.spec.disable_power_off = true);
    server.rounds(&mut site, 10).await;
    server.done.clear();
    site.store.change(HOST, |object| {
        let annotations = &mut object.metadata.annotations;
        annotations.extend([REBOOT, fence].map(|name| (name.to_owned(), String::new())));
        object.spec.online = false;
    });
    let done = |site: &Site| {
        let object = site.store.only().unwrap();
        !object.metadata.annotations.contains_key(REBOOT)
    };
    server.until("restarted", &mut site, done).await;
    server.rounds(&mut site, 20).await;
    assert_eq!(server.done, [Switch::Restart], "once, and it stays on");
    assert!(on(&site));
    let said = status(&site);
    assert_eq!((said.error_type, said.error_message.as_str()), (None, ""));
    let honoured = said.conditions.iter().find(|one| one.kind == SPEC_HONOURED);
    let told = &honoured.unwrap().message;
    for what in ["spec.online: the server stays on", fence] {
        assert!(told.contains(what), "{told}");
    }

    // A person has pressed its button.
    server.done.clear();
    site.ironic.press_button(&node());
    server.rounds(&mut site, 10).await;
    assert_eq!(server.done, [Switch::Disk]);

    // Now it may be off, and is.
    server.done.clear();
    site.store
        .change(HOST, |object| object.spec.disable_power_off = false);
    server.until("off", &mut site, off).await;
    assert_eq!(server.done, [Switch::Off]);
}

#[tokio::test]
async fn a_free_host_is_restarted_once_too_and_not_installed_while_it_is_fenced() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Racked::new(&site);
    credentials(&site.store, "hunter2");
    let never = ("firstlight.internal/install", "never");
    let fence = ("reboot.metal3.io/fence", "");
    manifest(&site, |object| {
        for (name, value) in [never, (REBOOT, "")] {
            let annotation = (name.to_owned(), value.to_owned());
            object.metadata.annotations.extend([annotation]);
        }
    });
    let annotations = |site: &Site| site.store.only().unwrap().metadata.annotations;
    let restarted = |site: &Site| on(site) && !annotations(site).contains_key(REBOOT);
    server.until("restarted", &mut site, restarted).await;
    site.store.change(HOST, |object| {
        let said = &mut object.metadata.annotations;
        said.remove(never.0);
        said.insert(fence.0.to_owned(), fence.1.to_owned());
    });
    server.until("fenced", &mut site, off).await;
    server.rounds(&mut site, 20).await;
    assert_eq!((off(&site), server.machine.writes), (true, 0));
    site.store.change(HOST, |object| {
        object.metadata.annotations.remove(fence.0);
    });
    let staged = |site: &Site| site.state() == Some(HostState::Staged);
    server.until("staged", &mut site, staged).await;
    assert_eq!(server.machine.writes, 1);
}

#[tokio::test]
async fn what_is_wrong_with_a_bmc_is_said_and_mended() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Racked::new(&site);
    manifest(&site, |object| {
        image(object);
        object.spec.bmc.as_mut().unwrap().address = "ilo4://10.0.0.7".to_owned();
    });
    let says = |site: &Site, what: &str| {
        let said = status(site);
        assert_eq!(said.error_type, Some(ErrorType::Registration), "{said:?}");
        assert_eq!(said.operational_status, OperationalStatus::Error);
        assert!(said.error_message.contains(what), "{}", said.error_message);
        let failed = site.host().unwrap().control.failed;
        assert_eq!(failed, Some(FailedStep::Registration), "{what}");
    };
    server.rounds(&mut site, 10).await;
    says(&site, "ilo4://10.0.0.7");
    // The address is mended, and there is no Secret of that name with a user.
    manifest(&site, image);
    server.rounds(&mut site, 20).await;
    says(&site, "has no `username`");
    // Nobody takes connections there.
    let bmc = |port| format!("redfish://127.0.0.1:{port}/redfish/v1/Systems/1");
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    credentials(&site.store, "wrong");
    manifest(&site, |object| {
        image(object);
        object.spec.bmc.as_mut().unwrap().address = bmc(nobody.port());
    });
    server.rounds(&mut site, 20).await;
    says(&site, "cannot be reached");
    // Somebody does, and it is no BMC.
    manifest(&site, image);
    credentials(&site.store, "wrong");
    server.rounds(&mut site, 1).await;
    site.ironic.set_bmc(&node(), Some(DEAD));
    server.rounds(&mut site, 25).await;
    says(&site, DEAD);
    assert_eq!(server.done, []);
    credentials(&site.store, "hunter2");
    site.ironic.set_bmc(&node(), None);
    server
        .until("provisioned", &mut site, is(ProvisioningState::Provisioned))
        .await;
    let said = status(&site);
    assert_eq!((said.error_type, said.error_message.as_str()), (None, ""));
    let (_, info) = site.ironic.driver(&node()).unwrap();
    assert_eq!(info["redfish_password"], "hunter2");
}

#[tokio::test]
async fn who_does_not_answer_by_ipmi_is_told_from_who_refuses() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Racked::new(&site);
    credentials(&site.store, "wrong");
    manifest(&site, |object| {
        image(object);
        object.spec.bmc.as_mut().unwrap().address = "ipmi://127.0.0.1:6230".to_owned();
    });
    let says = |site: &Site, words: &str| {
        let said = status(site);
        let kind = Some(ErrorType::Registration);
        assert!(
            said.error_type == kind && said.error_message.contains(words),
            "{said:?}"
        );
    };
    site.hands.hail = |host, port| Box::pin(async move { Err(format!("{host} {port} is dead")) });
    server.rounds(&mut site, 20).await;
    says(
        &site,
        "nothing answers IPMI at 127.0.0.1 port 6230: 127.0.0.1 6230 is dead",
    );
    let told = site.ironic.driver(&node()).map(|(name, _)| name);
    assert_eq!(told.as_deref(), Some("manual-management"), "not of that");
    // It comes up, and Ironic has its one sentence for everything.
    site.hands.hail = |_, _| Box::pin(async { Ok(()) });
    site.ironic
        .set_bmc(&node(), Some("IPMI call failed: power status."));
    server.rounds(&mut site, 40).await;
    says(
        &site,
        "answers by IPMI, but does not let the user of its Secret in",
    );
    site.hands.hail = |_, _| Box::pin(async { Err("gone".to_owned()) });
    server.rounds(&mut site, 40).await;
    says(&site, "nothing answers IPMI at 127.0.0.1 port 6230: gone");
    site.hands.hail = |_, _| Box::pin(async { Ok(()) });
    site.ironic.set_bmc(&node(), None);
    credentials(&site.store, "hunter2");
    server
        .until("provisioned", &mut site, is(ProvisioningState::Provisioned))
        .await;
}

#[tokio::test]
async fn a_changed_password_reaches_ironic_while_the_server_runs() {
    let (mut site, mut server) = provisioned().await;
    server.done.clear();
    let first = status(&site).good_credentials;
    let named = first.clone().unwrap().credentials.unwrap();
    assert_eq!(
        (named.name.as_str(), named.namespace.as_str()),
        (SECRET, "default")
    );
    assert_eq!(status(&site).tried_credentials, first);
    site.ironic.set_bmc(&node(), Some(DEAD));
    credentials(&site.store, "other");
    server.rounds(&mut site, 10).await;
    let said = status(&site);
    assert_eq!(
        said.good_credentials, first,
        "nobody has answered to others"
    );
    assert_ne!(said.tried_credentials, first);
    site.ironic.set_bmc(&node(), None);
    server.rounds(&mut site, 10).await;
    let said = status(&site);
    assert_eq!(said.good_credentials, said.tried_credentials);
    let (_, info) = site.ironic.driver(&node()).unwrap();
    assert_eq!(info["redfish_password"], "other");
    assert_eq!(server.done, [], "nobody touches the server for it");
    // Whoever does not know the objects yet, or cannot read an address, takes nothing away from Ironic.
    site.is_kubernetes_up = false;
    site.restart_controller();
    server.rounds(&mut site, 10).await;
    assert_eq!(site.ironic.driver(&node()).unwrap().0, "redfish");
    site.is_kubernetes_up = true;
    let mut good = String::new();
    site.store.change(HOST, |object| {
        let bmc = object.spec.bmc.as_mut().unwrap();
        good = std::mem::replace(&mut bmc.address, "redfish:///".to_owned());
    });
    server.rounds(&mut site, 10).await;
    assert_eq!(site.ironic.driver(&node()).unwrap().0, "redfish");
    assert_eq!(status(&site).error_type, Some(ErrorType::Registration));
    site.store.change(HOST, |object| {
        object.spec.bmc.as_mut().unwrap().address = good;
    });
    server.rounds(&mut site, 10).await;
    assert_eq!(status(&site).error_type, None);
    // The BMC is taken off the object: what was known of it goes.
    site.store.change(HOST, |object| object.spec.bmc = None);
    server.rounds(&mut site, 10).await;
    let (driver, info) = site.ironic.driver(&node()).unwrap();
    assert_eq!((driver.as_str(), info), ("manual-management", json!({})));
    assert_eq!(
        status(&site).provisioning.state,
        ProvisioningState::Provisioned
    );
}

/// Ironic takes another driver of an active node in maintenance only.
#[tokio::test]
async fn wherever_the_box_dies_while_ironic_is_told_of_a_bmc_the_node_is_as_wanted_and_never_failed()
 {
    let (mut site, mut server) = provisioned().await;
    let given = site.store.only().unwrap().spec.bmc;
    let ipmi = given.clone().map(|bmc| BmcDetails {
        address: "ipmi://127.0.0.1:6230".to_owned(),
        ..bmc
    });
    let turns = [
        (None, "manual-management"),
        (given, "redfish"),
        (ipmi, "ipmi"),
    ];
    for changes in 0..5 {
        for (bmc, driver) in &turns {
            site.store
                .change(HOST, |object| object.spec.bmc.clone_from(bmc));
            site.ironic.lose_after(changes);
            server.rounds(&mut site, 1).await;
            site.restart_controller();
            for _ in 0..20 {
                server.step(&mut site).await;
                let told = site.host().map(|host| (host.state, host.problem));
                let fine =
                    |told: &(HostState, Option<_>)| told.0 != HostState::Failed && told.1.is_none();
                assert!(
                    told.as_ref().is_none_or(fine),
                    "{driver}, {changes}: {told:?}"
                );
            }
            assert_eq!(site.ironic.driver(&node()).unwrap().0, *driver, "{changes}");
            let known = site.ironic.client().node(&node()).await.unwrap();
            assert!(!known.maintenance, "{driver}, {changes}");
        }
    }
    assert_eq!(server.machine.writes, 1);
}

#[tokio::test]
async fn what_somebody_put_into_maintenance_stays_so_whatever_its_object_names() {
    let (mut site, mut server) = provisioned().await;
    site.ironic.maintain(&node(), "bad memory");
    site.store.change(HOST, |object| object.spec.bmc = None);
    server.rounds(&mut site, 10).await;
    assert_eq!(site.ironic.driver(&node()).unwrap().0, "redfish");
    let known = site.ironic.client().node(&node()).await.unwrap();
    assert_eq!(known.maintenance_reason.as_deref(), Some("bad memory"));
    assert!(
        site.problem().contains("into maintenance"),
        "{}",
        site.problem()
    );
}

#[tokio::test]
async fn a_bmc_that_dies_is_told_and_nothing_is_written_twice() {
    let (mut site, mut server) = provisioned().await;
    server.done.clear();
    site.ironic.set_bmc(&node(), Some(DEAD));
    server.rounds(&mut site, 10).await;
    let said = status(&site);
    assert_eq!(said.error_type, Some(ErrorType::PowerManagement));
    assert_eq!(said.provisioning.state, ProvisioningState::Provisioned);
    site.store.change(HOST, |object| object.spec.image = None);
    server.rounds(&mut site, 30).await;
    assert_eq!(server.done, []);
    site.ironic.set_bmc(&node(), None);
    let cleaned = |site: &Site| site.ironic.cleans(&node()) == 1;
    server.until("cleaned", &mut site, cleaned).await;
    assert_eq!(server.machine.writes, 1);
    server.rounds(&mut site, 1).await;
    assert_eq!(status(&site).error_type, None);
}

#[tokio::test]
async fn a_system_of_its_owners_is_only_switched() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Racked::new(&site);
    credentials(&site.store, "hunter2");
    manifest(&site, |object| object.spec.externally_provisioned = true);
    server
        .until("on", &mut site, |site| {
            site.ironic.state(&node()).is_some() && on(site)
        })
        .await;
    server.rounds(&mut site, 20).await;
    assert_eq!(server.done, [Switch::Disk]);
    site.store.change(HOST, |object| object.spec.online = false);
    server.until("off", &mut site, off).await;
    assert_eq!(server.done, [Switch::Disk, Switch::Off]);
    assert_eq!(
        status(&site).provisioning.state,
        ProvisioningState::ExternallyProvisioned
    );
    assert_eq!(server.machine.writes, 0);
}

#[tokio::test]
async fn a_ramdisk_that_is_lost_is_brought_back_by_the_bmc() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = Racked::new(&site);
    credentials(&site.store, "hunter2");
    manifest(&site, |_| ());
    let staged = |site: &Site| site.state() == Some(HostState::Staged);
    let deploying = |site: &Site| site.ironic.state(&node()) == Some(ProvisionState::DeployWait);
    server.until("deploying", &mut site, deploying).await;
    server.is_on = false;
    server.done.clear();
    server.until("staged", &mut site, staged).await;
    assert_eq!(server.machine.writes, 1);
    assert!(server.done.contains(&Switch::Network), "{:?}", server.done);
}
