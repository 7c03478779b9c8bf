//! One script for the fake and for a live Ironic, so that the fake cannot drift from the original.
//!
//! Live:
//!
//! ```sh
//! FIRSTLIGHT_IRONIC_URL=https://127.0.0.1:6385 FIRSTLIGHT_IRONIC_CA=ca.crt FIRSTLIGHT_IRONIC_USER=u \
//!     FIRSTLIGHT_IRONIC_PASSWORD=p cargo test -p firstlight-ironic --test contract -- --ignored
//! ```
//!
//! That Ironic must run on this machine with the configuration of `agent/src/hosts/ironic/ironic.conf`; nodes named
//! `contract-*` are made and removed.
// A person says by variables which Ironic it is to talk to.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::Duration;

use firstlight_ironic::{
    Client, ClientConfig, ConfigDrive, Credentials, InstanceInfo, NewNode, NodePatch, PowerTarget,
    ProvisionState, ProvisionTarget, StartedBy,
    fake::{FakeIronic, Ramdisk, settled},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Answers every request as a file of 1000 bytes would answer HEAD: Ironic asks so before it begins a deployment.
async fn image_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/node.raw.zst", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n")
                .await;
        }
    });
    url
}

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

const UUID: &str = "5f1a57e0-0000-4000-8000-525400c0ffee";
const MAC: &str = "52:54:00:c0:ff:ee";

fn new_node() -> NewNode {
    NewNode {
        uuid: UUID.into(),
        name: "contract-node".into(),
        cpu_arch: "x86_64".into(),
        boot_mode: "uefi".into(),
        extra: vec![("firstlight_mac".into(), MAC.into())],
    }
}

async fn remove_leftovers(client: &Client) {
    let Ok(node) = client.node("contract-node").await else {
        return;
    };
    if matches!(
        node.provision_state,
        ProvisionState::DeployWait | ProvisionState::DeployFailed | ProvisionState::Active
    ) {
        let without = NodePatch::AutomatedClean(false);
        client.patch_node(&node.uuid, &[without]).await.unwrap();
        client
            .provision(&node.uuid, &ProvisionTarget::Deleted)
            .await
            .unwrap();
    } else if node.provision_state == ProvisionState::InspectWait {
        client
            .provision(&node.uuid, &ProvisionTarget::Abort)
            .await
            .unwrap();
    }
    if settled(client, &node.uuid).await.unwrap().provision_state == ProvisionState::InspectFailed {
        client
            .provision(&node.uuid, &ProvisionTarget::Manage)
            .await
            .unwrap();
    }
    settled(client, &node.uuid).await.unwrap();
    client.delete_node(&node.uuid).await.unwrap();
}

/// Asks until it is so; the last state is in the panic's text.
async fn expect_state(client: &Client, wanted: ProvisionState) {
    let reached = async {
        while settled(client, UUID).await.unwrap().provision_state != wanted {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    if tokio::time::timeout(Duration::from_mins(5), reached)
        .await
        .is_err()
    {
        let node = client.node(UUID).await.unwrap();
        panic!(
            "waited for `{wanted}`, the node is `{}`: {:?}",
            node.provision_state, node.last_error
        );
    }
}

async fn enroll(client: &Client, ramdisk: &Ramdisk) {
    assert!(client.node(UUID).await.unwrap_err().is_not_found());
    assert_eq!(
        ramdisk.lookup().await.unwrap(),
        None,
        "nobody knows the machine yet"
    );

    let node = client.create_node(&new_node()).await.unwrap();
    assert_eq!(
        (
            node.uuid.as_str(),
            &node.provision_state,
            node.power_state.as_deref()
        ),
        (UUID, &ProvisionState::Enroll, None)
    );
    assert_eq!(node.extra["firstlight_mac"], MAC);
    assert!(
        client
            .create_node(&new_node())
            .await
            .unwrap_err()
            .is_conflict(),
        "a repeated create is no second node"
    );
    client.create_port(UUID, MAC).await.unwrap();
    assert!(
        client
            .create_port(UUID, MAC)
            .await
            .unwrap_err()
            .is_conflict()
    );
    let ports = client.ports(UUID).await.unwrap();
    assert_eq!(
        ports
            .iter()
            .map(|port| port.address.as_str())
            .collect::<Vec<_>>(),
        [MAC]
    );

    let known = ramdisk
        .lookup()
        .await
        .unwrap()
        .expect("fast track wants the ramdisk in enroll");
    assert!(known.token.is_some());
    assert_eq!(
        ramdisk.lookup().await.unwrap().unwrap().token,
        None,
        "a token is handed out once"
    );
}

async fn inspect(client: &Client, ramdisk: &Ramdisk) {
    let refused = client
        .provision(UUID, &ProvisionTarget::Provide)
        .await
        .unwrap_err();
    assert!(
        !refused.is_transient() && refused.to_string().contains("enroll"),
        "{refused}"
    );
    client
        .provision(UUID, &ProvisionTarget::Manage)
        .await
        .unwrap();
    expect_state(client, ProvisionState::Manageable).await;
    client.set_power(UUID, PowerTarget::On).await.unwrap();
    assert_eq!(
        settled(client, UUID).await.unwrap().power_state.as_deref(),
        Some("power on")
    );

    assert!(client.inventory(UUID).await.unwrap_err().is_not_found());
    client
        .provision(UUID, &ProvisionTarget::Inspect)
        .await
        .unwrap();
    expect_state(client, ProvisionState::InspectWait).await;
    let known = ramdisk
        .continue_inspection()
        .await
        .unwrap()
        .expect("a node waits for this inventory");
    assert_eq!(known.node, UUID);
    assert!(known.token.is_some(), "inspection hands out a new token");
    expect_state(client, ProvisionState::Manageable).await;
    assert_eq!(
        client.inventory(UUID).await.unwrap().inventory["cpu"]["architecture"],
        "x86_64"
    );
}

async fn deploy(client: &Client) {
    client
        .provision(UUID, &ProvisionTarget::Provide)
        .await
        .unwrap();
    expect_state(client, ProvisionState::Available).await;
    let drive = ConfigDrive {
        meta_data: json!({"name": "contract-node"}),
        user_data: "#cloud-config\n".into(),
        network_data: json!({}),
    };
    let refused = client
        .provision(
            UUID,
            &ProvisionTarget::Active(drive.clone(), StartedBy::Power),
        )
        .await
        .unwrap_err();
    assert!(
        !refused.is_transient(),
        "without an image nothing is deployed: {refused}"
    );

    let info = image_info().await;
    let node = client
        .patch_node(
            UUID,
            &[
                NodePatch::InstanceInfo(info),
                NodePatch::Extra("mark".into(), json!("1")),
                NodePatch::DisablePowerOff,
            ],
        )
        .await
        .unwrap();
    assert!(node.has_image());
    assert_eq!(node.disable_power_off, Some(true));
    assert_eq!(node.extra, json!({"firstlight_mac": MAC, "mark": "1"}));
    client
        .provision(UUID, &ProvisionTarget::Active(drive, StartedBy::Ramdisk))
        .await
        .unwrap();
    expect_state(client, ProvisionState::DeployWait).await;
    assert!(
        client.delete_node(UUID).await.unwrap_err().is_conflict(),
        "a node in use is not removed"
    );
}

async fn give_up(client: &Client, ramdisk: &Ramdisk) {
    client
        .provision(UUID, &ProvisionTarget::Deleted)
        .await
        .unwrap();
    expect_state(client, ProvisionState::Available).await;
    assert!(
        !client.node(UUID).await.unwrap().has_image(),
        "`deleted` empties instance_info"
    );
    let known = ramdisk.lookup().await.unwrap().unwrap();
    assert!(known.token.is_some(), "`deleted` wipes the token");
    // Accepted is not processed: Ironic drops a heartbeat that meets a busy node.
    let heard = async {
        while settled(client, UUID).await.unwrap().agent().is_none() {
            ramdisk.heartbeat(&known).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(5), heard)
        .await
        .expect("a heartbeat is recorded in the end");

    client.set_power(UUID, PowerTarget::Reboot).await.unwrap();
    settled(client, UUID).await.unwrap();
    let refused = ramdisk.heartbeat(&known).await.unwrap_err();
    assert!(
        refused.to_string().contains("token"),
        "a recorded reboot wipes the token: {refused}"
    );
    assert!(ramdisk.lookup().await.unwrap().unwrap().token.is_some());
    adopt(client).await;
    client.set_maintenance(UUID, true).await.unwrap();
    assert!(client.node(UUID).await.unwrap().is_in_our_maintenance());
    client.delete_node(UUID).await.unwrap();
    assert!(client.node(UUID).await.unwrap_err().is_not_found());
}

/// What a disk holds already is taken over: `active` without a ramdisk and without a write.
async fn adopt(client: &Client) {
    client
        .provision(UUID, &ProvisionTarget::Manage)
        .await
        .unwrap();
    expect_state(client, ProvisionState::Manageable).await;
    let patches = [
        NodePatch::InstanceInfo(image_info().await),
        NodePatch::AutomatedClean(true),
    ];
    let node = client.patch_node(UUID, &patches).await.unwrap();
    assert_eq!(node.automated_clean, Some(true));
    client
        .provision(UUID, &ProvisionTarget::Adopt)
        .await
        .unwrap();
    expect_state(client, ProvisionState::Active).await;
    // With `automated_clean` the way back leads through the ramdisk.
    client
        .provision(UUID, &ProvisionTarget::Deleted)
        .await
        .unwrap();
    expect_state(client, ProvisionState::CleanWait).await;
    client
        .provision(UUID, &ProvisionTarget::Abort)
        .await
        .unwrap();
    expect_state(client, ProvisionState::CleanFailed).await;
}

async fn image_info() -> InstanceInfo {
    InstanceInfo {
        image_source: image_server().await,
        image_os_hash_algo: "sha256".into(),
        image_os_hash_value: "a".repeat(64),
        image_disk_format: "raw".into(),
        image_type: "whole-disk".into(),
        root_device: None,
    }
}

async fn whole_life(client: &Client) {
    assert!(
        client
            .wait_until_up(Duration::from_millis(100))
            .await
            .unwrap()
            .starts_with("1.")
    );
    remove_leftovers(client).await;
    let ramdisk = Ramdisk::new(client.clone(), MAC, "172.22.0.77:9999".parse().unwrap());
    enroll(client, &ramdisk).await;
    inspect(client, &ramdisk).await;
    deploy(client).await;
    assert!(
        client
            .nodes()
            .await
            .unwrap()
            .iter()
            .any(|node| node.uuid == UUID)
    );
    give_up(client, &ramdisk).await;
}

#[tokio::test]
async fn the_fake_leads_a_node_through_its_whole_life() {
    let fake = FakeIronic::start().await.unwrap();
    whole_life(&fake.client()).await;
    assert!(fake.is_running());
}

#[tokio::test]
#[ignore = "needs FIRSTLIGHT_IRONIC_URL: a live Ironic on this machine"]
async fn a_live_ironic_leads_a_node_through_the_same_life() {
    whole_life(&live()).await;
}
