//! What a server does with its bootstrap data: the control plane's becomes an etcd and an API server with the certificates
//! that the real kubeadm makes of it, a worker becomes a node object.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Node as NodeObject, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{
    PATIENCE,
    objects::Objects,
    programs::{Daemon, ip, listens, program, run},
    site::documents,
};

/// The running cluster.
#[derive(Clone)]
pub struct Workload {
    objects: Objects,
}

impl Workload {
    pub const fn objects(&self) -> &Objects {
        &self.objects
    }

    /// What the pod network was told, once Cluster API has applied it.
    pub async fn pod_network(&self) -> Option<String> {
        let api: Api<ConfigMap> = Api::namespaced(self.objects.client.clone(), "kube-system");
        let found = api.get_opt("flannel").await.unwrap()?;
        found.data?.remove("network")
    }

    pub async fn nodes(&self) -> Vec<NodeObject> {
        Api::all(self.objects.client.clone())
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }

    /// The kubelet's part, or that of who misses it.
    pub async fn node_says(&self, node: &str, is_ready: bool) {
        let mut said = self.objects.find("v1", "Node", node).await;
        for condition in said["status"]["conditions"].as_array_mut().unwrap() {
            if condition["type"] == "Ready" {
                condition["status"] = json!(if is_ready { "True" } else { "Unknown" });
            }
        }
        let status = json!({"conditions": said["status"]["conditions"]});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": status});
        self.objects.status(&node).await;
    }

    /// The kubelet's part after its start.
    pub async fn node_runs(&self, node: &str, version: &str) {
        let info = json!({
            "kubeletVersion": version, "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": {"nodeInfo": info}});
        self.objects.status(&node).await;
    }

    /// The taint by which its pods and volumes move.
    pub async fn is_out_of_service(&self, node: &str) -> bool {
        let node = self.objects.find("v1", "Node", node).await;
        let taints = node["spec"]["taints"].as_array().cloned();
        let mut taints = taints.unwrap_or_default().into_iter();
        taints.any(|taint| taint["key"] == "node.kubernetes.io/out-of-service")
    }

    /// The load balancer's part: this node answers for the address of a service.
    pub async fn answers_for_a_service(&self, node: &str) {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "servicel2statuses.metallb.io"},
            "spec": {
                "group": "metallb.io", "scope": "Namespaced",
                "names": {"kind": "ServiceL2Status", "plural": "servicel2statuses", "singular": "servicel2status"},
                "versions": [{
                    "name": "v1beta1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        });
        self.objects.apply(&definition).await;
        self.objects.apply(&answer(node)).await;
    }

    /// It has seen the label.
    pub async fn answers_no_more(&self, node: &str) {
        self.objects.remove(&answer(node)).await;
    }

    pub async fn node(&self, name: &str) -> Value {
        self.objects.find("v1", "Node", name).await
    }

    /// What a control plane that joins reads.
    async fn kubeadm_configuration(&self, meta_data: &Value) -> Vec<Value> {
        let api: Api<ConfigMap> = Api::namespaced(self.objects.client.clone(), "kube-system");
        let mut data = api.get("kubeadm-config").await.unwrap().data.unwrap();
        let cluster = data.remove("ClusterConfiguration").unwrap();
        let local = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": meta_data["local_ipv4"]},
            "nodeRegistration": {"name": meta_data["name"]},
        });
        vec![serde_saphyr::from_str(&cluster).unwrap(), local]
    }

    async fn control_plane_address(&self) -> String {
        let label = "node-role.kubernetes.io/control-plane";
        let nodes = self.nodes().await;
        let found = nodes
            .into_iter()
            .find(|node| node.labels().contains_key(label));
        let addresses = found.unwrap().status.unwrap().addresses.unwrap();
        addresses[0].address.clone()
    }

    /// A pod that may not be evicted.
    pub async fn run_held_pod(&self, node: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "held", "namespace": "default", "labels": {"app": "held"}},
            "spec": {"nodeName": node, "containers": [{"name": "held", "image": "held"}]},
        });
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "held", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}},
        });
        for object in [&pod, &budget] {
            self.objects.create(object.clone()).await.unwrap();
        }
        let status = |object: &Value, status: Value| {
            let mut object = object.clone();
            object["status"] = status;
            object
        };
        // The kubelet's and the disruption controller's part.
        let running =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        self.objects.status(&status(&pod, running)).await;
        let used_up = json!({
            "observedGeneration": 1, "disruptionsAllowed": 0,
            "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
        });
        self.objects.status(&status(&budget, used_up)).await;
    }

    /// The pod ends as soon as nobody holds it.
    pub async fn release_held_pod(&self) {
        let namespaced = self.objects.client.clone();
        let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(namespaced.clone());
        budgets
            .delete("held", &DeleteParams::default())
            .await
            .unwrap();
        let pods: Api<Pod> = Api::default_namespaced(namespaced);
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete("held", &at_once).await.unwrap();
    }
}

/// Where kubeadm's configuration lies on the first control plane, and on all that join it.
const INIT: &str = "/run/kubeadm/kubeadm.yaml";
const JOIN: &str = "/run/kubeadm/kubeadm-join-config.yaml";

fn answer(node: &str) -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "ServiceL2Status",
        "metadata": {"name": "l2-web", "namespace": "default", "labels": {"metallb.io/node": node}},
    })
}

/// What runs on one server.
pub struct Node {
    _daemons: Vec<Daemon>,
}

impl Node {
    /// `workload` is absent for the first control plane; `kubelet` is the version in the image.
    pub async fn boot(
        user_data: &str,
        meta_data: &Value,
        dir: &Path,
        workload: Option<Workload>,
        kubelet: &str,
    ) -> (Self, Workload) {
        let config = cloud_config(user_data, meta_data);
        let _ = fs::remove_dir_all(dir);
        for file in config["write_files"].as_array().unwrap() {
            let path = inside(dir, file["path"].as_str().unwrap());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file["content"].as_str().unwrap()).unwrap();
        }
        check_commands(&config);
        let first = inside(dir, INIT).exists();
        let path = inside(dir, if first { INIT } else { JOIN });
        let arguments = kubelet_arguments(&path);
        let controls = first
            || documents(&path)
                .iter()
                .any(|all| all["controlPlane"].is_object());
        let (daemons, workload) = if controls {
            control_plane(dir, meta_data, workload).await
        } else {
            let workload = workload.expect("workers come after the control plane");
            (Vec::new(), workload)
        };
        join(&workload, &arguments, controls, kubelet).await;
        (Self { _daemons: daemons }, workload)
    }
}

/// As cloud-init reads it: a jinja template, then YAML.
fn cloud_config(user_data: &str, meta_data: &Value) -> Value {
    assert!(
        user_data.starts_with("## template: jinja\n#cloud-config"),
        "{}",
        &user_data[..60]
    );
    let mut text = user_data.to_owned();
    for (key, value) in meta_data.as_object().unwrap() {
        if let Some(value) = value.as_str() {
            text = text.replace(&format!("{{{{ ds.meta_data.{key} }}}}"), value);
        }
    }
    assert!(!text.contains("{{"), "metadata lacks a key: {text}");
    serde_saphyr::from_str(&text).unwrap()
}

fn inside(dir: &Path, path: &str) -> PathBuf {
    dir.join(path.trim_start_matches('/'))
}

/// The shell at least parses them.
fn check_commands(config: &Value) {
    for command in config["runcmd"].as_array().unwrap() {
        run(Command::new("sh").args(["-n", "-c", command.as_str().unwrap()]));
    }
}

/// Name, and what the kubelet is told.
fn kubelet_arguments(path: &Path) -> Value {
    let validated = Command::new(program("kube"))
        .args(["kubeadm", "config", "validate", "--config"])
        .arg(path)
        .status()
        .unwrap();
    assert!(validated.success(), "kubeadm takes {}", path.display());
    let registration = documents(path).into_iter().find_map(|document| {
        let registration = document.get("nodeRegistration")?.clone();
        (!registration.is_null()).then_some(registration)
    });
    let registration = registration.unwrap();
    let mut found = json!({"name": registration["name"]});
    for argument in registration["kubeletExtraArgs"].as_array().unwrap() {
        found[argument["name"].as_str().unwrap()] = argument["value"].clone();
    }
    found
}

/// Files and addresses of one control plane.
struct ControlPlane<'a> {
    dir: &'a Path,
    name: &'a str,
    address: &'a str,
    /// kubeadm's configuration, with the certificates' folder inside `dir`.
    config: PathBuf,
    endpoint: String,
}

impl<'a> ControlPlane<'a> {
    /// `configuration` is kubeadm's, from the first control plane's file or from the running cluster.
    fn new(dir: &'a Path, meta_data: &'a Value, mut configuration: Vec<Value>) -> Self {
        let address = meta_data["local_ipv4"].as_str().unwrap();
        let mut endpoint = None;
        for document in &mut configuration {
            if let Some(found) = document["controlPlaneEndpoint"].as_str() {
                endpoint = Some(found.rsplit_once(':').unwrap().0.to_owned());
                document["certificatesDir"] = json!(inside(dir, "/etc/kubernetes/pki"));
            }
        }
        let text: Vec<String> = configuration.iter().map(ToString::to_string).collect();
        let config = dir.join("kubeadm.yaml");
        fs::write(&config, text.join("\n---\n")).unwrap();
        Self {
            dir,
            name: meta_data["name"].as_str().unwrap(),
            address,
            config,
            endpoint: endpoint.unwrap(),
        }
    }

    fn pki(&self, name: &str) -> String {
        inside(self.dir, "/etc/kubernetes/pki")
            .join(name)
            .display()
            .to_string()
    }

    fn kubeadm(&self, phase: &str, more: &[&str]) {
        let mut command = Command::new(program("kube"));
        command
            .args(["kubeadm", "init", "phase"])
            .args(phase.split(' '))
            .args(more);
        run(command.arg("--config").arg(&self.config));
    }

    fn peer(&self) -> String {
        format!("http://{}:2380", self.address)
    }

    /// Asks the etcd at this address; `None`: it is too busy.
    fn ask_etcd(&self, address: &str, call: &str, data: &Value) -> Option<Value> {
        let asked = Command::new("curl")
            .args([
                "-sf",
                "--max-time",
                "10",
                "--cacert",
                &self.pki("etcd/ca.crt"),
                "--cert",
                &self.pki("apiserver-etcd-client.crt"),
                "--key",
                &self.pki("apiserver-etcd-client.key"),
                "--data",
                &data.to_string(),
                &format!("https://{address}:2379/v3/cluster/member/{call}"),
            ])
            .output()
            .unwrap();
        serde_json::from_slice(&asked.stdout).ok()
    }

    /// Adds itself to the etcd at this address, and says who is in it then.
    async fn join_etcd(&self, address: &str) -> String {
        let since = Instant::now();
        let members = loop {
            // One that did not answer may have added it all the same, and agrees to nothing until it has come.
            let listed = self.ask_etcd(address, "list", &json!({"linearizable": false}));
            let listed = listed.and_then(|found| Some(found["members"].as_array()?.clone()));
            let is_own = |member: &Value| member["peerURLs"][0] == self.peer();
            match listed {
                Some(members) if members.iter().any(is_own) => break members,
                Some(_) => {
                    drop(self.ask_etcd(address, "add", &json!({"peerURLs": [self.peer()]})));
                }
                None => tokio::time::sleep(Duration::from_millis(200)).await,
            }
            assert!(
                since.elapsed() < PATIENCE,
                "etcd at {address} takes no member"
            );
        };
        let member = |member: &Value| {
            // The new one has no name before it starts.
            let name = member["name"].as_str().filter(|name| !name.is_empty());
            let name = name.unwrap_or(self.name);
            format!("{name}={}", member["peerURLs"][0].as_str().unwrap())
        };
        members.iter().map(member).collect::<Vec<_>>().join(",")
    }

    /// A new one, or a member of that at the address.
    async fn etcd(&self, other: Option<&str>) -> Daemon {
        let (members, state) = match other {
            Some(address) => (self.join_etcd(address).await, "existing"),
            None => (format!("{}={}", self.name, self.peer()), "new"),
        };
        let client = format!("https://{}:2379", self.address);
        Daemon::start(
            "workload-etcd",
            self.dir,
            Command::new(program("kube")).args([
                "etcd",
                &format!("--data-dir={}", self.dir.join("etcd").display()),
                &format!("--name={}", self.name),
                &format!("--listen-client-urls={client}"),
                &format!("--advertise-client-urls={client}"),
                &format!("--listen-peer-urls={}", self.peer()),
                &format!("--initial-advertise-peer-urls={}", self.peer()),
                &format!("--initial-cluster={members}"),
                &format!("--initial-cluster-state={state}"),
                "--unsafe-no-fsync",
                "--client-cert-auth",
                &format!("--trusted-ca-file={}", self.pki("etcd/ca.crt")),
                &format!("--cert-file={}", self.pki("etcd/server.crt")),
                &format!("--key-file={}", self.pki("etcd/server.key")),
            ]),
        )
    }

    fn apiserver(&self) -> Daemon {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.pki(name));
        let encryption = inside(self.dir, "/etc/kubernetes/encryption/secrets.json");
        let encryption = encryption
            .exists()
            .then(|| format!("--encryption-provider-config={}", encryption.display()));
        Daemon::start(
            "workload-apiserver",
            self.dir,
            Command::new(program("kube"))
                .args(["kube-apiserver"])
                .args(encryption)
                .args([
                    &format!("--etcd-servers=https://{}:2379", self.address),
                    &file("etcd-cafile", "etcd/ca.crt"),
                    &file("etcd-certfile", "apiserver-etcd-client.crt"),
                    &file("etcd-keyfile", "apiserver-etcd-client.key"),
                    &format!("--advertise-address={}", self.address),
                    &format!("--bind-address={}", self.endpoint),
                    // With that of another control plane.
                    "--permit-port-sharing",
                    "--authorization-mode=Node,RBAC",
                    "--enable-bootstrap-token-auth",
                    "--service-cluster-ip-range=10.96.0.0/12",
                    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                    &file("service-account-key-file", "sa.pub"),
                    &file("service-account-signing-key-file", "sa.key"),
                    &file("client-ca-file", "ca.crt"),
                    &file("tls-cert-file", "apiserver.crt"),
                    &file("tls-private-key-file", "apiserver.key"),
                    &file("kubelet-client-certificate", "apiserver-kubelet-client.crt"),
                    &file("kubelet-client-key", "apiserver-kubelet-client.key"),
                    "--kubelet-preferred-address-types=InternalIP",
                    "--disable-admission-plugins=ServiceAccount",
                ]),
        )
    }

    /// What `kubeadm init` leaves behind.
    async fn first_workload(&self, apiserver: &mut Daemon) -> Workload {
        let folder = self.dir.display().to_string();
        self.kubeadm("kubeconfig super-admin", &["--kubeconfig-dir", &folder]);
        let kubeconfig = self.dir.join("super-admin.conf");
        let objects = Objects::of(&fs::read_to_string(&kubeconfig).unwrap()).await;
        apiserver
            .wait(async || objects.client.apiserver_version().await.is_ok())
            .await;
        let kubeconfig = kubeconfig.display().to_string();
        self.kubeadm("upload-config kubeadm", &["--kubeconfig", &kubeconfig]);
        Workload { objects }
    }
}

async fn control_plane(
    dir: &Path,
    meta_data: &Value,
    workload: Option<Workload>,
) -> (Vec<Daemon>, Workload) {
    let configuration = match &workload {
        Some(workload) => workload.kubeadm_configuration(meta_data).await,
        None => documents(&inside(dir, INIT)),
    };
    let this = ControlPlane::new(dir, meta_data, configuration);
    this.kubeadm("certs all", &[]);
    // keepalived's part.
    ip(&format!("addr replace {}/32 dev lo", this.address));
    ip(&format!("addr replace {}/32 dev lo", this.endpoint));
    let other = match &workload {
        Some(workload) => Some(workload.control_plane_address().await),
        None => None,
    };
    let mut etcd = this.etcd(other.as_deref()).await;
    etcd.wait(async || listens(&format!("{}:2379", this.address)).await)
        .await;
    let mut apiserver = this.apiserver();
    let (cert, key) = (this.pki("apiserver.crt"), this.pki("apiserver.key"));
    let standin = Daemon::start(
        "standin",
        dir,
        Command::new(program("standin")).args(["-cert", &cert, "-key", &key, this.address]),
    );
    let process = format!("pid={},", apiserver.id());
    apiserver
        .wait(async || run(Command::new("ss").arg("-Hltnp")).contains(&process))
        .await;
    let workload = match workload {
        Some(workload) => workload,
        None => this.first_workload(&mut apiserver).await,
    };
    (vec![etcd, apiserver, standin], workload)
}

/// The node and, on a control plane, its mirror pods.
async fn join(workload: &Workload, arguments: &Value, control_plane: bool, kubelet: &str) {
    let name = arguments["name"].as_str().unwrap();
    let objects = &workload.objects;
    let (label, value) = arguments["node-labels"]
        .as_str()
        .unwrap()
        .split_once('=')
        .unwrap();
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {label: value}},
        "spec": {
            "providerID": arguments["provider-id"],
            "taints": [{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}],
        },
    });
    if control_plane {
        node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("");
        node["spec"]["taints"] =
            json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
    }
    objects.apply(&node).await;
    let healthy = ["MemoryPressure", "DiskPressure", "PIDPressure"]
        .map(|kind| json!({"type": kind, "status": "False"}));
    let mut conditions = healthy.to_vec();
    conditions.push(json!({"type": "Ready", "status": "True"}));
    node["status"] = json!({
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": arguments["node-ip"]}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "kubeletVersion": kubelet, "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
        },
    });
    objects.status(&node).await;
    if !control_plane {
        return;
    }
    for component in [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ] {
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": format!("{component}-{name}"), "namespace": "kube-system",
                "labels": {"component": component, "tier": "control-plane"},
                "annotations": {"kubernetes.io/config.mirror": ""},
            },
            "spec": {
                "nodeName": name,
                "hostNetwork": true,
                "containers": [{"name": component, "image": component}],
                "tolerations": [{"operator": "Exists"}],
            },
        });
        objects.apply(&pod).await;
        pod["status"] = json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": component, "ready": true, "restartCount": 0, "image": component, "imageID": "",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        });
        objects.status(&pod).await;
    }
}
