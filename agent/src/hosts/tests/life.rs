//! The life after the installation: claims, deprovisioning, deletion, and the controller killed anywhere in it.

use firstlight_api::bmh::{Image, ObjectReference, SecretReference};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;
use crate::fleet::{Answer, Ask, BootstrapData};

/// A server with its own idea of what is on its disk; it does whatever it is told.
struct Machine {
    server: Server,
    /// It runs the system on its disk, not the ramdisk.
    runs_disk: bool,
    /// The installed system has its data.
    data: Option<String>,
    given: Option<Box<BootstrapData>>,
    writes: usize,
}

impl Machine {
    fn new(site: &Site) -> Self {
        Self {
            server: Server::new(site.ironic.client()),
            runs_disk: false,
            data: None,
            given: None,
            writes: 0,
        }
    }

    fn switch_on(&mut self, site: &Site) {
        self.server.power_cycle();
        self.runs_disk = site.fleet.boot_target(mac()) == BootTarget::Disk;
    }

    /// One round of whatever it is doing.
    async fn step(&mut self, site: &Site) {
        if self.runs_disk {
            return self.ask(site).await;
        }
        if self.server.step(&site.fleet).await {
            self.runs_disk = true;
            return;
        }
        let here = self.server.known.is_some() && site.ironic.has_agent(&node());
        match site.ironic.state(&node()) {
            Some(ProvisionState::DeployWait) if here => {
                self.writes += 1;
                self.data = None;
                let order = ordered(site).await.unwrap();
                assert_eq!(order.policy, DiskPolicy::Blank);
                let deployment = order.deployment;
                self.server.signatures = vec!["gpt".into()];
                self.server.mark = Some(Mark::Installed { deployment });
                self.server.tell(site, Phase::Rebooting);
                tokio::time::sleep(Duration::from_millis(5)).await;
                site.ironic.finish_deploy(&node());
                self.switch_on(site);
            }
            Some(ProvisionState::CleanWait) if here => {
                let order = ordered(site).await.unwrap();
                let held = self.server.mark.and_then(Mark::deployment);
                assert_eq!(
                    (order.policy, order.deployment),
                    (DiskPolicy::GiveBack, held)
                );
                assert_eq!(order.disks.len(), 1);
                self.server.signatures.clear();
                self.server.mark = None;
                site.ironic.finish_clean(&node());
            }
            _ => {}
        }
    }

    /// The installed system at the bootstrap endpoint.
    async fn ask(&mut self, site: &Site) {
        let drive = site.ironic.config_drive(&node()).unwrap_or_default();
        let Some(token) = drive["meta_data"]["firstlight"]["token"].as_str() else {
            return;
        };
        if self.data.is_some() {
            return;
        }
        let key = key_of(&drive);
        let ask = |ask| site.fleet.bootstrap(node(), token.to_owned(), key, ask);
        match ask(Ask::Fetch).await {
            Answer::Bootstrap(data) => {
                let received = firstlight_artifacts::hex(&Sha256::digest(&data.user_data));
                let confirmed = ask(Ask::Confirm { received }).await;
                if matches!(confirmed, Answer::Confirmed | Answer::Used) {
                    self.data = Some(data.user_data.clone());
                    self.given = Some(data);
                }
            }
            Answer::Reboot => {
                self.server.power_cycle();
                self.runs_disk = false;
            }
            _ => {}
        }
    }

    async fn until(
        &mut self,
        what: &str,
        site: &mut Site,
        reached: impl Fn(&Site, &Self) -> bool,
        mut after_each: impl FnMut(&mut Site),
    ) {
        let rounds = async {
            while !reached(site, self) {
                self.step(site).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                after_each(site);
            }
        };
        let in_time = tokio::time::timeout(Duration::from_mins(1), rounds).await;
        assert!(
            in_time.is_ok(),
            "waited for {what}; Ironic {:?}, page {:?}, object {:?}",
            site.ironic.state(&node()),
            site.host(),
            site.store.only()
        );
    }
}

fn is_in(site: &Site, state: ProvisioningState) -> bool {
    let object = site.store.only();
    let status = object.and_then(|object| object.status);
    status.is_some_and(|status| status.provisioning.state == state)
}

fn shows(site: &Site, state: HostState) -> bool {
    site.host().is_some_and(|host| host.state == state)
}

const NAME: &str = "host-525400000001";

/// As the infrastructure provider claims a host.
fn claim(site: &Site) {
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
        object.spec.consumer_ref = Some(ObjectReference {
            name: "m1".into(),
            ..ObjectReference::default()
        });
    });
}

/// Its machine goes, and waits until it is clean.
fn let_go(site: &Site) {
    site.store.change(NAME, |object| {
        (object.spec.image, object.spec.user_data) = (None, None);
    });
}

fn is_clean(site: &Site, _: &Machine) -> bool {
    shows(site, HostState::Available) && is_in(site, ProvisioningState::Available)
}

/// Its machine is gone.
fn give_back(site: &Site) {
    site.store
        .change(NAME, |object| object.spec.consumer_ref = None);
}

fn delete(site: &Site) {
    site.store.change(NAME, |object| {
        object.metadata.deletion_timestamp = Some("2026-11-21T00:00:00Z".into());
    });
}

/// What the box has about the host's SSH.
fn kept(site: &Site, file: &str) -> String {
    let dir = site.state.path().join("ssh/52-54-00-00-00-01");
    std::fs::read_to_string(dir.join(file)).unwrap()
}

fn assert_has_its_key(site: &Site, machine: &Machine) {
    let key = machine.given.as_ref().unwrap().host_key.as_ref().unwrap();
    assert_eq!(key.private, kept(site, "host_key"));
    assert_eq!(format!("node {}", key.public), kept(site, "known_hosts"));
}

async fn up(destiny: Destiny) -> Site {
    let site = Site::destined(free_port().await, destiny).await;
    site.ironic_comes_up();
    site.kubernetes_comes_up();
    site
}

#[tokio::test]
async fn a_host_of_the_cluster_is_written_once_before_it_is_claimed_and_gets_its_data_once() {
    let mut site = up(Destiny::Cluster).await;
    let mut machine = Machine::new(&site);
    // Staged for the page; for Kubernetes it is available, because nobody has claimed it.
    let staged = |site: &Site, _: &Machine| {
        shows(site, HostState::Staged) && is_in(site, ProvisioningState::Available)
    };
    machine.until("staged", &mut site, staged, |_| {}).await;
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
    let stored =
        std::fs::read_to_string(site.state.path().join("hosts/52-54-00-00-00-01.json")).unwrap();
    assert!(!stored.contains(&token), "only its digest is kept");
    let wrong = site
        .fleet
        .bootstrap(node(), "0".repeat(64), key_of(&drive), Ask::Fetch)
        .await;
    assert_eq!(wrong, Answer::WrongToken);
    for thief in [None, Some(PublicKey::new([99; 32]))] {
        let stolen = site
            .fleet
            .bootstrap(node(), token.clone(), thief, Ask::Fetch);
        assert_eq!(stolen.await, Answer::WrongToken, "a token alone is nothing");
    }

    claim(&site);
    let delivered = |site: &Site, machine: &Machine| {
        machine.data.is_some() && is_in(site, ProvisioningState::Provisioned)
    };
    machine
        .until("provisioned", &mut site, delivered, |_| {})
        .await;
    assert_eq!(machine.data.as_deref(), Some("#cloud-config of m1\n"));
    assert_has_its_key(&site, &machine);
    assert_eq!(
        (machine.writes, site.ironic.deploys(&node())),
        (1, 1),
        "no second write"
    );
    let again = site
        .fleet
        .bootstrap(node(), token, key_of(&drive), Ask::Fetch)
        .await;
    assert_eq!(again, Answer::Used, "the token works no more");
}

#[tokio::test]
async fn a_host_that_an_older_box_staged_lets_the_box_in_as_it_did_then() {
    let mut site = up(Destiny::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| shows(site, HostState::Staged);
    machine.until("staged", &mut site, staged, |_| {}).await;
    let key = kept(&site, "key.pub");
    let dir = site.state.path().join("ssh/52-54-00-00-00-01");
    for file in ["host_key.pub", "host_key", "known_hosts"] {
        std::fs::remove_file(dir.join(file)).unwrap();
    }
    claim(&site);
    let delivered = |_: &Site, machine: &Machine| machine.given.is_some();
    machine
        .until("delivered", &mut site, delivered, |_| {})
        .await;
    let given = machine.given.unwrap();
    assert_eq!(given.host_key, None);
    assert_eq!(given.meta_data["public-keys"]["key-0"], key.trim());
}

#[tokio::test]
async fn a_host_that_is_let_go_is_cleaned_and_staged_again_and_a_deleted_one_stays_away() {
    let mut site = up(Destiny::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| shows(site, HostState::Staged);
    machine.until("staged", &mut site, staged, |_| {}).await;
    claim(&site);
    machine
        .until(
            "data",
            &mut site,
            |_, machine| machine.data.is_some(),
            |_| {},
        )
        .await;
    let_go(&site);
    // Its system has no SSH here, so a person is asked.
    let asked = |site: &Site, _: &Machine| {
        let problem = site.host().and_then(|host| host.problem);
        problem.is_some_and(|problem| problem.next.contains("network boot"))
            && is_in(site, ProvisioningState::Deprovisioning)
    };
    machine
        .until("a person is asked", &mut site, asked, |_| {})
        .await;
    machine.switch_on(&site);
    assert!(!machine.runs_disk, "the box brings it into the ramdisk");
    machine.until("clean", &mut site, is_clean, |_| {}).await;
    give_back(&site);
    let again =
        |site: &Site, machine: &Machine| machine.writes == 2 && shows(site, HostState::Staged);
    machine
        .until("staged again", &mut site, again, |_| {})
        .await;
    assert_eq!(site.ironic.cleans(&node()), 1);

    let keys = Keys::new(site.state.path().join("ssh"), site.ssh_port);
    assert!(keys.public(mac()).await.is_some());
    delete(&site);
    let gone = |site: &Site, _: &Machine| {
        site.ironic.state(&node()).is_none()
            && site.store.only().is_none_or(|object| !object.is_deleted())
    };
    machine.until("gone", &mut site, gone, |_| {}).await;
    assert!(machine.server.signatures.is_empty(), "it left clean");
    assert_eq!(
        keys.public(mac()).await,
        None,
        "the login goes with the host"
    );
    let back = |site: &Site, _: &Machine| {
        let host = site.host();
        host.and_then(|host| host.problem)
            .is_some_and(|problem| problem.what.contains("removed"))
    };
    machine
        .until("listed and left alone", &mut site, back, |_| {})
        .await;
    assert_eq!(site.ironic.state(&node()), None);
}

#[tokio::test]
async fn a_power_cut_of_the_box_after_the_last_byte_does_not_install_twice() {
    let mut site = Site::start(free_port().await).await;
    site.ironic_comes_up();
    site.kubernetes_comes_up();
    let mut server = Server::new(site.ironic.client());
    server.until(&mut site, ProvisionState::DeployWait).await;
    server.tell(&site, Phase::Rebooting);
    site.wait_for("the last word", |host| {
        host.step == "restarting from its disk"
    })
    .await;
    site.ironic.fail_deploy(&node(), "the box lost its power");
    site.restart_controller();
    server.power_cycle();
    server.signatures = vec!["gpt".into()];
    server.until(&mut site, ProvisionState::Active).await;
    server.until_told_to_boot_disk(&site).await;
    assert_eq!(site.ironic.deploys(&node()), 1);
}

#[tokio::test]
async fn an_object_that_gets_lost_takes_nothing_away_from_a_host_in_use() {
    let mut site = up(Destiny::Cluster).await;
    let mut machine = Machine::new(&site);
    let staged = |site: &Site, _: &Machine| {
        shows(site, HostState::Staged) && is_in(site, ProvisioningState::Available)
    };
    machine.until("staged", &mut site, staged, |_| {}).await;
    claim(&site);
    let provisioned = |site: &Site, machine: &Machine| {
        machine.data.is_some() && is_in(site, ProvisioningState::Provisioned)
    };
    machine
        .until("provisioned", &mut site, provisioned, |_| {})
        .await;
    for restart in [false, true] {
        site.store.0.lock().unwrap().clear();
        if restart {
            site.restart_controller();
        }
        // It comes to the ramdisk by chance, where it could be torn down at once.
        machine.server.power_cycle();
        machine.runs_disk = false;
        machine
            .until("provisioned again", &mut site, provisioned, |_| {})
            .await;
        for _ in 0..20 {
            machine.step(&site).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(
            site.ironic.state(&node()),
            Some(ProvisionState::Active),
            "restart: {restart}"
        );
    }
    assert_eq!((machine.writes, site.ironic.cleans(&node())), (1, 0));
}

/// splitmix64: a seed tells the whole run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The whole life, with the controller killed after about every `mean`th round, and now and then Ironic with it.
async fn killed_life(seed: u64, kills: &mut usize) {
    let mut dice = seed;
    let mut site = up(Destiny::Cluster).await;
    let mut machine = Machine::new(&site);
    let mut killed = 0;
    let mut kill = |site: &mut Site| {
        if random(&mut dice).is_multiple_of(9) && killed < 12 {
            killed += 1;
            site.restart_controller();
        }
    };
    let staged = |site: &Site, _: &Machine| shows(site, HostState::Staged);
    machine.until("staged", &mut site, staged, &mut kill).await;
    claim(&site);
    let provisioned = |site: &Site, machine: &Machine| {
        machine.data.is_some() && is_in(site, ProvisioningState::Provisioned)
    };
    machine
        .until("provisioned", &mut site, provisioned, &mut kill)
        .await;
    assert_eq!(machine.writes, 1, "seed {seed}");
    assert_has_its_key(&site, &machine);
    let_go(&site);
    let leaving = |site: &Site, _: &Machine| shows(site, HostState::Deprovisioning);
    machine
        .until("deprovisioning", &mut site, leaving, &mut kill)
        .await;
    machine.switch_on(&site);
    machine.until("clean", &mut site, is_clean, &mut kill).await;
    give_back(&site);
    let again =
        |site: &Site, machine: &Machine| machine.writes == 2 && shows(site, HostState::Staged);
    machine
        .until("staged again", &mut site, again, &mut kill)
        .await;
    assert_eq!(site.ironic.cleans(&node()), 1, "seed {seed}");
    assert_eq!(
        site.ironic.state(&node()),
        Some(ProvisionState::Active),
        "seed {seed}"
    );
    *kills += killed;
}

#[tokio::test]
async fn a_hundred_kills_of_the_controller_anywhere_end_in_the_same_state() {
    let (mut kills, mut seed) = (0, 1);
    while kills < 100 {
        killed_life(seed, &mut kills).await;
        seed += 1;
    }
}

/// The installed system has the private half of it.
fn key_of(drive: &serde_json::Value) -> Option<PublicKey> {
    PublicKey::parse(drive["meta_data"]["firstlight"]["key"].as_str()?)
}
