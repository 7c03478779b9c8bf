//! A person's token, asked for as `firstlight kubeconfig` asks on the box: the cluster plays the box, too.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstlight_api::site::HostName;
use imagebuilder::kubeconfig::token;
use qemu_tests::nodes::Cluster;
use serde_json::{Value, json};

use crate::pods::delete;

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    let kubeconfig = std::fs::read(cluster.kubeconfig())?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lab-kubeconfig", "namespace": "default"},
        "data": {"value": STANDARD.encode(kubeconfig)},
    });
    cluster.apply(&secret.to_string())?;
    let server =
        cluster.kubectl("config view --minify -o jsonpath={.clusters[0].cluster.server}")?;
    let name = HostName::parse("lab").map_err(|error| anyhow::anyhow!("{error}"))?;
    // The account is made by the first, and found by the second.
    for _ in 0..2 {
        let said = cluster.shell(&token::command(&name))?;
        let credential: Value = serde_json::from_str(&token::credential(&said)?)?;
        let token = credential["status"]["token"].as_str().context("a token")?;
        // With nothing else that opens: a certificate would count first.
        let ask = format!(
            "--kubeconfig /dev/null --server {server} --insecure-skip-tls-verify --token {token} auth"
        );
        let who = cluster.kubectl(&format!(
            "{ask} whoami -o jsonpath={{.status.userInfo.username}}"
        ))?;
        ensure!(
            who == "system:serviceaccount:kube-system:firstlight-people",
            "{who}"
        );
        let may = cluster.kubectl(&format!("{ask} can-i * *"))?;
        ensure!(may == "yes", "{may}");
    }
    delete(cluster, "secret/lab-kubeconfig")
}
