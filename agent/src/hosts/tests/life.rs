//! The life after the installation: claims, deprovisioning, deletion.

use firstlight_api::{
    bmh::{Image, ObjectReference, ProvisioningState, SecretReference},
    order::DiskPolicy,
    start::Start,
};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;
use crate::fleet::BootstrapData;

/// A server with its own idea of what is on its disk; it does whatever it is told.
pub struct Machine {
    pub server: Server,
    /// It runs the system on its disk, not the ramdisk.
    pub runs_disk: bool,
    /// The installed system has its data.
    pub data: Option<String>,
    pub given: Option<Box<BootstrapData>>,
    pub writes: usize,
    /// Disks that it expects to be told to erase.
    pub erased: usize,
}

impl Machine {
    pub fn new<L>(site: &Site<L>) -> Self {
        Self {
            server: Server::new(site.ironic.client()),
            runs_disk: false,
            data: None,
            given: None,
            writes: 0,
            erased: 1,
        }
    }

    pub fn switch_on<L: Luck>(&mut self, site: &Site<L>) {
        self.server.power_cycle();
        self.runs_disk = site.boot_target() == BootTarget::Disk;
    }

    /// One round of whatever it is doing.
    pub async fn step<L: Luck>(&mut self, site: &mut Site<L>) {
        if self.runs_disk {
            return self.ask(site).await;
        }
        if self.server.step(site).await {
            self.runs_disk = true;
            return;
        }
        let here = self.server.known.is_some() && site.ironic.has_agent(&node());
        match site.ironic.state(&node()) {
            Some(ProvisionState::DeployWait) if here => {
                let order = ordered(site).await.unwrap();
                let deployment = order.deployment;
                let installed = Some(Mark::Installed { deployment });
                // Ironic's next word comes later, and anything may happen before it.
                if self.server.mark == installed {
                    let kexec = start_order(site).await.kexec;
                    let start = if kexec {
                        Start::Kexec
                    } else {
                        Start::default()
                    };
                    self.server.tell(site, Phase::Rebooting { start }).await;
                    site.ironic.finish_deploy(&node());
                    self.switch_on(site);
                    self.runs_disk |= kexec;
                    return;
                }
                self.writes += 1;
                self.data = None;
                assert_eq!(order.policy, DiskPolicy::Blank);
                self.server.signatures = vec!["gpt".into()];
                self.server.mark = installed;
                self.server.tell(site, Phase::Written { wrote: None }).await;
            }
            Some(ProvisionState::CleanWait) if here => {
                let order = ordered(site).await.unwrap();
                let held = self.server.mark.and_then(Mark::deployment);
                assert_eq!(
                    (order.policy, order.deployment),
                    (DiskPolicy::GiveBack, held)
                );
                assert_eq!(order.disks.len(), self.erased);
                self.server.signatures.clear();
                self.server.mark = None;
                site.ironic.finish_clean(&node());
            }
            _ => {}
        }
    }

    /// The installed system at the bootstrap endpoint.
    async fn ask<L: Luck>(&mut self, site: &mut Site<L>) {
        let drive = site.ironic.config_drive(&node()).unwrap_or_default();
        let Some(token) = drive["meta_data"]["firstlight"]["token"].as_str() else {
            return;
        };
        if self.data.is_some() {
            return;
        }
        let key = key_of(&drive);
        match site.bootstrap(token, key, Ask::Fetch).await {
            Some(Answer::Bootstrap(data)) => {
                let received = firstlight_artifacts::hex(&Sha256::digest(&data.user_data));
                let confirmed = site.bootstrap(token, key, Ask::Confirm { received }).await;
                if matches!(confirmed, Some(Answer::Confirmed | Answer::Used)) {
                    self.data = Some(data.user_data.clone());
                    self.given = Some(data);
                }
            }
            // It had them before the answer got lost.
            Some(Answer::Used) => self.data = Some(String::new()),
            Some(Answer::Reboot) => {
                self.server.power_cycle();
                self.runs_disk = false;
            }
            _ => {}
        }
    }

    pub async fn until<L: Luck>(
        &mut self,
        what: &str,
        site: &mut Site<L>,
        reached: impl Fn(&Site<L>, &Self) -> bool,
    ) {
        for _ in 0..ROUNDS {
            if reached(site, self) {
                return;
            }
            self.step(site).await;
            site.pass(ROUND).await;
        }
        panic!("waited for {what}; {}", site.told());
    }
}

pub fn is_in<L>(site: &Site<L>, state: ProvisioningState) -> bool {
    let object = site.store.only();
    let status = object.and_then(|object| object.status);
    status.is_some_and(|status| status.provisioning.state == state)
}

pub fn shows<L: Luck>(site: &Site<L>, state: HostState) -> bool {
    site.state() == Some(state)
}

/// As the infrastructure provider claims a host.
pub fn claim<L>(site: &Site<L>) {
    site.store.change(NAME, |object| {
        object.spec.image = Some(Image {
            url: "http://172.22.0.1/images/node.raw.zst".into(),
            checksum: "ab".repeat(32),
            ..Image::default()
        });
        object.spec.user_data = Some(SecretReference {
            name: "m1".into(),
            ..SecretReference::default()
        });
    });
    hold(site);
}

/// The first that a machine says of its host.
fn hold<L>(site: &Site<L>) {
    site.store.change(NAME, |object| {
        object.spec.consumer_ref = Some(ObjectReference {
            name: "m1".into(),
            ..ObjectReference::default()
        });
    });
}

/// Its machine goes, and waits until it is clean.
pub fn let_go<L>(site: &Site<L>) {
    site.store.change(NAME, |object| {
        (object.spec.image, object.spec.user_data) = (None, None);
    });
}

pub fn is_clean<L: Luck>(site: &Site<L>, _: &Machine) -> bool {
    shows(site, HostState::Available) && is_in(site, ProvisioningState::Available)
}

/// Its machine is gone.
pub fn give_back<L>(site: &Site<L>) {
    site.store
        .change(NAME, |object| object.spec.consumer_ref = None);
}

pub fn delete<L>(site: &Site<L>) {
    site.store.change(NAME, |object| {
        object.metadata.deletion_timestamp = Some("2026-11-21T00:00:00Z".into());
    });
}

/// What the box has about the host's SSH.
fn kept<L>(site: &Site<L>, file: &str) -> String {
    let dir = site.state.path().join("ssh/52-54-00-00-00-01");
    std::fs::read_to_string(dir.join(file)).unwrap()
}

pub fn assert_has_its_key<L>(site: &Site<L>, machine: &Machine) {
    let key = machine.given.as_ref().unwrap().host_key.as_ref().unwrap();
    assert_eq!(key.private, kept(site, "host_key"));
    assert_eq!(format!("node {}", key.public), kept(site, "known_hosts"));
}

#[tokio::test]
async fn a_host_of_the_cluster_is_written_once_before_it_is_claimed_and_gets_its_data_once() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut machine = Machine::new(&site);
    // Staged for the page; for Kubernetes it is available, because nobody has claimed it.
    let staged = |site: &Site, _: &Machine| {
        shows(site, HostState::Staged) && is_in(site, ProvisioningState::Available)
    };
    machine.until("staged", &mut site, staged).await;
    let drive = site.ironic.config_drive(&node()).unwrap();
    assert_eq!(drive["user_data"], "");
    assert_eq!(
        drive["meta_data"]["firstlight_packages"],
        json!({"host": "172.22.0.1", "base": "BASE", "uploads": "UPLOADS"})
    );
    let token = drive["meta_data"]["firstlight"]["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let meta_data = &drive["meta_data"];
    let own = &meta_data["firstlight_access"];
    assert_eq!(own["user"], "box-525400000001");
    assert_eq!(own["key"], kept(&site, "key.pub").trim());
    assert_eq!(
        meta_data["public_keys"],
        serde_json::json!({}),
        "it is nobody else's"
    );
    assert!(
        !drive.to_string().contains("PRIVATE"),
        "the host key goes over TLS only"
    );
    let stored = serde_json::to_string(&site.disk[&mac()]).unwrap();
    assert!(!stored.contains(&token), "only its digest is kept");
    let wrong = site
        .bootstrap(&"0".repeat(64), key_of(&drive), Ask::Fetch)
        .await;
    assert_eq!(wrong, Some(Answer::WrongToken));
    for thief in [None, Some(PublicKey::new([99; 32]))] {
        let stolen = site.bootstrap(&token, thief, Ask::Fetch).await;
        assert_eq!(stolen, Some(Answer::WrongToken), "a token alone is nothing");
    }

    // Held by its machine, whose data are still being made: its system goes on waiting.
    hold(&site);
    for _ in 0..20 {
        machine.step(&mut site).await;
        site.pass(ROUND).await;
        let answer = site.bootstrap(&token, key_of(&drive), Ask::Fetch).await;
        assert!(matches!(answer, Some(Answer::Wait { .. })), "{answer:?}");
        assert!(staged(&site, &machine), "{}", site.told());
    }
    claim(&site);
    let delivered = |site: &Site, machine: &Machine| {
        machine.data.is_some() && is_in(site, ProvisioningState::Provisioned)
    };
    machine.until("provisioned", &mut site, delivered).await;
    assert_eq!(machine.data.as_deref(), Some("#cloud-config of m1\n"));
    assert_has_its_key(&site, &machine);
    assert_eq!(
        (machine.writes, site.ironic.deploys(&node())),
        (1, 1),
        "no second write"
    );
    let again = site.bootstrap(&token, key_of(&drive), Ask::Fetch).await;
    assert_eq!(again, Some(Answer::Used), "the token works no more");
}

#[tokio::test]
async fn a_host_that_an_older_box_staged_lets_the_box_in_as_it_did_then() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| shows(site, HostState::Staged);
    machine.until("staged", &mut site, staged).await;
    let key = kept(&site, "key.pub");
    let dir = site.state.path().join("ssh/52-54-00-00-00-01");
    for file in ["host_key.pub", "host_key", "known_hosts"] {
        std::fs::remove_file(dir.join(file)).unwrap();
    }
    claim(&site);
    let delivered = |_: &Site, machine: &Machine| machine.given.is_some();
    machine.until("delivered", &mut site, delivered).await;
    let given = machine.given.unwrap();
    assert_eq!(given.host_key, None);
    assert_eq!(given.meta_data["public-keys"]["key-0"], key.trim());
}

#[tokio::test]
async fn a_host_that_is_let_go_is_cleaned_and_staged_again_and_a_deleted_one_stays_away() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| shows(site, HostState::Staged);
    machine.until("staged", &mut site, staged).await;
    let carries = |site: &Site, _: &Machine| {
        let status = site.store.only().and_then(|object| object.status);
        status.is_some_and(|status| status.provisioning.image.is_some())
    };
    machine
        .until("machines can tell what it carries", &mut site, carries)
        .await;
    assert!(is_in(&site, ProvisioningState::Available));
    claim(&site);
    machine
        .until("data", &mut site, |_, machine| machine.data.is_some())
        .await;
    let_go(&site);
    // Its system has no SSH here, so a person is asked.
    let asked = |site: &Site, _: &Machine| {
        let problem = site.host().and_then(|host| host.problem);
        problem.is_some_and(|problem| problem.next.contains("network boot"))
            && is_in(site, ProvisioningState::Deprovisioning)
    };
    machine.until("a person is asked", &mut site, asked).await;
    machine.switch_on(&site);
    assert!(!machine.runs_disk, "the box brings it into the ramdisk");
    machine.until("clean", &mut site, is_clean).await;
    give_back(&site);
    let again =
        |site: &Site, machine: &Machine| machine.writes == 2 && shows(site, HostState::Staged);
    machine.until("staged again", &mut site, again).await;
    assert_eq!(site.ironic.cleans(&node()), 1);

    let keys = site.hands.keys.clone();
    assert!(keys.public(mac()).await.is_some());
    delete(&site);
    let gone = |site: &Site, _: &Machine| {
        site.ironic.state(&node()).is_none()
            && site.store.only().is_none_or(|object| !object.is_deleted())
    };
    machine.until("gone", &mut site, gone).await;
    assert!(machine.server.signatures.is_empty(), "it left clean");
    assert_eq!(
        keys.public(mac()).await,
        None,
        "the login goes with the host"
    );
    let back = |site: &Site, _: &Machine| site.problem().contains("removed");
    machine
        .until("listed and left alone", &mut site, back)
        .await;
    assert_eq!(site.ironic.state(&node()), None);
}

#[tokio::test]
async fn a_power_cut_of_the_box_after_the_last_byte_does_not_install_twice() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    server.tell(&mut site, Phase::REBOOTING).await;
    assert_eq!(site.host().unwrap().step, "restarting from its disk");
    site.ironic.fail_deploy(&node(), "the box lost its power");
    site.restart_controller();
    server.power_cycle();
    server.signatures = vec!["gpt".into()];
    server.until_ironic(&mut site, ProvisionState::Active).await;
    server.until_told_to_boot_disk(&mut site).await;
    assert_eq!(site.ironic.deploys(&node()), 1);
}

#[tokio::test]
async fn an_object_that_gets_lost_takes_nothing_away_from_a_host_in_use() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| {
        shows(site, HostState::Staged) && is_in(site, ProvisioningState::Available)
    };
    machine.until("staged", &mut site, staged).await;
    claim(&site);
    let provisioned = |site: &Site, machine: &Machine| {
        machine.data.is_some() && is_in(site, ProvisioningState::Provisioned)
    };
    machine.until("provisioned", &mut site, provisioned).await;
    for restart in [false, true] {
        site.store.objects.lock().unwrap().clear();
        if restart {
            site.restart_controller();
        }
        // It comes to the ramdisk by chance, where it could be torn down at once.
        machine.server.power_cycle();
        machine.runs_disk = false;
        machine
            .until("provisioned again", &mut site, provisioned)
            .await;
        for _ in 0..20 {
            machine.step(&mut site).await;
            site.pass(ROUND).await;
        }
        assert_eq!(
            site.ironic.state(&node()),
            Some(ProvisionState::Active),
            "restart: {restart}"
        );
    }
    assert_eq!((machine.writes, site.ironic.cleans(&node())), (1, 0));
}

/// The installed system has the private half of it.
pub fn key_of(drive: &serde_json::Value) -> Option<PublicKey> {
    PublicKey::parse(drive["meta_data"]["firstlight"]["key"].as_str()?)
}

#[tokio::test]
async fn a_second_object_for_the_same_server_takes_nothing_from_it() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| shows(site, HostState::Staged);
    machine.until("staged", &mut site, staged).await;
    claim(&site);
    machine
        .until("data", &mut site, |_, machine| machine.data.is_some())
        .await;
    // As the manifest of another Metal3 says it, or a copy in which the MAC was forgotten: without an image.
    site.store.change(TWIN, |object| {
        object.spec.boot_mac_address = MAC.to_uppercase();
        object.spec.online = true;
    });
    for restarted in [false, true] {
        if restarted {
            site.restart_controller();
        }
        for _ in 0..20 {
            machine.step(&mut site).await;
            site.pass(ROUND).await;
        }
        assert_eq!(site.ironic.state(&node()), Some(ProvisionState::Active));
        assert_eq!((site.ironic.cleans(&node()), machine.writes), (0, 1));
        let told = &site.strays.problems[0];
        assert!(
            told.what.contains("rack1-n3 is not looked at")
                && told.next.contains("delete bmh rack1-n3"),
            "{told:?}"
        );
    }
    site.store
        .objects
        .lock()
        .unwrap()
        .retain(|object| object.metadata.name != TWIN);
    site.pass(ROUND).await;
    assert_eq!(site.strays, Strays::default());
}
