//! A service of type `LoadBalancer` has an address of the site's that answers whoever is on the cable, also while one node hands it to
//! another; a pool with an address that is none is refused.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qemu_tests::nodes::{Cluster, wait};
use qemu_tests::pods::{Visitor, fetch};
use serde_json::{Value, json};

use crate::pods::{delete, serve};
use crate::router::{self, Router};

const ROUTED: &str = "198.51.100.10/32";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    serve(cluster, "web", "served")?;
    cluster.apply(&service("web").to_string())?;
    let address = wait("the service has an address", Duration::from_mins(2), || {
        let service = cluster.get("service web")?;
        let address = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
        address.map(str::to_owned).context("no address yet")
    })?;
    let last = address.strip_prefix("172.22.0.").map(str::parse::<u8>);
    let is_of_pool = matches!(last, Some(Ok(80..=95)));
    ensure!(is_of_pool, "its address is {address}");
    let page = format!("http://{address}/");
    let said = wait("somebody outside is served", Duration::from_mins(1), || {
        fetch(&page)
    })?;
    ensure!(said == "served", "{said}");
    for node in ["node-1", "node-2"] {
        wait("a node knows the service", Duration::from_mins(1), || {
            cluster.on_node(node, &format!("curl -s --fail --max-time 2 {page}"))
        })?;
    }
    another_node_takes_over(cluster, &page)?;

    // Its webhook reads its certificate once kubelet has brought it, which looks every minute or so.
    wait("a wrong pool is refused", Duration::from_mins(3), || {
        let wrong = json!({
            "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
            "metadata": {"name": "wrong", "namespace": "metallb-system"},
            "spec": {"addresses": ["172.22.0.90-172.22.0.99"]},
        });
        let taken = cluster.apply(&wrong.to_string());
        delete(
            cluster,
            "ipaddresspool/wrong -n metallb-system --ignore-not-found",
        )?;
        let refused = taken
            .err()
            .context("it overlaps the site's and was taken")?;
        ensure!(format!("{refused:#}").contains("overlaps"), "{refused:#}");
        Ok(())
    })?;
    delete(cluster, "service/web")?;
    a_router_learns_the_way(cluster)?;
    delete(cluster, "pod/web")
}

/// An address outside of the cable, told by BGP to whoever is said to be a neighbour, and withdrawn with its service.
fn a_router_learns_the_way(cluster: &mut Cluster) -> Result<()> {
    let place = tempfile::tempdir()?;
    let router = Router::start(place.path())?;
    let object = |kind: &str, version: &str, spec: Value| {
        json!({
            "apiVersion": format!("metallb.io/{version}"), "kind": kind,
            "metadata": {"name": "routed", "namespace": "metallb-system"}, "spec": spec,
        })
    };
    let neighbour = json!({
        "myASN": router::NUMBER_OF_NODES, "peerASN": router::NUMBER, "peerAddress": router::ADDRESS,
    });
    for object in [
        object("BGPPeer", "v1beta2", neighbour),
        object(
            "IPAddressPool",
            "v1beta1",
            json!({"addresses": [ROUTED], "autoAssign": false}),
        ),
        object(
            "BGPAdvertisement",
            "v1beta1",
            json!({"ipAddressPools": ["routed"]}),
        ),
    ] {
        cluster.apply(&object.to_string())?;
    }
    let mut service = service("web");
    service["metadata"]["annotations"] = json!({"metallb.io/address-pool": "routed"});
    cluster.apply(&service.to_string())?;
    let (address, _) = ROUTED.split_once('/').context("a range")?;
    let nodes = wait("the router knows the way", Duration::from_mins(1), || {
        let nodes = router.way_to(address)?;
        ensure!(!nodes.is_empty(), "no node is named");
        Ok(nodes)
    })?;
    let added = Command::new("ip")
        .args(["route", "add", address, "via", &nodes[0]])
        .status()?;
    ensure!(added.success(), "no route by {nodes:?}");
    // The router may know it before the node does.
    let page = format!("http://{address}/");
    let said = wait("it is served by that way", Duration::from_mins(1), || {
        fetch(&page)
    })?;
    ensure!(said == "served", "{said}");
    delete(cluster, "service/web")?;
    wait("the router forgets it", Duration::from_mins(1), || {
        let nodes = router.way_to(address)?;
        ensure!(nodes.is_empty(), "{nodes:?} still");
        Ok(())
    })?;
    for kind in ["bgpadvertisement", "ipaddresspool", "bgppeer"] {
        delete(cluster, &format!("{kind}/routed -n metallb-system"))?;
    }
    Ok(())
}

/// As a node is told that is about to leave. A connection that is open in that moment ends, for the other node knows nothing of it; the next one is
/// served.
fn another_node_takes_over(cluster: &Cluster, page: &str) -> Result<()> {
    let control_plane = "nodes -l node-role.kubernetes.io/control-plane";
    cluster.kubectl(&format!("label {control_plane} {EXCLUDED}-"))?;
    let before = wait("a node answers", Duration::from_secs(30), || {
        answers(cluster)
    })?;
    let visitor = Visitor::begin(page.to_owned());
    cluster.kubectl(&format!("label node {before} {EXCLUDED}="))?;
    // Speakers that began at the same time may not know of each other for a while yet.
    wait("another node answers", Duration::from_mins(3), || {
        let now = answers(cluster)?;
        ensure!(now != before, "it is {now} still");
        let own = format!("get servicel2statuses -A -l metallb.io/node={before} -o name");
        ensure!(
            cluster.kubectl(&own)?.is_empty(),
            "{before} is said to answer"
        );
        Ok(())
    })?;
    let (all, lost) = visitor.end();
    ensure!(lost <= 1, "{lost} of {all} requests were lost");
    fetch(page)?;
    cluster.kubectl(&format!("label node {before} {EXCLUDED}-"))?;
    cluster.kubectl(&format!("label {control_plane} {EXCLUDED}= --overwrite"))?;
    Ok(())
}

/// The node that answers for the address of the one service.
fn answers(cluster: &Cluster) -> Result<String> {
    let all = cluster.get("servicel2statuses -A")?;
    let node = all["items"][0]["status"]["node"].as_str();
    node.map(str::to_owned).context("nobody answers")
}

pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
    })
}
