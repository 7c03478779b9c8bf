//! A server with a bond and one with a single NIC become a cluster on a tagged network of both families of IP, which is no network of the box.
//! People reach page, box and cluster by the box's uplink, and the servers go out through it.

use std::net::Ipv6Addr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::status::HostState;
use ipnet::Ipv6Net;
use lab::wire::format_mac;
use lab::{Firmware, OFFICE_DOOR, OFFICE_GREETING, ServerSpec};
use qemu_tests::cluster::{Cluster, node_server, nodes_ready, switch_on};
use qemu_tests::registry;
use qemu_tests::scene::{Scene, host_in};
use qemu_tests::site::{
    CLUSTER_IPV6, CLUSTER_NETWORK, SERVER_ADDRESS, SERVER_CLUSTER_ADDRESS, SERVER_CLUSTER_IPV6,
};
use qemu_tests::ssh::Ssh;

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
    let ssh = scene.host_ssh(&mac)?;
    // kubeadm keeps its processor busy.
    scene.wait("a login on it", Duration::from_mins(1), |_| {
        Ok(ssh.run("true").ok())
    })?;
    is_bonded(scene, &bonded)?;
    nodes_ready(scene, 1, |_| ())?;

    let cluster = Cluster::connect(scene)?;
    let addresses = cluster.addresses()?;
    let ipv6: Ipv6Net = CLUSTER_IPV6.parse()?;
    let on_ipv4 = |address: &&String| {
        let address = address.parse();
        address.is_ok_and(|address| CLUSTER_NETWORK.contains(address))
    };
    let on_ipv6 = |address: &&String| {
        let address: Result<Ipv6Addr, _> = address.parse();
        address.is_ok_and(|address| ipv6.contains(&address))
    };
    let counts = [
        addresses.len(),
        addresses.iter().filter(on_ipv4).count(),
        addresses.iter().filter(on_ipv6).count(),
    ];
    ensure!(
        counts == [4, 2, 2],
        "nodes are known by {addresses:?}, and not by one address each on {CLUSTER_NETWORK} and on {CLUSTER_IPV6}"
    );
    for named in [SERVER_CLUSTER_ADDRESS, SERVER_CLUSTER_IPV6] {
        ensure!(
            addresses.contains(named),
            "{named}, which site.yaml names, is not among {addresses:?}"
        );
    }
    scene.tell(format!("nodes are known by {addresses:?}"));
    registry::copy(&scene.box_ssh(), "kubernetes/coredns", IMAGE)?;
    let answered = cluster.run_web(scene, IMAGE, 2)?;
    let in_both = answered.iter().filter(|address| address.is_ipv6());
    ensure!(
        answered.len() == 6 && in_both.count() == 3,
        "the service and its two pods have not one address of each family: {answered:?}"
    );
    scene.tell(format!("the service and its pods answer at {answered:?}"));

    by_the_uplink(scene, &cluster)?;
    servers_go_out(scene, &bonded)?;

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

/// As people do who have no cable in the rack.
fn by_the_uplink(scene: &mut Scene<'_>, cluster: &Cluster) -> Result<()> {
    let page = scene.by_uplink(80)?;
    let answer = |path: &str| {
        let url = format!("http://{page}{path}");
        said(
            "curl",
            &[
                "-s",
                "-m",
                "20",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                &url,
            ],
        )
    };
    let answers = [answer("/")?, answer("/boot/kernel")?, answer("/images/")?];
    ensure!(
        answers == ["200", "404", "404"],
        "page, kernel and images: {answers:?}"
    );
    let ssh = Ssh::new(scene.by_uplink(22)?, &scene.site().key);
    let ways = ssh.run("ip -brief -4 address show; cat /etc/resolv.conf; ip route show default")?;
    scene.tell(format!("the box by its uplink:\n{ways}"));
    for part in [
        "192.0.2.15/24",
        "nameserver 192.0.2.3",
        "default via 192.0.2.2",
    ] {
        ensure!(ways.contains(part), "no {part} in {ways}");
    }
    let api = scene.by_uplink(6443)?;
    let authority = scene.lab.dir().join("cluster.crt");
    std::fs::write(&authority, cluster.authority()?)?;
    let endpoint = scene
        .status()
        .clusters
        .first()
        .context("no cluster")?
        .endpoint
        .clone();
    let version = said(
        "curl",
        &[
            "-s",
            "-m",
            "60",
            "--cacert",
            &authority.to_string_lossy(),
            "--connect-to",
            &format!("{endpoint}:{api}"),
            &format!("https://{endpoint}/version"),
        ],
    )?;
    ensure!(
        version.contains("gitVersion"),
        "the API by the uplink: {version}"
    );
    scene.tell("page, SSH and the cluster's API answer by the uplink");
    Ok(())
}

fn said(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn servers_go_out(scene: &Scene<'_>, server: &ServerSpec) -> Result<()> {
    let ssh = scene.host_ssh(&format_mac(server.mac()))?;
    let (host, port) = OFFICE_DOOR.split_once(':').context("a port")?;
    let heard = ssh.run(&format!("timeout 20 bash -c 'cat </dev/tcp/{host}/{port}'"))?;
    ensure!(
        heard == OFFICE_GREETING,
        "the server hears {heard:?} from outside"
    );
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
