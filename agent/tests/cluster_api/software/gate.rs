//! Software on a real API server that is the box's and the cluster's: what it refuses, how a node is drained and let back, and
//! how an Addon waits for packages and for a person. Servers are played: they do what they are told.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use firstlight_agent::{
    addons::{self, Places},
    containers,
    paths::Paths,
    pki,
    software::{self, Hands, JobError},
    ssh::Node,
    status,
};
use firstlight_api::{
    packages::{Order, PackageReport, Report},
    site::parse_site,
    software::PackageState,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    PATIENCE,
    objects::Objects,
    programs::{ip, program},
    site,
};

struct Server {
    have: String,
    /// Which start of the kernel runs.
    boot: u32,
    reboot_needed: bool,
}

/// Servers by their address.
#[derive(Clone, Default)]
struct Played(Arc<Mutex<BTreeMap<String, Server>>>);

impl Hands for Played {
    async fn order(&self, node: &Node, order: &Order, _: Duration) -> Result<Report, JobError> {
        let mut servers = self.0.lock().unwrap();
        let server = servers.entry(node.address.to_string()).or_insert(Server {
            have: "none".to_owned(),
            boot: 1,
            reboot_needed: false,
        });
        let mut packages = Vec::new();
        match order {
            Order::Restart { .. } => {
                server.boot += 1;
                server.reboot_needed = false;
            }
            Order::Kubernetes(_) | Order::Authorities(_) => {}
            Order::Packages(order) => {
                let package = &order.packages[0];
                if !order.dry_run && server.have != package.version {
                    // Every installation asks for a restart.
                    server.have.clone_from(&package.version);
                    server.reboot_needed = true;
                }
                let ready = server.have == package.version;
                packages.push(PackageReport {
                    name: package.name.clone(),
                    wanted: package.version.clone(),
                    have: server.have.clone(),
                    state: if ready {
                        PackageState::Ready
                    } else {
                        PackageState::Pending
                    },
                    reason: String::new(),
                });
            }
        }
        Ok(Report {
            packages,
            changed: true,
            reboot_needed: server.reboot_needed,
            boot_id: server.boot.to_string(),
        })
    }
}

const METAL3: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
const CAPI: &str = "cluster.x-k8s.io/v1beta2";

fn software(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "firstlight.internal/v1alpha1", "kind": "Software",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

pub async fn software_drains_its_nodes_and_opens_its_gate() {
    let dir = tempfile::tempdir().unwrap();
    ip("link set lo up");
    ip("addr add 100.64.0.1/32 dev lo");
    let paths = Paths::new(dir.path().join("box"));
    let site_ca = pki::load_or_make(&paths, site::NOW).unwrap().site;
    let logs = dir.path().join("logs");
    fs::create_dir_all(&logs).unwrap();
    let (_daemons, objects) = site::kubernetes(&paths, &logs).await;
    apply_definitions(&objects).await;
    let value = STANDARD.encode(fs::read(site::kubeconfig(&paths)).unwrap());
    objects
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "lab-kubeconfig", "namespace": "default", "labels": {"cluster.x-k8s.io/cluster-name": "lab"}}, "data": {"value": value},
        }))
        .await;
    let (sender, reader, owner) = status::channel("test");
    tokio::spawn(status::own(owner, CancellationToken::new()));
    let config = Arc::new(parse_site("name: lab\n").unwrap());
    let played = Played::default();
    let none = watch::Sender::new(None);
    tokio::spawn(software::reconcile(
        played,
        objects.client.clone(),
        config,
        none.subscribe(),
        sender.clone(),
    ));
    let places = Places {
        helm: program("helm"),
        builtin: dir.path().join("builtin"),
        scratch: dir.path().join("scratch"),
        registry: ([127, 0, 0, 1], 1).into(),
    };
    tokio::spawn(addons::reconcile(
        places,
        objects.client.clone(),
        none.subscribe(),
        site_ca,
        sender,
    ));

    kinds_explain_themselves(&paths).await;
    what_cannot_be_is_refused(&objects).await;
    make_node(&objects).await;
    a_node_is_drained_for_its_restart_and_let_back(&objects).await;
    an_addon_waits_for_the_packages_and_for_a_person(&objects).await;
    let shown = reader.borrow().software.clone();
    let tools = shown.iter().find(|one| one.name == "tools").unwrap();
    assert_eq!(tools.nodes[0].node, "node-a", "the page knows it");
}

/// Of Cluster API's only what says which server is which node, without its webhooks.
async fn apply_definitions(objects: &Objects) {
    let ours = Path::new("../overlays/box/usr/share/firstlight/manifests");
    for crd in [
        "crd-software.yaml",
        "crd-addon.yaml",
        "crd-baremetalhost.yaml",
        "crd-metal3machine.yaml",
    ] {
        for object in site::documents(&ours.join(crd)) {
            objects.apply(&object).await;
        }
    }
    for mut object in site::documents(&program("cluster-api.yaml")) {
        if object["metadata"]["name"] == "machines.cluster.x-k8s.io" {
            object["spec"]["conversion"] = json!({"strategy": "None"});
            objects.apply(&object).await;
        }
    }
}

async fn kinds_explain_themselves(paths: &Paths) {
    let since = Instant::now();
    for kind in ["software", "addon", "baremetalhost", "metal3machine"] {
        let asked = || {
            Command::new(program("kube"))
                .args(["kubectl", "explain", kind])
                .arg(format!(
                    "--kubeconfig={}",
                    site::kubeconfig(paths).display()
                ))
                .output()
                .unwrap()
        };
        let mut said = asked();
        // The API server publishes a definition a moment after it took it.
        while !said.status.success() {
            assert!(since.elapsed() < PATIENCE, "{kind}: {said:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
            said = asked();
        }
        let text = String::from_utf8(said.stdout).unwrap();
        assert!(
            text.contains("DESCRIPTION:") && !text.contains("<empty>"),
            "{text}"
        );
    }
}

async fn what_cannot_be_is_refused(objects: &Objects) {
    let package = |name: &str, version: &str| json!([{"name": name, "version": version}]);
    let good = package("htop", "3.4.1-5");
    for spec in [
        json!({}),
        json!({"packages": good}),
        json!({"selector": {}, "packages": []}),
        json!({"selector": {}, "packages": package("Htop", "1")}),
        json!({"selector": {}, "packages": package("htop-", "1")}),
        json!({"selector": {}, "packages": package("htop", "one")}),
        json!({"selector": {}, "packages": package("htop", "1; id")}),
        json!({"selector": {}, "packages": [{"name": "htop"}]}),
        json!({"selector": {}, "packages": [{"name": "htop", "version": "1"}, {"name": "htop", "version": "2"}]}),
        json!({"selector": {}, "packages": good, "maxUnavailable": 0}),
        json!({"selector": {}, "packages": good, "maxUnavailable": "0%"}),
        json!({"selector": {}, "packages": good, "maxUnavailable": "2"}),
        json!({"selector": {}, "packages": good, "reboot": "always"}),
        json!({"selector": {}, "packages": good, "state": "latest"}),
        json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "packages": good}),
    ] {
        assert!(
            objects.create(software("wrong", &spec)).await.is_err(),
            "{spec}"
        );
    }
    for spec in [
        json!({"selector": {}, "packages": good, "maxUnavailable": "25%"}),
        json!({"selector": {}, "packages": package("g++", "4:14.2.0-1")}),
        json!({"selector": {}, "packages": [{"name": "htop"}], "state": "absent"}),
        json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, "packages": good}),
    ] {
        objects
            .create(software("right", &spec))
            .await
            .unwrap_or_else(|error| panic!("{spec}: {error}"));
        objects
            .wait_for("Software", "right", "told", |found| {
                found["status"]["message"]
                    .as_str()
                    .is_some_and(|text| text.contains("no server that carries a system"))
            })
            .await;
        objects.delete("Software", "right").await;
        objects
            .wait_for("Software", "right", "gone", Value::is_null)
            .await;
    }
}

async fn make_node(objects: &Objects) {
    objects
        .apply(&json!({
            "apiVersion": CAPI, "kind": "Machine", "metadata": {"name": "m", "namespace": "default"},
            "spec": {
                "clusterName": "lab", "bootstrap": {"dataSecretName": "x"},
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Machine", "name": "m3"},
            },
        }))
        .await;
    objects
        .patch_status(
            "Machine",
            "m",
            json!({"status": {"nodeRef": {"name": "node-a"}}}),
        )
        .await;
    objects
        .apply(&json!({
            "apiVersion": METAL3, "kind": "Metal3Machine",
            "metadata": {"name": "m3", "namespace": "default", "ownerReferences": [
                {"apiVersion": CAPI, "kind": "Machine", "name": "m", "uid": objects.get("Machine", "m").await["metadata"]["uid"]}]},
            "spec": {"image": {"url": "http://x", "checksum": "ab".repeat(32), "checksumType": "sha256"}},
        }))
        .await;
    let mut host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "n01", "namespace": "default"},
        "spec": {"online": true, "bootMACAddress": "52:54:00:00:00:01",
            "consumerRef": {"apiVersion": METAL3, "kind": "Metal3Machine", "name": "m3", "namespace": "default"}},
    });
    objects.apply(&host).await;
    host["status"] = json!({
        "poweredOn": true, "errorCount": 0, "errorMessage": "", "operationalStatus": "OK",
        "provisioning": {"state": "provisioned", "ID": ""},
        "hardware": {"nics": [{"ip": "172.22.0.101", "mac": "52:54:00:00:00:01", "pxe": true}]},
    });
    objects.status(&host).await;
    objects
        .apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}))
        .await;
    say_ready(objects, "1").await;
}

/// As kubelet of this start of the kernel does.
async fn say_ready(objects: &Objects, boot_id: &str) {
    objects
        .status(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}, "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
            "nodeInfo": {"bootID": boot_id, "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""},
        }}))
        .await;
}

async fn is(objects: &Objects, kind: &str, name: &str, state: &str, part: &str) {
    let what = format!("{state} with `{part}`");
    objects
        .wait_for(kind, name, &what, |found| {
            found["status"]["state"] == state
                && found["status"]["message"]
                    .as_str()
                    .unwrap_or_default()
                    .contains(part)
                && found["status"]["observedGeneration"] == found["metadata"]["generation"]
        })
        .await;
    eprintln!("         {name}: {what}");
}

/// On the page and to whoever looks at the pod, once.
async fn an_image_that_was_not_fetched_is_told(objects: &Objects) {
    let status = json!({"containerStatuses": [{
        "name": "web", "image": "web", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff"}},
    }]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}, "status": status});
    objects.status(&pod).await;
    for _ in 0..2 {
        let missing = containers::missing(&objects.client).await.unwrap();
        let by = ("the cluster lab".to_owned(), "web".to_owned());
        assert_eq!(missing, [(by, "default/web".to_owned())].into());
    }
    let events = objects.list("Event").await.into_iter();
    let told: Vec<Value> = events
        .filter(|event| event["reason"] == "ImageNotFetched")
        .collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    let note = told[0]["note"].as_str().unwrap();
    assert!(note.contains("firstlight push image.tar"), "{note}");
}

async fn a_node_is_drained_for_its_restart_and_let_back(objects: &Objects) {
    let pod = |name: &str, extra: Value| {
        let mut metadata = json!({"name": name, "namespace": "default", "labels": {"app": "web"}});
        metadata
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": "node-a", "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                "containers": [{"name": "web", "image": "web"}]},
        })
    };
    objects.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}})).await;
    objects
        .apply(&json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {
                "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "d", "image": "d"}]}}},
        }))
        .await;
    let uid = objects.find("apps/v1", "DaemonSet", "d").await["metadata"]["uid"].clone();
    let daemon = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": uid, "controller": true}]});
    objects.apply(&pod("daemon", daemon)).await;
    objects.apply(&pod("web", json!({}))).await;
    let images = containers::images(&objects.client).await.unwrap();
    let of = |name: &str| format!("pod default/{name} of the cluster lab");
    assert_eq!(
        images,
        [
            (of("daemon"), "web".to_owned()),
            (of("web"), "web".to_owned())
        ]
    );
    an_image_that_was_not_fetched_is_told(objects).await;
    // A budget holds only pods that run.
    let runs = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    objects
        .status(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}, "status": runs}))
        .await;
    // Nobody computes it here, so it allows nothing.
    objects
        .apply(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }))
        .await;
    let spec = json!({
        "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "lab"}},
        "packages": [{"name": "htop", "version": "1"}], "reboot": "ifNeeded", "gate": "manual",
    });
    objects.apply(&software("tools", &spec)).await;
    is(
        objects,
        "Software",
        "tools",
        "Installing",
        "default/web may not go: ",
    )
    .await;
    let tools = objects.get("Software", "tools").await;
    let package = &tools["status"]["nodes"][0]["packages"][0];
    assert_eq!(
        (&package["have"], &package["state"]),
        (&json!("1"), &json!("Ready")),
        "{tools:#}"
    );
    let node = objects.find("v1", "Node", "node-a").await;
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(
        node["metadata"]["annotations"]["firstlight.internal/cordoned-for"],
        "default/tools"
    );

    let gone = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "observedGeneration": 1}});
    objects.status(&gone).await;
    is(
        objects,
        "Software",
        "tools",
        "Installing",
        "its node is not ready yet",
    )
    .await;
    assert!(objects.find("v1", "Pod", "web").await.is_null(), "evicted");
    assert!(
        !objects.find("v1", "Pod", "daemon").await.is_null(),
        "a daemon stays"
    );
    say_ready(objects, "2").await;
    is(objects, "Software", "tools", "Ready", "kubectl annotate").await;
    let node = objects.find("v1", "Node", "node-a").await;
    assert!(node["spec"]["unschedulable"].is_null(), "{node:#}");
    assert!(node["metadata"]["annotations"].is_null(), "{node:#}");
}

async fn an_addon_waits_for_the_packages_and_for_a_person(objects: &Objects) {
    let manifests = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\n";
    objects
        .apply(&json!({
            "apiVersion": "firstlight.internal/v1alpha1", "kind": "Addon", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"cluster": "lab", "manifests": manifests, "dependsOn": ["software/tools"]},
        }))
        .await;
    is(
        objects,
        "Addon",
        "web",
        "Pending",
        "until a person approves Software tools: all packages are there",
    )
    .await;
    let generation = objects.get("Software", "tools").await["metadata"]["generation"].to_string();
    let approve =
        json!({"metadata": {"annotations": {"firstlight.internal/approved": generation}}});
    objects.patch("Software", "tools", approve).await;
    is(objects, "Addon", "web", "Ready", "").await;

    // By itself, and before the packages are there.
    objects
        .apply(&json!({
            "apiVersion": "firstlight.internal/v1alpha1", "kind": "Addon", "metadata": {"name": "later", "namespace": "default"},
            "spec": {"cluster": "lab", "manifests": manifests.replace("greeting", "later"), "dependsOn": ["software/other"]},
        }))
        .await;
    is(
        objects,
        "Addon",
        "later",
        "Pending",
        "Software other, which is not there",
    )
    .await;
    let spec = json!({"selector": {"matchLabels": {"no": "server"}}, "packages": [{"name": "htop", "version": "1"}]});
    objects.apply(&software("other", &spec)).await;
    is(
        objects,
        "Addon",
        "later",
        "Pending",
        "the packages of Software other: no server",
    )
    .await;
    let lab = json!({"matchLabels": {"cluster.x-k8s.io/cluster-name": "lab"}});
    let spec = json!({"selector": lab, "packages": [{"name": "htop", "version": "1"}]});
    objects.apply(&software("other", &spec)).await;
    is(objects, "Addon", "later", "Ready", "").await;
    objects.delete("Software", "other").await;
    objects
        .wait_for("Software", "other", "gone", Value::is_null)
        .await;
}
