//! People on the box: what the real API server lets their pods have, and what it lets them do by their roles.

use std::{fs, path::Path, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use firstlight_agent::{
    kubernetes::{parse_manifest, secrets, workloads},
    monitoring::events,
    paths::Paths,
};
use firstlight_api::{
    people::Role,
    status::{Alarm, Problem, SiteStatus},
};
use http::{HeaderValue, header::HeaderName};
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, Service};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::Request,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    objects::Objects,
    programs::program,
    site::{api_server, kubeconfig},
};

/// What refuses them is the real API server; its controller of quotas, which copies what they say into their status, is played.
pub async fn people_run_pods_on_the_box_within_its_share(objects: &Objects) {
    let client = &objects.client;
    let quota = async |pods: &str| {
        let mut quota = objects.find("v1", "ResourceQuota", "share").await;
        let hard = quota["spec"]["hard"].clone();
        let mut used = hard.clone();
        for (of, amount) in used.as_object_mut().unwrap() {
            *amount = json!(if of == "pods" { pods } else { "0" });
        }
        quota["status"] = json!({"hard": hard, "used": used});
        objects.status(&quota).await;
    };
    assert!(workloads::keep(client, false).await.unwrap().is_empty());
    let spaces: Api<Namespace> = Api::all(client.clone());
    assert!(spaces.get_opt("workloads").await.unwrap().is_none());

    let capacity = json!({"cpu": "4", "memory": "4194304Ki", "ephemeral-storage": "16777216Ki"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "box"}, "status": {"capacity": capacity}});
    objects.apply(&node).await;
    objects.status(&node).await;
    assert!(workloads::keep(client, true).await.unwrap().is_empty());
    assert!(workloads::keep(client, true).await.unwrap().is_empty());
    objects.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "workloads"}})).await;
    quota("0").await;

    let pods: Api<Pod> = Api::namespaced(client.clone(), "workloads");
    let create = async |change: Value| {
        let container = json!({"name": "web", "image": "registry.firstlight.internal/team/web:1"});
        let mut spec = json!({"automountServiceAccountToken": false, "containers": [container]});
        let change = change.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(change);
        let pod = json!({"metadata": {"generateName": "web-"}, "spec": spec});
        pods.create(
            &PostParams::default(),
            &serde_json::from_value(pod).unwrap(),
        )
        .await
        .map_err(|error| error.to_string())
    };
    let made = create(json!({})).await.unwrap();
    let limits = made.spec.unwrap().containers[0].resources.clone().unwrap();
    assert_eq!(limits.limits.unwrap()["memory"].0, "256Mi");
    let asks = |memory: &str| {
        let container =
            json!({"name": "web", "image": "web", "resources": {"limits": {"memory": memory}}});
        json!({"containers": [container]})
    };
    for (change, why) in [
        (asks("1Gi"), "exceeded quota: share"),
        (json!({"hostNetwork": true}), "violates PodSecurity"),
        (
            json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}),
            "violates PodSecurity",
        ),
        (
            json!({"priorityClassName": "system-node-critical"}),
            "the box's own pods come first",
        ),
    ] {
        objects
            .wait_until(why, async || {
                let refused = create(change.clone()).await;
                refused.is_err_and(|error| error.contains(why))
            })
            .await;
    }
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "workloads"},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let services: Api<Service> = Api::namespaced(client.clone(), "workloads");
    let service = serde_json::from_value(service).unwrap();
    let refused = services.create(&PostParams::default(), &service).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("exceeded quota"), "{refused}");

    // Said to be over: what runs goes on.
    assert!(workloads::keep(client, false).await.unwrap().is_empty());
    quota("1").await;
    objects
        .wait_until("nothing new comes", async || {
            create(json!({}))
                .await
                .is_err_and(|error| error.contains("exceeded quota"))
        })
        .await;
    assert!(
        !pods
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

/// What the manifest of the stick gives to the groups of roles.
pub async fn roles_may_what_they_are_for(objects: &Objects) {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../overlays/box/usr/share/firstlight/manifests/people.yaml");
    for object in parse_manifest(&fs::read_to_string(manifests).unwrap()).unwrap() {
        objects.apply(&serde_json::to_value(object).unwrap()).await;
    }
    for (verb, group, resource, least) in [
        ("list", "metal3.io", "baremetalhosts", Role::Viewer),
        ("watch", "cluster.x-k8s.io", "machines", Role::Viewer),
        ("get", "", "pods", Role::Viewer),
        ("patch", "metal3.io", "baremetalhosts", Role::Operator),
        (
            "create",
            "firstlight.internal",
            "clusterupgrades",
            Role::Operator,
        ),
        ("delete", "cluster.x-k8s.io", "machines", Role::Operator),
        ("get", "", "secrets", Role::Admin),
        // They hold tokens with which a machine joins a cluster.
        (
            "get",
            "bootstrap.cluster.x-k8s.io",
            "kubeadmconfigs",
            Role::Admin,
        ),
        ("create", "", "pods", Role::Admin),
        (
            "patch",
            "rbac.authorization.k8s.io",
            "clusterroles",
            Role::Admin,
        ),
        ("impersonate", "", "users", Role::Admin),
    ] {
        for role in Role::ALL {
            let asked = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
                    "user": "firstlight:person:x", "groups": [role.group()],
                    "resourceAttributes": {"verb": verb, "group": group, "resource": resource, "namespace": "default"},
                },
            });
            let is_so = async || {
                let request =
                    http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
                        .header("content-type", "application/json")
                        .body(asked.to_string().into_bytes())
                        .unwrap();
                let answer: Value = objects.client.request(request).await.unwrap();
                let allowed = answer["status"]["allowed"] == true;
                allowed == (role >= least)
            };
            let what = format!("{role}: {verb} {resource}");
            objects.wait_until(&what, is_so).await;
        }
    }
}

/// As the page writes (`web/people/hosts.rs`).
pub async fn a_host_is_changed_in_the_name_of_who_asks(objects: &Objects, host: &str) {
    for (role, allowed) in [(Role::Viewer, false), (Role::Operator, true)] {
        let folder = "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts";
        let patch = json!({"metadata": {"annotations": {"firstlight.internal/retry": ""}}});
        let request =
            Request::new(folder).patch(host, &PatchParams::default(), &Patch::Merge(patch));
        let mut request = request.unwrap();
        for (name, value) in [
            ("impersonate-user", "firstlight:person:ada"),
            ("impersonate-group", role.group()),
        ] {
            let headers = request.headers_mut();
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        let answer = objects.client.request::<Value>(request).await;
        let is_refused = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403);
        assert_eq!(
            (answer.is_ok(), is_refused),
            (allowed, !allowed),
            "{role}: {answer:?}"
        );
    }
}

const CANARY: &str = "f3b8c1-canary";
/// Of an API server on the same etcd that has the key.
const KEYED_PORT: u16 = 6445;

fn secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"}, "stringData": {"password": CANARY},
    })
}

/// What was written before there was a key is written once more; who has etcd's data has no Secret.
pub async fn etcd_has_no_secret_in_clear(paths: &Paths, logs: &Path, objects: &Objects) {
    let in_etcd = |name: &str| {
        let file = |name: &str| paths.kube_pki().join(name);
        let got = Command::new(program("etcdctl"))
            .env("ETCDCTL_ENDPOINTS", "https://127.0.0.1:2379")
            .env("ETCDCTL_CACERT", file("etcd-ca.crt"))
            .env("ETCDCTL_CERT", file("apiserver-etcd-client.crt"))
            .env("ETCDCTL_KEY", file("apiserver-etcd-client.key"))
            .args([
                "get",
                "--print-value-only",
                &format!("/registry/secrets/default/{name}"),
            ])
            .output();
        String::from_utf8_lossy(&got.unwrap().stdout).into_owned()
    };
    objects.apply(&secret("of-before")).await;
    assert!(
        in_etcd("of-before").contains(CANARY),
        "the test looks at nothing"
    );

    let mut api = api_server(paths, logs, "127.0.0.1", KEYED_PORT, "/registry");
    let text = fs::read_to_string(kubeconfig(paths)).unwrap();
    let there = text.replace("100.64.0.1:6443", &format!("127.0.0.1:{KEYED_PORT}"));
    let keyed = Objects::of(&there).await;
    api.wait(async || keyed.client.apiserver_version().await.is_ok())
        .await;
    // More than a page of them.
    for number in 0..60 {
        objects.apply(&secret(&format!("s{number}"))).await;
    }
    assert!(secrets::rewrite(&keyed.client).await.unwrap() > 60);
    keyed.apply(&secret("of-after")).await;
    for name in ["of-before", "s0", "s59", "of-after"] {
        let value = in_etcd(name);
        assert!(value.starts_with("k8s:enc:secretbox:v1:box:"), "{value}");
        assert!(!value.contains(CANARY));
        let read = keyed.find("v1", "Secret", name).await;
        assert_eq!(read["data"]["password"], STANDARD.encode(CANARY));
    }
    // Again: nothing is lost by it.
    secrets::rewrite(&keyed.client).await.unwrap();
    for number in 0..60 {
        keyed.delete("Secret", &format!("s{number}")).await;
    }
}

/// For who watches with kubectl: when one begins, and when it is over.
pub async fn alarms_are_events(objects: &Objects) {
    let (_kept, kubernetes) = watch::channel(Some(objects.client.clone()));
    let (status, shown) = watch::channel(SiteStatus::default());
    let stop = CancellationToken::new();
    let telling = tokio::spawn(events::run(kubernetes, shown, stop.clone()));
    let alarm = Alarm {
        name: "StickFull".to_owned(),
        problem: Problem {
            what: "the state partition has 9% left".to_owned(),
            next: "delete uploads".to_owned(),
        },
    };
    let told: Api<Event> = Api::namespaced(objects.client.clone(), "default");
    let of_node = ListParams::default().fields("reason=StickFull,involvedObject.name=box");
    for (alarms, note, kind) in [
        (
            vec![alarm],
            "the state partition has 9% left; delete uploads",
            "Warning",
        ),
        (vec![], "over: the state partition has 9% left", "Normal"),
    ] {
        status.send_modify(|status| status.alarms = alarms);
        let is_there = async || {
            let found = told.list(&of_node).await.unwrap().items;
            found.iter().any(|event| {
                event.message.as_deref() == Some(note) && event.type_.as_deref() == Some(kind)
            })
        };
        objects.wait_until(note, is_there).await;
    }
    stop.cancel();
    telling.await.unwrap().unwrap();
}
