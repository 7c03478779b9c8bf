//! Whole installations: the controller, the fake Ironic, objects in memory, and a server that does what our ramdisk does.
#![allow(clippy::unwrap_used)]

mod life;
mod live;
mod tpm;
mod who;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use firstlight_api::{
    bmh::{BareMetalHost, INSTALL_ANNOTATION, OperationalStatus, ProvisioningState},
    order::{DiskId, DiskOrder, DiskPolicy, Mark},
    report::{Directive, DiskSignatures, Fresh, Inventory, LookupState, Phase, Progress, Report},
    signed::PublicKey,
    site::SiteConfig,
    status::{HostState, HostStatus},
    tpm::Tpm,
};
use firstlight_ironic::{
    ProvisionState,
    fake::{FakeIronic, LookupAnswer, Ramdisk},
};
use firstlight_netboot::{BootTarget, MacAddr};
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinHandle,
};

use super::{
    actor::{self, Inputs, Pace, Settings},
    apply::node_uuid,
    image::NodeImage,
    ledger::Ledgers,
    poll::IronicEnd,
    store::{Amendment, HostStore, Secret},
    who::Patience,
    wish::Destiny,
};
use crate::{
    capi::Listed,
    fleet::{self, Fleet, Input, Speaker},
    sources::Sources,
    ssh::Keys,
};

const MAC: &str = "52:54:00:00:00:01";

/// Of a server with nothing in it.
pub fn a_report() -> Report {
    Report {
        boot_mac: MAC.into(),
        boot_id: "boot-1".into(),
        address: "127.0.0.1".into(),
        inventory: Inventory::default(),
        disks: vec![],
        lookup: LookupState::NotAsked,
        tpm: Tpm::default(),
        fresh: Fresh::default(),
    }
}

fn mac() -> MacAddr {
    MAC.parse().unwrap()
}

fn node() -> String {
    node_uuid(mac())
}

/// The API server's part in this: objects by name.
#[derive(Clone, Default)]
struct MemoryStore(Arc<Mutex<Vec<BareMetalHost>>>);

impl MemoryStore {
    fn change(&self, name: &str, change: impl FnOnce(&mut BareMetalHost)) {
        let mut objects = self.0.lock().unwrap();
        let index = objects
            .iter()
            .position(|object| object.metadata.name == name)
            .unwrap_or_else(|| {
                objects.push(BareMetalHost::new(
                    name,
                    "default",
                    firstlight_api::bmh::BareMetalHostSpec::default(),
                ));
                objects.len() - 1
            });
        change(&mut objects[index]);
    }

    fn only(&self) -> Option<BareMetalHost> {
        let objects = self.0.lock().unwrap();
        assert!(objects.len() <= 1, "one server is one object: {objects:?}");
        objects.first().cloned()
    }
}

impl HostStore for MemoryStore {
    async fn list(&self) -> anyhow::Result<Listed<BareMetalHost>> {
        Ok(Listed {
            objects: self.0.lock().unwrap().clone(),
            unreadable: Vec::new(),
        })
    }

    async fn create(&self, host: &BareMetalHost) -> anyhow::Result<()> {
        self.change(&host.metadata.name, |object| {
            object.spec = host.spec.clone();
            object.metadata.finalizers = host.metadata.finalizers.clone();
        });
        Ok(())
    }

    async fn amend(&self, host: &BareMetalHost, amendment: &Amendment) -> anyhow::Result<()> {
        self.change(&host.metadata.name, |object| {
            if let Some(image) = &amendment.image {
                object.spec.image = Some(image.clone());
            }
            if let Some(finalizers) = &amendment.finalizers {
                object.metadata.finalizers.clone_from(finalizers);
            }
            for name in &amendment.forget {
                object.metadata.annotations.remove(name);
            }
        });
        // As the API server does: a deleted object without finalizers is gone.
        self.0
            .lock()
            .unwrap()
            .retain(|object| !object.is_deleted() || !object.metadata.finalizers.is_empty());
        Ok(())
    }

    async fn apply_hardware(&self, _: &firstlight_api::bmh::HardwareData) -> anyhow::Result<()> {
        Ok(())
    }

    async fn secret(&self, _: &str, name: &str) -> anyhow::Result<Option<Secret>> {
        let data = format!("#cloud-config of {name}\n").into_bytes();
        Ok(Some(Secret::from([("value".to_owned(), data)])))
    }

    async fn apply_status(&self, host: &BareMetalHost) -> anyhow::Result<()> {
        self.change(&host.metadata.name, |object| {
            object.status = host.status.clone();
        });
        Ok(())
    }
}

/// The box: what survives a restart of the controller, and the controller.
struct Site {
    ironic: FakeIronic,
    ironic_end: watch::Sender<Option<IronicEnd>>,
    store: MemoryStore,
    store_end: watch::Sender<Option<MemoryStore>>,
    ssh_port: u16,
    destiny: Destiny,
    patience: Patience,
    state: tempfile::TempDir,
    fleet: Fleet,
    hosts: watch::Receiver<Vec<HostStatus>>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Site {
    /// Ironic and Kubernetes are not up yet.
    async fn start(ssh_port: u16) -> Self {
        Self::destined(ssh_port, Destiny::Plain).await
    }

    async fn destined(ssh_port: u16, destiny: Destiny) -> Self {
        Self::with(ssh_port, destiny, IMPATIENT).await
    }

    /// A server that is silent for a while is still there.
    async fn patient(ssh_port: u16) -> Self {
        Self::with(ssh_port, Destiny::Plain, Patience::default()).await
    }

    async fn with(ssh_port: u16, destiny: Destiny, patience: Patience) -> Self {
        let ironic_end = watch::Sender::new(None);
        let store_end = watch::Sender::new(None);
        let state = tempfile::tempdir().unwrap();
        let (fleet, hosts, task) = controller(
            &ironic_end,
            &store_end,
            ssh_port,
            (destiny, patience),
            state.path(),
        );
        let ironic = FakeIronic::start().await.unwrap();
        Self {
            ironic,
            ironic_end,
            store: MemoryStore::default(),
            store_end,
            ssh_port,
            destiny,
            patience,
            state,
            fleet,
            hosts,
            task,
        }
    }

    fn ironic_comes_up(&self) {
        let end = IronicEnd {
            client: self.ironic.client(),
            box_http: "http://172.22.0.1".into(),
            bootstrap: "https://172.22.0.1:8443/bootstrap/v1".into(),
            ca: "PEM".into(),
        };
        self.ironic_end.send_replace(Some(end));
    }

    fn kubernetes_comes_up(&self) {
        self.store_end.send_replace(Some(self.store.clone()));
    }

    /// Everything in memory is lost.
    fn restart_controller(&mut self) {
        self.task.abort();
        (self.fleet, self.hosts, self.task) = controller(
            &self.ironic_end,
            &self.store_end,
            self.ssh_port,
            (self.destiny, self.patience),
            self.state.path(),
        );
    }

    fn host(&self) -> Option<HostStatus> {
        self.hosts
            .borrow()
            .iter()
            .find(|host| host.mac == MAC)
            .cloned()
    }

    async fn wait_for(&mut self, what: &str, is: impl Fn(&HostStatus) -> bool) -> HostStatus {
        let found = self.hosts.wait_for(|hosts| hosts.iter().any(&is));
        let shown = tokio::time::timeout(Duration::from_secs(20), found)
            .await
            .map(|found| found.unwrap().clone());
        let Ok(hosts) = shown else {
            panic!("waited for {what}; the page shows {:?}", self.host())
        };
        hosts.into_iter().find(&is).unwrap()
    }
}

/// A server that is silent for a moment was switched off: stories need not wait for it.
const IMPATIENT: Patience = Patience {
    restarted: Duration::from_millis(50),
    silent: Duration::from_millis(100),
};

type Running = (
    Fleet,
    watch::Receiver<Vec<HostStatus>>,
    JoinHandle<anyhow::Result<()>>,
);

fn controller(
    ironic: &watch::Sender<Option<IronicEnd>>,
    store: &watch::Sender<Option<MemoryStore>>,
    ssh_port: u16,
    (destiny, patience): (Destiny, Patience),
    state: &std::path::Path,
) -> Running {
    let (fleet, controller) = fleet::channel();
    let hosts = watch::Sender::new(Vec::new());
    let shown = hosts.subscribe();
    let keys = [("base", "BASE"), ("uploads", "UPLOADS")].map(|(suite, key)| {
        let path = state.join(format!("{suite}.asc"));
        std::fs::write(&path, key).unwrap();
        path
    });
    let [base, uploads] = keys;
    let settings = Settings {
        site: Arc::new(SiteConfig::default()),
        network: Ipv4Addr::LOCALHOST..=Ipv4Addr::new(127, 0, 0, 254),
        image: Ok(NodeImage {
            name: "node".into(),
            sha256: "ab".repeat(32),
            bytes: 1000,
            ..NodeImage::default()
        }),
        destiny,
        ledgers: Ledgers::new(state.join("hosts")),
        keys: Keys::new(state.join("ssh"), ssh_port),
        packages: Sources {
            address: Ipv4Addr::new(172, 22, 0, 1),
            base,
            uploads,
        },
        pace: Pace {
            busy: Duration::from_millis(20),
            idle: Duration::from_millis(40),
            refused: Duration::from_millis(100),
            patience,
        },
    };
    let inputs = Inputs {
        fleet: controller,
        ironic: ironic.subscribe(),
        store: store.subscribe(),
        artifacts: watch::Sender::new(None).subscribe(),
        hosts,
        status: crate::status::channel("tests").0,
    };
    (fleet, shown, tokio::spawn(actor::run(settings, inputs)))
}

/// A server in its ramdisk: reports, does as it is told, and heartbeats.
struct Server {
    ramdisk: Ramdisk,
    /// What takes its connections; nobody reads them.
    door: Option<std::net::TcpListener>,
    address: SocketAddr,
    boot_id: String,
    key: u8,
    sequence: AtomicU64,
    signatures: Vec<String>,
    mark: Option<Mark>,
    lookup: LookupState,
    known: Option<LookupAnswer>,
    /// A live Ironic would call back, and nobody is there.
    beats: bool,
}

impl Server {
    fn new(client: firstlight_ironic::Client) -> Self {
        let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = door.local_addr().unwrap();
        Self {
            ramdisk: Ramdisk::new(client, MAC, address),
            door: Some(door),
            address,
            boot_id: "boot-1".into(),
            key: 1,
            sequence: AtomicU64::new(1),
            signatures: vec![],
            mark: None,
            lookup: LookupState::NotAsked,
            known: None,
            beats: true,
        }
    }

    /// Power off and on: what the ramdisk knew is gone.
    fn power_cycle(&mut self) {
        self.boot_id.push('+');
        self.key += 1;
        (self.lookup, self.known) = (LookupState::NotAsked, None);
    }

    fn speaker(&self) -> Speaker {
        Speaker {
            peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
            key: PublicKey::new([self.key; 32]),
            tpm: None,
        }
    }

    fn fresh(&self) -> Fresh {
        Fresh {
            session: String::new(),
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn report(&self) -> Report {
        let disk = DiskSignatures {
            name: "/dev/vda".into(),
            size_bytes: 8 << 30,
            signatures: self.signatures.clone(),
            mark: self.mark,
            ..DiskSignatures::default()
        };
        Report {
            boot_mac: MAC.into(),
            boot_id: self.boot_id.clone(),
            address: "127.0.0.1".into(),
            inventory: Inventory::from_json(&self.ramdisk.inventory()).unwrap(),
            disks: vec![disk],
            lookup: self.lookup,
            tpm: Tpm::default(),
            fresh: self.fresh(),
        }
    }

    fn tell(&self, site: &Site, phase: Phase) {
        let progress = Progress {
            boot_mac: MAC.into(),
            boot_id: self.boot_id.clone(),
            phase,
            fresh: self.fresh(),
        };
        site.fleet.tell(Input::Progress {
            from: self.speaker(),
            progress,
            answer: oneshot::channel().0,
        });
    }

    /// One round: heartbeat if registered, report, and what the answer says. True once told to boot from disk.
    async fn step(&mut self, fleet: &Fleet) -> bool {
        if self.beats
            && let Some(known) = &self.known
            && self.ramdisk.heartbeat(known).await.is_err()
        {
            (self.known, self.lookup) = (None, LookupState::NotAsked);
        }
        match fleet.report(self.speaker(), self.report()).await {
            Directive::BootDisk => true,
            Directive::Lookup if self.known.is_none() => {
                self.register().await;
                false
            }
            Directive::Again | Directive::Lookup | Directive::Prove(_) | Directive::Wait { .. } => {
                false
            }
        }
    }

    async fn register(&mut self) {
        let inspected = self.ramdisk.continue_inspection().await.unwrap();
        let found = match inspected {
            Some(answer) => Some(answer),
            None => self.ramdisk.lookup().await.unwrap(),
        };
        (self.lookup, self.known) = match found {
            None => (LookupState::NotWanted, None),
            Some(answer) if answer.token.is_none() => (LookupState::TokenLost, None),
            Some(answer) => (LookupState::Registered, Some(answer)),
        };
    }

    /// Rounds until Ironic has the node in `state`.
    async fn until(&mut self, site: &mut Site, state: ProvisionState) {
        self.until_with(site, state, |_| {}).await;
    }

    async fn until_with(
        &mut self,
        site: &mut Site,
        state: ProvisionState,
        mut after_each: impl FnMut(&mut Site),
    ) {
        let rounds = async {
            while site.ironic.state(&node()).as_ref() != Some(&state) {
                self.step(&site.fleet).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                after_each(site);
            }
        };
        if tokio::time::timeout(Duration::from_secs(20), rounds)
            .await
            .is_err()
        {
            panic!(
                "waited for {state}; Ironic has {:?}, the page {:?}",
                site.ironic.state(&node()),
                site.host()
            );
        }
    }

    /// Rounds until the agent says: boot from disk.
    async fn until_told_to_boot_disk(&mut self, site: &Site) {
        let rounds = async {
            while !self.step(&site.fleet).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), rounds)
            .await
            .expect("an installed host is told to boot from disk");
    }
}

/// An installed system on 127.0.0.1; dropping the task is switching it off.
async fn operating_system(port: u16) -> JoinHandle<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_10.0\r\n").await;
        }
    })
}

async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// What the ramdisk is sent about the disks.
async fn ordered(site: &Site) -> Option<DiskOrder> {
    let known = site.ironic.client().node(&node()).await.unwrap();
    DiskOrder::of_node(&serde_json::json!({"extra": known.extra})).unwrap()
}

/// The image is on the disk and the ramdisk is gone.
fn finish(site: &Site, server: &Server) {
    server.tell(site, Phase::Rebooting);
    site.ironic.finish_deploy(&node());
}

#[tokio::test]
async fn a_blank_server_is_installed_without_a_word_from_anybody() {
    let mut site = Site::start(free_port().await).await;
    let mut server = Server::new(site.ironic.client());
    assert!(!server.step(&site.fleet).await);
    let shown = site
        .wait_for(
            "the host on the page before Ironic and Kubernetes",
            |host| host.mac == MAC,
        )
        .await;
    assert_eq!(
        (shown.state, shown.name.as_str()),
        (HostState::Discovered, "host-525400000001")
    );

    site.ironic_comes_up();
    server.until(&mut site, ProvisionState::DeployWait).await;
    server.tell(
        &site,
        Phase::Writing {
            bytes: 410,
            total: 1000,
        },
    );
    let writing = site
        .wait_for("41 percent", |host| host.percent == Some(41))
        .await;
    assert_eq!(
        (writing.state, writing.step.as_str()),
        (HostState::Provisioning, "writing node.raw.zst, 41 %")
    );
    assert_eq!(site.fleet.boot_target(mac()), BootTarget::Ramdisk);

    // The API comes up in the middle, as late as that.
    site.kubernetes_comes_up();
    server.tell(&site, Phase::Rebooting);
    site.wait_for("the restart", |host| {
        host.step == "restarting from its disk"
    })
    .await;
    assert_eq!(
        site.fleet.boot_target(mac()),
        BootTarget::Disk,
        "before Ironic says so"
    );
    site.ironic.finish_deploy(&node());
    site.wait_for("provisioned", |host| host.state == HostState::Provisioned)
        .await;

    let system = operating_system(site.ssh_port).await;
    let running = site
        .wait_for("running", |host| host.state == HostState::Running)
        .await;
    let history: Vec<HostState> = running.history.iter().map(|event| event.state).collect();
    for passed in [
        HostState::Registering,
        HostState::Inspecting,
        HostState::Provisioning,
        HostState::Provisioned,
    ] {
        assert!(
            history.contains(&passed),
            "{passed:?} is missing in {history:?}"
        );
    }
    assert_eq!(site.ironic.deploys(&node()), 1);
    let drive = site.ironic.config_drive(&node()).unwrap();
    assert_eq!(drive["meta_data"]["local-hostname"], "host-525400000001");
    wait_for_object(&site, |object| {
        let status = object.status.as_ref().unwrap();
        status.provisioning.state == ProvisioningState::Provisioned
            && status.provisioning.id == node()
    })
    .await;
    let object = site.store.only().unwrap();
    assert_eq!(object.spec.boot_mac_address, MAC);
    assert_eq!(
        object.status.unwrap().hardware.unwrap().storage[0].name,
        "/dev/vda"
    );
    system.abort();
}

async fn wait_for_object(site: &Site, is: impl Fn(&BareMetalHost) -> bool) {
    let reached = async {
        while !site.store.only().as_ref().is_some_and(&is) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(20), reached)
        .await
        .is_err()
    {
        panic!("the object stays {:?}", site.store.only());
    }
}

/// Installs a server while the controller is restarted after every `every` of the server's reports.
async fn install_with_restarts(every: usize) {
    let mut site = Site::start(free_port().await).await;
    site.ironic_comes_up();
    site.kubernetes_comes_up();
    let mut server = Server::new(site.ironic.client());
    let (mut rounds, mut met) = (0, vec![]);
    server
        .until_with(&mut site, ProvisionState::DeployWait, |site| {
            rounds += 1;
            if rounds % every == 0 {
                met.push(site.ironic.state(&node()));
                site.restart_controller();
            }
        })
        .await;
    assert!(
        !met.is_empty(),
        "the installation was over before the first restart"
    );
    site.restart_controller();
    server.step(&site.fleet).await;
    finish(&site, &server);
    site.restart_controller();
    // It comes back to the ramdisk, as a server whose firmware prefers the network does.
    server.power_cycle();
    server.signatures = vec!["gpt".into()];
    server.until_told_to_boot_disk(&site).await;
    assert_eq!(site.fleet.boot_target(mac()), BootTarget::Disk);
    site.restart_controller();
    server.until_told_to_boot_disk(&site).await;
    assert_eq!(
        site.ironic.deploys(&node()),
        1,
        "installed once; restarted in {met:?}"
    );
    assert_eq!(site.ironic.state(&node()), Some(ProvisionState::Active));
}

#[tokio::test]
async fn a_controller_that_restarts_again_and_again_ends_the_same_with_one_deployment() {
    for every in [4, 5, 6, 7] {
        install_with_restarts(every).await;
    }
}

#[tokio::test]
async fn kubernetes_that_comes_up_after_the_installation_takes_nothing_away() {
    for _ in 0..20 {
        let mut site = Site::start(free_port().await).await;
        site.ironic_comes_up();
        let mut server = Server::new(site.ironic.client());
        server.until(&mut site, ProvisionState::DeployWait).await;
        finish(&site, &server);
        site.wait_for("provisioned", |host| host.state == HostState::Provisioned)
            .await;
        site.kubernetes_comes_up();
        wait_for_object(&site, |object| {
            let status = object.status.as_ref();
            object.spec.image.is_some()
                && status.is_some_and(|status| status.provisioning.image.is_some())
        })
        .await;
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(
                site.host().unwrap().state,
                HostState::Provisioned,
                "{:?}",
                site.store.only()
            );
        }
    }
}

#[tokio::test]
async fn a_server_with_data_is_listed_with_the_reason_until_a_person_says_wipe() {
    let mut site = Site::start(free_port().await).await;
    site.ironic_comes_up();
    site.kubernetes_comes_up();
    let mut server = Server::new(site.ironic.client());
    server.signatures = vec!["dos".into(), "ntfs".into()];
    server.step(&site.fleet).await;
    let left = site
        .wait_for("the reason", |host| host.problem.is_some())
        .await;
    assert_eq!(left.state, HostState::Discovered);
    assert!(
        left.problem
            .unwrap()
            .what
            .contains("/dev/vda is not blank: dos, ntfs")
    );
    wait_for_object(&site, |object| {
        let status = object.status.as_ref().unwrap();
        status.operational_status == OperationalStatus::Discovered
            && status.error_message.contains("ntfs")
    })
    .await;
    assert_eq!(site.ironic.state(&node()), None, "Ironic does not know it");

    let name = site.store.only().unwrap().metadata.name;
    site.store.change(&name, |object| {
        object
            .metadata
            .annotations
            .insert(INSTALL_ANNOTATION.into(), "wipe".into());
    });
    server.until(&mut site, ProvisionState::DeployWait).await;
    assert_eq!(site.ironic.deploys(&node()), 1);
}

#[tokio::test]
async fn a_power_cut_of_the_server_in_the_middle_starts_its_deployment_over() {
    let mut site = Site::start(free_port().await).await;
    site.ironic_comes_up();
    let mut server = Server::new(site.ironic.client());
    server.until(&mut site, ProvisionState::DeployWait).await;
    server.tell(
        &site,
        Phase::Writing {
            bytes: 500,
            total: 1000,
        },
    );
    server.step(&site.fleet).await;
    server.power_cycle();
    // Half an image is on the disk.
    let first = ordered(&site).await.unwrap();
    let deployment = first.deployment.unwrap();
    server.signatures = vec!["firstlight-unfinished".into()];
    server.mark = Some(Mark::Unfinished { deployment });
    let again = async {
        while site.ironic.deploys(&node()) < 2 {
            server.step(&site.fleet).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again)
        .await
        .expect("the lost token is noticed and the deployment begun anew");
    server.until(&mut site, ProvisionState::DeployWait).await;
    assert_eq!(ordered(&site).await, Some(first), "it is the same one");
    finish(&site, &server);
    site.wait_for("provisioned", |host| host.state == HostState::Provisioned)
        .await;
    assert_eq!(site.ironic.deploys(&node()), 2);
}

#[tokio::test]
async fn a_server_that_somebody_installs_by_hand_after_its_deployment_failed_is_left_alone() {
    let mut site = Site::start(free_port().await).await;
    site.ironic_comes_up();
    let mut server = Server::new(site.ironic.client());
    server.until(&mut site, ProvisionState::DeployWait).await;
    let order = ordered(&site).await.unwrap();
    assert_eq!(order.policy, DiskPolicy::Blank);
    assert_eq!(order.disks, [DiskId::new(None, None, 8 << 30)]);
    let ledger =
        std::fs::read_to_string(site.state.path().join("hosts/52-54-00-00-00-01.json")).unwrap();
    let id = order.deployment.unwrap().to_string();
    assert!(ledger.contains(&id), "it is written down first: {ledger}");

    site.ironic.fail_deploy(&node(), "the disk is broken");
    server.power_cycle();
    server.signatures = vec!["gpt".into(), "ntfs".into()];
    let said = async {
        loop {
            server.step(&site.fleet).await;
            let problem = site.host().and_then(|host| host.problem);
            if problem.is_some_and(|problem| problem.what.contains("not blank: gpt, ntfs")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), said)
        .await
        .expect("the page says why it is left alone");
    assert_eq!(site.ironic.deploys(&node()), 1);
}

#[tokio::test]
async fn a_server_that_was_switched_off_a_moment_ago_costs_no_attempt() {
    let mut site = Site::start(free_port().await).await;
    site.ironic_comes_up();
    let mut server = Server::new(site.ironic.client());
    server.door = None;
    server.until(&mut site, ProvisionState::Available).await;
    let silent = async {
        loop {
            server.step(&site.fleet).await;
            let problem = site.host().and_then(|host| host.problem);
            if problem.is_some_and(|problem| problem.what.contains("does not answer")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), silent)
        .await
        .expect("the page says that it is silent");
    assert_eq!(site.ironic.deploys(&node()), 0);
    server.door = Some(std::net::TcpListener::bind(server.address).unwrap());
    server.until(&mut site, ProvisionState::DeployWait).await;
    assert_eq!(site.ironic.deploys(&node()), 1);
}

#[tokio::test]
async fn a_restart_of_the_whole_box_while_the_image_is_written_does_not_begin_again() {
    let mut site = Site::start(free_port().await).await;
    site.ironic_comes_up();
    site.kubernetes_comes_up();
    let mut server = Server::new(site.ironic.client());
    server.until(&mut site, ProvisionState::DeployWait).await;
    site.ironic.restart();
    site.restart_controller();
    // The ramdisk kept its token and went on.
    for _ in 0..20 {
        server.step(&site.fleet).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(site.ironic.state(&node()), Some(ProvisionState::DeployWait));
    finish(&site, &server);
    site.wait_for("provisioned", |host| host.state == HostState::Provisioned)
        .await;
    assert_eq!(site.ironic.deploys(&node()), 1);
}
