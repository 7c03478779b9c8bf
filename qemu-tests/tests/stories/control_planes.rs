//! Three control planes, one of which dies: the cluster's API goes on at the same address, and with another disk the server takes its place
//! again.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::status::SiteStatus;
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::cluster::{Cluster, node_server, switch_on};
use qemu_tests::scene::{Scene, find_host};

use crate::bmc::field;

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
    let before = cluster.node_ids()?;
    replace(scene, lost)?;
    let new = cluster.node_ids()?.difference(&before).count();
    ensure!(new == 1, "{new} nodes are new");
    scene.nothing_leaked()
}

/// A person forgets the dead server as docs/clusters.md says, gives it another disk, and takes it back.
fn replace(scene: &mut Scene<'_>, lost: &ServerSpec) -> Result<()> {
    let mac = format_mac(lost.mac());
    let host = |status: &SiteStatus| find_host(status, &mac).cloned();
    let dead = host(scene.status()).context("the lost server is not listed")?;
    let dead = dead.name;
    let ssh = scene.box_ssh();
    let machine = field(&ssh, &dead, "spec.consumerRef.name")?;
    let by_force = "firstlight.internal/forget-host= machine.cluster.x-k8s.io/exclude-node-draining= \
                    machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach=";
    ssh.run(&format!(
        "sudo sh -ec 'kubectl annotate machine {machine} {by_force}; kubectl delete machine {machine} --wait=false
         kubectl annotate bmh {dead} baremetalhost.metal3.io/detached={{\"force\":true}}; kubectl delete bmh {dead} --wait=false'"
    ))?;
    scene.wait("its Machine is gone", Duration::from_mins(10), |_| {
        let left = ssh.run("sudo kubectl get machines -o name")?;
        Ok((!left.contains(&machine)).then_some(()))
    })?;
    scene.lab.replace_disk(lost)?;
    scene.switch_server_on(lost)?;
    let back = scene.wait_status("it is back", Duration::from_mins(10), |status| {
        host(status).filter(|host| !host.code.is_empty())
    })?;
    let (name, code) = (back.name, back.code);
    scene.wait("its object is there", Duration::from_mins(2), |_| {
        let word = format!("firstlight.internal/approve={code} firstlight.internal/install=blank");
        Ok(ssh
            .run(&format!(
                "sudo kubectl annotate --overwrite bmh {name} {word}"
            ))
            .ok())
    })?;
    scene.wait_status(
        "three control planes are Ready again",
        Duration::from_mins(30),
        |status| (status.clusters.first()?.control_planes_ready == 3).then_some(()),
    )
}
