//! Servers, played by writes to their `BareMetalHost` objects: what the hosts controller, Ironic and a machine do together.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    NEXT_IMAGE, NEXT_VERSION, VERSION,
    objects::Objects,
    workload::{Node, Workload},
};

pub struct Servers {
    objects: Objects,
    dir: PathBuf,
    workloads: watch::Sender<BTreeMap<String, Workload>>,
    dead: Dead,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// Before the runtime ends under it.
impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// When the servers break, what waits for them would wait for nothing.
struct ToldByAll;

impl Drop for ToldByAll {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::exit(101);
        }
    }
}

/// Names of those that do nothing any more.
type Dead = Arc<Mutex<BTreeSet<String>>>;

/// What runs on them.
struct Rack {
    objects: Objects,
    dir: PathBuf,
    nodes: Mutex<BTreeMap<String, Node>>,
    /// By the names of the clusters.
    workloads: watch::Sender<BTreeMap<String, Workload>>,
    dead: Dead,
}

impl Servers {
    pub fn start(objects: Objects, dir: PathBuf) -> Self {
        let workloads = watch::Sender::new(BTreeMap::new());
        let dead = Dead::default();
        let rack = Arc::new(Rack {
            objects: objects.clone(),
            dir: dir.clone(),
            nodes: Mutex::default(),
            workloads: workloads.clone(),
            dead: dead.clone(),
        });
        // On a thread of its own: what it awaits is not `Send`.
        let handle = tokio::runtime::Handle::current();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let work = async {
                loop {
                    // An API server that is busy, or kept from etcd, says so now and then.
                    let hosts = rack.objects.try_list("BareMetalHost").await;
                    for host in hosts.unwrap_or_default() {
                        rack.step(&host).await;
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            };
            let _told = ToldByAll;
            handle.block_on(stopped.run_until_cancelled(work));
        });
        Self {
            objects,
            dir,
            workloads,
            dead,
            stop,
            thread: Some(thread),
        }
    }

    /// Where those of one are, each with its own `/`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// For ever, as far as anybody can tell.
    pub fn switch_off(&self, name: &str) {
        self.dead.lock().unwrap().insert(name.to_owned());
    }

    pub fn switch_on_again(&self, name: &str) {
        self.dead.lock().unwrap().remove(name);
    }

    pub fn workload(&self, cluster: &str) -> Option<Workload> {
        self.workloads.borrow().get(cluster).cloned()
    }

    /// It was erased with its servers.
    pub fn forget_workload(&self, cluster: &str) {
        self.workloads.send_modify(|all| drop(all.remove(cluster)));
    }

    /// Inspected, and available at 172.22.0.100 and `number`.
    pub async fn switch_on(&self, name: &str, number: u8) {
        self.switch_on_labelled(name, number, json!({})).await;
    }

    pub async fn switch_on_labelled(&self, name: &str, number: u8, labels: Value) {
        let mac = format!("52:54:00:00:00:{number:02x}");
        let object = json!({
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "BareMetalHost",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"online": true, "bootMACAddress": mac, "disablePowerOff": true},
        });
        self.objects.create(object).await.unwrap();
        let status = json!({"status": {
            "operationalStatus": "OK",
            "errorMessage": "",
            "errorCount": 0,
            "poweredOn": true,
            "operationHistory": {},
            "provisioning": {"state": "available", "ID": name},
            "conditions": [{
                "type": "Trusted", "status": "True", "reason": "Approved", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "hardware": {
                "hostname": name,
                "ramMebibytes": 4096,
                "cpu": {"arch": "x86_64", "count": 2},
                "nics": [{"name": "eth0", "mac": mac, "ip": format!("172.22.0.{}", 100 + number), "pxe": true}],
                "storage": [],
                "systemVendor": {},
                "firmware": {"bios": {}},
            },
        }});
        self.objects
            .patch_status("BareMetalHost", name, status)
            .await;
    }
}

impl Rack {
    /// One step towards what the object says.
    async fn step(&self, host: &Value) {
        let name = host["metadata"]["name"].as_str().unwrap();
        if self.dead.lock().unwrap().contains(name) {
            return;
        }
        let has_image = !host["spec"]["image"].is_null();
        let state = host["status"]["provisioning"]["state"]
            .as_str()
            .unwrap_or_default();
        let next = match (state, has_image) {
            ("available", true) => "provisioning",
            ("provisioning", true) => {
                self.boot(host).await;
                "provisioned"
            }
            ("provisioning" | "provisioned", false) => {
                self.nodes.lock().unwrap().remove(name);
                "deprovisioning"
            }
            ("deprovisioning", false) => "available",
            _ => return,
        };
        let state = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": name, "namespace": host["metadata"]["namespace"]},
            "status": {"provisioning": {"state": next}},
        });
        self.objects.status_if_there(&state).await;
    }

    async fn boot(&self, host: &Value) {
        let name = host["metadata"]["name"].as_str().unwrap();
        let secret = async |field: &str| {
            let name = host["spec"][field]["name"]
                .as_str()
                .unwrap_or_else(|| panic!("{field} is given: {host:#}"));
            self.objects.secret(name).await
        };
        let user_data = secret("userData").await.remove("value").unwrap();
        let mut meta_data: Value =
            serde_json::from_str(&secret("metaData").await["metaData"]).unwrap();
        // The hosts controller adds it.
        meta_data["box_ssh_key"] = json!("ssh-ed25519 AAAA box");
        let dir = self.dir.join(name);
        let cluster = &host["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"];
        let cluster = cluster.as_str().unwrap().to_owned();
        let workload = self.workloads.borrow().get(&cluster).cloned();
        let kubelet = if host["spec"]["image"]["url"] == NEXT_IMAGE {
            NEXT_VERSION
        } else {
            VERSION
        };
        let (node, workload) = Node::boot(&user_data, &meta_data, &dir, workload, kubelet).await;
        self.nodes.lock().unwrap().insert(name.to_owned(), node);
        self.workloads
            .send_modify(|all| drop(all.insert(cluster, workload)));
    }
}
