//! Zero touch to a cluster, work on it, a worker that goes and comes back, and a power cut of the box in between.

use std::cell::Cell;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use firstlight_api::status::{ClusterMachine, ClusterStatus, HostState, HostStatus, SiteStatus};
use lab::wire::format_mac;
use lab::{BoxSpec, Firmware, ServerSpec};
use qemu_tests::cluster::{Cluster, node_server, nodes_ready, switch_on};
use qemu_tests::figures;
use qemu_tests::registry;
use qemu_tests::scene::{Scene, host_in};
use qemu_tests::site::NAME;

/// Of the image that the site's own people push.
const OWN_IMAGE: &str = "apps/web:1";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let servers = [
        node_server(1, Firmware::Uefi),
        node_server(2, Firmware::Bios),
    ];
    let power_on = switch_on(scene, &servers)?;
    let made = first_nodes_ready(scene, power_on)?;
    figures::CLUSTER_BOX_MEMORY.record(scene.box_memory()?)?;
    figures::CLUSTER_AGENT_MEMORY.record(scene.agent_memory()?)?;

    described(scene)?;
    let cluster = Cluster::connect(scene)?;
    registry::copy(&scene.box_ssh(), "kubernetes/coredns", OWN_IMAGE)?;
    scene.tell("an image was pushed to the box's registry");
    cluster.run_web(scene, OWN_IMAGE, 2)?;

    let worker = machine(&made, false)?;
    let worker = on_host(scene, worker, servers)?;
    let control_plane = cluster.node_ids()?;
    scale_in(scene, &worker)?;
    come_back_through_a_power_cut(scene, &worker)?;

    let cluster = Cluster::connect(scene)?;
    let kept = cluster.node_ids()?;
    let gone: Vec<_> = control_plane.difference(&kept).collect();
    ensure!(
        gone.len() == 1 && kept.len() == 2,
        "only the worker should be another node: {control_plane:?} became {kept:?}"
    );
    cluster.run_web(scene, OWN_IMAGE, 2)?;
    scene.nothing_leaked()
}

/// With the phases on the way, of which the first server may be further than the second.
fn first_nodes_ready(scene: &mut Scene<'_>, power_on: Instant) -> Result<ClusterStatus> {
    let has_data =
        |host: &HostStatus| matches!(host.state, HostState::Provisioned | HostState::Running);
    let has_system = |host: &HostStatus| host.state == HostState::Staged || has_data(host);
    let [staged, data, control_plane] = [const { Cell::new(None) }; 3];
    let note = |phase: &Cell<Option<Duration>>, is_so: bool| {
        if is_so && phase.get().is_none() {
            phase.set(Some(power_on.elapsed()));
        }
    };
    let made = nodes_ready(scene, 1, |status| {
        let hosts = &status.hosts;
        note(&staged, hosts.len() == 2 && hosts.iter().all(has_system));
        note(&data, hosts.iter().any(has_data));
        let cluster = status.clusters.first();
        note(
            &control_plane,
            cluster.is_some_and(|cluster| cluster.control_planes_ready == 1),
        );
    })?;
    figures::CLUSTER_READY.record_time(power_on.elapsed())?;
    for (figure, phase) in [
        (figures::CLUSTER_STAGED, staged),
        (figures::CLUSTER_DATA, data),
        (figures::CLUSTER_CONTROL_PLANE, control_plane),
    ] {
        figure.record_time(phase.get().context("a phase was not seen")?)?;
    }
    Ok(made)
}

/// As a person at the box asks; `agent/tests/cluster_api` looks closer.
fn described(scene: &Scene<'_>) -> Result<()> {
    let said = scene
        .box_ssh()
        .run(&format!("clusterctl describe cluster {NAME}"))?;
    ensure!(
        said.contains(&format!("Cluster default/{NAME} ")),
        "clusterctl does not know it: {said}"
    );
    scene.tell(format!("clusterctl describes the cluster:\n{said}"));
    Ok(())
}

fn machine(cluster: &ClusterStatus, control_plane: bool) -> Result<&ClusterMachine> {
    cluster
        .machines
        .iter()
        .find(|machine| machine.control_plane == control_plane)
        .with_context(|| format!("no such machine: {cluster:#?}"))
}

/// The server that a machine is on, with the name of its host.
fn on_host(
    scene: &Scene<'_>,
    machine: &ClusterMachine,
    servers: [ServerSpec; 2],
) -> Result<(String, ServerSpec)> {
    let host = scene
        .status()
        .hosts
        .iter()
        .find(|host| host.name == machine.host)
        .with_context(|| format!("no host {}", machine.host))?;
    let server = servers
        .into_iter()
        .find(|server| format_mac(server.mac()).eq_ignore_ascii_case(&host.mac));
    Ok((host.name.clone(), server.context("no server of that MAC")?))
}

fn host_is(status: &SiteStatus, server: &ServerSpec, state: HostState) -> Option<()> {
    host_in(status, &format_mac(server.mac()), state).map(drop)
}

/// The worker leaves, and its disk is clean afterwards. Its host is told to be off, or it would get the image again at once.
fn scale_in(scene: &mut Scene<'_>, (host, server): &(String, ServerSpec)) -> Result<()> {
    let ssh = scene.box_ssh();
    ssh.run(&format!(
        "sudo kubectl patch bmh {host} --type merge -p '{{\"spec\":{{\"online\":false}}}}'"
    ))?;
    ssh.run("sudo kubectl scale machinedeployment tests-workers --replicas=0")?;
    scene.wait_status(
        "the worker's host is cleaned",
        Duration::from_mins(6),
        |status| {
            let alone = status.clusters.first()?.machines.len() == 1;
            alone
                .then(|| host_is(status, server, HostState::Available))
                .flatten()
        },
    )?;
    scene.switch_server_off(server)?;
    let disk = scene.lab.dir().join("cleaned.raw");
    scene.lab.copy_disk(server, &disk)?;
    let found = Command::new("wipefs")
        .args(["--no-act", "--parsable"])
        .arg(&disk)
        .output()
        .context("starting wipefs (package util-linux)")?;
    ensure!(
        found.status.success() && found.stdout.is_empty(),
        "the worker's disk is not clean: {found:?}"
    );
    scene.tell("the worker's disk has no signature");
    Ok(())
}

fn come_back_through_a_power_cut(
    scene: &mut Scene<'_>,
    (host, server): &(String, ServerSpec),
) -> Result<()> {
    let ssh = scene.box_ssh();
    ssh.run(&format!(
        "sudo kubectl patch bmh {host} --type merge -p '{{\"spec\":{{\"online\":true}}}}'"
    ))?;
    ssh.run("sudo kubectl scale machinedeployment tests-workers --replicas=1")?;
    scene.switch_server_on(server)?;
    scene.wait_for_write(&format_mac(server.mac()), Duration::from_mins(5))?;
    scene.cut_box_power()?;
    scene.switch_box_on(&BoxSpec::default())?;
    scene.wait_status("the box is ready again", Duration::from_mins(5), |status| {
        status.ready.then_some(())
    })?;
    nodes_ready(scene, 1, |_| ()).map(drop)
}
