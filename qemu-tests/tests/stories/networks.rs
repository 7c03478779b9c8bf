//! A server with a bond and one with a single NIC become a cluster on a tagged network, which is no network of the box.

use anyhow::{Context as _, Result, ensure};
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::cluster::{Cluster, node_server, nodes_ready, switch_on};
use qemu_tests::registry;
use qemu_tests::scene::Scene;
use qemu_tests::site::{CLUSTER_NETWORK, SERVER_CLUSTER_ADDRESS};

const IMAGE: &str = "apps/web:1";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let bonded = ServerSpec {
        second_nic: true,
        ..node_server(1, Firmware::Uefi)
    };
    let single = node_server(2, Firmware::Bios);
    switch_on(scene, &[bonded.clone(), single])?;
    nodes_ready(scene, 1, |_| ())?;

    let cluster = Cluster::connect(scene)?;
    let addresses = cluster.addresses()?;
    let inside = |address: &String| {
        let address = address.parse();
        address.is_ok_and(|address| CLUSTER_NETWORK.contains(address))
    };
    ensure!(
        addresses.len() == 2 && addresses.iter().all(inside),
        "nodes are known by {addresses:?}, and not on {CLUSTER_NETWORK}"
    );
    ensure!(
        addresses.contains(SERVER_CLUSTER_ADDRESS),
        "the address that site.yaml names is not among {addresses:?}"
    );
    scene.tell(format!("nodes are known by {addresses:?}"));
    registry::copy(&scene.box_ssh(), "kubernetes/coredns", IMAGE)?;
    cluster.run_web(scene, IMAGE, 2)?;

    a_cable_is_pulled(scene, &bonded)?;
    cluster.run_web(scene, IMAGE, 2)?;
    scene.nothing_leaked()
}

/// The NIC that it booted from: its address stays, on the other one.
fn a_cable_is_pulled(scene: &Scene<'_>, server: &ServerSpec) -> Result<()> {
    let ssh = scene.host_ssh(&format_mac(server.mac()))?;
    let state = || ssh.run("cat /proc/net/bonding/bond0");
    let bond = state()?;
    let active = |bond: &str| {
        let mut lines = bond.lines();
        let line = lines.find_map(|line| line.strip_prefix("Currently Active Slave: "));
        line.map(str::to_owned).context("no NIC is active")
    };
    let first = active(&bond)?;
    ensure!(
        bond.contains("fault-tolerance (active-backup)")
            && bond.matches("Slave Interface: ").count() == 2,
        "its bond is {bond}"
    );
    ssh.run(&format!("sudo ip link set {first} down"))?;
    let bond = state()?;
    let second = active(&bond)?;
    ensure!(second != first, "still by {first}: {bond}");
    scene.tell(format!("its bond goes on by {second} instead of {first}"));
    Ok(())
}
