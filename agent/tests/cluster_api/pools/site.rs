//! Networks of site.yaml for hosts of two namespaces.

use std::sync::Arc;

use firstlight_agent::{provider, status};
use firstlight_api::site::parse_site;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{METAL3, object};
use crate::{objects::Objects, site::stick, text};

const SITE: &str = "
name: lab
cluster: manual
networks:
  storage: {subnet: [10.30.0.0/24, 'fd00:30::/64'], vlan: 30, pool: 10.30.0.11-10.30.0.11, gateway: 10.30.0.1}
hosts:
- {mac: '52:54:00:00:01:02', name: n12, addresses: {storage: 10.30.0.200}}
rules:
- {match: {mac: '52:54:00:00:01:*'}, links: [{nic: boot, networks: [provisioning, storage]}]}
- match: any
";

pub async fn gives_hosts_of_all_namespaces_addresses_of_one_pool(objects: &Objects) {
    let (sender, _reader, owner) = status::channel("test");
    tokio::spawn(status::own(owner, CancellationToken::new()));
    let stick = watch::Sender::new(Some(Arc::new(stick()))).subscribe();
    let site = Arc::new(parse_site(SITE).unwrap());
    let client = objects.client.clone();
    let agent = tokio::spawn(provider::reconcile(client, site, stick, sender));
    let racks = objects.within("racks");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "racks"}});
    objects.create(namespace).await.unwrap();
    host(objects, "default", "n11", "52:54:00:00:01:01").await;
    host(&racks, "racks", "n12", "52:54:00:00:01:02").await;
    let first = ["10.30.0.11", "fd00:30::1000"];
    assert_eq!(addresses(objects, "n11").await, first);
    assert_eq!(addresses(&racks, "n12").await[0], "10.30.0.200");
    let owner = objects.get("Secret", "n11-network-data").await;
    assert_eq!(owner["metadata"]["ownerReferences"][0]["name"], "n11");
    let claim = "racks.n12-site-storage";
    let whose = objects.find(METAL3, "IPClaim", claim).await;
    let annotation = &whose["metadata"]["annotations"]["firstlight.internal/host"];
    assert_eq!(annotation, "racks/n12");

    // The pool is used up, and says so; a host that goes makes room.
    host(objects, "default", "n13", "52:54:00:00:01:03").await;
    objects
        .wait_for(
            "IPClaim",
            "n13-site-storage",
            "told that there is none",
            |claim| text(&claim["status"]["errorMessage"]).contains("xhausted"),
        )
        .await;
    objects.delete("BareMetalHost", "n11").await;
    assert_eq!(addresses(objects, "n13").await[0], "10.30.0.11");
    objects.delete("BareMetalHost", "n13").await;
    racks.delete("BareMetalHost", "n12").await;
    objects
        .wait_until("all addresses free again", async || {
            objects.list("IPAddress").await.is_empty() && objects.list("IPClaim").await.is_empty()
        })
        .await;
    agent.abort();
}

async fn host(objects: &Objects, namespace: &str, name: &str, mac: &str) {
    let spec = json!({"online": true, "bootMACAddress": mac});
    let mut host = object("metal3.io/v1alpha1", "BareMetalHost", name, spec);
    host["metadata"]["namespace"] = json!(namespace);
    objects.create(host).await.unwrap();
    let nic = json!({"name": "eth0", "mac": mac, "ip": "", "pxe": true});
    let available = json!({"status": {
        "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true, "operationHistory": {},
        "provisioning": {"state": "available", "ID": name}, "hardware": {"nics": [nic]},
    }});
    objects.patch_status("BareMetalHost", name, available).await;
}

/// Of its Secret, once that is there.
async fn addresses(objects: &Objects, host: &str) -> [String; 2] {
    let name = format!("{host}-network-data");
    objects
        .wait_until(&format!("{name} made"), async || {
            !objects.get("Secret", &name).await.is_null()
        })
        .await;
    let data = objects.secret(&name).await;
    let data: Value = serde_json::from_str(&data["networkData"]).unwrap();
    [1, 2].map(|at| text(&data["networks"][at]["ip_address"]).to_owned())
}
