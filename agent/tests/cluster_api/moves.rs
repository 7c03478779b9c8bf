//! `clusterctl move` between two API servers, with the box's controllers at both.

use std::{fs, path::Path, process::Command, sync::Arc};

use firstlight_agent::{pki, provider, status};
use firstlight_api::{bmh::annotations, capm3::BLOCK_MOVE_ANNOTATION, site::parse_site};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    objects::Objects,
    programs::{program, run},
    site::{NOW, api_server, apply_definitions, apply_own, kubeconfig, kubernetes_alone},
};

const PORT: u16 = 6444;
const CAPI: &str = "cluster.x-k8s.io/v1beta2";
const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1beta2";

pub async fn hosts_go_with_their_status_once_they_are_paused() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, _daemons, source) = kubernetes_alone(dir.path()).await;
    let mut api = api_server(&paths, dir.path(), "127.0.0.1", PORT, "/target");
    let from = kubeconfig(&paths);
    let text = fs::read_to_string(&from).unwrap();
    let there = text.replace("100.64.0.1:6443", &format!("127.0.0.1:{PORT}"));
    assert_ne!(text, there);
    let to = dir.path().join("target.conf");
    fs::write(&to, &there).unwrap();
    let target = Objects::of(&there).await;
    api.wait(async || target.client.apiserver_version().await.is_ok())
        .await;
    apply_own(&target, &pki::load_or_make(&paths, NOW).unwrap()).await;
    for objects in [&source, &target] {
        apply_definitions(objects).await;
    }
    a_cluster_of_one_host_and_a_free_one(&source).await;
    for objects in [&source, &target] {
        look_after(objects);
    }
    let provisioned = source.get("BareMetalHost", "n1").await["status"].clone();

    clusterctl_moves(&from, &to);

    for kind in ["BareMetalHost", "HardwareData", "Cluster", "Metal3Machine"] {
        assert_eq!(source.list(kind).await, Vec::<Value>::new());
    }
    let is_resumed = |host: &Value| {
        let said = &host["metadata"]["annotations"];
        said[annotations::PAUSED].is_null() && !said[BLOCK_MOVE_ANNOTATION].is_null()
    };
    target
        .wait_for("BareMetalHost", "n1", "taken up again", is_resumed)
        .await;
    let moved = target.get("BareMetalHost", "n1").await;
    let brought = moved["metadata"]["annotations"][annotations::STATUS].as_str();
    let brought: Value = serde_json::from_str(brought.unwrap()).unwrap();
    assert_eq!(brought, provisioned);
    assert_eq!(moved["spec"]["consumerRef"]["name"], "w1");
    assert!(!target.get("BareMetalHost", "n2").await.is_null());
    assert!(!target.get("HardwareData", "n1").await.is_null());
}

/// As `firstlight-agent` does, where no cluster is made from site.yaml.
fn look_after(objects: &Objects) {
    let site = Arc::new(parse_site("cluster: none\n").unwrap());
    let (sender, _reader, owner) = status::channel("test");
    tokio::spawn(status::own(owner, CancellationToken::new()));
    let stick = watch::Sender::new(None).subscribe();
    let client = objects.client.clone();
    tokio::spawn(provider::reconcile(client, site, stick, sender));
}

fn clusterctl_moves(from: &Path, to: &Path) {
    let mut clusterctl = Command::new(program("clusterctl"));
    clusterctl
        .args(["move", "--namespace", "default", "--kubeconfig"])
        .arg(from)
        .arg("--to-kubeconfig")
        .arg(to)
        .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
    run(&mut clusterctl);
}

async fn make(objects: &Objects, mut object: Value, owner: Option<&Value>) -> Value {
    object["metadata"]["namespace"] = json!("default");
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }]);
    }
    let status = object["status"].take();
    objects.create(object.clone()).await.unwrap();
    if !status.is_null() {
        let mut of = object.clone();
        of["status"] = status;
        objects.status(&of).await;
    }
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let name = text(&object["metadata"]["name"]);
    objects
        .find(&text(&object["apiVersion"]), &text(&object["kind"]), &name)
        .await
}

async fn a_cluster_of_one_host_and_a_free_one(objects: &Objects) {
    let infrastructure = |kind: &str, name: &str| json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name});
    let labels = json!({"cluster.x-k8s.io/cluster-name": "lab"});
    let initialized = json!({
        "type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let cluster = json!({
        "apiVersion": CAPI, "kind": "Cluster", "metadata": {"name": "lab"},
        "spec": {
            "infrastructureRef": infrastructure("Metal3Cluster", "lab"),
            "controlPlaneEndpoint": {"host": "172.22.0.50", "port": 6443},
        },
        "status": {
            "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
            "conditions": [initialized],
        },
    });
    let cluster = make(objects, cluster, None).await;
    let metal3 = json!({
        "apiVersion": INFRA, "kind": "Metal3Cluster", "metadata": {"name": "lab", "labels": labels},
        "spec": {"controlPlaneEndpoint": {"host": "172.22.0.50", "port": 6443}},
    });
    make(objects, metal3, Some(&cluster)).await;
    let machine = json!({
        "apiVersion": CAPI, "kind": "Machine", "metadata": {"name": "w1", "labels": labels},
        "spec": {
            "clusterName": "lab",
            "bootstrap": {"dataSecretName": "w1"},
            "infrastructureRef": infrastructure("Metal3Machine", "w1"),
        },
        "status": {"nodeRef": {"name": "w1"}},
    });
    let machine = make(objects, machine, Some(&cluster)).await;
    let metal3 = json!({
        "apiVersion": INFRA, "kind": "Metal3Machine", "metadata": {"name": "w1", "labels": labels},
        "spec": {"image": {"url": "node"}},
    });
    make(objects, metal3, Some(&machine)).await;
    for (name, mac, consumer, state) in [
        ("n1", "52:54:00:00:00:01", Some("w1"), "provisioned"),
        ("n2", "52:54:00:00:00:02", None, "available"),
    ] {
        let consumer = consumer
            .map(|name| json!({"apiVersion": INFRA, "kind": "Metal3Machine", "name": name, "namespace": "default"}));
        let waits = match &consumer {
            Some(_) => json!({BLOCK_MOVE_ANNOTATION: ""}),
            None => json!({}),
        };
        let host = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {
                "name": name,
                "annotations": waits,
                "finalizers": ["baremetalhost.metal3.io"],
            },
            "spec": {"online": true, "bootMACAddress": mac, "consumerRef": consumer, "image": consumer.as_ref().map(|_| json!({"url": "node"}))},
            "status": {
                "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true,
                "provisioning": {"state": state, "ID": "an-id", "image": {"url": "node"}},
                "hardware": {"hostname": name},
                "lastUpdated": "2026-01-01T00:00:00Z",
            },
        });
        make(objects, host, None).await;
        let data = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "HardwareData", "metadata": {"name": name},
            "spec": {"hardware": {"hostname": name}},
        });
        make(objects, data, None).await;
    }
}
