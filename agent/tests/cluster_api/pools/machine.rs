//! A machine whose template takes addresses from pools.

use std::sync::Arc;

use firstlight_agent::{provider as machines, status};
use firstlight_api::site::parse_site;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{METAL3, object};
use crate::{objects::Objects, site::stick};

const CORE: &str = "cluster.x-k8s.io/v1beta2";
const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1beta2";

/// As upstream's end-to-end tests write it, on a host with one card.
fn data_template() -> Value {
    json!({
        "clusterName": "lab",
        "metaData": {
            "ipAddressesFromPool": [{"key": "provisioningIP", "name": "provisioning-pool", "apiGroup": "ipam.metal3.io", "kind": "IPPool"}],
            "prefixesFromPool": [{"key": "provisioningCIDR", "name": "provisioning-pool", "apiGroup": "ipam.metal3.io", "kind": "IPPool"}],
            "objectNames": [{"key": "name", "object": "machine"}],
        },
        "networkData": {
            "links": {"ethernets": [{"id": "eth0", "macAddress": {"string": "52:54:00:00:00:01"}, "type": "phy"}]},
            "networks": {"ipv4": [{
                "id": "baremetalv4", "ipAddressFromIPPool": "baremetalv4-pool", "link": "eth0",
                "routes": [{"gateway": {"fromIPPool": "baremetalv4-pool"}, "network": "0.0.0.0", "prefix": 0}],
            }]},
            "services": {"dns": ["8.8.8.8"]},
        },
    })
}

pub async fn gets_its_addresses_and_gives_them_back(objects: &Objects) {
    let site = Arc::new(parse_site("name: lab\ncluster: manual\n").unwrap());
    let (sender, _reader, owner) = status::channel("test");
    tokio::spawn(status::own(owner, CancellationToken::new()));
    let stick = watch::Sender::new(Some(Arc::new(stick()))).subscribe();
    let client = objects.client.clone();
    let agent = tokio::spawn(machines::reconcile(client, site, stick, sender));
    pools_and_a_host(objects).await;
    a_machine(objects).await;
    objects
        .wait_for("BareMetalHost", "n1", "told of its network data", |host| {
            host["spec"]["networkData"]["name"] == "m-networkdata"
        })
        .await;
    let rendered = objects.secret("m-networkdata").await;
    let rendered: Value = serde_json::from_str(&rendered["networkData"]).unwrap();
    let route = json!({"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.168.111.1", "services": []});
    assert_eq!(
        rendered["networks"],
        json!([{
            "type": "ipv4", "id": "baremetalv4", "link": "eth0", "ip_address": "192.168.111.100", "netmask": "255.255.255.128",
            "routes": [route],
        }])
    );
    let meta = objects.secret("m-metadata").await;
    let meta: Value = serde_json::from_str(&meta["metaData"]).unwrap();
    assert_eq!(
        (&meta["provisioningIP"], &meta["provisioningCIDR"]),
        (&json!("192.168.111.20"), &json!("24"))
    );
    let claim = objects
        .find(METAL3, "IPClaim", "workers-0-provisioning-pool")
        .await;
    assert_eq!(
        claim["metadata"]["ownerReferences"][0]["kind"],
        "Metal3Machine"
    );
    // A person takes the claim of a machine away: it stays until the machine goes.
    objects
        .delete("IPClaim", "workers-0-provisioning-pool")
        .await;
    objects.delete("Metal3Machine", "m").await;
    objects
        .wait_until("all addresses free again", async || {
            objects.list("IPAddress").await.is_empty() && objects.list("IPClaim").await.is_empty()
        })
        .await;
    assert!(objects.get("Metal3Machine", "m").await.is_null());
    agent.abort();
}

fn provider(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name})
}

async fn pools_and_a_host(objects: &Objects) {
    let cluster = json!({"paused": false, "infrastructureRef": provider("Metal3Cluster", "lab")});
    objects
        .create(object(CORE, "Cluster", "lab", cluster))
        .await
        .unwrap();
    let provisioned = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
    objects.patch_status("Cluster", "lab", provisioned).await;
    let range =
        |last: &str| json!([{"start": format!("192.168.111.{last}"), "end": "192.168.111.200"}]);
    let provisioning =
        json!({"clusterName": "lab", "namePrefix": "lab-prov", "pools": range("20"), "prefix": 24});
    objects
        .create(object(METAL3, "IPPool", "provisioning-pool", provisioning))
        .await
        .unwrap();
    let external = json!({"clusterName": "lab", "namePrefix": "lab-bmv4", "pools": range("100"), "prefix": 25, "gateway": "192.168.111.1"});
    objects
        .create(object(METAL3, "IPPool", "baremetalv4-pool", external))
        .await
        .unwrap();
    objects
        .create(object(
            INFRA,
            "Metal3DataTemplate",
            "workers",
            data_template(),
        ))
        .await
        .unwrap();
    let host = json!({"online": true, "bootMACAddress": "52:54:00:00:00:01"});
    objects
        .create(object("metal3.io/v1alpha1", "BareMetalHost", "n1", host))
        .await
        .unwrap();
    let trusted = json!({"type": "Trusted", "status": "True", "reason": "Approved", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let available = json!({"status": {
        "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true, "operationHistory": {},
        "provisioning": {"state": "available", "ID": "n1"}, "conditions": [trusted],
    }});
    objects.patch_status("BareMetalHost", "n1", available).await;
}

/// As Cluster API leaves one whose data is made.
async fn a_machine(objects: &Objects) {
    let machine = json!({"clusterName": "lab", "bootstrap": {"dataSecretName": "m-data"}, "infrastructureRef": provider("Metal3Machine", "m")});
    objects
        .create(object(CORE, "Machine", "m", machine))
        .await
        .unwrap();
    let uid = objects.get("Machine", "m").await["metadata"]["uid"].clone();
    let image = json!({"url": "http://172.22.0.1/images/node", "checksum": "ab".repeat(32), "checksumType": "sha256", "diskFormat": "raw"});
    let spec = json!({"image": image, "dataTemplate": {"name": "workers"}});
    let mut infra = object(INFRA, "Metal3Machine", "m", spec);
    infra["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "lab"});
    infra["metadata"]["ownerReferences"] =
        json!([{"apiVersion": CORE, "kind": "Machine", "name": "m", "uid": uid}]);
    objects.create(infra).await.unwrap();
}
