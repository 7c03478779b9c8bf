//! A third blank server beside a running cluster becomes its second worker; nobody else notices.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use imagebuilder::vm::Firmware;
use imagebuilder::vm::lab::BoxSpec;
use qemu_tests::cluster::{Cluster, node_server, nodes_ready};
use qemu_tests::figures;
use qemu_tests::scene::Scene;

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    scene.switch_box_on(BoxSpec::default())?;
    scene.wait_status("the box is ready", Duration::from_mins(4), |status| {
        status.ready.then_some(())
    })?;
    for server in [
        node_server(1, Firmware::Uefi),
        node_server(2, Firmware::Bios),
    ] {
        scene.switch_server_on(&server)?;
    }
    nodes_ready(scene, 1)?;

    let cluster = Cluster::connect(scene)?;
    let before = cluster.boots()?;
    let power_on = Instant::now();
    scene.switch_server_on(&node_server(3, Firmware::Bios))?;
    nodes_ready(scene, 2)?;
    figures::CLUSTER_SECOND_WORKER.record_time(power_on.elapsed())?;
    let after = cluster.boots()?;
    ensure!(
        after.len() == 3 && before.is_subset(&after),
        "another node was touched: {before:?} became {after:?}"
    );
    scene.nothing_leaked()
}
