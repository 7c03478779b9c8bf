//! A third blank server beside a running cluster becomes its second worker; nobody else notices.

use std::time::Instant;

use anyhow::{Result, ensure};
use lab::Firmware;
use qemu_tests::cluster::{Cluster, node_server, nodes_ready, two_nodes};
use qemu_tests::figures;
use qemu_tests::scene::Scene;

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    two_nodes(scene)?;

    let cluster = Cluster::connect(scene)?;
    let before = cluster.boots()?;
    let power_on = Instant::now();
    scene.switch_server_on(&node_server(3, Firmware::Bios))?;
    nodes_ready(scene, 2, |_| ())?;
    figures::CLUSTER_SECOND_WORKER.record_time(power_on.elapsed())?;
    let after = cluster.boots()?;
    ensure!(
        after.len() == 3 && before.is_subset(&after),
        "another node was touched: {before:?} became {after:?}"
    );
    scene.nothing_leaked()
}
