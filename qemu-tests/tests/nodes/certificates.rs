//! A control plane renews its certificates once one of them is old, and goes on with the new ones.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qemu_tests::nodes::{Cluster, wait};
use qemu_tests::pods::{Pod, STAYS};

use crate::pods::{delete, run};

const NODE: &str = "node-1";
const RENEW: &str = "/usr/lib/firstlight/renew-certificates";
/// Of a year, less than a third is left.
const OLD: &str = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=old -keyout /dev/null \
    -not_before $(date --date '250 days ago' +%Y%m%d000000Z) -not_after $(date --date '115 days' +%Y%m%d000000Z)";

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    let first = served(cluster)?;
    let said = cluster.on_node(NODE, RENEW)?;
    ensure!(said.is_empty(), "new ones were renewed: {said}");
    cluster.on_node(
        NODE,
        &format!("{OLD} -out /etc/kubernetes/pki/old.crt 2>&1"),
    )?;
    let said = cluster.on_node(NODE, RENEW)?;
    ensure!(said.contains("for the sake of old.crt"), "{said}");
    cluster.on_node(
        NODE,
        "rm /etc/kubernetes/pki/old.crt; test ! -e /var/lib/firstlight/certificates-begun",
    )?;
    wait("the API has another one", Duration::from_mins(3), || {
        let now = served(cluster)?;
        ensure!(now != first, "still {now}");
        cluster.kubectl("get --raw /readyz")
    })?;
    // Somebody makes it, somebody gives it a node: both with their new ones.
    cluster.kubectl("create deployment after --image none --replicas 1")?;
    wait("controllers work", Duration::from_mins(3), || {
        let pods = cluster.get("pods -l app=after")?;
        let node = pods["items"][0]["spec"]["nodeName"].as_str();
        node.map(str::to_owned).context("no pod that has a node")
    })?;
    let pod = Pod {
        name: "later",
        script: STAYS,
        claim: None,
    };
    run(cluster, &pod)?;
    delete(cluster, "deployment/after pod/later")
}

/// What the API server shows to those who come.
fn served(cluster: &Cluster) -> Result<String> {
    let server =
        cluster.kubectl("config view --minify -o jsonpath={.clusters[0].cluster.server}")?;
    let place = server.trim_start_matches("https://");
    let ask = format!(
        "openssl s_client -connect {place} </dev/null 2>/dev/null | openssl x509 -noout -serial"
    );
    let said = Command::new("sh")
        .args(["-c", &ask])
        .output()
        .context("starting sh")?;
    let serial = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    ensure!(!serial.is_empty(), "{server} shows none");
    Ok(serial)
}
