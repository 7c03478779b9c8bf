//! The box's other NIC: systemd-networkd makes it what site.yaml says, a DHCP server there is dnsmasq, and people come by curl.

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use firstlight_api::status::{DhcpMode, UplinkStatus};

use super::{
    common::isolated,
    every::apart,
    needs,
    segment::{Running, Server, Stick, run, status, wait_for, wait_for_dhcp},
};

const RULES: &str = "../overlays/box/etc/firstlight/firewall.nft";

/// The cable from `fl-out` of the box to `fl-world` there.
fn lay() -> Server {
    let world = Server::alone();
    let ends = [
        "link", "add", "name", "fl-out", "type", "veth", "peer", "name", "fl-world", "netns",
    ];
    run("ip", &[&ends[..], &[&world.pid()]].concat());
    world.run("ip", &["address", "add", "192.0.2.1/24", "dev", "fl-world"]);
    world.run("ip", &["link", "set", "fl-world", "up"]);
    world
}

/// What a site has: an address, a router, a name server and a clock for whoever asks.
fn dhcp_server(world: &Server, range: &str) -> Running {
    let server = world
        .command("dnsmasq")
        .args([
            "--no-daemon",
            "--port=0",
            "--conf-file=/dev/null",
            "--interface=fl-world",
        ])
        .arg("--dhcp-leasefile=/run/world.leases")
        .args([
            &format!("-F{range},255.255.255.0"),
            "-O3,192.0.2.1",
            "-O6,192.0.2.53",
            "-O42,192.0.2.123",
        ])
        .stderr(Stdio::null())
        .spawn();
    Running(server.unwrap())
}

/// As the units of the box do it: what is written is loaded.
fn networkd(stick: &Stick) -> Running {
    let file = stick.path("run/firstlight/networkd/30-uplink.network");
    wait_for("files for systemd-networkd", || file.exists().then_some(()));
    let child = Command::new("/lib/systemd/systemd-networkd")
        .stderr(Stdio::null())
        .spawn();
    Running(child.unwrap())
}

fn stick(uplink: &str) -> Stick {
    for (program, package) in [
        ("systemd-networkd", "systemd"),
        ("dnsmasq", "dnsmasq-base"),
        ("nft", "nftables"),
        ("curl", "curl"),
    ] {
        needs(program, package);
    }
    let stick = Stick::new();
    apart(&stick);
    let site = format!("name: lab\nprovisioning: {{interface: fl-box}}\nuplink: {{{uplink}}}\n");
    stick.write("firstlight/site/site.yaml", site.as_bytes());
    fs::create_dir_all(stick.path("run/systemd")).unwrap();
    fs::create_dir_all(stick.path("run/firstlight/chrony")).unwrap();
    symlink("/run/systemd/netif", stick.path("run/systemd/netif")).unwrap();
    symlink(
        stick.path("run/firstlight/networkd"),
        "/run/systemd/network",
    )
    .unwrap();
    run("nft", &["-f", RULES]);
    run("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
    stick
}

fn uplink() -> UplinkStatus {
    wait_for("the uplink", || {
        let uplink = status()?.network.uplink?;
        uplink.address.is_some().then_some(uplink)
    })
}

fn fetch(from: &Server, url: &str) -> String {
    let output = from
        .command("curl")
        .args(["-s", "--max-time", "5", "-w", "%{http_code}", url])
        .output();
    String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
}

#[test]
fn people_reach_the_page_by_the_uplink_and_servers_go_out() {
    isolated(
        "uplink::people_reach_the_page_by_the_uplink_and_servers_go_out",
        || {
            let (server, world) = (Server::connect(), lay());
            let stick = stick("nic: fl-out, routing: nat");
            let _dhcp = dhcp_server(&world, "192.0.2.50,192.0.2.50");
            let _agent = stick.start_agent();
            let _networkd = networkd(&stick);
            let uplink = uplink();
            assert_eq!(
                (uplink.interface.as_deref(), uplink.address.as_deref()),
                (Some("fl-out"), Some("192.0.2.50/24"))
            );
            // networkd says what it was told a moment after the address is there.
            let read = |path: &str| {
                wait_for(path, || {
                    let text = fs::read_to_string(stick.path(path)).ok()?;
                    (!text.is_empty()).then_some(text)
                })
            };
            assert_eq!(
                read("run/firstlight/resolv.conf"),
                "nameserver 192.0.2.53\n"
            );
            assert_eq!(
                read("run/firstlight/chrony/uplink.sources"),
                "server 192.0.2.123 iburst\n"
            );

            // People see the page, and nothing that servers boot from.
            let page = wait_for("the page", || {
                Some(fetch(&world, "http://192.0.2.50/")).filter(|text| text.ends_with("200"))
            });
            assert!(page.contains("lab"), "{page}");
            for path in [
                "boot/kernel",
                "images/node.qcow2",
                "vmlinuz",
                "api/v1/artifacts",
            ] {
                let answer = fetch(&world, &format!("http://192.0.2.50/{path}"));
                assert!(answer.ends_with("404"), "{path}: {answer}");
            }
            world.run(
                "ip",
                &["route", "add", "172.22.0.0/24", "via", "192.0.2.50"],
            );
            assert_eq!(fetch(&world, "http://172.22.0.1/"), "000");

            // A server is told the way out, and takes it.
            wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
            let script = stick.path("script");
            stick.write(
            "script",
            b"#!/bin/sh\n[ \"$1\" = bound ] || exit 0\nip address add $ip/$mask dev fl-host; ip route add default via $router\necho \"router=$router dns=$dns\"\n",
        );
            run("chmod", &["0755", script.to_str().unwrap()]);
            let told = server.dhcp(&script);
            assert_eq!(told.trim(), "router=172.22.0.1 dns=192.0.2.53");
            let _site = Running(
                world
                    .command("busybox")
                    .args([
                        "nc",
                        "-ll",
                        "-p",
                        "8000",
                        "-e",
                        "sh",
                        "-c",
                        "printf 'HTTP/1.0 200 OK\\r\\n\\r\\nhello '",
                    ])
                    .spawn()
                    .unwrap(),
            );
            wait_for("the world", || {
                Some(fetch(&server, "http://192.0.2.1:8000/"))
                    .filter(|text| text.starts_with("hello"))
            });
        },
    );
}

#[test]
fn an_uplink_has_the_address_of_site_yaml() {
    isolated("uplink::an_uplink_has_the_address_of_site_yaml", || {
        let (_server, world) = (Server::connect(), lay());
        let stick = stick(
            "nic: fl-out, address: 192.0.2.10/24, gateway: 192.0.2.1, mtu: 1400, ntp: [ntp.example]",
        );
        let _agent = stick.start_agent();
        let _networkd = networkd(&stick);
        let uplink = uplink();
        assert_eq!(uplink.address.as_deref(), Some("192.0.2.10/24"));
        wait_for("the page", || {
            Some(fetch(&world, "http://192.0.2.10/")).filter(|text| text.ends_with("200"))
        });
        let route = run("ip", &["route", "show", "default"]);
        assert!(route.contains("via 192.0.2.1 dev fl-out"), "{route}");
        let device = run("ip", &["link", "show", "fl-out"]);
        assert!(device.contains("mtu 1400"), "{device}");
        let sources = fs::read_to_string(stick.path("run/firstlight/chrony/uplink.sources"));
        assert_eq!(sources.unwrap(), "server ntp.example iburst\n");
        // The cable goes, and comes back.
        world.run("ip", &["link", "set", "fl-world", "down"]);
        wait_for("the missing link", || {
            let problems = status()?.problems;
            problems
                .into_iter()
                .find(|it| it.what == "the uplink has no link at fl-out")
        });
        world.run("ip", &["link", "set", "fl-world", "up"]);
        wait_for("the page again", || {
            Some(fetch(&world, "http://192.0.2.10/")).filter(|text| text.ends_with("200"))
        });
        let problems = status().unwrap().problems;
        assert!(
            problems.iter().all(|it| !it.what.contains("uplink")),
            "{problems:?}"
        );
    });
}

#[test]
fn an_uplink_that_is_not_there_is_told_with_what_is() {
    isolated(
        "uplink::an_uplink_that_is_not_there_is_told_with_what_is",
        || {
            let _server = Server::connect();
            let stick = stick("nic: enp9s0");
            let _agent = stick.start_agent();
            let told = wait_for("the problem", || {
                let problems = status()?.problems;
                problems.into_iter().find(|it| it.what.contains("enp9s0"))
            });
            assert!(told.what.contains("is not there; found"), "{told:?}");
            // The rest of the site does not wait for it.
            wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
        },
    );
}

#[test]
fn an_uplink_that_leads_into_the_sites_own_network_is_not_used() {
    isolated(
        "uplink::an_uplink_that_leads_into_the_sites_own_network_is_not_used",
        || {
            let (_server, world) = (Server::connect(), lay());
            world.run(
                "ip",
                &["address", "add", "172.22.0.2/24", "dev", "fl-world"],
            );
            let stick = stick("nic: fl-out");
            let _dhcp = dhcp_server(&world, "172.22.0.50,172.22.0.60");
            let _agent = stick.start_agent();
            let _networkd = networkd(&stick);
            let told = wait_for("the overlap", || {
                let problems = status()?.problems;
                problems
                    .into_iter()
                    .find(|it| it.what.contains("the uplink gives"))
            });
            assert!(told.what.contains("172.22.0.0/24"), "{told:?}");
            assert_eq!(status().unwrap().network.uplink.unwrap().address, None);
        },
    );
}
