//! The controller against a live Ironic, up to the point where only a real ramdisk can go on. `scripts/test-ironic` runs it, with variables
//! as for `agent/ironic/tests/contract.rs`.

use firstlight_ironic::{
    Client, ClientConfig, Credentials,
    fake::{Ramdisk, settled},
};

use tokio::{io::AsyncWriteExt, net::TcpListener, sync::watch};

use super::{
    running::{Controller, IMPATIENT},
    *,
};
use crate::{fleet::Fleet, hosts::plan::EXTRA_ATTEMPT};

/// Alone it takes seconds; beside all the other tests on two processors more than a minute.
const PATIENCE: Duration = Duration::from_mins(5);

pub fn live() -> Client {
    let get = |name: &str| std::env::var(format!("FIRSTLIGHT_IRONIC_{name}")).unwrap();
    let config = ClientConfig {
        url: get("URL"),
        ca_pem: std::fs::read_to_string(get("CA")).unwrap(),
        credentials: Some(Credentials {
            user: get("USER"),
            password: get("PASSWORD"),
        }),
        timeout: Duration::from_secs(30),
    };
    Client::new(&config).unwrap()
}

pub async fn ends(client: &Client) -> IronicEnd {
    IronicEnd {
        client: client.clone(),
        box_http: image_server().await,
        bootstrap: String::new(),
        ca: String::new(),
    }
}

/// Has a file of 1000 bytes under every name: Ironic asks for its head before it begins a deployment, and a BMC fetches its CD.
async fn image_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut request).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer).await;
            if request.starts_with(b"GET") {
                let _ = stream.write_all(&[0; 1000]).await;
            }
        }
    });
    url
}

pub async fn remove(client: &Client) {
    let Ok(found) = settled(client, &node()).await else {
        return;
    };
    settled(client, &found.uuid).await.unwrap();
    client.set_maintenance(&found.uuid, true).await.unwrap();
    client.delete_node(&found.uuid).await.unwrap();
}

/// In a ramdisk that Ironic cannot call.
pub fn server(client: &Client) -> Server {
    let mut server = Server::new(client.clone());
    server.beats = false;
    // It takes no inventory of a server whose only address is a loopback one.
    let address = "192.0.2.9:9999".parse().unwrap();
    server.ramdisk = Ramdisk::new(client.clone(), MAC, address);
    server
}

/// One round of a ramdisk that does not beat: nobody is there whom Ironic could call back. So it does not hear that its token is gone.
pub async fn step(client: &Client, fleet: &mut Fleet, server: &mut Server) {
    let found = client.node(&node()).await;
    if found.is_ok_and(|found| found.provision_state == ProvisionState::InspectWait) {
        server.known = None;
    }
    server.step(fleet).await;
}

/// Rounds until the node is in `wait call-back` for the `attempt`th time.
async fn until_attempt(client: &Client, fleet: &mut Fleet, server: &mut Server, attempt: u64) {
    let reached = async {
        loop {
            step(client, fleet, server).await;
            if let Ok(found) = client.node(&node()).await
                && found.provision_state == ProvisionState::DeployWait
                && found.extra[EXTRA_ATTEMPT] == attempt
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let reached = tokio::time::timeout(PATIENCE, reached).await;
    assert!(
        reached.is_ok(),
        "attempt {attempt} never waited for its ramdisk: {:?}",
        client.node(&node()).await
    );
}

#[tokio::test]
#[ignore = "needs FIRSTLIGHT_IRONIC_URL: a live Ironic on this machine"]
async fn a_live_ironic_is_led_to_a_deployment_and_out_of_a_lost_token() {
    let client = live();
    remove(&client).await;
    let end = ends(&client).await;
    let (ironic, store) = (watch::Sender::new(Some(end)), watch::Sender::new(None));
    let state = tempfile::tempdir().unwrap();
    let (ends, stores) = (ironic.subscribe(), store.subscribe());
    let mut running = Controller::start(ends, stores, state.path(), 1, IMPATIENT);
    let mut server = server(&client);
    until_attempt(&client, &mut running.fleet, &mut server, 1).await;
    assert!(client.inventory(&node()).await.is_ok(), "it was inspected");
    assert_eq!(
        running.page.borrow().hosts[0].state,
        HostState::Provisioning
    );

    server.power_cycle();
    until_attempt(&client, &mut running.fleet, &mut server, 2).await;
    running.task.abort();
    remove(&client).await;
}
