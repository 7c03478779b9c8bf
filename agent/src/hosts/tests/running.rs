//! The whole controller, with its clock, its tasks and ledgers on a disk: what the virtual clock cannot show.

use firstlight_api::status::SiteStatus;
use tokio::{io::AsyncWriteExt, net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    fleet::{self, Fleet},
    hosts::{ledger::Ledgers, who::Patience},
};

/// A server that is silent for a moment was switched off: nobody waits for it here.
pub const IMPATIENT: Patience = Patience {
    restarted: Duration::from_millis(50),
    silent: Duration::from_millis(100),
};

impl Hears for Fleet {
    async fn report(&mut self, from: Speaker, report: Report) -> Option<Directive> {
        Some(Fleet::report(self, from, report).await)
    }

    async fn progress(&mut self, from: Speaker, progress: Progress) -> bool {
        Fleet::progress(self, from, progress).await
    }
}

/// The box: what survives a restart of the controller, and the controller.
pub struct Running {
    pub ironic: FakeIronic,
    ends: watch::Sender<Option<IronicEnd>>,
    pub store: MemoryStore,
    stores: watch::Sender<Option<MemoryStore>>,
    pub state: tempfile::TempDir,
    /// Where installed systems listen.
    ssh: u16,
    patience: Patience,
    pub controller: Controller,
}

/// All that is lost when it is killed.
pub struct Controller {
    pub fleet: Fleet,
    pub page: watch::Receiver<SiteStatus>,
    pub task: JoinHandle<anyhow::Result<()>>,
}

impl Controller {
    /// `state` is the box's state partition, `ssh` where installed systems listen.
    pub fn start(
        ironic: watch::Receiver<Option<IronicEnd>>,
        store: watch::Receiver<Option<MemoryStore>>,
        state: &std::path::Path,
        ssh: u16,
        patience: Patience,
    ) -> Self {
        let (fleet, controller) = fleet::channel();
        let (status, page, owner) = crate::status::channel("tests");
        tokio::spawn(crate::status::own(owner, CancellationToken::new()));
        let hands = hands(state, mpsc::channel(1).0);
        let settings = runner::Settings {
            judged_by: fold::Settings {
                pace: Pace {
                    busy: Duration::from_millis(20),
                    idle: Duration::from_millis(40),
                    refused: Duration::from_millis(100),
                    patience,
                },
                ..settings(SitePolicy::Plain)
            },
            ledgers: Ledgers::new(state.join("hosts")),
            keys: Keys::new(state.join("ssh"), ssh),
            packages: hands.packages,
            ramdisk: hands.ramdisk,
        };
        let inputs = runner::Inputs {
            fleet: controller,
            ironic,
            store,
            artifacts: watch::Sender::new(None).subscribe(),
            bmcs: watch::Sender::default(),
            status,
        };
        Self {
            fleet,
            page,
            task: tokio::spawn(runner::run(settings, inputs)),
        }
    }
}

impl Running {
    pub async fn start(patience: Patience) -> Self {
        Self::beside(1, patience).await
    }

    /// Ironic and Kubernetes are not up yet.
    async fn beside(ssh: u16, patience: Patience) -> Self {
        let (ends, stores) = (watch::Sender::new(None), watch::Sender::new(None));
        let state = tempfile::tempdir().unwrap();
        let (ironic, store) = (ends.subscribe(), stores.subscribe());
        Self {
            controller: Controller::start(ironic, store, state.path(), ssh, patience),
            ironic: FakeIronic::start().await.unwrap(),
            ends,
            store: MemoryStore::default(),
            stores,
            state,
            ssh,
            patience,
        }
    }

    pub fn ironic_comes_up(&self) {
        self.ends.send_replace(Some(IronicEnd {
            client: self.ironic.client(),
            box_http: "http://172.22.0.1".into(),
            bootstrap: "https://172.22.0.1:8443/bootstrap/v1".into(),
            ca: "PEM".into(),
        }));
    }

    pub fn kubernetes_comes_up(&self) {
        self.stores.send_replace(Some(self.store.clone()));
    }

    /// Everything in memory is lost.
    pub fn restart_controller(&mut self) {
        self.controller.task.abort();
        let (ironic, store) = (self.ends.subscribe(), self.stores.subscribe());
        let (state, ssh) = (self.state.path(), self.ssh);
        self.controller = Controller::start(ironic, store, state, ssh, self.patience);
    }

    pub fn host(&self) -> Option<HostStatus> {
        let page = self.controller.page.borrow();
        page.hosts.iter().find(|host| host.mac == MAC).cloned()
    }

    pub async fn wait_for(&mut self, what: &str, is: impl Fn(&HostStatus) -> bool) -> HostStatus {
        let found = self
            .controller
            .page
            .wait_for(|page| page.hosts.iter().any(&is));
        let shown = tokio::time::timeout(Duration::from_secs(20), found).await;
        let Ok(hosts) = shown.map(|found| found.unwrap().hosts.clone()) else {
            panic!("waited for {what}; the page shows {:?}", self.host())
        };
        hosts.into_iter().find(&is).unwrap()
    }

    pub async fn wait_for_object(&self, is: impl Fn(&BareMetalHost) -> bool) {
        let reached = async {
            while !self.store.only().as_ref().is_some_and(&is) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), reached).await;
        assert!(in_time.is_ok(), "the object stays {:?}", self.store.only());
    }
}

/// An installed system on 127.0.0.1; dropping the task is switching it off.
async fn operating_system() -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_10.0\r\n").await;
        }
    });
    (port, task)
}

#[tokio::test]
async fn the_controller_installs_a_server_and_goes_on_from_its_disk_after_it_was_killed() {
    let (port, system) = operating_system().await;
    let mut site = Running::beside(port, IMPATIENT).await;
    site.kubernetes_comes_up();
    let mut server = Server::new(site.ironic.client());
    server.step(&mut site.controller.fleet).await;
    site.wait_for("it, before Ironic is up", |host| host.mac == MAC)
        .await;
    site.ironic_comes_up();
    let installing = async {
        while site.ironic.state(&node()) != Some(ProvisionState::DeployWait) {
            server.step(&mut site.controller.fleet).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), installing)
        .await
        .expect("its deployment begins");

    site.restart_controller();
    let fleet = &mut site.controller.fleet;
    server.step(fleet).await;
    assert!(server.tell(fleet, Phase::REBOOTING).await);
    assert_eq!(fleet.boot_target(mac()), BootTarget::Disk);
    site.ironic.finish_deploy(&node());
    site.wait_for("running", |host| host.state == HostState::Running)
        .await;
    assert_eq!(site.ironic.deploys(&node()), 1);
    site.wait_for_object(|object| object.spec.boot_mac_address == MAC)
        .await;
    // A disk takes its time, and nobody waits for it here.
    let ledgers = Ledgers::new(site.state.path().join("hosts"));
    let kept = async {
        while !ledgers.load().unwrap()[&mac()]
            .deployment
            .as_ref()
            .unwrap()
            .written
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), kept)
        .await
        .expect("that it is written is on the disk");
    system.abort();
}
