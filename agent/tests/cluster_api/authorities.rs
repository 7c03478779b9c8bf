//! A cluster gets other certificate authorities beside Cluster API's own managers. Its API server is real, and reads its files again; of the rest of
//! a node only what it was told is there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use firstlight_agent::{software::JobError, workload};
use firstlight_api::{
    authorities::{AuthoritiesOrder, AuthoritiesStep as Step, certificates},
    packages::Report,
};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use crate::{
    objects::Objects,
    programs::{program, run},
    site::Site,
    text,
    upgrades::found,
    workload::Workload,
};

const KIND: &str = "ClusterUpgrade";
const ROOT: &str = "kube-root-ca.crt";
const PAUSED: &str = "cluster.x-k8s.io/paused";

/// What nodes were told, in its order.
#[derive(Clone)]
pub struct Rotation {
    servers: PathBuf,
    told: Arc<Mutex<Vec<(bool, Step)>>>,
    /// The next order for this fails.
    breaks: Arc<Mutex<Option<Step>>>,
}

impl Rotation {
    pub fn on(servers: &Path) -> Self {
        Self {
            servers: servers.to_owned(),
            told: Arc::default(),
            breaks: Arc::new(Mutex::new(Some(Step::Issue))),
        }
    }

    /// A control plane writes its files, and has the certificate of its API server made anew by the real kubeadm.
    pub fn obey(&self, host: &str, order: &AuthoritiesOrder) -> Result<Report, JobError> {
        order.check().unwrap();
        let dir = self.servers.join(host);
        let pki = dir.join("etc/kubernetes/pki");
        let is_control_plane = pki.join("apiserver.crt").exists();
        assert_eq!(order.etcd.is_some(), is_control_plane);
        assert!(!order.hands_over, "it is alone");
        let keys = [
            Some(&order.cluster),
            order.etcd.as_ref(),
            order.front_proxy.as_ref(),
        ];
        let mut keys = keys.into_iter().flatten().map(|one| one.key.is_some());
        assert!(
            keys.all(|has| has == (order.step == Step::Issue)),
            "{order:?}"
        );
        let mut breaks = self.breaks.lock().unwrap();
        if *breaks == Some(order.step) {
            *breaks = None;
            return Err(JobError {
                reason: "CommandFailed",
                message: "the cellar is wet".to_owned(),
            });
        }
        self.told
            .lock()
            .unwrap()
            .push((is_control_plane, order.step));
        // A kubelet's certificate is nobody's file here.
        if is_control_plane && order.step != Step::Kubelet {
            fs::write(pki.join("ca.crt"), &order.cluster.certificates).unwrap();
            if let Some(key) = &order.cluster.key {
                fs::write(pki.join("ca.key"), key.reveal()).unwrap();
                for end in ["crt", "key"] {
                    fs::remove_file(pki.join(format!("apiserver.{end}"))).unwrap();
                }
                let mut kubeadm = Command::new(program("kube"));
                kubeadm.args(["kubeadm", "init", "phase", "certs", "apiserver", "--config"]);
                run(kubeadm.arg(dir.join("kubeadm.yaml")));
            }
        }
        Ok(Report::default())
    }
}

pub async fn are_rotated(site: &Site, cluster: &Workload, rotation: &Rotation) {
    let objects = &site.objects;
    let before = objects.secret("lab-ca").await;
    let kubeconfig = objects.secret("lab-kubeconfig").await["value"].clone();
    what_kubeadm_and_kubernetes_make(cluster.objects(), &kubeconfig, &before["tls.crt"]).await;
    what_cannot_be_is_refused(objects).await;

    objects.create(rotate("anew")).await.unwrap();
    let waits =
        |what: &'static str| move |found: &Value| text(&found["status"]["message"]).contains(what);
    found(
        objects,
        KIND,
        "anew",
        "waits for Kubernetes",
        waits("namespace default"),
    )
    .await;
    assert_eq!(
        *rotation.told.lock().unwrap(),
        [(true, Step::Trust), (false, Step::Trust)]
    );
    let both = before["tls.crt"].clone() + &objects.secret("lab-next-authorities").await["ca.crt"];
    cluster.objects().apply(&root(&both)).await;
    found(
        objects,
        KIND,
        "anew",
        "waits for a pod",
        waits("default/early."),
    )
    .await;
    cluster.objects().remove(&early()).await;
    site.say("both are believed");
    let stopped = |found: &Value| found["status"]["state"] == "Stopped";
    let failed = found(objects, KIND, "anew", "stopped", stopped).await;
    assert!(text(&failed["status"]["message"]).contains("the cellar is wet"));
    for kind in ["KubeadmControlPlane", "MachineDeployment"] {
        for owner in objects.list(kind).await {
            assert!(
                owner["metadata"]["annotations"][PAUSED].is_string(),
                "{owner:#}"
            );
        }
    }
    // At once, and not in two minutes.
    let change = json!({"spec": {"allowRemovedApis": true}});
    objects.patch(KIND, "anew", change).await;

    let done = |found: &Value| found["status"]["state"] == "Done";
    let finished = found(objects, KIND, "anew", "done", done).await;
    assert_eq!(finished["status"]["ready"], "2/2", "{finished:#}");
    let told = rotation.told.lock().unwrap().clone();
    let steps = [
        (true, Step::Trust),
        (false, Step::Trust),
        (true, Step::Issue),
        (true, Step::Kubelet),
        (false, Step::Kubelet),
        (true, Step::Forget),
        (false, Step::Forget),
    ];
    assert_eq!(told, steps);
    site.say("rotated");
    only_the_new_one_counts(objects, &kubeconfig, &before["tls.crt"]).await;
    objects.delete(KIND, "anew").await;
    objects.wait_for(KIND, "anew", "gone", Value::is_null).await;
}

/// Of a cluster whose controller manager and kubelets are not there.
async fn what_kubeadm_and_kubernetes_make(cluster: &Objects, kubeconfig: &str, old: &str) {
    let info = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": kubeconfig},
    });
    for object in [&info, &root(old), &early()] {
        cluster.apply(object).await;
    }
}

fn root(certificates: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": ROOT, "namespace": "default"},
        "data": {"ca.crt": certificates},
    })
}

/// A pod that nobody makes anew, and that asks the API.
fn early() -> Value {
    let projected = json!({"sources": [{"configMap": {"name": ROOT}}]});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "early", "namespace": "default"},
        "spec": {
            "containers": [{"name": "early", "image": "early"}],
            "volumes": [{"name": "api", "projected": projected}],
        },
    })
}

fn rotate(name: &str) -> Value {
    json!({
        "apiVersion": "firstlight.internal/v1alpha1", "kind": KIND,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"cluster": "lab", "rotateAuthorities": true},
    })
}

async fn what_cannot_be_is_refused(objects: &Objects) {
    let mut both = rotate("odd");
    both["spec"]["version"] = json!("v1.37.2");
    let mut neither = rotate("odd");
    neither["spec"]["rotateAuthorities"] = json!(false);
    for odd in [both, neither] {
        let refused = objects.create(odd).await.unwrap_err().to_string();
        assert!(refused.contains("and not both"), "{refused}");
    }
    let mut other = rotate("other");
    other["spec"]["cluster"] = json!("nowhere");
    objects.create(other).await.unwrap();
    let refused = |found: &Value| found["status"]["state"] == "Refused";
    found(objects, KIND, "other", "refused", refused).await;
    objects.delete(KIND, "other").await;
    objects
        .wait_for(KIND, "other", "gone", Value::is_null)
        .await;
}

async fn only_the_new_one_counts(objects: &Objects, before: &str, old: &str) {
    let authority = objects.secret("lab-ca").await;
    assert_ne!(authority["tls.crt"], old);
    assert_eq!(certificates(&authority["tls.crt"]).unwrap().len(), 1);
    let kept = objects.secret("lab-next-authorities").await;
    assert!(
        kept.keys().all(|name| name.ends_with("crt")),
        "{:?}",
        kept.keys()
    );
    let nodes = |kubeconfig: String| async move {
        let client = workload::client(&kubeconfig).await.unwrap();
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
        nodes.list(&ListParams::default()).await
    };
    nodes(before.to_owned()).await.unwrap_err();
    let now = objects.secret("lab-kubeconfig").await["value"].clone();
    let listed = nodes(now.clone()).await.unwrap().items;
    let mark = |node: &k8s_openapi::api::core::v1::Node| {
        let annotations = node.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get("firstlight.internal/authorities").cloned())
    };
    assert!(
        listed
            .iter()
            .all(|node| mark(node).is_some_and(|mark| mark.starts_with("forget-")))
    );
    let info = Objects::of(&now).await.within("kube-public");
    let info = info.find("v1", "ConfigMap", "cluster-info").await;
    let new = firstlight_api::authorities::with_data(
        before,
        "certificate-authority-data",
        &authority["tls.crt"],
    );
    assert_eq!(text(&info["data"]["kubeconfig"]), new.unwrap());
}
