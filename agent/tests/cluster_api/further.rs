//! Two clusters of one site, by label: each with its own servers, addresses and authority; a server goes from one to the other, cleaned in
//! between; and in the one whose owner allows it, a free server takes the place of a lost one.

use std::collections::BTreeSet;

use firstlight_agent::{remediation, status};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{condition, host_of, is_free, labelled, objects::Objects, site::Site, text};

const TWO: &str = "name: lab\ncluster: {}\nclusters: {edge: {workers: 1, heal: replace}}\n";
const FOR: &str = "firstlight.internal/cluster";

pub async fn two_clusters_share_a_site_and_a_free_server_takes_a_lost_ones_place() {
    let site = Site::start(TWO, 0).await;
    let (sender, _reader, owner) = status::channel("test");
    tokio::spawn(status::own(owner, CancellationToken::new()));
    let client = site.objects.client.clone();
    tokio::spawn(async move { remediation::reconcile(client, sender).await.unwrap() });
    each_has_its_own(&site).await;
    a_server_goes_from_one_to_the_other(&site).await;
    a_free_server_takes_a_lost_ones_place(&site).await;
    one_goes_and_the_other_stays(&site).await;
}

async fn each_has_its_own(site: &Site) {
    let objects = &site.objects;
    for (name, number, cluster) in [
        ("n1", 1, None),
        ("n2", 2, None),
        ("n3", 3, Some("edge")),
        ("n4", 4, Some("edge")),
    ] {
        let labels = cluster.map_or(json!({}), |cluster| json!({FOR: cluster}));
        site.servers.switch_on_labelled(name, number, labels).await;
    }
    for (cluster, servers) in [("lab", ["n1", "n2"]), ("edge", ["n3", "n4"])] {
        let available = |found: &Value| condition(found, "Available") == "True";
        objects
            .wait_for("Cluster", cluster, "available", available)
            .await;
        consists_of(site, cluster, &servers).await;
    }
    let mut seen = BTreeSet::new();
    for (cluster, endpoint) in [("lab", "172.22.0.254"), ("edge", "172.22.0.253")] {
        let found = objects.get("Cluster", cluster).await;
        assert_eq!(found["spec"]["controlPlaneEndpoint"]["host"], endpoint);
        let kubeconfig = objects.secret(&format!("{cluster}-kubeconfig")).await;
        assert!(kubeconfig["value"].contains(endpoint));
        assert!(seen.insert(objects.secret(&format!("{cluster}-ca")).await["tls.crt"].clone()));
        let addresses = &objects.get("Addon", &addon(cluster)).await["spec"]["values"]["addresses"];
        assert!(seen.insert(addresses.to_string()), "{addresses}");
    }
    site.say("each has its own");
}

fn addon(cluster: &str) -> String {
    match cluster {
        "lab" => "loadbalancer".to_owned(),
        other => format!("{other}-loadbalancer"),
    }
}

/// Those and no others are its nodes, and all are Ready.
async fn consists_of(site: &Site, cluster: &str, servers: &[&str]) {
    let is_so = async || {
        let Some(workload) = site.servers.workload(cluster) else {
            return false;
        };
        let nodes = workload.nodes().await.into_iter();
        let nodes: Vec<String> = nodes.filter_map(|node| node.metadata.name).collect();
        let machines = machines(&site.objects, cluster).await;
        nodes == servers
            && machines.len() == servers.len()
            && machines.iter().all(|it| condition(it, "Ready") == "True")
    };
    let what = format!("{cluster} consists of {servers:?}");
    site.objects.wait_until(&what, is_so).await;
}

async fn machines(objects: &Objects, cluster: &str) -> Vec<Value> {
    let mut machines = labelled(objects, "cluster.x-k8s.io/cluster-name").await;
    machines.retain(|machine| machine["spec"]["clusterName"] == cluster);
    machines
}

async fn a_server_goes_from_one_to_the_other(site: &Site) {
    let objects = &site.objects;
    site.servers.switch_on("n5", 5).await;
    consists_of(site, "lab", &["n1", "n2", "n5"]).await;
    let installed = objects.get("BareMetalHost", "n5").await;
    let before = text(&installed["spec"]["consumerRef"]["name"]).to_owned();
    let label = json!({"metadata": {"labels": {FOR: "edge"}}});
    objects.patch("BareMetalHost", "n5", label).await;
    consists_of(site, "lab", &["n1", "n2"]).await;
    // The other one has as many as it wants, so it waits there, clean.
    let is_clean = |host: &Value| is_free(host) && host["spec"]["userData"].is_null();
    objects
        .wait_for("BareMetalHost", "n5", "clean and free", is_clean)
        .await;
    objects
        .wait_for("Metal3Machine", &before, "gone", Value::is_null)
        .await;
    consists_of(site, "edge", &["n3", "n4"]).await;
    site.say("a server has gone from one to the other");
}

async fn a_free_server_takes_a_lost_ones_place(site: &Site) {
    let objects = &site.objects;
    let mut workers = machines(objects, "edge").await;
    workers.retain(|machine| {
        machine["metadata"]["labels"]["cluster.x-k8s.io/control-plane"].is_null()
    });
    let lost = workers.remove(0);
    let (machine, node) = (
        text(&lost["metadata"]["name"]),
        text(&lost["status"]["nodeRef"]["name"]),
    );
    let host = host_of(objects, &lost).await;
    let host = text(&host["metadata"]["name"]);
    let check = objects.get("MachineHealthCheck", "edge-heal").await;
    assert_eq!(
        check["spec"]["remediation"]["triggerIf"]["unhealthyLessThanOrEqualTo"], 1,
        "a fuse"
    );
    assert!(
        objects
            .get("MachineHealthCheck", "lab-heal")
            .await
            .is_null(),
        "nobody asked for it"
    );
    // Its owner may change it, and it stays so.
    let soon = json!({"type": "Ready", "status": "Unknown", "timeoutSeconds": 1});
    let soon = json!({"spec": {"checks": {"unhealthyNodeConditions": [soon]}}});
    objects.patch("MachineHealthCheck", "edge-heal", soon).await;
    site.servers.switch_off(host);
    site.workload_of("edge").node_says(node, false).await;
    let waits = |found: &Value| found["status"]["phase"] == "Waiting";
    objects
        .wait_for("Metal3Remediation", machine, "restarted", waits)
        .await;
    let told = objects.get("BareMetalHost", host).await;
    assert!(
        !told["metadata"]["annotations"]["reboot.metal3.io"].is_null(),
        "{told:#}"
    );
    site.say("restarted");
    // In vain; as if that had taken its time.
    objects
        .patch(
            "Metal3Remediation",
            machine,
            json!({"spec": {"strategy": {"timeoutSeconds": 100}}}),
        )
        .await;
    let long_ago = json!({"status": {"retryCount": 1, "lastRemediated": "2026-01-01T00:00:00Z"}});
    objects
        .patch_status("Metal3Remediation", machine, long_ago)
        .await;
    let heir = async || {
        let host = objects.get("BareMetalHost", "n5").await;
        host["status"]["provisioning"]["state"] == "provisioned"
    };
    objects
        .wait_until("the free server in its place", heir)
        .await;
    let whole = async || {
        let nodes = site.workload_of("edge").nodes().await.into_iter();
        nodes
            .filter_map(|node| node.metadata.name)
            .any(|name| name == "n5")
    };
    objects.wait_until("its node", whole).await;
    let unhealthy = objects.get("BareMetalHost", host).await;
    assert!(!unhealthy["metadata"]["annotations"]["capm3.metal3.io/unhealthy"].is_null());
    site.say("replaced");
    // The lost one comes back, and is erased; a person says when it may be used again.
    site.servers.switch_on_again(host);
    objects
        .wait_for("BareMetalHost", host, "clean and free", is_free)
        .await;
    consists_of(site, "edge", &["n3", "n5"]).await;
    site.say("the lost one is clean");
}

/// The cluster is made anew from the same words; what opened the old one opens nothing any more.
async fn one_goes_and_the_other_stays(site: &Site) {
    let objects = &site.objects;
    let old = objects.secret("edge-ca").await["tls.crt"].clone();
    let old_kubeconfig = objects.secret("edge-kubeconfig").await["value"].clone();
    objects.delete("Cluster", "edge").await;
    objects
        .wait_for("Cluster", "edge", "gone", Value::is_null)
        .await;
    consists_of(site, "lab", &["n1", "n2"]).await;
    site.servers.forget_workload("edge");
    let well = json!({"metadata": {"annotations": {"capm3.metal3.io/unhealthy": null}}});
    objects.patch("BareMetalHost", "n4", well).await;
    let marker = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "firstlight-cluster-edge", "namespace": "default"}});
    objects.remove(&marker).await;
    let available = |found: &Value| condition(found, "Available") == "True";
    objects
        .wait_for("Cluster", "edge", "available again", available)
        .await;
    let new = objects.secret("edge-ca").await["tls.crt"].clone();
    assert_ne!(old, new);
    let stale = Objects::of(&old_kubeconfig).await;
    assert!(
        stale.client.apiserver_version().await.is_err(),
        "an old kubeconfig opens the new cluster"
    );
    site.say("healed as a whole");
}
