//! A row of racks behind a router with dnsmasq as its relay agent.

use std::{
    fs,
    net::{Ipv4Addr, UdpSocket},
    process::Stdio,
    time::Duration,
};

use firstlight_api::status::DhcpMode;

use super::{
    common::isolated,
    needs,
    segment::{Running, Server, Stick, run, status, wait_for, wait_for_dhcp},
};

const SITE: &[u8] = b"name: lab
provisioning:
  interface: fl-box
  gateway: 172.22.0.254
  relayed:
  - {subnet: 10.9.0.0/24, range: 10.9.0.50-10.9.0.59, gateway: 10.9.0.1}
";

/// Between the box's segment and the row.
struct Row {
    router: Server,
    servers: Server,
}

impl Row {
    fn lay() -> Self {
        let (router, servers) = (Server::connect(), Server::alone());
        router.run(
            "ip",
            &["address", "add", "172.22.0.254/24", "dev", "fl-host"],
        );
        router.run(
            "ip",
            &[
                "link",
                "add",
                "name",
                "row",
                "type",
                "veth",
                "peer",
                "name",
                "fl-row",
                "netns",
                &servers.pid(),
            ],
        );
        router.run("ip", &["address", "add", "10.9.0.1/24", "dev", "row"]);
        router.run("ip", &["link", "set", "row", "up"]);
        router.run("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
        // A machine that somebody gave the first address of the row's range, and beside it a server.
        servers.run("ip", &["link", "set", "fl-row", "up"]);
        servers.run("ip", &["address", "add", "10.9.0.50/24", "dev", "fl-row"]);
        servers.run(
            "ip",
            &[
                "route", "add", "default", "via", "10.9.0.1", "metric", "100",
            ],
        );
        servers.run(
            "ip",
            &[
                "link", "add", "link", "fl-row", "name", "fl-two", "type", "macvlan", "mode",
                "bridge",
            ],
        );
        servers.run("ip", &["link", "set", "fl-two", "up"]);
        Self { router, servers }
    }

    fn relay(&self) -> Running {
        let relay = self
            .router
            .command("dnsmasq")
            .args([
                // Gives up no user, as there is no other one in here.
                "--no-daemon",
                "--conf-file=/dev/null",
                "--pid-file=",
                "--port=0",
                "--interface=row",
                "--interface=fl-host",
                "--bind-interfaces",
                "--dhcp-relay=10.9.0.1,172.22.0.1",
            ])
            .stderr(Stdio::null())
            .spawn();
        Running(relay.unwrap())
    }

    /// Says `message` to everybody on the box's segment, or to the box; what the box answers, if that is expected.
    fn say(&self, to: Ipv4Addr, message: Vec<u8>, answers: bool) -> Option<Vec<u8>> {
        self.router.inside(move || {
            let from = if answers { 68 } else { 0 };
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, from)).unwrap();
            socket.set_broadcast(true).unwrap();
            nix::sys::socket::setsockopt(
                &socket,
                nix::sys::socket::sockopt::BindToDevice,
                &"fl-host".into(),
            )
            .unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            for _ in 0..10 {
                socket.send_to(&message, (to, 67)).unwrap();
                let mut buffer = [0; 2048];
                match socket.recv(&mut buffer) {
                    _ if !answers => return None,
                    Ok(length) => return Some(buffer[..length].to_vec()),
                    Err(_) => {}
                }
            }
            panic!("the box does not answer");
        })
    }
}

/// A REQUEST of a client with `ciaddr`, as in RENEWING and REBINDING, or a DISCOVER through the relay agent `giaddr`.
fn message(kind: u8, ciaddr: [u8; 4], giaddr: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![1, 1, 6, 0, 1, 2, 3, 4, 0, 0, 0x80, 0];
    bytes.extend(ciaddr);
    bytes.extend([0; 8]);
    bytes.extend(giaddr);
    bytes.extend([0x52, 0x54, 0, 0, 0x77, 1]);
    bytes.resize(236, 0);
    bytes.extend([99, 130, 83, 99, 53, 1, kind, 255]);
    bytes
}

fn told(part: &str) -> String {
    wait_for(part, || {
        let problems = status()?.problems;
        let found = problems
            .into_iter()
            .find(|problem| problem.what.contains(part))?;
        Some(found.what)
    })
}

#[test]
fn a_server_behind_a_relay_agent_gets_an_address_of_its_row_and_boots() {
    isolated(
        "relay::a_server_behind_a_relay_agent_gets_an_address_of_its_row_and_boots",
        || {
            needs("dnsmasq", "dnsmasq-base");
            needs("atftp", "atftp");
            let (stick, row) = (Stick::new(), Row::lay());
            stick.write("firstlight/site/site.yaml", SITE);
            let _agent = stick.start_agent();
            wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
            let _relay = row.relay();
            // By ICMP, as nobody of the row hears the box's ARP.
            told("a machine uses 10.9.0.50");

            let script = stick.script();
            let lease = wait_for("a lease through the relay", || {
                let output = row
                    .servers
                    .command("busybox")
                    .args([
                        "udhcpc", "-i", "fl-two", "-f", "-q", "-n", "-t", "5", "-T", "1",
                    ])
                    .args(["-s", script.to_str().unwrap()])
                    .output()
                    .unwrap();
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                text.starts_with("ip=").then_some(text)
            });
            assert!(
                lease.starts_with("ip=10.9.0.51 mask=24 serverid=172.22.0.1 router=10.9.0.1 "),
                "{lease}"
            );
            let file = stick.path("out");
            let out = file.to_str().unwrap();
            let servers = &row.servers;
            servers.run("ip", &["address", "flush", "dev", "fl-row"]);
            servers.run("ip", &["address", "add", "10.9.0.51/24", "dev", "fl-two"]);
            servers.run("ip", &["route", "replace", "default", "via", "10.9.0.1"]);
            servers.run(
                "curl",
                &[
                    "-sf",
                    "-m",
                    "60",
                    "-o",
                    out,
                    "http://172.22.0.1/boot/kernel",
                ],
            );
            assert!(fs::read(&file).unwrap() == stick.kernel, "the kernel");
            fs::remove_file(&file).unwrap();
            servers.run(
                "atftp",
                &["--get", "-r", "undionly.kpxe", "-l", out, "172.22.0.1"],
            );
            assert!(fs::read(&file).unwrap() == stick.kernel[..100_000], "iPXE");
            // Ironic's door, and the box's own way back to a ramdisk there.
            let ironic = std::process::Command::new("busybox")
                .args(["httpd", "-f", "-p", "172.22.0.1:6385", "-h"])
                .arg(stick.dir.path())
                .spawn();
            let _ironic = Running(ironic.unwrap());
            wait_for("Ironic's door", || {
                let output = servers
                    .command("curl")
                    .args(["-s", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}"])
                    .arg("http://172.22.0.1:6385/")
                    .output()
                    .unwrap();
                (output.stdout == b"404").then_some(())
            });
            run("busybox", &["ping", "-c", "1", "-W", "20", "10.9.0.51"]);
        },
    );
}

#[test]
fn who_moved_to_the_boxs_segment_is_refused_and_a_row_that_nobody_wrote_down_is_told() {
    isolated(
        "relay::who_moved_to_the_boxs_segment_is_refused_and_a_row_that_nobody_wrote_down_is_told",
        || {
            let (stick, row) = (Stick::new(), Row::lay());
            stick.write("firstlight/site/site.yaml", SITE);
            let _agent = stick.start_agent();
            wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
            // REBINDING, by broadcast on the box's own segment, with an address of the row.
            let moved = message(3, [10, 9, 0, 55], [0; 4]);
            let answer = row.say(Ipv4Addr::BROADCAST, moved, true).unwrap();
            assert_eq!(answer[240..243], [53, 1, 6], "a refusal");
            let unknown = message(1, [0; 4], [10, 8, 0, 1]);
            row.say([172, 22, 0, 1].into(), unknown, false);
            let told = told("10.8.0.1");
            assert!(told.contains("`provisioning.relayed`"), "{told}");
        },
    );
}
