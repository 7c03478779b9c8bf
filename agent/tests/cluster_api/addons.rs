//! Addons from the box's store, from the stick and as manifests, on a real API server by the real Helm. No pod runs: what a
//! Deployment's controller would write is written by the test.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use firstlight_agent::{
    addons::{self, Places},
    paths::Paths,
    pki, status,
};
use firstlight_api::artifact::{ArtifactState, Kind};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use x509_parser::pem::parse_x509_pem;

use crate::{
    objects::Objects,
    programs::{Daemon, ip, program, run},
    site,
    store::{self, Registry},
};

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\ndata: {word: {{ .Values.word | quote }}}\n";

struct Site {
    objects: Objects,
    places: Places,
    kubeconfig: PathBuf,
    shelf: store::Site,
    _registry: Registry,
    _daemons: Vec<Daemon>,
    _dir: tempfile::TempDir,
}

pub async fn addons_come_change_and_go() {
    let site = Site::start().await;
    what_cannot_be_is_refused(&site).await;
    what_cannot_be_read_holds_up_no_other(&site).await;
    manifests_are_installed_as_they_are(&site).await;
    a_chart_of_the_store_follows_its_values(&site).await;
    images_that_are_not_there_are_told_before(&site).await;
    a_folder_of_the_stick_is_an_addon(&site).await;
    a_chart_of_the_stick_gets_the_certificate_it_asks_for(&site).await;
    a_chart_that_takes_long_holds_up_no_other(&site).await;
    what_was_made_by_hand_stays(&site).await;
    everything_goes_with_its_addon(&site).await;
}

impl Site {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        ip("link set lo up");
        ip("addr add 100.64.0.1/32 dev lo");
        let paths = Paths::new(dir.path().join("box"));
        let site_ca = pki::load_or_make(&paths, site::NOW).unwrap().site;
        let logs = dir.path().join("logs");
        fs::create_dir_all(&logs).unwrap();
        let (daemons, objects) = site::kubernetes(&paths, &logs).await;
        let crd = "../overlays/box/usr/share/firstlight/manifests/crd-addon.yaml";
        for mut object in site::documents(crd.as_ref()) {
            let schema = &mut object["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let states = &mut schema["properties"]["status"]["properties"]["state"]["enum"];
            // As a newer stick may know one more.
            states.as_array_mut().unwrap().push("Unheard".into());
            objects.apply(&object).await;
        }
        let address = store::free_port();
        let shelf = store::Site::open(address).await;
        let registry = Registry::start(&program("registry"), shelf.dir.path(), address);
        let places = Places {
            helm: program("helm"),
            builtin: dir.path().join("builtin"),
            scratch: dir.path().join("scratch"),
            registry: address,
        };
        let kubeconfig = site::kubeconfig(&paths);
        // One API server is the box's and the cluster's.
        let value = STANDARD.encode(fs::read(&kubeconfig).unwrap());
        objects
            .apply(&json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "lab-kubeconfig", "namespace": "default"},
                "data": {"value": value},
            }))
            .await;
        let (sender, _reader, owner) = status::channel("test");
        tokio::spawn(status::own(owner, CancellationToken::new()));
        tokio::spawn(addons::reconcile(
            places.clone(),
            objects.client.clone(),
            watch::Sender::new(Some(shelf.store.clone())).subscribe(),
            site_ca,
            sender,
        ));
        Self {
            objects,
            places,
            kubeconfig,
            shelf,
            _registry: registry,
            _daemons: daemons,
            _dir: dir,
        }
    }

    async fn addon(&self, name: &str, spec: Value) {
        self.objects.apply(&addon(name, spec)).await;
    }

    async fn is(&self, name: &str, state: &str, part: &str) {
        let holds = |addon: &Value| {
            addon["status"]["state"] == state
                && addon["status"]["message"].as_str().unwrap().contains(part)
                && addon["status"]["observedGeneration"] == addon["metadata"]["generation"]
        };
        let what = format!("{state} with `{part}`");
        self.objects.wait_for("Addon", name, &what, holds).await;
        eprintln!("         {name}: {what}");
    }

    fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program("kube"));
        command
            .arg("kubectl")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments);
        command
    }

    /// `{}` if it is not there.
    fn data(&self, namespace: &str, name: &str) -> BTreeMap<String, String> {
        let arguments = [
            "get",
            "configmap",
            name,
            "-n",
            namespace,
            "-o",
            "json",
            "--ignore-not-found",
        ];
        let text = run(&mut self.kubectl(&arguments));
        let found: Value = serde_json::from_str(&text).unwrap_or_default();
        serde_json::from_value(found["data"].clone()).unwrap_or_default()
    }

    async fn available(&self, namespace: &str, name: &str) {
        let status = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": namespace, "name": name},
            "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1},
        });
        self.objects.status(&status).await;
    }
}

fn addon(name: &str, mut spec: Value) -> Value {
    spec["cluster"] = spec.get("cluster").cloned().unwrap_or(json!("lab"));
    json!({
        "apiVersion": "firstlight.internal/v1alpha1", "kind": "Addon",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

fn config_map(name: &str, word: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{word: \"{word}\"}}\n"
    )
}

async fn what_cannot_be_is_refused(site: &Site) {
    for spec in [
        json!({}),
        json!({"builtin": "a", "manifests": "b"}),
        json!({"builtin": "../a"}),
    ] {
        let refused = site.objects.create(addon("wrong", spec.clone())).await;
        assert!(refused.is_err(), "{spec}");
    }
    site.addon("early", json!({"cluster": "none", "builtin": "a"}))
        .await;
    site.is("early", "Pending", "no API of a cluster none")
        .await;
    site.addon("unknown", json!({"builtin": "a"})).await;
    site.is("unknown", "Failed", "brings no addon `a`").await;
    site.addon(
        "after",
        json!({"manifests": config_map("after", "x"), "dependsOn": ["plain"]}),
    )
    .await;
    site.is(
        "after",
        "Pending",
        "waits for the Addon plain, which is not there",
    )
    .await;
}

async fn what_cannot_be_read_holds_up_no_other(site: &Site) {
    let status = |state: &str| {
        let mut odd = addon("unknown", json!({}));
        odd["status"] = json!({"state": state});
        odd.as_object_mut().unwrap().remove("spec");
        odd
    };
    site.objects.status(&status("Unheard")).await;
    site.addon("beside", json!({"builtin": "b"})).await;
    site.is("beside", "Failed", "brings no addon `b`").await;
    let is_counted = async || {
        status::counters::ODD_OBJECTS
            .all()
            .contains_key("addons-objects")
    };
    site.objects.wait_until("it is counted", is_counted).await;
    site.objects.status(&status("Pending")).await;
    site.is("unknown", "Failed", "brings no addon `a`").await;
}

async fn manifests_are_installed_as_they_are(site: &Site) {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: web}]}\n";
    let manifests = format!(
        "{}---\n{deployment}",
        config_map("plain", "{{ .Values.no }}")
    );
    site.addon(
        "plain",
        json!({"manifests": manifests, "namespace": "team"}),
    )
    .await;
    site.is(
        "plain",
        "Installing",
        "Deployment team/web: nobody has looked at it yet",
    )
    .await;
    assert_eq!(site.data("team", "plain")["word"], "{{ .Values.no }}");
    site.is("after", "Pending", "which is installing").await;
    site.available("team", "web").await;
    site.is("plain", "Ready", "").await;
    site.is("after", "Ready", "").await;

    run(&mut site.kubectl(&["delete", "deployment", "web", "-n", "team"]));
    site.is("plain", "Installing", "nobody has looked at it yet")
        .await;
    site.available("team", "web").await;
    site.is("plain", "Ready", "").await;
}

async fn a_chart_of_the_store_follows_its_values(site: &Site) {
    let spec = |word: &str| json!({"chart": {"name": "hello", "version": "1.0.0"}, "values": {"word": word}});
    site.addon("hello", spec("one")).await;
    site.is("hello", "Failed", "hello").await;
    let files = [
        ("templates/a.yaml", TEMPLATE),
        ("values.yaml", "word: none\n"),
    ];
    let content = store::chart("hello", "1.0.0", &files);
    let id = site.shelf.upload(Kind::Chart, "hello", "1.0.0", &content);
    assert_eq!(site.shelf.settled(&id).await.state, ArtifactState::Ready);
    for word in ["two", "three"] {
        site.addon("hello", spec(word)).await;
        site.is("hello", "Ready", "").await;
        assert_eq!(site.data("default", "greeting")["word"], word);
    }
    let refused = site.shelf.store.remove(&id).unwrap_err().to_string();
    assert!(refused.contains("used by Addon hello"), "{refused}");
    let status = site.objects.get("Addon", "hello").await["status"].clone();
    assert_eq!(status["chart"], "hello-1.0.0");
    assert_eq!(status["conditions"][0]["status"], "True", "{status}");
}

async fn images_that_are_not_there_are_told_before(site: &Site) {
    let job = |image: &str| {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": format!("registry.firstlight.internal/{image}")}]});
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"},
            "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": pod}}}},
        })
    };
    let manifests = format!(
        "{}\n---\n{}",
        config_map("nightly", "yes"),
        job("apps/later:1")
    );
    site.addon("nightly", json!({"manifests": manifests})).await;
    site.is(
        "nightly",
        "Failed",
        "not on the box: registry.firstlight.internal/apps/later:1",
    )
    .await;
    assert!(
        site.data("default", "nightly").is_empty(),
        "nothing is installed"
    );
    let id = site
        .shelf
        .upload(Kind::Container, "apps/later", "1", &store::container());
    assert_eq!(site.shelf.settled(&id).await.state, ArtifactState::Ready);
    site.is("nightly", "Ready", "").await;
}

async fn a_folder_of_the_stick_is_an_addon(site: &Site) {
    let folder = site.places.builtin.join("a");
    fs::create_dir_all(folder.join("templates")).unwrap();
    fs::write(
        folder.join("Chart.yaml"),
        "apiVersion: v2\nname: a\nversion: 0.1.0\n",
    )
    .unwrap();
    fs::write(
        folder.join("templates/a.yaml"),
        config_map("builtin", "{{ .Release.Name }}"),
    )
    .unwrap();
    site.is("unknown", "Ready", "").await;
    assert_eq!(site.data("default", "builtin")["word"], "unknown");
}

/// As `gateway` does. What is signed is the Addon's word, and a person's own certificate stays.
async fn a_chart_of_the_stick_gets_the_certificate_it_asks_for(site: &Site) {
    let folder = site.places.builtin.join("ways");
    fs::create_dir_all(folder.join("templates")).unwrap();
    let chart = "apiVersion: v2\nname: ways\nversion: 0.1.0\nannotations:\n  firstlight.internal/certificate: default/ways\n  firstlight.internal/prefer-same-node: default/names\n";
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "names", "namespace": "default"}, "spec": {"ports": [{"port": 53}]},
    });
    site.objects.apply(&service).await;
    fs::write(folder.join("Chart.yaml"), chart).unwrap();
    fs::write(folder.join("templates/a.yaml"), config_map("ways", "in")).unwrap();
    let ways = |domains: Value| {
        site.addon(
            "ways",
            json!({"builtin": "ways", "values": {"domains": domains}}),
        )
    };
    let names = async || {
        let certificate = site.objects.secret("ways").await.remove("tls.crt")?;
        let (_, pem) = parse_x509_pem(certificate.as_bytes()).unwrap();
        let parsed = pem.parse_x509().unwrap();
        let names = parsed.subject_alternative_name().unwrap().unwrap().value;
        Some(
            names
                .general_names
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
        )
    };
    let are = async |wanted: &str| {
        let what = format!("a certificate for {wanted}");
        let holds = async || names().await == Some(vec![format!("DNSName({wanted})")]);
        site.objects.wait_until(&what, holds).await;
    };
    ways(json!([])).await;
    site.is("ways", "Ready", "").await;
    are("*.apps.lab.internal").await;
    let stays = async || {
        let service = site.objects.find("v1", "Service", "names").await;
        service["spec"]["trafficDistribution"] == "PreferSameNode"
    };
    site.objects
        .wait_until("a Service is asked on its own node", stays)
        .await;
    let first = site.objects.secret("ways").await;
    assert!(first["ca.crt"].starts_with("-----BEGIN CERTIFICATE"));
    ways(json!(["firstlight.internal"])).await;
    site.is("ways", "Failed", "the box's own services").await;
    assert_eq!(site.objects.secret("ways").await, first);
    ways(json!(["apps.example.org"])).await;
    site.is("ways", "Ready", "").await;
    are("*.apps.example.org").await;

    site.objects.delete("Secret", "ways").await;
    let mine = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ways", "namespace": "default"},
        "type": "kubernetes.io/tls", "stringData": {"tls.crt": "mine", "tls.key": "mine"},
    });
    // The box may have been quicker, and is then applied over, as `kubectl apply` does it: its annotations stay.
    site.objects.apply(&mine).await;
    ways(json!(["other.example.org"])).await;
    site.is("ways", "Ready", "").await;
    assert_eq!(site.objects.secret("ways").await["tls.crt"], "mine");
}

/// Helm waits for the end of a hook, here a pod that nobody runs.
async fn a_chart_that_takes_long_holds_up_no_other(site: &Site) {
    let folder = site.places.builtin.join("slow");
    fs::create_dir_all(folder.join("templates")).unwrap();
    let chart = "apiVersion: v2\nname: slow\nversion: 0.1.0\n";
    fs::write(folder.join("Chart.yaml"), chart).unwrap();
    let hook = "apiVersion: v1\nkind: Pod\nmetadata: {name: hook, annotations: {helm.sh/hook: pre-install}}\nspec: {containers: [{name: a, image: a}]}\n";
    fs::write(folder.join("templates/hook.yaml"), hook).unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}});
    site.objects.apply(&account).await;
    site.addon("slow", json!({"builtin": "slow"})).await;
    site.is("slow", "Installing", "Helm installs").await;
    let hook = async || !site.objects.find("v1", "Pod", "hook").await.is_null();
    site.objects.wait_until("the hook is there", hook).await;
    let others = ["quick-1", "quick-2", "quick-3", "quick-4"];
    for name in others {
        site.addon(name, json!({"manifests": config_map(name, "x")}))
            .await;
    }
    for name in others {
        site.is(name, "Ready", "").await;
    }
    site.is("slow", "Installing", "Helm installs").await;
    let done = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hook", "namespace": "default"},
        "status": {"phase": "Succeeded"},
    });
    site.objects.status(&done).await;
    site.is("slow", "Ready", "").await;
}

async fn what_was_made_by_hand_stays(site: &Site) {
    let mine = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "mine", "namespace": "default"}, "data": {"word": "mine"},
    });
    site.objects.apply(&mine).await;
    site.addon("greedy", json!({"manifests": config_map("mine", "yours")}))
        .await;
    site.is(
        "greedy",
        "Failed",
        "ConfigMap \"mine\" in namespace \"default\" exists",
    )
    .await;

    let mut helm = Command::new(program("helm"));
    helm.args(["install", "byhand"])
        .arg(site.places.builtin.join("a"))
        .args(["--namespace", "hand", "--create-namespace", "--kubeconfig"])
        .arg(&site.kubeconfig)
        .env("HOME", site.shelf.dir.path());
    run(&mut helm);
    site.addon(
        "byhand",
        json!({"manifests": config_map("x", "x"), "namespace": "hand"}),
    )
    .await;
    site.is("byhand", "Failed", "somebody else installed").await;

    for name in ["greedy", "byhand"] {
        site.objects.delete("Addon", name).await;
        site.objects
            .wait_for("Addon", name, "gone", Value::is_null)
            .await;
    }
    assert_eq!(site.data("default", "mine")["word"], "mine");
    assert_eq!(site.data("hand", "builtin")["word"], "byhand");
}

async fn everything_goes_with_its_addon(site: &Site) {
    let quick = ["quick-1", "quick-2", "quick-3", "quick-4", "slow"];
    let others = [
        "plain", "after", "hello", "unknown", "ways", "beside", "early", "nightly",
    ];
    for name in others.into_iter().chain(quick) {
        site.objects.delete("Addon", name).await;
        site.objects
            .wait_for("Addon", name, "gone", Value::is_null)
            .await;
    }
    for (namespace, name) in [
        ("team", "plain"),
        ("default", "after"),
        ("default", "greeting"),
        ("default", "builtin"),
    ] {
        assert!(site.data(namespace, name).is_empty(), "{namespace}/{name}");
    }
    assert_eq!(site.data("hand", "builtin")["word"], "byhand");
    let left = fs::read_dir(&site.places.scratch).unwrap().count();
    assert_eq!(left, 0, "no kubeconfig stays behind");
}
