//! A server with a bond and one with a single NIC become a cluster on a tagged network, which is no network of the box.

use std::time::Duration;

use anyhow::{Result, ensure};
use firstlight_api::status::HostState;
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::cluster::{Cluster, node_server, nodes_ready, switch_on};
use qemu_tests::registry;
use qemu_tests::scene::{Scene, host_in};
use qemu_tests::site::{CLUSTER_NETWORK, SERVER_ADDRESS, SERVER_CLUSTER_ADDRESS};

const IMAGE: &str = "apps/web:1";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let bonded = ServerSpec {
        second_nic: true,
        ..node_server(1, Firmware::Uefi)
    };
    let single = node_server(2, Firmware::Bios);
    switch_on(scene, &[bonded.clone(), single])?;
    let mac = format_mac(bonded.mac());
    let what = "the first server runs with its networks";
    scene.wait_status(what, Duration::from_mins(12), |status| {
        host_in(status, &mac, HostState::Running).map(drop)
    })?;
    is_bonded(scene, &bonded)?;
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

fn is_bonded(scene: &Scene<'_>, server: &ServerSpec) -> Result<()> {
    let ssh = scene.host_ssh(&format_mac(server.mac()))?;
    let bond = ssh.run("cat /proc/net/bonding/bond0")?;
    ensure!(
        bond.contains("fault-tolerance (active-backup)")
            && bond.matches("Slave Interface: ").count() == 2,
        "its bond is {bond}"
    );
    let addresses = ssh.run("ip -brief -4 address show")?;
    scene.tell(format!("its addresses:\n{addresses}"));
    for (interface, address) in [
        ("bond0 ", SERVER_ADDRESS),
        ("bond0.20@bond0 ", SERVER_CLUSTER_ADDRESS),
    ] {
        let mut lines = addresses.lines();
        let is_there = |line: &str| line.starts_with(interface) && line.contains(address);
        ensure!(
            lines.any(is_there),
            "no {address} on {interface}: {addresses}"
        );
    }
    Ok(())
}

/// The NIC that it booted from: its address stays, on the other one.
fn a_cable_is_pulled(scene: &Scene<'_>, server: &ServerSpec) -> Result<()> {
    let ssh = scene.host_ssh(&format_mac(server.mac()))?;
    let active = || ssh.run("cat /sys/class/net/bond0/bonding/active_slave");
    let first = active()?.trim().to_owned();
    ssh.run(&format!("sudo ip link set {first} down"))?;
    let second = active()?.trim().to_owned();
    ensure!(!second.is_empty() && second != first, "still by {first}");
    scene.tell(format!("its bond goes on by {second} instead of {first}"));
    Ok(())
}
