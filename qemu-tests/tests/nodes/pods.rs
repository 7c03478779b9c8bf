//! What the uses of addons share.

use anyhow::Result;
use qemu_tests::nodes::Cluster;
use qemu_tests::pods::{Pod, SERVES, find_image};
use serde_json::{Value, json};

/// Until it is Ready.
pub fn run(cluster: &Cluster, pod: &Pod<'_>) -> Result<()> {
    run_as(cluster, pod, |_| ())
}

/// A web server with one page.
pub fn serve(cluster: &Cluster, name: &str, page: &str) -> Result<()> {
    let pod = Pod {
        name,
        script: SERVES,
        claim: None,
    };
    run(cluster, &pod)?;
    cluster.exec(name, &format!("echo {page} >/data/index.html"))?;
    Ok(())
}

/// Such a server on a node, with its own name as the page, and further interfaces on these networks.
pub fn serve_on(cluster: &Cluster, name: &str, node: &str, networks: &str) -> Result<()> {
    let pod = Pod {
        name,
        script: SERVES,
        claim: None,
    };
    run_as(cluster, &pod, |manifest| {
        manifest["spec"]["nodeName"] = node.into();
        manifest["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/networks": networks});
    })?;
    let page = format!("echo {name} >/data/index.html");
    cluster.exec(name, &page).map(drop)
}

/// With something else in its manifest.
pub fn run_as(cluster: &Cluster, pod: &Pod<'_>, change: impl Fn(&mut Value)) -> Result<()> {
    create(cluster, pod, change)?;
    let name = pod.name;
    cluster.kubectl(&format!(
        "wait --for=condition=Ready pod/{name} --timeout=90s"
    ))?;
    Ok(())
}

/// Whatever becomes of it.
pub fn create(cluster: &Cluster, pod: &Pod<'_>, change: impl Fn(&mut Value)) -> Result<()> {
    let images = cluster.kubectl("get nodes -o jsonpath={.items[0].status.images[*].names[*]}")?;
    let mut manifest = pod.manifest(find_image(&images)?);
    change(&mut manifest);
    cluster.apply(&manifest.to_string())
}

pub fn delete(cluster: &Cluster, what: &str) -> Result<()> {
    cluster
        .kubectl(&format!("delete {what} --wait --timeout=60s"))
        .map(drop)
}
