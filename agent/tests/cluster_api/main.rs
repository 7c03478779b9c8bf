//! A cluster's whole life without a machine: real etcd, API server, controller manager and the three managers of Cluster API,
//! this agent's controllers, and servers that are played by writes to `BareMetalHost` objects. When a control plane "boots",
//! the real kubeadm makes its certificates out of the bootstrap data, and a second etcd and API server are the cluster.
//!
//! Runs unprivileged, in namespaces of its own that take everything with them when they end. `scripts/test-cluster-api` builds
//! the programs and starts it.
#![allow(clippy::unwrap_used)]

mod addons;
mod authorities;
#[path = "../common/mod.rs"]
mod common;
mod conversion;
mod further;
mod hosts;
mod many;
mod moves;
mod objects;
mod on_box;
mod pools;
mod programs;
mod rack;
mod remediation;
#[path = "../common/root.rs"]
mod root;
mod schedules;
mod servers;
mod site;
mod software;
#[path = "../common/store.rs"]
mod store;
mod upgrades;
mod workload;

use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use common::isolated;
use firstlight_api::{status::ClusterStatus, verb::SPARE_ANNOTATION};
use objects::Objects;
use programs::{program, run};
use serde_json::{Value, json};
use site::Site;

const PROGRAMS: &str = "FIRSTLIGHT_CLUSTER_API";
/// Of every wait; each ends as soon as its condition holds.
const PATIENCE: Duration = Duration::from_mins(5);

/// Plays `story` where its programs are built.
fn play(name: &str, story: impl AsyncFnOnce()) {
    isolated(name, || {
        drop(rustls::crypto::ring::default_provider().install_default());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(story());
    });
}

const SITE: &str = "name: lab\ncluster: {}\n";
/// What the stick's image has, and the one at [`NEXT_IMAGE`].
const VERSION: &str = "v1.36.3";
const NEXT_VERSION: &str = "v1.36.4";
const NEXT_IMAGE: &str = "http://172.22.0.1/images/next";

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn servers_become_a_cluster_that_grows_shrinks_and_goes() {
    play(
        "servers_become_a_cluster_that_grows_shrinks_and_goes",
        async || {
            let site = Site::start(SITE, 0).await;
            nothing_typed_two_servers_become_ready(&site).await;
            clusterctl_describes_it(&site);
            workers_come_and_go(&site).await;
            a_budget_holds_a_worker(&site).await;
            a_deleted_worker_is_replaced(&site).await;
            workers_are_upgraded_in_place(&site).await;
            a_dead_server_is_forgotten_and_replaced(&site).await;
            what_cannot_work_is_refused(&site).await;
            a_lone_control_plane_is_upgraded_with_a_spare(&site).await;
            a_deleted_cluster_gives_its_hosts_back(&site, 3).await;
        },
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn addons_come_change_and_go() {
    play(
        "addons_come_change_and_go",
        addons::addons_come_change_and_go,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn software_comes_to_servers_as_it_is_wanted() {
    software::on_real_servers(
        "software_comes_to_servers_as_it_is_wanted",
        software::software_comes_to_servers_as_it_is_wanted,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn software_comes_to_fifty_servers() {
    software::on_real_servers(
        "software_comes_to_fifty_servers",
        software::software_comes_to_fifty_servers,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn software_drains_its_nodes_and_opens_its_gate() {
    play(
        "software_drains_its_nodes_and_opens_its_gate",
        software::gate::software_drains_its_nodes_and_opens_its_gate,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn a_hundred_kills_of_the_agent_end_in_the_same_cluster() {
    play(
        "a_hundred_kills_of_the_agent_end_in_the_same_cluster",
        async || {
            let site = Site::start(SITE, 100).await;
            nothing_typed_two_servers_become_ready(&site).await;
            a_deleted_cluster_gives_its_hosts_back(&site, 2).await;
        },
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn hosts_are_objects_of_a_real_api_server() {
    play(
        "hosts_are_objects_of_a_real_api_server",
        hosts::every_field_is_kept_an_edit_is_told_and_nothing_that_changed_is_deleted,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn clusterctl_moves_a_site_to_another_management_cluster() {
    play(
        "clusterctl_moves_a_site_to_another_management_cluster",
        moves::hosts_go_with_their_status_once_they_are_paused,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn manifests_of_v1beta1_are_converted() {
    play(
        "manifests_of_v1beta1_are_converted",
        conversion::v1beta1_is_taken_shown_and_kept,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn pools_give_addresses_at_a_real_api_server() {
    play(
        "pools_give_addresses_at_a_real_api_server",
        pools::claims_get_addresses_and_give_them_back,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn claims_of_the_contract_live_and_go_beside_cluster_apis_managers() {
    play(
        "claims_of_the_contract_live_and_go_beside_cluster_apis_managers",
        pools::managers::claims_of_the_contract_live_and_go_beside_cluster_apis_managers,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn a_worker_that_hangs_is_switched_off_and_on_and_keeps_its_machine() {
    play(
        "a_worker_that_hangs_is_switched_off_and_on_and_keeps_its_machine",
        remediation::a_worker_that_hangs_is_switched_off_and_on_and_keeps_its_machine,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn two_clusters_share_a_site_and_a_free_server_takes_a_lost_ones_place() {
    play(
        "two_clusters_share_a_site_and_a_free_server_takes_a_lost_ones_place",
        further::two_clusters_share_a_site_and_a_free_server_takes_a_lost_ones_place,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn a_cluster_is_upgraded_in_place_and_cluster_api_rolls_nothing_out() {
    play(
        "a_cluster_is_upgraded_in_place_and_cluster_api_rolls_nothing_out",
        upgrades::a_cluster_is_upgraded_in_place_and_cluster_api_rolls_nothing_out,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn machines_and_hosts_find_each_other_in_hundreds_of_schedules() {
    play(
        "machines_and_hosts_find_each_other_in_hundreds_of_schedules",
        schedules::machines_and_hosts_find_each_other,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_STICK: scripts/bench hosts"]
fn ten_servers_at_once_cost_little_more_than_one() {
    let stick = std::env::var_os(rack::STICK).expect("scripts/bench hosts unpacks a stick");
    play(
        "ten_servers_at_once_cost_little_more_than_one",
        async || rack::ten_cost_little_more_than_one(stick.as_ref()).await,
    );
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLUSTER_API and FIRSTLIGHT_IRONIC: scripts/test-cluster-api"]
fn simulated_servers_become_provisioned() {
    play(
        "simulated_servers_become_provisioned",
        many::simulated_servers_become_provisioned,
    );
}

async fn nothing_typed_two_servers_become_ready(site: &Site) {
    site.servers.switch_on("n1", 1).await;
    site.servers.switch_on("n2", 2).await;
    let objects = &site.objects;
    let available = |cluster: &Value| condition(cluster, "Available") == "True";
    objects
        .wait_for("Cluster", "lab", "available", available)
        .await;
    workers_are_ready(site, 1).await;
    let machines = objects.list("Machine").await;
    assert_eq!(machines.len(), 2);
    for machine in &machines {
        assert_eq!(machine["status"]["phase"], "Running", "{machine:#}");
        assert_eq!(condition(machine, "Ready"), "True", "{machine:#}");
    }
    let told = async || site.workload().pod_network().await.as_deref() == Some("10.244.0.0/16");
    objects.wait_until("the pod network applied", told).await;
    nobody_reads_secrets_in_etcd(site).await;
    its_machines_are_reported(site).await;
    site.say("ready");
}

/// To a program that looks after many sites.
async fn its_machines_are_reported(site: &Site) {
    let clusters = ["lab", "gone"].map(|name| ClusterStatus {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        ..ClusterStatus::default()
    });
    let report = firstlight_agent::edge::report(&site.objects.client, &clusters).await;
    let told: Vec<_> = report
        .hosts
        .iter()
        .map(|host| (host.control_plane, host.ready))
        .collect();
    assert_eq!(told.len(), 2, "{report:#?}");
    assert!(
        told.contains(&(true, true)) && told.contains(&(false, true)),
        "{report:#?}"
    );
    assert!(
        report.hosts.iter().all(|host| !host.arch.is_empty()),
        "{report:#?}"
    );
}

/// Who has a control plane's disk, or a copy of its etcd, has no Secret of the cluster.
async fn nobody_reads_secrets_in_etcd(site: &Site) {
    const CANARIES: [&str; 2] = ["a plain word 4711", "a secret word 0815"];
    let objects = site.workload().objects().clone();
    for (kind, data, word) in [
        ("ConfigMap", "data", CANARIES[0]),
        ("Secret", "stringData", CANARIES[1]),
    ] {
        let metadata = json!({"name": "canary", "namespace": "default"});
        let object =
            json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, data: {"word": word}});
        objects.apply(&object).await;
    }
    let read = objects.find("v1", "Secret", "canary").await;
    assert_eq!(read["data"]["word"], STANDARD.encode(CANARIES[1]));
    let folders = std::fs::read_dir(site.servers.dir()).unwrap();
    let etcd = folders.map(|server| server.unwrap().path().join("etcd"));
    let etcd = etcd.filter(|folder| folder.exists());
    let etcd: Vec<PathBuf> = etcd.collect();
    let found = |word: &str| {
        let found = Command::new("grep")
            .args(["-rqF", word])
            .args(&etcd)
            .status();
        found.unwrap().success()
    };
    assert_eq!(CANARIES.map(found), [true, false], "{etcd:?}");
}

/// As at any Metal3 site, each object available.
fn clusterctl_describes_it(site: &Site) {
    const BRANCHES: [char; 5] = [' ', '│', '├', '└', '─'];
    let mut clusterctl = Command::new(program("clusterctl"));
    clusterctl
        .args(["describe", "cluster", "lab", "--kubeconfig"])
        .arg(&site.kubeconfig)
        .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
    let said = run(&mut clusterctl);
    for object in [
        "Cluster default/lab ",
        "Metal3Cluster default/lab ",
        "KubeadmControlPlane default/lab-control-plane",
        "MachineDeployment default/lab-workers",
    ] {
        let mut lines = said.lines();
        assert!(
            lines.any(|line| line.trim_start_matches(BRANCHES).starts_with(object)
                && line.contains("True")),
            "{object}:\n{said}"
        );
    }
}

/// The deployment's own count may be of a machine that is gone already.
async fn workers_are_ready(site: &Site, count: usize) {
    let objects = &site.objects;
    let ready = async || {
        let deployment = objects.get("MachineDeployment", "lab-workers").await;
        let workers = workers(objects).await;
        deployment["status"]["readyReplicas"] == count
            && workers.len() == count
            && workers
                .iter()
                .all(|worker| condition(worker, "Ready") == "True")
    };
    let what = format!("{count} workers ready");
    objects.wait_until(&what, ready).await;
}

/// By a new server, by a person's number, and by a server's role.
async fn workers_come_and_go(site: &Site) {
    let objects = &site.objects;
    let scale = async |count: u32| {
        let change = json!({"spec": {"replicas": count}});
        objects
            .patch("MachineDeployment", "lab-workers", change)
            .await;
    };
    site.servers.switch_on("n3", 3).await;
    workers_are_ready(site, 2).await;
    site.say("grown");
    scale(1).await;
    let one_free = async || free(&objects.list("BareMetalHost").await) == 1;
    objects
        .wait_until("one host clean and free", one_free)
        .await;
    let two_nodes = async || site.workload().nodes().await.len() == 2;
    objects
        .wait_until("the node gone with its machine", two_nodes)
        .await;
    site.say("shrunk");
    a_spare_waits_for_its_turn(site, async || scale(2).await).await;
    site.say("grown again");
    let spare = json!({"metadata": {"labels": {"firstlight.internal/role": "spare"}}});
    objects.patch("BareMetalHost", "n3", spare).await;
    objects
        .wait_until("the spare clean and free", async || {
            free(&[objects.get("BareMetalHost", "n3").await]) == 1
        })
        .await;
    // The person's number stands, so that a machine waits for a host until they take it back.
    scale(1).await;
    let one = async || workers(objects).await.len() == 1;
    objects.wait_until("no machine waits", one).await;
    workers_are_ready(site, 1).await;
    site.say("spared");
}

/// Nobody claims the free host while it is set aside; then it is a worker.
async fn a_spare_waits_for_its_turn(site: &Site, grow: impl AsyncFnOnce()) {
    let objects = &site.objects;
    let hosts = objects.list("BareMetalHost").await;
    let host = hosts.iter().find(|host| is_free(host)).unwrap();
    let name = text(&host["metadata"]["name"]);
    let set_aside = |value: Value| json!({"metadata": {"annotations": {SPARE_ANNOTATION: value}}});
    objects
        .patch("BareMetalHost", name, set_aside(json!("")))
        .await;
    let one_worker =
        |found: &Value| found["metadata"]["annotations"]["firstlight.internal/replicas"] == "1";
    objects
        .wait_for(
            "MachineDeployment",
            "lab-workers",
            "counts no spare",
            one_worker,
        )
        .await;
    grow().await;
    let waits = async || {
        let machines = objects.list("Metal3Machine").await;
        let why = |machine: &Value| machine["status"].to_string().contains("1 spare (");
        machines.iter().any(why)
    };
    objects.wait_until("a machine that says why", waits).await;
    assert_eq!(free(&[objects.get("BareMetalHost", name).await]), 1);
    objects
        .patch("BareMetalHost", name, set_aside(Value::Null))
        .await;
    workers_are_ready(site, 2).await;
}

/// A drain that fails stops the removal, and the machine says why.
async fn a_budget_holds_a_worker(site: &Site) {
    let objects = &site.objects;
    let machine = worker(objects).await;
    let node = text(&machine["status"]["nodeRef"]["name"]).to_owned();
    let workload = site.workload();
    workload.run_held_pod(&node).await;
    workload.answers_for_a_service(&node).await;
    let name = text(&machine["metadata"]["name"]);
    objects.delete("Machine", name).await;
    let excluded = async || {
        let found = workload.node(&node).await;
        let label = "node.kubernetes.io/exclude-from-external-load-balancers";
        assert!(
            found["spec"]["unschedulable"].is_null(),
            "drained before another node answers"
        );
        found["metadata"]["labels"][label] == ""
    };
    objects
        .wait_until("it gives up what it answers for", excluded)
        .await;
    let waits =
        |found: &Value| find_condition(found, "Deleting")["reason"] == "WaitingForPreDrainHook";
    objects
        .wait_for("Machine", name, "waits for another node", waits)
        .await;
    workload.answers_no_more(&node).await;
    let held = |found: &Value| {
        let deleting = &find_condition(found, "Deleting")["message"];
        text(deleting).contains("held") && text(deleting).contains("disruption budget")
    };
    objects
        .wait_for("Machine", name, "says what holds it", held)
        .await;
    let host = host_of(objects, &machine).await;
    assert!(!host["spec"]["image"].is_null(), "not touched: {host:#}");
    site.say("held by a budget");
    workload.release_held_pod().await;
    gone(objects, name).await;
    workers_are_ready(site, 1).await;
    site.say("let go");
}

async fn a_deleted_worker_is_replaced(site: &Site) {
    let objects = &site.objects;
    let machine = worker(objects).await;
    let name = text(&machine["metadata"]["name"]);
    objects.delete("Machine", name).await;
    gone(objects, name).await;
    workers_are_ready(site, 1).await;
    let nodes = site.workload().nodes().await.len();
    assert_eq!(nodes, 2, "the old node is gone");
    site.say("healed");
}

/// Another version and another image, on the same host, while another one is free.
async fn workers_are_upgraded_in_place(site: &Site) {
    let objects = &site.objects;
    let before = host_of(objects, &worker(objects).await).await;
    make_next_template(objects, "lab-workers").await;
    let change = json!({"spec": {"template": {"spec": {
        "version": NEXT_VERSION,
        "infrastructureRef": {"name": "lab-workers-next"},
    }}}});
    objects
        .patch("MachineDeployment", "lab-workers", change)
        .await;
    objects
        .wait_until("the worker with the next version", async || {
            let workers = workers(objects).await;
            workers.len() == 1 && workers.iter().all(is_next)
        })
        .await;
    let after = host_of(objects, &worker(objects).await).await;
    assert_eq!(after["metadata"]["name"], before["metadata"]["name"]);
    assert_eq!(after["spec"]["image"]["url"], NEXT_IMAGE);
    site.say("upgraded");
}

/// One more template, with another image.
async fn make_next_template(objects: &Objects, name: &str) {
    let mut template = objects.get("Metal3MachineTemplate", name).await;
    template["metadata"] = json!({"name": format!("{name}-next"), "namespace": "default"});
    template["spec"]["template"]["spec"]["image"]["url"] = json!(NEXT_IMAGE);
    objects.create(template).await.unwrap();
}

/// As `firstlight hosts forget NAME --force` writes it: its Machine, its Node and its host go, and nobody is waited for.
async fn a_dead_server_is_forgotten_and_replaced(site: &Site) {
    let objects = &site.objects;
    let machine = worker(objects).await;
    let name = text(&machine["metadata"]["name"]);
    let node = text(&machine["status"]["nodeRef"]["name"]);
    let dead = host_of(objects, &machine).await;
    let dead = text(&dead["metadata"]["name"]);
    site.servers.switch_off(dead);
    let by_force = json!({"metadata": {"annotations": {
        "firstlight.internal/forget-host": "",
        "machine.cluster.x-k8s.io/exclude-node-draining": "",
        "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach": "",
    }}});
    let since = Instant::now();
    objects.patch("Machine", name, by_force).await;
    objects.delete("Machine", name).await;
    let detached = json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": r#"{"force":true}"#}}});
    objects.patch("BareMetalHost", dead, detached).await;
    objects.delete("BareMetalHost", dead).await;
    gone(objects, name).await;
    let no_node = async || {
        let nodes = site.workload().nodes().await;
        nodes
            .iter()
            .all(|it| it.metadata.name.as_deref() != Some(node))
    };
    objects.wait_until("its Node gone", no_node).await;
    let hosts = objects.list("BareMetalHost").await;
    assert!(hosts.iter().all(|host| host["metadata"]["name"] != dead));
    assert!(
        since.elapsed() < Duration::from_mins(1),
        "{:?}",
        since.elapsed()
    );
    let worker_again = json!({"metadata": {"labels": {"firstlight.internal/role": null}}});
    objects.patch("BareMetalHost", "n3", worker_again).await;
    workers_are_ready(site, 1).await;
    let heir = host_of(objects, &worker(objects).await).await;
    assert_eq!(heir["metadata"]["name"], "n3", "{dead} was dead");
    // A person has repaired it, and takes it back.
    site.servers.switch_on_again(dead);
    let number = dead.trim_start_matches('n').parse().unwrap();
    site.servers.switch_on(dead, number).await;
    site.say("replaced");
}

async fn workers(objects: &Objects) -> Vec<Value> {
    labelled(objects, "cluster.x-k8s.io/deployment-name").await
}

async fn control_planes(objects: &Objects) -> Vec<Value> {
    labelled(objects, "cluster.x-k8s.io/control-plane").await
}

async fn labelled(objects: &Objects, label: &str) -> Vec<Value> {
    let mut machines = objects.list("Machine").await;
    machines.retain(|machine| !machine["metadata"]["labels"][label].is_null());
    machines
}

/// Cluster API writes a machine's conditions a moment before its provider ID.
fn is_next(machine: &Value) -> bool {
    machine["spec"]["version"] == NEXT_VERSION
        && condition(machine, "Ready") == "True"
        && machine["spec"]["providerID"].is_string()
}

async fn worker(objects: &Objects) -> Value {
    let mut workers = workers(objects).await;
    assert_eq!(workers.len(), 1, "{workers:#?}");
    workers.remove(0)
}

async fn host_of(objects: &Objects, machine: &Value) -> Value {
    let provider = text(&machine["spec"]["providerID"]);
    let hosts = objects.list("BareMetalHost").await;
    let is_it = |host: &&Value| provider.contains(text(&host["metadata"]["name"]));
    let found = hosts.iter().find(is_it).cloned();
    found.unwrap_or_else(|| panic!("no host of {provider}"))
}

async fn gone(objects: &Objects, machine: &str) {
    let is_gone = |found: &Value| found.is_null();
    objects.wait_for("Machine", machine, "gone", is_gone).await;
}

async fn what_cannot_work_is_refused(site: &Site) {
    let change = json!({"spec": {"version": NEXT_VERSION}});
    let upgrade = site
        .objects
        .try_patch("KubeadmControlPlane", "lab-control-plane", change)
        .await;
    let sentence = upgrade.unwrap_err().to_string();
    assert!(
        sentence.contains("cannot be replaced without a spare server"),
        "{sentence}"
    );
    let template = |name: &str, url: &str| {
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3MachineTemplate",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"template": {"spec": {"image": {"url": url}}}},
        })
    };
    // The box knows the digest of what is on it.
    let named = template("named", "debian:13.2");
    site.objects.create(named).await.unwrap();
    let undigested = site.objects.create(template("undigested", "http://a/b"));
    let sentence = undigested.await.unwrap_err().to_string();
    assert!(
        sentence.contains("no image is written without a digest"),
        "{sentence}"
    );
}

/// Its replacement joins on the spare; then the first one goes, and its host is free.
async fn a_lone_control_plane_is_upgraded_with_a_spare(site: &Site) {
    let objects = &site.objects;
    let hosts = objects.list("BareMetalHost").await;
    let spare = hosts.iter().find(|host| is_free(host)).unwrap();
    let spare = text(&spare["metadata"]["name"]);
    make_next_template(objects, "lab-control-plane").await;
    let change = json!({"spec": {
        "version": NEXT_VERSION,
        "machineTemplate": {"spec": {"infrastructureRef": {"name": "lab-control-plane-next"}}},
    }});
    objects
        .wait_until("the upgrade allowed", async || {
            let kind = "KubeadmControlPlane";
            let change = change.clone();
            objects
                .try_patch(kind, "lab-control-plane", change)
                .await
                .is_ok()
        })
        .await;
    objects
        .wait_until("the control plane on the spare alone", async || {
            let control_planes = control_planes(objects).await;
            control_planes.len() == 1 && control_planes.iter().all(is_next)
        })
        .await;
    let host = host_of(objects, &control_planes(objects).await[0]).await;
    assert_eq!(host["metadata"]["name"], spare);
    objects
        .wait_until("the first one's host clean and free", async || {
            free(&objects.list("BareMetalHost").await) == 1
        })
        .await;
    workers_are_ready(site, 1).await;
    site.say("control plane upgraded");
}

async fn a_deleted_cluster_gives_its_hosts_back(site: &Site, count: usize) {
    let objects = &site.objects;
    objects.delete("Cluster", "lab").await;
    let all_free = async || free(&objects.list("BareMetalHost").await) == count;
    objects
        .wait_until("all hosts clean and free", all_free)
        .await;
    let nothing_left = async || {
        let kinds = [
            "Cluster",
            "Machine",
            "Metal3Machine",
            "Metal3Cluster",
            "KubeadmControlPlane",
            "MachineDeployment",
        ];
        let mut left = 0;
        for kind in kinds {
            left += objects.list(kind).await.len();
        }
        left == 0
    };
    objects
        .wait_until("no object of the cluster left", nothing_left)
        .await;
    site.say("deleted");
    // Long enough for several looks of the controller.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        objects.list("Cluster").await.is_empty(),
        "a deleted cluster is not made again"
    );
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn find_condition<'o>(object: &'o Value, kind: &str) -> &'o Value {
    let all = object["status"]["conditions"].as_array();
    all.into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind)
        .unwrap_or(&Value::Null)
}

fn condition<'o>(object: &'o Value, kind: &str) -> &'o str {
    text(&find_condition(object, kind)["status"])
}

fn is_free(host: &Value) -> bool {
    host["status"]["provisioning"]["state"] == "available"
        && host["spec"]["consumerRef"].is_null()
        && host["spec"]["image"].is_null()
}

fn free(hosts: &[Value]) -> usize {
    hosts.iter().filter(|host| is_free(host)).count()
}
