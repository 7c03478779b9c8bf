//! The box's part: its Kubernetes, Cluster API's managers, and the agent's controllers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use firstlight_agent::{
    clusters::Stick,
    kubernetes::conversion,
    paths::Paths,
    people::People,
    pki::{self, CertSpec, Pki},
    provider, status,
};
use firstlight_api::site::parse_site;
use kube::{core::GroupVersionKind, discovery::pinned_kind};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    VERSION,
    conversion::Conversions,
    objects::Objects,
    programs::{Daemon, ip, listens, program},
    servers::Servers,
    workload::Workload,
};

pub const NOW: i64 = 1_795_219_200;
/// Where every box has them.
const ETCD: &str = "https://127.0.0.1:2379";
const API: &str = "100.64.0.1";
/// Where each manager's webhook listens: service name, program, port; two more ports follow.
const MANAGERS: [(&str, &str, u16); 3] = [
    ("capi-webhook-service", "core", 9000),
    (
        "capi-kubeadm-bootstrap-webhook-service",
        "kubeadm-bootstrap",
        9010,
    ),
    (
        "capi-kubeadm-control-plane-webhook-service",
        "kubeadm-control-plane",
        9020,
    ),
];

pub struct Site {
    pub objects: Objects,
    pub servers: Servers,
    pub kubeconfig: PathBuf,
    since: Instant,
    _daemons: Vec<Daemon>,
    _conversions: Conversions,
    _dir: tempfile::TempDir,
}

impl Site {
    /// `kills`: how often the agent's controllers die at a random moment and start again.
    pub async fn start(site_yaml: &str, kills: u32) -> Self {
        let since = Instant::now();
        let dir = tempfile::tempdir().unwrap();
        ip("link set lo up");
        ip("addr add 172.22.0.1/24 dev lo");
        ip(&format!("addr add {API}/32 dev lo"));
        let paths = Paths::new(dir.path().join("box"));
        let pki = pki::load_or_make(&paths, NOW).unwrap();
        let logs = dir.path().join("logs");
        fs::create_dir_all(&logs).unwrap();
        let (mut daemons, objects) = kubernetes(&paths, &logs).await;
        apply_manifests(&objects, &pki).await;
        let pki = Arc::new(pki);
        let conversions = Conversions::open(pki.clone(), People::new(paths.people())).await;
        daemons.extend(cluster_api(&paths, &pki, &logs).await);

        let site = Arc::new(parse_site(site_yaml).unwrap());
        let (sender, _reader, owner) = status::channel("test");
        tokio::spawn(status::own(owner, CancellationToken::new()));
        let stick = watch::Sender::new(Some(Arc::new(stick()))).subscribe();
        let client = objects.client.clone();
        tokio::spawn(controllers(kills, move || {
            provider::reconcile(client.clone(), site.clone(), stick.clone(), sender.clone())
        }));
        let servers = Servers::start(objects.clone(), dir.path().join("servers"));
        let site = Self {
            objects,
            servers,
            kubeconfig: kubeconfig(&paths),
            since,
            _daemons: daemons,
            _conversions: conversions,
            _dir: dir,
        };
        site.say("the box is up");
        site
    }

    pub fn workload(&self) -> Workload {
        self.workload_of("lab")
    }

    pub fn workload_of(&self, cluster: &str) -> Workload {
        let workload = self.servers.workload(cluster);
        workload.expect("a control plane runs")
    }

    pub fn say(&self, what: &str) {
        eprintln!("{:5.1} s: {what}", self.since.elapsed().as_secs_f64());
    }
}

/// In the middle of whatever they do, `kills` times, and then undisturbed.
async fn controllers<F>(kills: u32, start: impl Fn() -> F)
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let seed: u64 = std::env::var("FIRSTLIGHT_SEED").map_or(1, |seed| seed.parse().unwrap());
    if kills > 0 {
        eprintln!("FIRSTLIGHT_SEED={seed}");
    }
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..kills {
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let life = tokio::spawn(start());
        tokio::time::sleep(Duration::from_millis(random % 1000)).await;
        life.abort();
    }
    if kills > 0 {
        eprintln!("         killed {kills} times");
    }
    start().await.unwrap();
}

pub fn stick() -> Stick {
    Stick {
        kubernetes: VERSION.into(),
        flannel: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: flannel, namespace: kube-system}\ndata: {network: @POD_CIDR@}\n".into(),
        image: "node".into(),
        image_sha256: "ab".repeat(32),
        address: "172.22.0.1".parse().unwrap(),
    }
}

pub fn kubeconfig(paths: &Paths) -> PathBuf {
    paths.kube().join("admin.conf")
}

/// A box below `dir`, of which there is the Kubernetes alone.
pub async fn kubernetes_alone(dir: &Path) -> (Paths, Vec<Daemon>, Objects) {
    kubernetes_alone_with(dir, |_| Vec::new()).await
}

/// `arguments` are the API server's, beside the usual.
pub async fn kubernetes_alone_with(
    dir: &Path,
    arguments: impl FnOnce(&Paths) -> Vec<String>,
) -> (Paths, Vec<Daemon>, Objects) {
    ip("link set lo up");
    ip("addr add 100.64.0.1/32 dev lo");
    let paths = Paths::new(dir.join("box"));
    let pki = pki::load_or_make(&paths, NOW).unwrap();
    let (daemons, objects) = kubernetes_with(&paths, dir, &arguments(&paths)).await;
    apply_own(&objects, &pki).await;
    (paths, daemons, objects)
}

/// What a box runs of it, as far as no pod is concerned.
pub async fn kubernetes(paths: &Paths, logs: &Path) -> (Vec<Daemon>, Objects) {
    kubernetes_with(paths, logs, &[]).await
}

/// `arguments` are the API server's, beside the usual.
pub async fn kubernetes_with(
    paths: &Paths,
    logs: &Path,
    arguments: &[String],
) -> (Vec<Daemon>, Objects) {
    let file =
        |flag: &str, name: &str| format!("--{flag}={}", paths.kube_pki().join(name).display());
    let mut etcd = Daemon::start(
        "etcd",
        logs,
        Command::new(program("kube")).args([
            "etcd",
            &format!("--data-dir={}", paths.state().join("etcd").display()),
            &format!("--listen-client-urls={ETCD}"),
            &format!("--advertise-client-urls={ETCD}"),
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--client-cert-auth",
            &file("trusted-ca-file", "etcd-ca.crt"),
            &file("cert-file", "etcd-server.crt"),
            &file("key-file", "etcd-server.key"),
        ]),
    );
    etcd.wait(async || listens("127.0.0.1:2379").await).await;
    let mut command = api_server_command(paths, API, 6443, "/registry");
    let mut apiserver = Daemon::start("kube-apiserver-6443", logs, command.args(arguments));
    let kubeconfig = kubeconfig(paths);
    let objects = Objects::of(&fs::read_to_string(&kubeconfig).unwrap()).await;
    apiserver
        .wait(async || objects.client.apiserver_version().await.is_ok())
        .await;
    let manager = Daemon::start(
        "kube-controller-manager",
        logs,
        Command::new(program("kube")).args([
            "kube-controller-manager",
            &format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false",
            "--secure-port=0",
            "--controllers=garbage-collector-controller,clusterrole-aggregation-controller,namespace-controller",
        ]),
    );
    (vec![etcd, apiserver, manager], objects)
}

/// On the etcd that is there, below `prefix`; it encrypts Secrets, as the box's does.
pub fn api_server(paths: &Paths, logs: &Path, address: &str, port: u16, prefix: &str) -> Daemon {
    let mut command = api_server_command(paths, address, port, prefix);
    let key = paths.kube_pki().join("secrets.json");
    command.arg(format!("--encryption-provider-config={}", key.display()));
    Daemon::start(&format!("kube-apiserver-{port}"), logs, &mut command)
}

fn api_server_command(paths: &Paths, address: &str, port: u16, prefix: &str) -> Command {
    let file =
        |flag: &str, name: &str| format!("--{flag}={}", paths.kube_pki().join(name).display());
    let mut command = Command::new(program("kube"));
    command.args([
        "kube-apiserver",
        &format!("--etcd-servers={ETCD}"),
        &format!("--etcd-prefix={prefix}"),
        &file("etcd-cafile", "etcd-ca.crt"),
        &file("etcd-certfile", "apiserver-etcd-client.crt"),
        &file("etcd-keyfile", "apiserver-etcd-client.key"),
        &format!("--bind-address={address}"),
        &format!("--secure-port={port}"),
        &format!("--advertise-address={address}"),
        "--endpoint-reconciler-type=none",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=100.64.1.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        &file("service-account-key-file", "sa.pub"),
        &file("service-account-signing-key-file", "sa.key"),
        &file("client-ca-file", "ca.crt"),
        &file("tls-cert-file", "apiserver.crt"),
        &file("tls-private-key-file", "apiserver.key"),
    ]);
    command
}

/// Those of the box's layer, and Cluster API's with its webhooks on loopback instead of in pods.
async fn apply_manifests(objects: &Objects, pki: &Pki) {
    apply_own(objects, pki).await;
    let bundle = STANDARD.encode(&pki.site.certificate);
    for mut object in documents(&program("cluster-api.yaml")) {
        if !["Deployment", "Service"].contains(&object["kind"].as_str().unwrap()) {
            call_on_loopback(&mut object, &bundle);
            objects.apply(&object).await;
        }
    }
    // Managers end where a kind is not served yet, and here nobody starts them again.
    for definition in definitions() {
        is_served(objects, &definition["spec"]).await;
    }
}

/// Cluster API's kinds.
fn definitions() -> Vec<Value> {
    let mut all = documents(&program("cluster-api.yaml"));
    all.retain(|object| object["kind"] == "CustomResourceDefinition");
    all
}

/// Where no manager runs: nothing is converted.
pub async fn apply_definitions(objects: &Objects) {
    let mut all = definitions();
    for definition in &mut all {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
        objects.apply(definition).await;
    }
    for definition in &all {
        is_served(objects, &definition["spec"]).await;
    }
}

async fn is_served(objects: &Objects, spec: &Value) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
    for version in spec["versions"].as_array().unwrap() {
        if version["served"] == true {
            let kind = GroupVersionKind::gvk(&group, &text(&version["name"]), &kind);
            let found = async || pinned_kind(&objects.client, &kind).await.is_ok();
            objects.wait_until(&format!("{kind:?} served"), found).await;
        }
    }
}

/// Those of the box's layer.
pub async fn apply_own(objects: &Objects, pki: &Pki) {
    let folder = Path::new("../overlays/box/usr/share/firstlight/manifests");
    for name in [
        "crd-addon.yaml",
        "crd-baremetalhost.yaml",
        "crd-hardwaredata.yaml",
        "crd-ipaddress.yaml",
        "crd-ipclaim.yaml",
        "crd-ippool.yaml",
        "crd-metal3cluster.yaml",
        "crd-metal3clustertemplate.yaml",
        "crd-metal3datatemplate.yaml",
        "crd-metal3machine.yaml",
        "crd-metal3machinetemplate.yaml",
        "crd-metal3remediation.yaml",
        "crd-metal3remediationtemplate.yaml",
        "crd-clusterupgrade.yaml",
        "cluster-policy.yaml",
    ] {
        for mut object in documents(&folder.join(name)) {
            conversion::complete(&mut object, &pki.site.certificate);
            objects.apply(&object).await;
        }
    }
}

/// Webhooks are processes here, not pods behind a service.
pub fn call_on_loopback(object: &mut Value, bundle: &str) {
    match object["kind"].as_str().unwrap() {
        "CustomResourceDefinition" => {
            if let Some(client) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
                on_loopback(client, bundle);
            }
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            for webhook in object["webhooks"].as_array_mut().unwrap() {
                on_loopback(&mut webhook["clientConfig"], bundle);
            }
        }
        _ => {}
    }
}

fn on_loopback(client: &mut Value, bundle: &str) {
    let service = client["service"]["name"].as_str().unwrap();
    let path = client["service"]["path"].as_str().unwrap_or("/");
    let port = MANAGERS
        .iter()
        .find(|manager| manager.0 == service)
        .unwrap()
        .2;
    *client = json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": bundle});
}

pub fn documents(path: &Path) -> Vec<Value> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect()
}

/// As the box starts this manager.
fn feature_gates(manifests: &[Value], name: &str) -> String {
    let mut containers = manifests
        .iter()
        .filter_map(|object| object.pointer("/spec/template/spec/containers/0"));
    let container = containers
        .find(|it| it["command"] == json!([format!("/{name}")]))
        .unwrap();
    let mut arguments = container["args"].as_array().unwrap().iter();
    let gates = arguments.find_map(|it| it.as_str().filter(|it| it.starts_with("--feature-gates")));
    gates.unwrap().to_owned()
}

/// Its three managers.
pub async fn cluster_api(paths: &Paths, pki: &Pki, logs: &Path) -> Vec<Daemon> {
    let certificates = paths.run().join("webhook");
    fs::create_dir_all(&certificates).unwrap();
    let pair = pki
        .site
        .issue(&CertSpec::for_ironic("127.0.0.1".parse().unwrap()), NOW)
        .unwrap();
    fs::write(certificates.join("tls.crt"), pair.certificate).unwrap();
    fs::write(certificates.join("tls.key"), pair.key).unwrap();
    let manifests = documents(&program("cluster-api.yaml"));
    let mut daemons = Vec::new();
    for (_, name, port) in MANAGERS {
        let mut command = Command::new(program(name));
        command.args([
            format!("--kubeconfig={}", kubeconfig(paths).display()),
            format!("--webhook-cert-dir={}", certificates.display()),
            format!("--webhook-port={port}"),
            format!("--health-addr=127.0.0.1:{}", port + 1),
            format!("--diagnostics-address=127.0.0.1:{}", port + 2),
            "--insecure-diagnostics=true".to_owned(),
            "--leader-elect=false".to_owned(),
            feature_gates(&manifests, name),
        ]);
        daemons.push((Daemon::start(name, logs, &mut command), port));
    }
    let mut ready = Vec::new();
    for (mut daemon, port) in daemons {
        daemon
            .wait(async || listens(&format!("127.0.0.1:{port}")).await)
            .await;
        ready.push(daemon);
    }
    ready
}
