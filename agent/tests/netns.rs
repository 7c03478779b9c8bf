//! The agent on a segment with real clients: `udhcpc`, `atftp`, `curl`, and `udhcpd` as the stranger.
//!
//! Runs unprivileged: the test starts itself again in user, network, mount and PID namespaces of its own, which take
//! everything with them when they end. Needs the Debian packages busybox, atftp, curl and iproute2.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/segment.rs"]
#[allow(dead_code, reason = "netboot_clients.rs uses the rest")]
mod segment;

use std::{fs, process::Stdio, time::Instant};

use common::isolated;
use firstlight_api::status::{DhcpMode, SiteStatus, StepState};
use segment::{MAC, Running, Server, Stick, run, status, wait_for, wait_for_dhcp};

#[test]
fn a_client_gets_an_address_and_its_boot_files_and_keeps_the_address_after_a_power_cut() {
    isolated(
        "a_client_gets_an_address_and_its_boot_files_and_keeps_the_address_after_a_power_cut",
        || {
            let (stick, server) = (Stick::new(), Server::connect());
            let started = Instant::now();
            let agent = stick.start_agent();
            wait_for("the page", status);
            let page = started.elapsed();
            let ready = wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
            eprintln!("page after {page:?}, DHCP after {:?}", started.elapsed());
            assert_eq!(
                (ready.site.as_str(), ready.network.interface.as_str()),
                ("lab", "fl-box")
            );
            for step in ["site", "state", "network", "pki", "dhcp"] {
                let state = &ready
                    .bring_up
                    .iter()
                    .find(|other| other.name == step)
                    .unwrap()
                    .state;
                assert!(matches!(state, StepState::Done { .. }), "{step}: {state:?}");
            }

            let script = stick.script();
            let lease = server.dhcp(&script);
            assert!(
                lease.starts_with("ip=172.22.0.100 mask=24 serverid=172.22.0.1 router= "),
                "{lease}"
            );
            assert!(
                fs::read_to_string(stick.path("var/lib/firstlight/agent/leases.log"))
                    .unwrap()
                    .contains(MAC)
            );

            server.run(
                "ip",
                &["address", "add", "172.22.0.100/24", "dev", "fl-host"],
            );
            let (file, out) = (stick.path("out"), stick.path("out"));
            let out = out.to_str().unwrap();
            server.run("curl", &["-sf", "-o", out, "http://172.22.0.1/boot/kernel"]);
            assert!(
                fs::read(&file).unwrap() == stick.kernel,
                "the kernel by HTTP"
            );
            server.run(
                "atftp",
                &[
                    "--option",
                    "blksize 1428",
                    "--get",
                    "-r",
                    "undionly.kpxe",
                    "-l",
                    out,
                    "172.22.0.1",
                ],
            );
            assert!(
                fs::read(&file).unwrap() == stick.kernel[..100_000],
                "iPXE by TFTP"
            );
            server.run(
                "atftp",
                &["--get", "-r", "/grub/grub.cfg", "-l", out, "172.22.0.1"],
            );
            assert!(fs::read_to_string(&file).unwrap().contains("mac-"));
            let ipxe = server.run(
                "curl",
                &["-sf", &format!("http://172.22.0.1/boot/ipxe?mac={MAC}")],
            );
            assert!(
                ipxe.contains("ipa-api-url=https://172.22.0.1:6385 firstlight.ca=sha256:"),
                "{ipxe}"
            );
            let ca = server.run("curl", &["-sf", "http://172.22.0.1/boot/ca.pem"]);
            assert!(ca.starts_with("-----BEGIN CERTIFICATE-----"), "{ca}");
            server.run("ip", &["address", "flush", "dev", "fl-host"]);

            // A power cut: no signal, no clean-up.
            drop(agent);
            let _agent = stick.start_agent();
            wait_for_dhcp("DHCP after the power cut", |mode| {
                *mode == DhcpMode::Serving
            });
            assert!(server.dhcp(&script).starts_with("ip=172.22.0.100 "));
            assert_eq!(
                ca,
                run("curl", &["-sf", "http://127.0.0.1/boot/ca.pem"]),
                "the site keeps its CA"
            );
        },
    );
}

#[test]
fn an_address_in_use_is_not_leased() {
    isolated("an_address_in_use_is_not_leased", || {
        let (stick, server) = (Stick::new(), Server::connect());
        // Somebody configured the first address of the range by hand.
        server.run(
            "ip",
            &["address", "add", "172.22.0.100/24", "dev", "fl-host"],
        );
        server.run(
            "ip",
            &[
                "link", "add", "link", "fl-host", "name", "fl-two", "type", "macvlan", "mode",
                "bridge",
            ],
        );
        server.run("ip", &["link", "set", "fl-two", "up"]);
        let _agent = stick.start_agent();
        wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
        let script = stick.script();
        let script = script.to_str().unwrap();
        let lease = server.run(
            "busybox",
            &[
                "udhcpc", "-i", "fl-two", "-f", "-q", "-n", "-t", "10", "-T", "1", "-s", script,
            ],
        );
        assert!(lease.starts_with("ip=172.22.0.101 "), "{lease}");
    });
}

#[test]
fn an_installed_agent_leaves_a_nic_in_use_alone_and_takes_it_when_it_is_free() {
    isolated(
        "an_installed_agent_leaves_a_nic_in_use_alone_and_takes_it_when_it_is_free",
        || {
            let (stick, _server) = (Stick::new(), Server::connect());
            let office = "192.168.7.5/24";
            run("ip", &["address", "add", office, "dev", "fl-box"]);
            let _agent = stick.start_agent_with(&["--installed"]);
            let status = wait_for("the refusal", || {
                status().filter(|status| {
                    status.bring_up.iter().any(|step| {
                        matches!(&step.state, StepState::Failed { problem, .. } if problem.what.contains("192.168.7.5"))
                    })
                })
            });
            assert_eq!(status.network.dhcp, DhcpMode::Off);
            let there = run("ip", &["-4", "-o", "address", "show", "dev", "fl-box"]);
            assert!(
                there.contains(office) && !there.contains("172.22.0.1"),
                "{there}"
            );
            run("ip", &["address", "del", office, "dev", "fl-box"]);
            wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
        },
    );
}

#[test]
fn two_boxes_with_one_address_notice_each_other_and_the_newcomer_serves_nothing() {
    isolated(
        "two_boxes_with_one_address_notice_each_other_and_the_newcomer_serves_nothing",
        || {
            let (stick, server) = (Stick::new(), Server::connect());
            let first = stick.start_agent();
            wait_for_dhcp("DHCP of the first box", |mode| *mode == DhcpMode::Serving);

            // A second stick in the server at the other end of the cable.
            let copy = Stick::new();
            copy.write(
                "firstlight/site/site.yaml",
                b"name: copy\nprovisioning: {interface: fl-host}\n",
            );
            server.run("ip", &["link", "set", "lo", "up"]);
            server.run("ip", &["link", "add", "name", "box0", "type", "bridge"]);
            let second = server
                .command(env!("CARGO_BIN_EXE_firstlight-agent"))
                .arg("--root")
                .arg(copy.dir.path())
                .stdout(Stdio::null())
                .spawn();
            let _second = Running(second.unwrap());
            let status_there = || {
                let output = server
                    .command("curl")
                    .args(["-sf", "http://127.0.0.1/api/v1/status"])
                    .output()
                    .unwrap();
                serde_json::from_slice::<SiteStatus>(&output.stdout).ok()
            };
            let refusal = wait_for("the newcomer's refusal", || {
                status_there()?
                    .bring_up
                    .iter()
                    .find_map(|step| match &step.state {
                        StepState::Failed { problem, .. } if step.name == "network" => {
                            Some(problem.clone())
                        }
                        _ => None,
                    })
            });
            assert!(
                refusal.what.contains("has this box's address 172.22.0.1"),
                "{refusal:?}"
            );
            assert!(refusal.next.contains("switch one of the two off"));
            let there = server.run("ip", &["-4", "-o", "address", "show", "dev", "fl-host"]);
            assert!(!there.contains("172.22.0.1"), "{there}");
            assert_eq!(status_there().unwrap().network.dhcp, DhcpMode::Off);
            // The first one goes on, and both say so when a machine takes the address all the same.
            assert_eq!(status().unwrap().network.dhcp, DhcpMode::Serving);
            server.run("ip", &["address", "add", "172.22.0.1/24", "dev", "fl-host"]);
            server.run(
                "busybox",
                &["arping", "-U", "-c", "1", "-I", "fl-host", "172.22.0.1"],
            );
            let told = wait_for("the problem on the page of the first box", || {
                status()?
                    .problems
                    .into_iter()
                    .find(|problem| problem.what.contains("has this box's address"))
            });
            assert!(told.what.contains(MAC), "{told:?}");
            server.run("ip", &["address", "del", "172.22.0.1/24", "dev", "fl-host"]);

            // It goes, and the other takes its place.
            drop(first);
            run("ip", &["address", "flush", "dev", "fl-box"]);
            wait_for("DHCP of the second box", || {
                status_there().filter(|status| status.network.dhcp == DhcpMode::Serving)
            });
        },
    );
}

/// A DHCP server on the segment that is not the box's.
fn stranger(stick: &Stick, server: &Server) -> Running {
    server.run(
        "ip",
        &["address", "add", "172.22.0.254/24", "dev", "fl-host"],
    );
    let leases = stick.path("udhcpd.leases");
    fs::write(&leases, "").unwrap();
    let config = format!(
        "start 172.22.0.60\nend 172.22.0.70\ninterface fl-host\nlease_file {}\npidfile {}\noption subnet 255.255.255.0\n",
        leases.display(),
        stick.path("udhcpd.pid").display()
    );
    stick.write("udhcpd.conf", config.as_bytes());
    let stranger = server
        .command("busybox")
        .args(["udhcpd", "-f"])
        .arg(stick.path("udhcpd.conf"))
        .stderr(Stdio::null())
        .spawn();
    Running(stranger.unwrap())
}

#[test]
fn beside_another_dhcp_server_the_box_leases_nothing() {
    isolated("beside_another_dhcp_server_the_box_leases_nothing", || {
        let (stick, server) = (Stick::new(), Server::connect());
        let _stranger = stranger(&stick, &server);
        let _agent = stick.start_agent();
        let status = wait_for_dhcp("an answer", |mode| {
            matches!(mode, DhcpMode::Silent { .. } | DhcpMode::Serving)
        });
        assert_eq!(
            status.network.dhcp,
            DhcpMode::Silent {
                server: "172.22.0.254".into()
            }
        );
        let told = wait_for("the problem on the page", || {
            crate::status().filter(|status| !status.problems.is_empty())
        });
        assert!(
            told.problems[0]
                .what
                .contains("172.22.0.254 leases addresses"),
            "{:?}",
            told.problems
        );
    });
}

#[test]
fn a_cable_that_is_moved_to_another_network_silences_the_box() {
    isolated(
        "a_cable_that_is_moved_to_another_network_silences_the_box",
        || {
            let (stick, server) = (Stick::new(), Server::connect());
            let _agent = stick.start_agent();
            wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
            let lease = server.dhcp(&stick.script());
            assert!(lease.starts_with("ip=172.22.0.100 "), "{lease}");

            server.run("ip", &["link", "set", "fl-host", "down"]);
            server.run("ip", &["link", "set", "fl-host", "up"]);
            let _stranger = stranger(&stick, &server);
            wait_for_dhcp("silence", |mode| {
                *mode
                    == DhcpMode::Silent {
                        server: "172.22.0.254".into(),
                    }
            });
            let told = wait_for("the problem on the page", || {
                let problems = crate::status()?.problems;
                problems
                    .into_iter()
                    .find(|it| it.what.contains("answers no server there"))
            });
            assert!(
                told.next.contains("wrong port") && told.next.contains("dhcp: proxy"),
                "{told:?}"
            );
        },
    );
}
