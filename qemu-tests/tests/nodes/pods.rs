//! Pods with a node's programs: the images of the stick have none that a person would type.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use qemu_tests::nodes::Cluster;
use serde_json::{Value, json};

/// Any image will do: its own program is not started.
const IMAGE: &str = "registry.firstlight.internal/kubernetes/pause";
const FOLDERS: [(&str, &str); 4] = [
    ("usr", "/usr"),
    ("bin", "/usr/bin"),
    ("lib", "/usr/lib"),
    ("lib64", "/usr/lib64"),
];
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
    /// Until it is Ready.
    pub fn run(&self, cluster: &Cluster) -> Result<()> {
        let images =
            cluster.kubectl("get nodes -o jsonpath={.items[0].status.images[*].names[*]}")?;
        let mut images = images.split_whitespace();
        let image = images
            .find(|image| image.starts_with(IMAGE))
            .context("no image")?;
        cluster.apply(&self.manifest(image).to_string())?;
        let name = self.name;
        cluster.kubectl(&format!(
            "wait --for=condition=Ready pod/{name} --timeout=90s"
        ))?;
        Ok(())
    }

    fn manifest(&self, image: &str) -> Value {
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

pub fn delete(cluster: &Cluster, what: &str) -> Result<()> {
    cluster
        .kubectl(&format!("delete {what} --wait --timeout=60s"))
        .map(drop)
}

/// What answers at this address, for somebody outside the cluster.
pub fn fetch(address: &str) -> Result<String> {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--fail",
            "--max-time",
            "2",
            address,
        ])
        .output()
        .context("starting curl")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{address}: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
