//! Pods with a node's programs: the images of the stick have none that a person would type.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Any image will do: its own program is not started.
const IMAGE: &str = "registry.firstlight.internal/kubernetes/pause";
const FOLDERS: [(&str, &str); 4] = [
    ("usr", "/usr"),
    ("bin", "/usr/bin"),
    ("lib", "/usr/lib"),
    ("lib64", "/usr/lib64"),
];
/// Between two requests of a [`Visitor`].
const ASK: Duration = Duration::from_millis(100);
pub const STAYS: &str = "sleep infinity";
/// A web server for what is in `/data`, at port 8080.
pub const SERVES: &str = "cd /data; exec python3 -m http.server 8080";

pub struct Pod<'a> {
    /// Also its label `app`.
    pub name: &'a str,
    /// Run by `sh`.
    pub script: &'a str,
    /// Of a claim that is mounted at `/data`; without one it is memory.
    pub claim: Option<&'a str>,
}

impl Pod<'_> {
    /// `image`: from [`find_image`].
    pub fn manifest(&self, image: &str) -> Value {
        let data = match self.claim {
            Some(claim) => json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}}),
            None => json!({"name": "data", "emptyDir": {"medium": "Memory"}}),
        };
        let program =
            |(name, path): &(&str, &str)| json!({"name": name, "hostPath": {"path": path}});
        let mount = |(name, _): &(&str, &str)| json!({"name": name, "mountPath": format!("/{name}"), "readOnly": true});
        let mut volumes: Vec<_> = FOLDERS.iter().map(program).collect();
        let mut mounts: Vec<_> = FOLDERS.iter().map(mount).collect();
        volumes.push(data);
        mounts.push(json!({"name": "data", "mountPath": "/data"}));
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": self.name, "labels": {"app": self.name}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
                "containers": [{
                    "name": "main",
                    "image": image,
                    "command": ["/bin/sh", "-euc", self.script],
                    "securityContext": {"runAsUser": 0},
                    "volumeMounts": mounts,
                }],
                "volumes": volumes,
            },
        })
    }
}

/// Two of them, one of which is always there, behind an address of the site's: a Deployment, a budget and a Service, all called `web`.
/// They are told in time that they go, as people do it whose service may not miss a request.
pub fn steady_web(image: &str) -> [Value; 3] {
    const SERVES_ONE_PAGE: &str =
        "mkdir -p /data; echo served >/data/index.html; cd /data; exec python3 -m http.server 8080";
    let pod = Pod {
        name: "web",
        script: SERVES_ONE_PAGE,
        claim: None,
    };
    let mut spec = pod.manifest(image)["spec"].clone();
    // Its program hears no signal, and is ended when this is over.
    spec["terminationGracePeriodSeconds"] = json!(8);
    let container = &mut spec["containers"][0];
    container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 5}}});
    container["readinessProbe"] =
        json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1});
    let labels = json!({"app": "web"});
    [
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
        }),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"type": "LoadBalancer", "selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        }),
    ]
}

/// For pods, among the names of what a node has.
pub fn find_image(names: &str) -> Result<&str> {
    let mut names = names.split_whitespace();
    let image = names.find(|name| name.starts_with(IMAGE));
    image.with_context(|| format!("no node has {IMAGE}"))
}

/// What answers at this address, for somebody outside the cluster.
pub fn fetch(address: &str) -> Result<String> {
    curl(&[address])
}

/// The body of an answer; the words are curl's.
pub fn curl(words: &[&str]) -> Result<String> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--max-time", "2"])
        .args(words)
        .output()
        .context("starting curl")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}: {}",
        words.join(" "),
        said.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Somebody outside the cluster who asks ten times a second.
pub struct Visitor {
    stop: Arc<AtomicBool>,
    counts: JoinHandle<(u64, u64)>,
}

impl Visitor {
    pub fn begin(page: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let counts = thread::spawn(move || {
            let (mut all, mut lost) = (0, 0);
            while !told.load(Ordering::Relaxed) {
                let next = Instant::now() + ASK;
                all += 1;
                if fetch(&page).is_err() {
                    lost += 1;
                }
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            (all, lost)
        });
        Self { stop, counts }
    }

    /// How often they asked, and how often in vain.
    pub fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.counts.join().unwrap_or_default()
    }
}
