//! The controller against a live Ironic, up to the point where only a real ramdisk can go on. Variables and configuration
//! as for `agent/ironic/tests/contract.rs`:
//! `FIRSTLIGHT_IRONIC_URL=… cargo test -p firstlight-agent --lib hosts::tests::live -- --ignored`.

use firstlight_ironic::{Client, ClientConfig, Credentials, ProvisionTarget, fake::settled};

use tokio::{io::AsyncWriteExt, net::TcpListener, sync::watch};

use super::{
    running::{Controller, IMPATIENT},
    *,
};
use crate::{fleet::Fleet, hosts::plan::EXTRA_ATTEMPT};

fn live() -> Client {
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

/// Answers HEAD as for a file of 1000 bytes: Ironic asks so before it begins a deployment.
async fn image_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut request).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer).await;
        }
    });
    url
}

async fn remove(client: &Client) {
    let Ok(found) = settled(client, &node()).await else {
        return;
    };
    if found.provision_state == ProvisionState::DeployWait {
        client
            .provision(&node(), &ProvisionTarget::Deleted)
            .await
            .unwrap();
    }
    settled(client, &node()).await.unwrap();
    client.delete_node(&node()).await.unwrap();
}

/// Rounds until the node is in `wait call-back` for the `attempt`th time.
async fn until_attempt(client: &Client, fleet: &mut Fleet, server: &mut Server, attempt: u64) {
    let reached = async {
        loop {
            server.step(fleet).await;
            if let Ok(found) = client.node(&node()).await
                && found.provision_state == ProvisionState::DeployWait
                && found.extra[EXTRA_ATTEMPT] == attempt
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(90), reached)
        .await
        .is_err()
    {
        panic!(
            "attempt {attempt} never waited for its ramdisk: {:?}",
            client.node(&node()).await
        );
    }
}

#[tokio::test]
#[ignore = "needs FIRSTLIGHT_IRONIC_URL: a live Ironic on this machine"]
async fn a_live_ironic_is_led_to_a_deployment_and_out_of_a_lost_token() {
    let client = live();
    remove(&client).await;
    let end = IronicEnd {
        client: client.clone(),
        box_http: image_server().await,
        bootstrap: String::new(),
        ca: String::new(),
    };
    let (ironic, store) = (watch::Sender::new(Some(end)), watch::Sender::new(None));
    let state = tempfile::tempdir().unwrap();
    let (ends, stores) = (ironic.subscribe(), store.subscribe());
    let mut running = Controller::start(ends, stores, state.path(), 1, IMPATIENT);
    let mut server = Server::new(client.clone());
    server.beats = false;
    until_attempt(&client, &mut running.fleet, &mut server, 1).await;
    assert!(client.inventory(&node()).await.is_ok(), "it was inspected");
    assert_eq!(running.hosts.borrow()[0].state, HostState::Provisioning);

    server.power_cycle();
    until_attempt(&client, &mut running.fleet, &mut server, 2).await;
    running.task.abort();
    remove(&client).await;
}
