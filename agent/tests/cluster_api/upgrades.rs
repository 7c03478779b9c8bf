//! A cluster goes to another version beside Cluster API's own managers; servers are played: their kubelets say what they are told to be.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use firstlight_agent::{
    software::{Hands, JobError},
    ssh::Node,
    status,
    upgrades::{self, Stock},
};
use firstlight_api::{
    packages::{KubernetesStep, Order, Report},
    site::parse_site,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    SITE, VERSION,
    authorities::{self, Rotation},
    control_planes, host_of, nothing_typed_two_servers_become_ready,
    objects::Objects,
    site::Site,
    text,
    workload::Workload,
};

/// Of the next minor version, for Cluster API's webhooks look at it, too.
const TARGET: &str = "v1.37.2";
const PAUSED: &str = "cluster.x-k8s.io/paused";
const KIND: &str = "ClusterUpgrade";

/// Servers of the site; what they were told, in its order.
#[derive(Clone)]
struct Played {
    objects: Objects,
    workload: Workload,
    told: Arc<Mutex<Vec<(String, KubernetesStep)>>>,
    /// The control plane's server.
    first: Arc<String>,
    /// Steps that fail once: on the control plane before anything is done, the others when all is done and nobody hears of it.
    breaks: Arc<Mutex<Vec<(bool, KubernetesStep)>>>,
    rotation: Rotation,
}

impl Hands for Played {
    async fn order(&self, node: &Node, order: &Order, _: Duration) -> Result<Report, JobError> {
        let hosts = self.objects.list("BareMetalHost").await;
        let mac = node.mac.to_string();
        let host = hosts
            .iter()
            .find(|host| host["spec"]["bootMACAddress"] == *mac);
        let name = text(&host.unwrap()["metadata"]["name"]).to_owned();
        let is_first = *self.first == name;
        let order = match order {
            Order::Kubernetes(order) => order,
            Order::Authorities(order) => return self.rotation.obey(&name, order),
            _ => panic!("{order:?}"),
        };
        let mut breaks = self.breaks.lock().unwrap().clone();
        let place = breaks.iter().position(|it| *it == (is_first, order.step));
        let breaks = place.map(|place| {
            breaks.remove(place);
            *self.breaks.lock().unwrap() = breaks;
            Err(JobError {
                reason: "CommandFailed",
                message: "the attic is full".to_owned(),
            })
        });
        if let (Some(failed), KubernetesStep::Cluster) = (&breaks, order.step) {
            return failed.clone();
        }
        // Nothing else may have begun meanwhile.
        for kind in ["KubeadmControlPlane", "MachineDeployment"] {
            let owners = self.objects.list(kind).await;
            let held = |owner: &Value| owner["metadata"]["annotations"][PAUSED].is_string();
            assert!(
                kind != "MachineDeployment" || owners.iter().all(held),
                "{owners:#?}"
            );
        }
        self.told.lock().unwrap().push((name.clone(), order.step));
        if order.step == KubernetesStep::Kubelet {
            self.workload.node_runs(&name, &order.release()).await;
        }
        breaks.unwrap_or_else(|| Ok(Report::default()))
    }
}

pub async fn a_cluster_is_upgraded_in_place_and_cluster_api_rolls_nothing_out() {
    let site = Site::start(SITE, 0).await;
    nothing_typed_two_servers_become_ready(&site).await;
    let (objects, workload) = (&site.objects, site.workload());
    for node in workload.nodes().await {
        workload
            .node_runs(node.metadata.name.as_deref().unwrap(), VERSION)
            .await;
    }
    let dir = tempfile::tempdir().unwrap();
    let played = Played {
        objects: objects.clone(),
        workload: workload.clone(),
        told: Arc::default(),
        first: Arc::new(control_plane(objects).await),
        breaks: Arc::new(Mutex::new(vec![
            (true, KubernetesStep::Cluster),
            (true, KubernetesStep::Kubelet),
            (false, KubernetesStep::Kubelet),
        ])),
        rotation: Rotation::on(site.servers.dir()),
    };
    run_upgrades(played.clone(), dir.path().join("Packages"));
    let before = machines(objects).await;

    what_cannot_be_is_refused(objects).await;
    objects.create(upgrade("up", TARGET, true)).await.unwrap();
    let paused = found(objects, KIND, "up", "planned", |found| {
        found["status"]["state"] == "Paused"
    })
    .await;
    let planned = paused["status"]["nodes"].as_array().unwrap();
    assert_eq!(
        (planned.len(), &planned[0]["controlPlane"]),
        (2, &json!(true)),
        "{planned:#?}"
    );
    assert_eq!(paused["status"]["ready"], "0/2");
    assert!(played.told.lock().unwrap().is_empty());

    objects
        .patch(KIND, "up", json!({"spec": {"paused": false}}))
        .await;
    let stopped = |found: &Value| {
        found["status"]["state"] == "Stopped"
            && found["status"]["observedGeneration"] == found["metadata"]["generation"]
    };
    // Before anything was done; then, on either node, at the end of everything, so that it is left cordoned.
    for (failing, place) in [(true, 0), (false, 0), (true, 1)] {
        let failed = found(objects, KIND, "up", "stopped", stopped).await;
        let why = text(&failed["status"]["message"]);
        assert!(why.contains("the attic is full"), "{why}");
        assert_eq!(failed["status"]["nodes"][place]["state"], "Failed");
        site.say("stopped by a node that failed");
        if place == 0 {
            // Whoever has mended it need not wait.
            let change = json!({"spec": {"allowRemovedApis": failing}});
            objects.patch(KIND, "up", change).await;
        }
    }
    objects.delete(KIND, "up").await;
    objects.wait_for(KIND, "up", "gone", Value::is_null).await;
    assert_eq!(cordoned(&workload).await, 0, "left behind");
    // All nodes are there, and Cluster API was not told of the workers.
    objects
        .create(upgrade("again", TARGET, false))
        .await
        .unwrap();
    let done = |found: &Value| found["status"]["state"] == "Done";
    let finished = found(objects, KIND, "again", "done", done).await;
    assert_eq!(finished["status"]["ready"], "2/2", "{finished:#}");
    site.say("upgraded");
    let told = played.told.lock().unwrap().clone();
    let names: Vec<&str> = planned.iter().map(|node| text(&node["host"])).collect();
    let step = |place: usize, step: KubernetesStep| (names[place].to_owned(), step);
    assert_eq!(
        told,
        [
            step(0, KubernetesStep::Cluster),
            step(0, KubernetesStep::Kubelet),
            step(1, KubernetesStep::Node),
            step(1, KubernetesStep::Kubelet),
        ]
    );
    cluster_api_is_content(objects, &before).await;
    site.say("Cluster API is content");
    assert_eq!(cordoned(&workload).await, 0);
    objects.delete(KIND, "again").await;
    objects
        .wait_for(KIND, "again", "gone", Value::is_null)
        .await;
    cluster_api_is_content(objects, &before).await;
    authorities::are_rotated(&site, &workload, &played.rotation).await;
    cluster_api_is_content(objects, &before).await;
}

/// With packages of both versions in this index.
fn run_upgrades(played: Played, index: PathBuf) {
    let stanza = |of: &str| format!("Package: kubeadm\nVersion: {}-1.1\n\n", &of[1..]);
    fs::write(&index, stanza(VERSION) + &stanza(TARGET)).unwrap();
    let (sender, _reader, owner) = status::channel("test");
    tokio::spawn(status::own(owner, CancellationToken::new()));
    let stock = Stock {
        indexes: vec![index],
        registry: ([127, 0, 0, 1], 1).into(),
    };
    let config = Arc::new(parse_site(SITE).unwrap());
    let client = played.objects.client.clone();
    let running = upgrades::reconcile(played, stock, client, config, sender);
    tokio::spawn(async move { running.await.unwrap() });
}

async fn control_plane(objects: &Objects) -> String {
    let machine = control_planes(objects).await.remove(0);
    let host = host_of(objects, &machine).await;
    text(&host["metadata"]["name"]).to_owned()
}

async fn cordoned(workload: &Workload) -> usize {
    let nodes = workload.nodes().await.into_iter();
    let specs = nodes.filter_map(|node| node.spec);
    specs
        .filter(|spec| spec.unschedulable == Some(true))
        .count()
}

pub async fn found(
    objects: &Objects,
    kind: &str,
    name: &str,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    objects.wait_for(kind, name, what, holds).await;
    objects.get(kind, name).await
}

fn upgrade(name: &str, version: &str, paused: bool) -> Value {
    json!({
        "apiVersion": "firstlight.internal/v1alpha1", "kind": KIND,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"cluster": "lab", "version": version, "paused": paused},
    })
}

async fn what_cannot_be_is_refused(objects: &Objects) {
    for version in ["1.37.2", "v1.37", "v1.37.2-rc.1", "v1.37.02", ""] {
        let refused = objects.create(upgrade("odd", version, false)).await;
        assert!(refused.is_err(), "{version}");
    }
    objects
        .create(upgrade("far", "v1.38.0", false))
        .await
        .unwrap();
    let refused = |found: &Value| found["status"]["state"] == "Refused";
    let told = found(objects, KIND, "far", "refused", refused).await;
    let why = text(&told["status"]["message"]);
    assert!(why.contains("so v1.37 comes first"), "{why}");
    objects.delete(KIND, "far").await;
    objects.wait_for(KIND, "far", "gone", Value::is_null).await;
}

/// Names, with which server each is on.
async fn machines(objects: &Objects) -> Vec<(String, String)> {
    let machines = objects.list("Machine").await;
    let machine = |it: &Value| {
        (
            text(&it["metadata"]["name"]).to_owned(),
            text(&it["spec"]["providerID"]).to_owned(),
        )
    };
    let mut all: Vec<_> = machines.iter().map(machine).collect();
    all.sort();
    all
}

/// It has looked at everything as it is now, finds it as it is wanted, and has made and deleted nothing.
async fn cluster_api_is_content(objects: &Objects, before: &[(String, String)]) {
    // The control plane's generation is not confirmed here: reading its certificates fails, for the API server is a stand-in's.
    let control_plane =
        |owner: &Value| owner["spec"]["version"] == TARGET && owner["status"]["version"] == TARGET;
    let workers = |owner: &Value| {
        owner["spec"]["template"]["spec"]["version"] == TARGET
            && owner["status"]["observedGeneration"] == owner["metadata"]["generation"]
    };
    let is_content = |owner: &Value| {
        owner["metadata"]["annotations"][PAUSED].is_null()
            && owner["status"]["upToDateReplicas"] == owner["spec"]["replicas"]
    };
    for (kind, name, knows) in [
        (
            "KubeadmControlPlane",
            "lab-control-plane",
            &control_plane as &dyn Fn(&Value) -> bool,
        ),
        ("MachineDeployment", "lab-workers", &workers),
    ] {
        let holds = |owner: &Value| is_content(owner) && knows(owner);
        objects.wait_for(kind, name, "content", holds).await;
    }
    assert_eq!(
        objects.list("MachineSet").await.len(),
        1,
        "one was made for a roll-out"
    );
    for machine in objects.list("Machine").await {
        assert_eq!(machine["spec"]["version"], TARGET, "{machine:#}");
    }
    assert_eq!(machines(objects).await, before, "nothing is installed anew");
}
