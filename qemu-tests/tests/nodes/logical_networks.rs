//! Pods on two nodes have a second interface on a network that OVN makes between them, with rules about who may speak, and on one of the
//! site; nothing of it is left when it goes. Packets are carried by Open vSwitch itself: a test machine's kernel may lack its module.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use imagebuilder::build::settings::find_source;
use qemu_tests::nodes::{Cluster, wait};
use serde_json::{Value, json};

use crate::pods::{delete, serve_on};

const LIMIT: Duration = Duration::from_mins(2);
/// Tunnels run over the second cable, as over any NIC that a person takes for them.
pub const VALUES: &str = r#"{"datapath": "netdev", "tunnelSubnet": "10.99.0.0/24", "physicalNetworks": {"side": "eth1"}}"#;
const ASK: &str = "curl -sS --max-time 2 http://";

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    let told = "get events -n kube-system --field-selector reason=Unhealthy";
    wait("a NIC that is missing is told", LIMIT, || {
        let said = cluster.kubectl(told)?;
        ensure!(said.contains("has no device eth1"), "{said}");
        Ok(())
    })?;
    cluster.second_cable()?;
    for (node, address) in [("node-1", "10.99.0.1/24"), ("node-2", "10.99.0.2/24")] {
        let own = format!("ip link set br-side up && ip address add {address} dev br-side");
        wait("the NIC is on a bridge", LIMIT, || {
            cluster.on_node(node, &own)
        })?;
    }
    for workload in ["deployment/ovn-central", "daemonset/ovn-node"] {
        cluster.kubectl(&format!(
            "-n kube-system rollout status {workload} --timeout=120s"
        ))?;
    }
    between_nodes(cluster)?;
    of_the_site(cluster)?;
    the_databases_start_anew(cluster)?;
    delete(cluster, "pod/left pod/right pod/drive pod/late")?;
    delete(cluster, "logicalnetwork/blue logicalnetwork/storage")?;
    the_manual_says_how(cluster)?;
    nothing_is_left(cluster)
}

fn network(cluster: &Cluster, name: &str, spec: &Value) -> Result<()> {
    let object = json!({
        "apiVersion": "firstlight.internal/v1alpha1", "kind": "LogicalNetwork", "metadata": {"name": name}, "spec": spec,
    });
    cluster.apply(&object.to_string())
}

fn address(cluster: &Cluster, port: &str) -> Result<String> {
    let port = cluster.get(&format!("logicalport {port}"))?;
    let address = port["status"]["address"].as_str().context("no address")?;
    Ok(address.split('/').next().unwrap_or_default().to_owned())
}

fn between_nodes(cluster: &mut Cluster) -> Result<()> {
    let blue =
        json!({"subnet": "10.20.0.0/24", "gateway": "10.20.0.1", "dhcp": {"dns": ["10.20.0.1"]}});
    network(cluster, "blue", &blue)?;
    cluster.kubectl("wait --for=condition=Ready logicalnetwork/blue --timeout=60s")?;
    serve_on(cluster, "left", "node-1", "blue")?;
    let fixed = json!([{"name": "blue", "ips": ["10.20.0.77/24"]}]);
    serve_on(cluster, "right", "node-2", &fixed.to_string())?;
    let left = address(cluster, "left.net1")?;
    ensure!(
        left == "10.20.0.2" && address(cluster, "right.net1")? == "10.20.0.77",
        "{left}"
    );
    for (from, to, name) in [("left", "10.20.0.77", "right"), ("right", &left, "left")] {
        let ask = || cluster.exec(from, &format!("{ASK}{to}:8080/"));
        let said = wait("the other node's pod answers", LIMIT, ask)?;
        ensure!(said == name, "{said}");
    }

    let lease = cluster.beside_pod(
        "node-1",
        &left,
        "busybox udhcpc -i net1 -f -q -n -s /bin/true 2>&1",
    )?;
    ensure!(
        lease.contains("lease of 10.20.0.2 obtained from 10.20.0.1"),
        "{lease}"
    );

    // By another address than its own a pod speaks to nobody.
    let other = format!(
        "ip address add 10.20.0.99/24 dev net1; ! {ASK}10.20.0.77:8080/ --interface 10.20.0.99; {ASK}10.20.0.77:8080/; ip address delete 10.20.0.99/24 dev net1"
    );
    let said = cluster.beside_pod("node-1", &left, &other)?;
    ensure!(said == "right", "{said}");

    let drops = json!({"action": "drop", "direction": "in", "pods": {"app": "right"}});
    let mut ruled = blue.clone();
    ruled["acls"] = json!([drops]);
    network(cluster, "blue", &ruled)?;
    wait("a rule closes a pod", LIMIT, || {
        let asked = cluster.exec("left", &format!("{ASK}10.20.0.77:8080/"));
        ensure!(asked.is_err(), "it answers");
        Ok(())
    })?;
    cluster
        .exec("right", &format!("{ASK}{left}:8080/"))
        .context("the other way is open")?;
    ruled["acls"] = json!([{"action": "allow", "direction": "in", "peers": [format!("{left}/32")], "protocol": "tcp", "ports": [8080]}, drops]);
    network(cluster, "blue", &ruled)?;
    wait("the first rule that fits decides", LIMIT, || {
        cluster.exec("left", &format!("{ASK}10.20.0.77:8080/"))
    })?;

    let wrong = json!({"subnet": "10.22.0.0/24", "gateway": "10.23.0.1"});
    network(cluster, "wrong", &wrong)?;
    wait("what cannot be is told", LIMIT, || {
        let told = cluster.get("logicalnetwork wrong")?;
        let told = told["status"]["conditions"][0]["message"]
            .as_str()
            .unwrap_or_default();
        ensure!(
            told == "spec.gateway: 10.23.0.1 is not in 10.22.0.0/24",
            "{told}"
        );
        Ok(())
    })?;
    let mut mistaken = ruled.clone();
    mistaken["exclude"] = json!(["10.20.0.9-10.20.0.1"]);
    network(cluster, "blue", &mistaken)?;
    cluster.kubectl("wait --for=condition=Ready=false logicalnetwork/blue --timeout=60s")?;
    cluster
        .exec("left", &format!("{ASK}10.20.0.77:8080/"))
        .context("a mistake takes nothing away")?;
    network(cluster, "blue", &ruled)?;
    cluster.kubectl("wait --for=condition=Ready logicalnetwork/blue --timeout=60s")?;
    delete(cluster, "logicalnetwork/wrong")
}

/// This machine stands for something of the site on the second cable.
fn of_the_site(cluster: &Cluster) -> Result<()> {
    let spec = json!({
        "subnet": "10.98.0.0/24", "gateway": "10.98.0.1", "provider": {"physicalNetwork": "side"},
        "routes": [{"to": "10.97.0.0/24", "via": "10.98.0.1"}],
    });
    network(cluster, "storage", &spec)?;
    cluster.kubectl("wait --for=condition=Ready logicalnetwork/storage --timeout=60s")?;
    cluster.shell("ip address add 10.98.0.1/24 dev side; ip address add 10.97.0.1/24 dev side")?;
    serve_on(cluster, "drive", "node-2", "storage,blue")?;
    let own = address(cluster, "drive.net1")?;
    // Not by TCP: nobody fills sums in on this way into a datapath that is a program.
    let asks = format!("busybox ping -c 1 -W 2 -I 10.97.0.1 {own}");
    wait(
        "the site reaches a pod, which has a route back",
        LIMIT,
        || cluster.shell(&asks),
    )?;
    let third = address(cluster, "drive.net2")?;
    let said = wait("it has a third interface", LIMIT, || {
        cluster.exec("left", &format!("{ASK}{third}:8080/"))
    })?;
    ensure!(said == "drive", "{said}");
    Ok(())
}

/// What runs goes on without them, and with new ones.
fn the_databases_start_anew(cluster: &Cluster) -> Result<()> {
    let asks = format!(
        "{ASK}10.20.0.77:8080/ >/dev/null 2>&1 || echo lost >>/data/lost; echo asked >>/data/asked; sleep 0.1"
    );
    let until = format!("(while [ ! -e /data/stop ]; do {asks}; done) >/dev/null 2>&1 &");
    cluster.exec("left", &until)?;
    delete(cluster, "pod -n kube-system -l app=ovn-central")?;
    cluster.kubectl("-n kube-system rollout status deployment/ovn-central --timeout=120s")?;
    serve_on(cluster, "late", "node-1", "blue")?;
    let said = wait("a new pod reaches the others", LIMIT, || {
        cluster.exec("late", &format!("{ASK}10.20.0.2:8080/"))
    })?;
    ensure!(said == "left", "{said}");
    let counted = "touch /data/stop /data/lost; wc -l </data/lost; wc -l </data/asked";
    let counted = cluster.exec("left", counted)?;
    let mut counted = counted.split_whitespace().map(str::parse);
    let (Some(Ok(lost)), Some(Ok(asked))) = (counted.next(), counted.next()) else {
        anyhow::bail!("nothing was counted");
    };
    eprintln!("{lost} of {asked} requests were lost");
    let (lost, asked): (u32, u32) = (lost, asked);
    ensure!(asked > 20 && lost * 20 <= asked, "{lost} of {asked}");
    Ok(())
}

/// Each command of docs/demo-networks.md, as it stands there.
fn the_manual_says_how(cluster: &Cluster) -> Result<()> {
    let manual = std::fs::read_to_string(find_source()?.join("docs/demo-networks.md"))?;
    let blocks = manual.split("```sh\n").skip(1);
    let mut said = String::new();
    for block in blocks {
        let script = block.split("```").next().unwrap_or_default();
        said.push_str(&cluster.shell(script)?);
    }
    // Which of the two pods asks first is not said.
    for part in [
        "net1@",
        " 10.20.0.",
        "net2@",
        " 10.98.0.10",
        "net3@",
        " 10.9.0.",
        "/28",
        "default/of-the-site",
    ] {
        ensure!(said.contains(part), "{part} is not in: {said}");
    }
    Ok(())
}

fn nothing_is_left(cluster: &Cluster) -> Result<()> {
    wait("the ports have gone", LIMIT, || {
        let ports = cluster.kubectl("get logicalports -o name")?;
        ensure!(ports.is_empty(), "{ports}");
        Ok(())
    })?;
    for table in [
        "Logical_Switch",
        "Logical_Switch_Port",
        "ACL",
        "DHCP_Options",
    ] {
        wait("OVN's database is empty", LIMIT, || {
            let words = "exec -n kube-system deployment/ovn-central -c northbound -- ovn-nbctl --db=unix:/run/ovn/nb.sock --bare --columns=_uuid list";
            let left = cluster.kubectl(&format!("{words} {table}"))?;
            ensure!(left.trim().is_empty(), "{table}: {left}");
            Ok(())
        })?;
    }
    let definitions = cluster.kubectl("get network-attachment-definitions -o name")?;
    ensure!(
        !definitions.contains("blue") && !definitions.contains("storage"),
        "{definitions}"
    );
    cluster
        .command("helm", ["uninstall", "ovn", "--wait"])
        .map(drop)
}
