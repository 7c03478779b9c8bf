//! A stand-in for Ironic on loopback that follows the state machine of Ironic 39.0.0 for the calls we make, and
//! [`Ramdisk`], the deploy ramdisk's side of the protocol without a machine.
//!
//! What it keeps from the original: a change is accepted first and shows later (a busy state lasts until the node has
//! been read once), a token is handed out once, and a restart fails what was busy. What it leaves out: it never calls the
//! ramdisk; a test says how a deployment ended ([`FakeIronic::finish_deploy`], [`FakeIronic::fail_deploy`]).
//!
//! To add a case: the transition in `machine`, the path in `server`, and a step in `tests/contract.rs`.

mod machine;
mod ramdisk;
mod server;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crate::{Client, ClientConfig, ClientError, Node, ProvisionState};
use machine::Machine;
pub use ramdisk::{LookupAnswer, Ramdisk};

/// A running fake. It stops listening when the last clone is dropped.
#[derive(Clone)]
pub struct FakeIronic {
    machine: Arc<Mutex<Machine>>,
    address: SocketAddr,
    server: Arc<Server>,
}

/// What a BMC did to its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Off.
    Off,
    /// Off and on by one order, as its firmware is set up.
    Restart,
    /// On, from the network.
    Network,
    /// On, from the CD in its BMC's virtual drive.
    Cd,
    /// On, as its firmware is set up.
    Disk,
}

struct Server(tokio::task::JoinHandle<()>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FakeIronic {
    /// Listens on a free port of 127.0.0.1, plain HTTP, no password.
    pub async fn start() -> std::io::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let machine = Arc::new(Mutex::new(Machine::default()));
        let server = Arc::new(Server(tokio::spawn(server::serve(
            listener,
            Arc::clone(&machine),
        ))));
        Ok(Self {
            machine,
            address,
            server,
        })
    }

    /// Without a trailing slash, as [`ClientConfig::url`] wants it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client of it, with a limit of 10 s a request.
    pub fn client(&self) -> Client {
        let config = ClientConfig {
            url: self.url(),
            ca_pem: String::new(),
            credentials: None,
            timeout: Duration::from_secs(10),
        };
        Client::new(&config).expect("the fake's own address is a good one")
    }

    /// The ramdisk wrote the image and closed its API: `wait call-back` becomes `active`.
    pub fn finish_deploy(&self, node: &str) {
        self.lock().finish_deploy(node);
    }

    /// The ramdisk reported a failed step.
    pub fn fail_deploy(&self, node: &str, reason: &str) {
        self.lock().fail_deploy(node, reason);
    }

    /// The ramdisk removed every signature: `clean wait` becomes `available`.
    pub fn finish_clean(&self, node: &str) {
        self.lock().finish_clean(node);
    }

    /// The ramdisk could not erase a disk; Ironic puts the node into maintenance by itself.
    pub fn fail_clean(&self, node: &str, reason: &str) {
        self.lock().fail_clean(node, reason);
    }

    /// Its BMC does not answer any more, with this error of Ironic's, or does again.
    pub fn set_bmc(&self, node: &str, error: Option<&str>) {
        self.lock().set_bmc(node, error);
    }

    /// Its BMC's virtual drive takes nothing in and gives nothing back, for this reason of Ironic's, or does again.
    pub fn set_cd_drive(&self, node: &str, error: Option<&str>) {
        self.lock().set_cd_drive(node, error);
    }

    /// From where its BMC has the CD in its virtual drive.
    pub fn cd(&self, node: &str) -> Option<String> {
        self.lock().cd(node)
    }

    /// What its BMC did to the machine since the last time.
    pub fn switched(&self, node: &str) -> Vec<Switch> {
        self.lock().switched(node)
    }

    /// Name of the driver, and `driver_info`.
    pub fn driver(&self, node: &str) -> Option<(String, serde_json::Value)> {
        self.lock().driver(node)
    }

    /// A person has switched the machine on or off, and Ironic has seen that.
    pub fn press_button(&self, node: &str) {
        self.lock().press_button(node);
    }

    /// A person puts it into maintenance.
    pub fn maintain(&self, node: &str, reason: &str) {
        let done = self.lock().set_maintenance(node, Some(reason));
        done.expect("a test names a node that is at rest");
    }

    /// After so many more changes one is lost on its way.
    pub fn lose_after(&self, changes: usize) {
        self.lock().loses = Some(changes);
    }

    /// How often the node began to be cleaned.
    pub fn cleans(&self, node: &str) -> usize {
        self.lock().cleans(node)
    }

    /// A ramdisk has announced itself since Ironic last forgot one.
    pub fn has_agent(&self, node: &str) -> bool {
        self.lock().has_agent(node)
    }

    /// The process was stopped and started, as after a power cut of the box.
    pub fn restart(&self) {
        self.lock().restart();
    }

    /// How often a deployment of this node was begun.
    pub fn deploys(&self, node: &str) -> usize {
        self.lock().deploys(node)
    }

    /// The state as it is, without the read that lets a busy state end.
    pub fn state(&self, node: &str) -> Option<ProvisionState> {
        self.lock().state(node)
    }

    /// The config drive of the last deployment, as it was sent.
    pub fn config_drive(&self, node: &str) -> Option<serde_json::Value> {
        self.lock().config_drive(node)
    }

    /// The background task is still there; false only after a panic in the fake.
    pub fn is_running(&self) -> bool {
        !self.server.0.is_finished()
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine
            .lock()
            .expect("the fake does not panic while it holds its state")
    }
}

/// Reads the node until it is not busy any more. A live Ironic needs the pauses, the fake only the reads.
#[expect(clippy::disallowed_methods, reason = "plays the caller, who waits")]
pub async fn settled(client: &Client, node: &str) -> Result<Node, ClientError> {
    loop {
        let node = client.node(node).await?;
        if !node.provision_state.is_busy() && node.reservation.is_none() {
            return Ok(node);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
