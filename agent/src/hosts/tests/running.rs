//! The whole controller, with its clock, its tasks and ledgers on a disk: what the virtual clock cannot show.

use tokio::{io::AsyncWriteExt, net::TcpListener, sync::watch, task::JoinHandle};

use super::*;
use crate::{
    fleet::{self, Fleet},
    hosts::{ledger::Ledgers, who::Patience},
};

/// A server that is silent for a moment was switched off: nobody waits for it here.
const IMPATIENT: Patience = Patience {
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

pub struct Running {
    pub fleet: Fleet,
    pub hosts: watch::Receiver<Vec<HostStatus>>,
    pub task: JoinHandle<anyhow::Result<()>>,
}

/// `state` is the box's state partition, `ssh` where installed systems listen.
pub fn controller(
    ironic: watch::Receiver<Option<IronicEnd>>,
    store: watch::Receiver<Option<MemoryStore>>,
    state: &std::path::Path,
    ssh: u16,
) -> Running {
    let (fleet, controller) = fleet::channel();
    let hosts = watch::Sender::new(Vec::new());
    let shown = hosts.subscribe();
    let hands = hands(state, mpsc::channel(1).0);
    let settings = runner::Settings {
        judged_by: fold::Settings {
            pace: Pace {
                busy: Duration::from_millis(20),
                idle: Duration::from_millis(40),
                refused: Duration::from_millis(100),
                patience: IMPATIENT,
            },
            ..settings(Destiny::Plain)
        },
        ledgers: Ledgers::new(state.join("hosts")),
        keys: Keys::new(state.join("ssh"), ssh),
        packages: hands.packages,
    };
    let inputs = runner::Inputs {
        fleet: controller,
        ironic,
        store,
        artifacts: watch::Sender::new(None).subscribe(),
        hosts,
        status: crate::status::channel("tests").0,
    };
    Running {
        fleet,
        hosts: shown,
        task: tokio::spawn(runner::run(settings, inputs)),
    }
}

impl Running {
    async fn wait_for(&mut self, what: &str, is: impl Fn(&HostStatus) -> bool) {
        let found = self.hosts.wait_for(|hosts| hosts.iter().any(&is));
        let in_time = tokio::time::timeout(Duration::from_secs(20), found)
            .await
            .is_ok();
        assert!(
            in_time,
            "waited for {what}; shown is {:?}",
            *self.hosts.borrow()
        );
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
    let ironic = FakeIronic::start().await.unwrap();
    let end = IronicEnd {
        client: ironic.client(),
        box_http: "http://172.22.0.1".into(),
        bootstrap: "https://172.22.0.1:8443/bootstrap/v1".into(),
        ca: "PEM".into(),
    };
    let ends = watch::Sender::new(None);
    let store = watch::Sender::new(Some(MemoryStore::default()));
    let state = tempfile::tempdir().unwrap();
    let (port, system) = operating_system().await;
    let run = || controller(ends.subscribe(), store.subscribe(), state.path(), port);
    let mut running = run();
    let mut server = Server::new(ironic.client());
    server.step(&mut running.fleet).await;
    running
        .wait_for("it, before Ironic is up", |host| host.mac == MAC)
        .await;
    ends.send_replace(Some(end));
    let installing = async {
        while ironic.state(&node()) != Some(ProvisionState::DeployWait) {
            server.step(&mut running.fleet).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), installing)
        .await
        .expect("its deployment begins");

    running.task.abort();
    let mut running = run();
    server.step(&mut running.fleet).await;
    assert!(server.tell(&mut running.fleet, Phase::Rebooting).await);
    assert_eq!(running.fleet.boot_target(mac()), BootTarget::Disk);
    ironic.finish_deploy(&node());
    running
        .wait_for("running", |host| host.state == HostState::Running)
        .await;
    assert_eq!(ironic.deploys(&node()), 1);
    let object = store.borrow().as_ref().and_then(MemoryStore::only);
    assert_eq!(object.unwrap().spec.boot_mac_address, MAC);
    let kept = Ledgers::new(state.path().join("hosts")).load().unwrap();
    assert!(kept[&mac()].deployment.as_ref().unwrap().written);
    system.abort();
}
