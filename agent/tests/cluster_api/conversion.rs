//! Objects of CAPM3 in v1beta1, before a real API server that asks this agent's door for conversions, with the real kubectl.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use firstlight_agent::{
    doors::Known,
    paths::Paths,
    people::People,
    pki::{self, Pki},
    status, web,
};
use firstlight_api::site::SiteConfig;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    objects::Objects,
    programs::{listens, program},
    site::{NOW, kubeconfig, kubernetes_alone_with},
};

const OLD: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const NEW: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
const DOOR: &str = "127.0.0.1:8444";
/// Manifests of v1beta1, and what upstream makes of them.
const GOLDEN: &str = include_str!("../../api/src/capm3/v1beta1/golden/to-v1beta2.json");

/// The agent's door until `close`.
pub struct Conversions {
    stop: CancellationToken,
    serving: JoinHandle<anyhow::Result<()>>,
}

impl Conversions {
    pub async fn open(pki: Arc<Pki>, people: People) -> Self {
        let stop = CancellationToken::new();
        let known = Known::new(watch::channel(Arc::default()).1);
        let (sender, _reader, owner) = status::channel("test");
        tokio::spawn(status::own(owner, stop.clone()));
        let pki = watch::channel(Some(pki)).1;
        let serving = tokio::spawn(web::serve_conversion(
            known,
            people,
            pki,
            sender,
            stop.clone(),
        ));
        while !listens(DOOR).await {
            assert!(!serving.is_finished(), "the door opens");
            tokio::task::yield_now().await;
        }
        Self { stop, serving }
    }

    async fn close(self) {
        self.stop.cancel();
        self.serving.await.unwrap().unwrap();
        assert!(!listens(DOOR).await);
    }
}

struct Bench {
    paths: Paths,
    dir: PathBuf,
    objects: Objects,
}

pub async fn v1beta1_is_taken_shown_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let audited = |paths: &Paths| told_of_people(paths, dir.path());
    let (paths, _daemons, objects) = kubernetes_alone_with(dir.path(), audited).await;
    let pki = Arc::new(pki::load_or_make(&paths, NOW).unwrap());
    let people = People::new(paths.people());
    people.open(&SiteConfig::default()).await.unwrap();
    let door = Conversions::open(pki.clone(), people.clone()).await;
    let bench = Bench {
        paths,
        dir: dir.path().to_owned(),
        objects,
    };
    what_newcomers_have_is_stored_as_upstream_stores_it(&bench).await;
    a_manifest_may_be_applied_twice(&bench).await;
    a_status_is_shown_in_both_versions(&bench.objects).await;
    what_is_wrong_is_refused_as_in_v1beta2(&bench);
    what_people_do_with_kubectl_is_told(&bench.objects, &people).await;
    an_edit_of_v1beta1_keeps_what_only_v1beta2_has(&bench.objects).await;
    door.close().await;
    without_the_door_v1beta2_goes_on(&bench.objects).await;
    let door = Conversions::open(pki, people).await;
    bench
        .objects
        .wait_until("v1beta1 read again", async || {
            read(&bench.objects, OLD, "Metal3MachineTemplate", "workers")
                .await
                .is_ok()
        })
        .await;
    door.close().await;
}

/// The box's own policy, and its way to the agent.
fn told_of_people(paths: &Paths, dir: &Path) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlays/box/etc/kubernetes");
    let webhook = std::fs::read_to_string(folder.join("audit-webhook.yaml")).unwrap();
    let ca = paths.site_ca().display().to_string();
    let webhook = webhook.replace("/var/lib/firstlight/pki/ca.crt", &ca);
    let file = dir.join("audit-webhook.yaml");
    std::fs::write(&file, webhook).unwrap();
    vec![
        format!(
            "--audit-policy-file={}",
            folder.join("audit.yaml").display()
        ),
        format!("--audit-webhook-config-file={}", file.display()),
        "--audit-webhook-batch-max-wait=1s".to_owned(),
    ]
}

async fn what_people_do_with_kubectl_is_told(objects: &Objects, people: &People) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bmc", "namespace": "rack"}, "stringData": {"password": "not to be told"}});
    objects.apply(&secret).await;
    objects.within("rack").secret("bmc").await;
    let told = async |what: &str| {
        let audit = people.audit().await;
        assert!(!format!("{audit:?}").contains("not to be told"));
        let mut audit = audit.iter();
        audit.any(|line| {
            line.who == "box"
                && line.what == what
                && line.target == "secrets rack/bmc"
                && line.outcome == "done"
        })
    };
    for what in ["kubectl patch", "kubectl get"] {
        objects.wait_until(what, async || told(what).await).await;
    }
}

async fn read(objects: &Objects, version: &str, kind: &str, name: &str) -> kube::Result<Value> {
    objects.within("rack").try_find(version, kind, name).await
}

/// Without what says nothing: empty texts and objects, and defaults that the API server adds.
fn plain(value: &Value) -> Value {
    let says_something = |name: &str, value: &Value| {
        let is_default = [
            ("nodeReuse", json!(false)),
            ("fromBootMAC", json!(false)),
            ("controlPlane", json!(false)),
            ("prefix", json!(0)),
            ("offset", json!(0)),
            ("step", json!(1)),
        ];
        let is_empty = value.is_null() || [json!({}), json!([]), json!("")].contains(value);
        !is_empty && !is_default.iter().any(|(of, is)| *of == name && is == value)
    };
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, inner)| (name.clone(), plain(inner)));
            fields
                .filter(|(name, inner)| says_something(name, inner))
                .collect()
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}

async fn what_newcomers_have_is_stored_as_upstream_stores_it(bench: &Bench) {
    let objects = &bench.objects;
    let rack = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rack"}});
    objects.apply(&rack).await;
    let cases: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    for mut case in cases {
        let (given, upstream) = (case["given"].take(), case["upstream"].take());
        let text = |pointer: &str| given.pointer(pointer).unwrap().as_str().unwrap();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        objects
            .wait_until(
                &format!("{kind} of v1beta1, which may not be served yet"),
                async || {
                    let created = objects.create(given.clone()).await;
                    let is_missing = |error: &kube::Error| error.to_string().contains("404");
                    assert!(
                        created.as_ref().is_ok() || created.as_ref().is_err_and(is_missing),
                        "{created:?}"
                    );
                    created.is_ok()
                },
            )
            .await;
        let stored = read(objects, NEW, kind, name).await.unwrap();
        assert_eq!(
            plain(&stored["spec"]),
            plain(&upstream["spec"]),
            "{kind} {name}"
        );
        let shown = read(objects, OLD, kind, name).await.unwrap();
        // Whoever asks for the other spelling gets it too.
        let mut shown = plain(&shown["spec"]);
        if given["spec"]["noCloudProvider"].is_null() {
            shown.as_object_mut().unwrap().remove("noCloudProvider");
        }
        let is_exact = !["hollow", "exported", "whole", "class"].contains(&name);
        assert!(
            !is_exact || shown == plain(&given["spec"]),
            "{kind} {name}: {shown}"
        );
    }
    let newcomers = objects
        .within("rack")
        .try_find_all(OLD, "Metal3MachineTemplate")
        .await;
    assert_eq!(newcomers.unwrap().len(), 4, "a list is converted at once");
}

impl Bench {
    /// What kubectl says, and whether it is content.
    fn kubectl(&self, arguments: &[&str], manifest: &Value) -> (bool, String) {
        let file = self.dir.join("manifest.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        let output = Command::new(program("kube"))
            .arg("kubectl")
            .args(arguments)
            .arg(format!("--filename={}", file.display()))
            .arg(format!(
                "--kubeconfig={}",
                kubeconfig(&self.paths).display()
            ))
            .arg(format!(
                "--cache-dir={}",
                Path::new(&self.dir).join("cache").display()
            ))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }
}

fn cluster(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": OLD, "kind": "Metal3Cluster",
        "metadata": {"name": name, "namespace": "rack"}, "spec": spec,
    })
}

async fn a_manifest_may_be_applied_twice(bench: &Bench) {
    let endpoint = json!({"host": "172.22.0.254", "port": 6443});
    let domains = json!({"east": {"controlPlane": false}, "west": {"controlPlane": true}});
    let manifest = |name: &str, is_without: bool| {
        let spec = json!({"controlPlaneEndpoint": endpoint, "noCloudProvider": is_without, "failureDomains": domains});
        cluster(name, &spec)
    };
    for (name, arguments) in [
        ("by-client", &["apply"][..]),
        ("by-server", &["apply", "--server-side"]),
    ] {
        let mut versions = Vec::new();
        for _ in 0..2 {
            let (is_well, said) = bench.kubectl(arguments, &manifest(name, true));
            assert!(is_well, "{said}");
            let found = read(&bench.objects, NEW, "Metal3Cluster", name)
                .await
                .unwrap();
            versions.push(found["metadata"]["resourceVersion"].clone());
            assert_eq!(found["spec"]["cloudProviderEnabled"], false);
        }
        assert_eq!(
            versions[0], versions[1],
            "the second time nothing is written"
        );
        let shown = read(&bench.objects, OLD, "Metal3Cluster", name)
            .await
            .unwrap();
        assert_eq!(shown["spec"]["noCloudProvider"], true);
    }
    // An edit of the old field alone contradicts the new one that is there.
    let (is_well, said) = bench.kubectl(&["apply", "--server-side"], &manifest("by-server", false));
    let sentence =
        "cloudProviderEnabled and noCloudProvider contradict each other: leave noCloudProvider out";
    assert!(!is_well && said.contains(sentence), "{said}");
}

async fn a_status_is_shown_in_both_versions(objects: &Objects) {
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": "it is there",
        "lastTransitionTime": "2026-11-25T20:00:00Z",
    });
    let status = json!({"initialization": {"provisioned": true}, "conditions": [condition]});
    let mut machine = json!({"apiVersion": NEW, "kind": "Metal3Machine", "metadata": {"name": "m1", "namespace": "rack"}});
    machine["status"] = status.clone();
    objects.status(&machine).await;
    let old = read(objects, OLD, "Metal3Machine", "m1").await.unwrap();
    let shown = json!({"ready": true, "v1beta2": {"conditions": [condition]}});
    assert_eq!(old["status"], shown);
    // Who speaks v1beta1 writes a status, too.
    machine["apiVersion"] = OLD.into();
    machine["status"] = json!({"failureReason": "CreateError", "phase": "Failed"});
    objects.status(&machine).await;
    let new = read(objects, NEW, "Metal3Machine", "m1").await.unwrap();
    let mut expected = status;
    expected["deprecated"] = json!({"v1beta1": {"failureReason": "CreateError"}});
    assert_eq!(new["status"], expected);
}

fn what_is_wrong_is_refused_as_in_v1beta2(bench: &Bench) {
    let template = |spec: &Value| {
        json!({
            "apiVersion": OLD, "kind": "Metal3MachineTemplate",
            "metadata": {"name": "wrong", "namespace": "rack"}, "spec": {"template": {"spec": spec}},
        })
    };
    let unknown = json!({"image": {"url": "http://a", "checksum": "ab", "diskFormat": "raw"}});
    let words = [
        "unknown field \"spec.template.spec.image.diskFormat\"",
        // By server-side apply.
        ".spec.template.spec.image.diskFormat: field not declared in schema",
    ];
    let format = json!({"image": {"url": "http://a", "checksum": "ab", "format": "tar"}});
    let checksum = json!({"image": {"url": "http://a", "checksum": ""}});
    let nothing = json!({"hostSelector": {}});
    let table = [
        (unknown, &words[..]),
        (format, &["Unsupported value: \"tar\""]),
        (checksum, &["checksum is missing"]),
        (nothing, &["image or customDeploy is needed"]),
    ];
    for (spec, sentences) in table {
        for arguments in [&["apply"][..], &["apply", "--server-side"], &["create"]] {
            let (is_well, said) = bench.kubectl(arguments, &template(&spec));
            let is_told = sentences.iter().any(|sentence| said.contains(sentence));
            assert!(!is_well && is_told, "{arguments:?}: {said}");
        }
    }
    let domains: Value = [("x".repeat(300), json!({}))].into_iter().collect();
    let (_, said) = bench.kubectl(
        &["create"],
        &cluster("wrong", &json!({"failureDomains": domains})),
    );
    assert!(
        said.contains("each name here has 1 to 256 letters"),
        "{said}"
    );
    let live = template(&json!({"image": {"url": "http://a/b.iso", "format": "live-iso"}}));
    let (is_well, said) = bench.kubectl(&["create", "--dry-run=server"], &live);
    assert!(
        is_well && said.contains("what is stored, and what the box writes, is v1beta2"),
        "{said}"
    );
}

async fn an_edit_of_v1beta1_keeps_what_only_v1beta2_has(objects: &Objects) {
    let labels = json!({"labels": {"team": "a"}});
    let image = json!({"url": "http://a", "checksum": "ab", "diskFormat": "raw"});
    objects
        .create(json!({
            "apiVersion": NEW, "kind": "Metal3MachineTemplate",
            "metadata": {"name": "labelled", "namespace": "rack"},
            "spec": {"template": {"metadata": labels, "spec": {"image": image}}},
        }))
        .await
        .unwrap();
    let mut old = read(objects, OLD, "Metal3MachineTemplate", "labelled")
        .await
        .unwrap();
    assert!(old.pointer("/spec/template/metadata").is_none());
    old["spec"]["template"]["spec"]["image"]["format"] = "qcow2".into();
    objects.replace(&old).await.unwrap();
    let new = read(objects, NEW, "Metal3MachineTemplate", "labelled")
        .await
        .unwrap();
    let template = &new["spec"]["template"];
    assert_eq!(
        (
            &template["metadata"],
            &template["spec"]["image"]["diskFormat"]
        ),
        (&labels, &json!("qcow2"))
    );
    assert!(new["metadata"]["annotations"].is_null(), "{new}");
}

async fn without_the_door_v1beta2_goes_on(objects: &Objects) {
    let refused = read(objects, OLD, "Metal3MachineTemplate", "labelled").await;
    let sentence = refused.unwrap_err().to_string();
    assert!(sentence.contains("conversion webhook"), "{sentence}");
    // What was made in v1beta1 is read, changed, listed and deleted, and new ones come.
    let rack = objects.within("rack");
    let found = read(objects, NEW, "Metal3Machine", "m1").await.unwrap();
    assert_eq!(found["spec"]["image"]["diskFormat"], "raw");
    rack.patch(
        "Metal3Machine",
        "m1",
        json!({"spec": {"failureDomain": "west"}}),
    )
    .await;
    let status = json!({"status": {"initialization": {"provisioned": true}}});
    rack.patch_status("Metal3Machine", "m1", status).await;
    rack.wait_for("Metal3Machine", "m1", "changed", |machine| {
        machine["spec"]["failureDomain"] == "west"
    })
    .await;
    assert_eq!(rack.list("Metal3Machine").await.len(), 2);
    rack.delete("Metal3Machine", "m1").await;
    rack.wait_for("Metal3Machine", "m1", "gone", Value::is_null)
        .await;
    let mut fresh = cluster("fresh", &json!({}));
    fresh["apiVersion"] = NEW.into();
    objects.create(fresh).await.unwrap();
}
