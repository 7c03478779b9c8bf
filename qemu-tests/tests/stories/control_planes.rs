//! Three control planes, one of which loses its power: the cluster's API goes on at the same address.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::Firmware;
use lab::wire::format_mac;
use qemu_tests::cluster::{Cluster, node_server, switch_on};
use qemu_tests::scene::Scene;

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let servers = [
        node_server(1, Firmware::Uefi),
        node_server(2, Firmware::Bios),
        node_server(3, Firmware::Bios),
    ];
    switch_on(scene, &servers)?;
    scene.wait_status(
        "three control planes are Ready",
        Duration::from_mins(30),
        |status| (status.clusters.first()?.control_planes_ready == 3).then_some(()),
    )?;

    let cluster = Cluster::connect(scene)?;
    let holder = cluster.endpoint_holder(scene)?;
    let lost = servers
        .iter()
        .find(|server| format_mac(server.mac()) == holder)
        .with_context(|| format!("{holder} has the endpoint and is none of the servers"))?;
    scene.cut_server_power(lost)?;
    scene.wait(
        "the API answers and keeps what it is told",
        Duration::from_mins(5),
        |_| {
            let made = cluster.kubectl("create configmap kept --from-literal=after=loss");
            Ok(made.ok())
        },
    )?;
    let heir = cluster.endpoint_holder(scene)?;
    ensure!(
        heir != holder,
        "{holder} has no power and still holds the endpoint"
    );
    scene.wait_status(
        "the page tells of two that are Ready",
        Duration::from_mins(10),
        |status| (status.clusters.first()?.control_planes_ready == 2).then_some(()),
    )?;
    scene.nothing_leaked()
}
