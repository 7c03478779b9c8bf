//! The box's firewall between a pod, the site and Ironic, with real packets.
//!
//! Runs unprivileged in namespaces of its own, like `netns.rs`. Needs the Debian packages iproute2, nftables, busybox and python3.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::isolated;
use firstlight_agent::{
    network::firewall::{self, Endpoint, TABLE, Transport, restored, rules},
    uplink::firewall as uplink,
};
use firstlight_api::site::uplink::Routing;

const RULES: &str = "../overlays/box/etc/firstlight/firewall.nft";
const POD: &str = "100.64.2.5";
/// An address behind the box that no rule names.
const BEHIND: &str = "198.51.100.5";
const SITE: &str = "172.22.0.254";

/// Box in the middle, as on the real one: pods on the bridge `cni0`, the site on a wire.
const LINKS: &str = "
    set -eu
    ip link set lo up
    echo 1 > /proc/sys/net/ipv4/ip_forward
    ip link add cni0 type bridge
    ip link add veth1 type veth peer name pod netns $POD_PID
    ip link set veth1 master cni0 up
    ip address add 100.64.2.1/24 dev cni0
    ip link set cni0 up
    ip route add 198.51.100.5 dev cni0
    ip link add wire type veth peer name host netns $SITE_PID
    ip address add 172.22.0.1/24 dev wire
    ip link set wire up
    nft -f $RULES
";
const POD_LINKS: &str = "
    ip link set lo up
    ip address add 100.64.2.5/24 dev pod
    ip address add 198.51.100.5/32 dev pod
    ip link set pod up
    ip route add default via 100.64.2.1
";
/// A host that wants into the box's pods knows the way.
const SITE_LINKS: &str = "
    ip link set lo up
    ip address add 172.22.0.254/24 dev host
    ip link set host up
    ip route add default via 172.22.0.1
";

struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        // It says so once it is in its own namespace.
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec sleep infinity"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        Self(child)
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.0.id()))
            .args(["sh", "-c", script]);
        command
    }

    fn run(&self, script: &str) {
        assert!(self.command(script).status().unwrap().success(), "{script}");
    }

    /// Whether a TCP connection from here is answered by who listens there.
    fn reaches(&self, address: &str) -> bool {
        let script = format!("busybox nc -w 3 {address} 6443 </dev/null | grep -q welcome");
        self.command(&script).status().unwrap().success()
    }

    fn listen(&self) -> Namespace {
        let child = self
            .command("exec busybox nc -ll -p 6443 -e echo welcome")
            .spawn()
            .unwrap();
        let start = Instant::now();
        while !self.reaches("127.0.0.1") {
            assert!(start.elapsed() < Duration::from_mins(1), "nobody listens");
        }
        Self(child)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Both behind this namespace, which has the box's rules.
fn pod_and_site() -> (Namespace, Namespace) {
    let (pod, site) = (Namespace::new(), Namespace::new());
    let links = Command::new("sh")
        .args(["-c", LINKS])
        .env("POD_PID", pod.0.id().to_string())
        .env("SITE_PID", site.0.id().to_string())
        .env("RULES", RULES)
        .status();
    assert!(links.unwrap().success());
    pod.run(POD_LINKS);
    site.run(SITE_LINKS);
    (pod, site)
}

#[test]
fn only_pods_begin_a_connection_through_the_box() {
    isolated("only_pods_begin_a_connection_through_the_box", || {
        let (pod, site) = pod_and_site();
        let _servers = [pod.listen(), site.listen()];

        assert!(pod.reaches(SITE), "Cluster API reaches its clusters");
        assert!(!site.reaches(POD), "the site does not reach the box's pods");
        assert!(!site.reaches(BEHIND), "the box is nobody's router");
    });
}

/// The box's address is on the wire; the office is on another NIC of the same machine.
#[test]
fn what_the_box_serves_is_for_the_provisioning_network_only() {
    isolated(
        "what_the_box_serves_is_for_the_provisioning_network_only",
        || {
            let (office, site) = (Namespace::new(), Namespace::new());
            let file = tempfile::NamedTempFile::new().unwrap();
            let text = rules(
                [172, 22, 0, 1].into(),
                "wire",
                &BTreeSet::new(),
                &BTreeSet::new(),
            );
            // Twice: it replaces itself.
            std::fs::write(file.path(), text.repeat(2)).unwrap();
            let links = Command::new("sh")
                .args(["-c", LINKS])
                .env("POD_PID", office.0.id().to_string())
                .env("SITE_PID", site.0.id().to_string())
                .env("RULES", file.path())
                .status();
            assert!(links.unwrap().success());
            // As a second NIC, which is what the name makes it.
            let rename = "ip link set cni0 down; ip link set cni0 name office; ip link set office up; \
                ip address replace 100.64.2.1/24 dev office";
            let renamed = Command::new("sh").args(["-c", rename]).status();
            assert!(renamed.unwrap().success());
            office.run(POD_LINKS);
            site.run(SITE_LINKS);
            let listen = |port: u16| {
                Namespace(
                    Command::new("busybox")
                        .args([
                            "nc",
                            "-ll",
                            "-p",
                            &port.to_string(),
                            "-e",
                            "echo",
                            "welcome",
                        ])
                        .spawn()
                        .unwrap(),
                )
            };
            let _listeners = [listen(6443), listen(5000)];
            let reaches = |from: &Namespace, address: &str, port: u16| {
                let script =
                    format!("busybox nc -w 3 {address} {port} </dev/null | grep -q welcome");
                from.command(&script).status().unwrap().success()
            };
            let start = Instant::now();
            while !(reaches(&site, "172.22.0.1", 6443) && reaches(&site, "172.22.0.1", 5000)) {
                assert!(
                    start.elapsed() < Duration::from_mins(1),
                    "the site is served"
                );
            }
            assert!(!reaches(&office, "172.22.0.1", 6443), "by its address");
            assert!(
                !reaches(&office, "100.64.2.1", 5000),
                "the registry listens everywhere"
            );
            assert!(
                reaches(&office, "100.64.2.1", 6443),
                "what is not the box's stays open"
            );
        },
    );
}

const BOX: &str = "172.22.0.1";
/// The box's address on its provisioning network, and its NIC there.
type Provisioning = (&'static str, &'static str);
const ON_THE_WIRE: Provisioning = (BOX, "wire");
const ELSEWHERE: Provisioning = ("198.18.0.1", "other");

/// Takes whatever comes, says nothing, and goes when the other end does.
const PATIENT: &str = "
import socketserver
class Waits(socketserver.BaseRequestHandler):
    def handle(self): self.request.recv(1)
socketserver.ThreadingTCPServer(('', 5000), Waits).serve_forever()
";
/// Opens connections from each address until one is refused, 40 at most, says how many there are, and keeps them.
const GREEDY: &str = "
import socket, sys
kept = []
for address in sys.argv[1:]:
    for _ in range(40):
        try: kept.append(socket.create_connection(('172.22.0.1', 5000), 10, (address, 0)))
        except OSError: break
print(len(kept), flush=True)
sys.stdin.read()
";

/// Whether the registry's port takes a connection from this address of the site.
fn connects(site: &Namespace, from: &str) -> bool {
    let script =
        format!("import socket; socket.create_connection(('172.22.0.1', 5000), 3, ('{from}', 0))");
    let mut python = Command::new("nsenter");
    python.arg(format!("--net=/proc/{}/ns/net", site.0.id()));
    let ended = python.args(["python3", "-c", &script]).output();
    ended.unwrap().status.success()
}

/// Who listens there, and says nothing.
fn patient(site: &Namespace) -> Namespace {
    let mut server = Command::new("python3");
    let server = Namespace(server.args(["-c", PATIENT]).spawn().unwrap());
    let start = Instant::now();
    while !connects(site, SITE) {
        assert!(start.elapsed() < Duration::from_mins(1), "nobody listens");
    }
    server
}

/// Who takes what it gets from these addresses, and how much that was.
fn greedy(site: &Namespace, from: &[String]) -> (Namespace, u32) {
    let mut greedy = Command::new("nsenter");
    let net = format!("--net=/proc/{}/ns/net", site.0.id());
    greedy
        .args([net.as_str(), "python3", "-c", GREEDY])
        .args(from);
    let piped = greedy.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut greedy = Namespace(piped.spawn().unwrap());
    let mut told = String::new();
    let out = greedy.0.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut told).unwrap();
    (greedy, told.trim().parse().unwrap())
}

#[test]
fn one_address_takes_no_more_than_its_share_of_the_registry() {
    isolated(
        "one_address_takes_no_more_than_its_share_of_the_registry",
        || {
            let (_pod, site) = pod_and_site();
            load_as(902, ON_THE_WIRE, &BTreeSet::new());
            let _server = patient(&site);
            let (greedy, told) = greedy(&site, &[SITE.to_owned()]);
            let most = firewall::MOST_CONNECTIONS;
            // The last question may not have ended yet.
            assert!(told == most || told == most - 1, "{told}");
            assert!(!connects(&site, SITE), "its share is taken");
            site.run("ip address add 172.22.0.253/24 dev host");
            assert!(connects(&site, "172.22.0.253"), "everybody has one");
            drop(greedy);
            let start = Instant::now();
            while !connects(&site, SITE) {
                assert!(
                    start.elapsed() < Duration::from_mins(1),
                    "its share is free again"
                );
            }
        },
    );
}

#[test]
fn strangers_with_many_addresses_leave_places_to_servers() {
    isolated(
        "strangers_with_many_addresses_leave_places_to_servers",
        || {
            let (_pod, site) = pod_and_site();
            load_as(902, ON_THE_WIRE, &BTreeSet::new());
            let strangers: Vec<String> = (10..17).map(|n| format!("172.22.0.{n}")).collect();
            for address in strangers.iter().map(String::as_str).chain(["172.22.0.100"]) {
                site.run(&format!("ip address add {address}/24 dev host"));
            }
            let _server = patient(&site);
            let (_greedy, told) = greedy(&site, &strangers);
            let most = firewall::MOST_OF_STRANGERS;
            assert!(told == most || told == most - 1, "{told}");
            assert!(!connects(&site, SITE), "what strangers may have is taken");

            let admit = |servers: BTreeSet<_>| {
                let text = tempfile::NamedTempFile::new().unwrap();
                std::fs::write(text.path(), firewall::admission(&servers)).unwrap();
                said(&format!("nft -f {}", text.path().display()));
            };
            let server = "172.22.0.100";
            admit([server.parse().unwrap()].into());
            assert!(connects(&site, server), "a known server has its places");
            assert!(!connects(&site, SITE));
            admit(BTreeSet::new());
            assert!(!connects(&site, server), "it is a stranger again");
        },
    );
}

/// The rest of the customer's network, at the box's other NIC.
fn outside() -> Namespace {
    let outside = Namespace::new();
    let links = format!(
        "ip link add out type veth peer name world netns {} && ip address add 192.0.2.10/24 dev out && ip link set out up",
        outside.0.id()
    );
    said(&links);
    outside.run(
        "ip link set lo up; ip address add 192.0.2.1/24 dev world; ip link set world up; ip route add 172.22.0.0/24 via 192.0.2.10; \
         ip route add 100.64.0.0/16 via 192.0.2.10",
    );
    outside
}

#[test]
fn the_uplink_shows_the_page_ssh_and_clusters_and_nothing_else() {
    isolated(
        "the_uplink_shows_the_page_ssh_and_clusters_and_nothing_else",
        || {
            let (pod, site) = pod_and_site();
            let outside = outside();
            let mut openings = uplink::Openings {
                device: "out".to_owned(),
                routing: Routing::None,
                inside: Some(("wire".to_owned(), vec!["172.22.0.0/24".parse().unwrap()])),
                clusters: [(6443, format!("{SITE}:6443").parse().unwrap())].into(),
            };
            load_as(902, ON_THE_WIRE, &BTreeSet::new());
            let load = |openings: &uplink::Openings| {
                let rules = tempfile::NamedTempFile::new().unwrap();
                std::fs::write(rules.path(), uplink::rules(openings)).unwrap();
                said(&format!("nft -f {}", rules.path().display()));
            };
            load(&openings);
            let _servers = [pod.listen(), site.listen(), outside.listen()];
            let listen = |port: &str| {
                let mut nc = Command::new("busybox");
                nc.args(["nc", "-ll", "-p", port, "-e", "echo", "welcome"]);
                Namespace(nc.spawn().unwrap())
            };
            let _doors = ["22", "80", "5000", "6385", "8443"].map(listen);
            let reaches = |from: &Namespace, address: &str, port: &str| {
                let script =
                    format!("busybox nc -w 2 {address} {port} </dev/null | grep -q welcome");
                from.command(&script).status().unwrap().success()
            };
            let start = Instant::now();
            while !["22", "80"]
                .iter()
                .all(|port| reaches(&outside, "192.0.2.10", port))
            {
                assert!(
                    start.elapsed() < Duration::from_mins(1),
                    "the page and SSH are shown"
                );
            }
            assert!(outside.reaches("192.0.2.10"), "the cluster's API is shown");
            for port in ["5000", "6385", "8443"] {
                assert!(
                    !reaches(&outside, "192.0.2.10", port),
                    "{port} is not shown"
                );
            }
            let inside = [("172.22.0.1", "80"), (SITE, "6443"), (POD, "6443")];
            for (address, port) in inside {
                assert!(
                    !reaches(&outside, address, port),
                    "{address} is not reached from outside"
                );
            }
            assert!(
                !site.reaches("192.0.2.1"),
                "nobody said that servers go out"
            );
            assert!(reaches(&site, "172.22.0.1", "80"), "servers go on");

            openings.routing = Routing::Nat;
            load(&openings);
            assert!(site.reaches("192.0.2.1"), "servers go out");
            site.run("ip address add 172.23.0.254/24 dev host");
            let strange = "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 6443), 2, ('172.23.0.254', 0))\" 2>&1 | grep -q timed";
            site.run(strange);
            assert!(!site.reaches(POD), "out is not into the box's pods");
            assert!(!outside.reaches(SITE), "out is not in");
        },
    );
}

#[test]
fn rules_that_somebody_flushed_are_put_back() {
    isolated("rules_that_somebody_flushed_are_put_back", || {
        let bmcs = [endpoint(SITE, Transport::Tcp, 443)].into();
        load_as(902, ON_THE_WIRE, &bmcs);
        let ours = rules(BOX.parse().unwrap(), "wire", &bmcs, &BTreeSet::new());
        let restore = || restored(RULES, &ours, TABLE).unwrap();
        assert!(!restore(), "nothing is gone");
        let rules = said("nft list ruleset");
        for lost in [
            "nft flush ruleset",
            "nft delete table inet firstlight",
            "nft delete table inet firstlight_site",
        ] {
            said(lost);
            assert!(restore(), "{lost}");
            assert_eq!(said("nft list ruleset"), rules, "{lost}");
        }
    });
}

/// A namespace has one user, who plays Ironic's where `number` is 0.
fn load_as(number: u32, (address, interface): Provisioning, bmcs: &BTreeSet<Endpoint>) {
    let ours = std::fs::read_to_string(RULES).unwrap();
    let sites = rules(address.parse().unwrap(), interface, bmcs, &BTreeSet::new());
    let rules = tempfile::NamedTempFile::new().unwrap();
    let text = (ours + &sites)
        .replace("ironic = 902", &format!("ironic = {number}"))
        .replace("skuid 902", &format!("skuid {number}"));
    std::fs::write(rules.path(), text).unwrap();
    let loaded = Command::new("nft").arg("-f").arg(rules.path()).status();
    assert!(loaded.unwrap().success());
}

/// From this address of the box's own to that one.
type Way = (&'static str, &'static str, u16);
const ANY: &str = "0.0.0.0";

fn is_open((from, to, port): Way) -> bool {
    let script = format!(
        "import socket; print(socket.create_connection(('{to}', {port}), 3, ('{from}', 0)).recv(9))"
    );
    let output = Command::new("python3").args(["-c", &script]).output();
    output.unwrap().stdout.starts_with(b"b'welcome")
}

#[test]
fn ironic_reaches_no_door_that_is_the_operators() {
    isolated("ironic_reaches_no_door_that_is_the_operators", || {
        let (pod, site) = pod_and_site();
        let _servers = [pod.listen(), site.listen()];
        let listen = |port: &str| {
            let mut nc = Command::new("busybox");
            nc.args(["nc", "-ll", "-p", port, "-e", "echo", "welcome"]);
            Namespace(nc.spawn().unwrap())
        };
        let _doors = ["80", "5001", "6385", "6443"].map(listen);
        let operators: [Way; 8] = [
            (ANY, "127.0.0.1", 80),
            (ANY, "127.0.0.1", 5001),
            (ANY, "127.1.2.3", 6385),
            (ANY, BOX, 5001),
            // As somebody on loopback, to whom the page would listen.
            ("127.0.0.1", BOX, 80),
            (ANY, "100.64.2.1", 6443),
            (ANY, POD, 6443),
            (BOX, POD, 6443),
        ];
        let everybodys: [Way; 3] = [(ANY, BOX, 80), (ANY, BOX, 6385), (ANY, SITE, 6443)];

        load_as(902, ON_THE_WIRE, &BTreeSet::new());
        let start = Instant::now();
        for way in operators.into_iter().chain(everybodys) {
            while !is_open(way) {
                assert!(start.elapsed() < Duration::from_mins(1), "{way:?}");
            }
        }
        load_as(0, ON_THE_WIRE, &BTreeSet::new());
        for way in operators {
            assert!(!is_open(way), "{way:?}");
        }
        for way in everybodys {
            assert!(is_open(way), "{way:?}");
        }
        let answered = "busybox nc -w 3 172.22.0.1 6385 </dev/null | grep -q welcome";
        site.run(answered);
        load_as(0, ELSEWHERE, &BTreeSet::new());
        assert!(!is_open((ANY, SITE, 6443)), "another NIC of this machine");
    });
}

fn endpoint(host: &str, transport: Transport, port: u16) -> Endpoint {
    Endpoint::new(host, transport, port).unwrap()
}

/// Whether a datagram gets there and its answer back.
fn is_echoed(to: &str, port: u16) -> bool {
    let script = format!(
        "import socket; it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); it.settimeout(1); \
         it.connect(('{to}', {port})); it.send(b'ping'); assert it.recv(9) == b'ping'"
    );
    let output = Command::new("python3").args(["-c", &script]).output();
    output.unwrap().status.success()
}

const ECHO: &str = "
import socket
it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
it.bind(('', 623))
while True: it.sendto(*it.recvfrom(9))
";

/// The site's wire is another NIC here: what is on it is nothing to Ironic but for the BMCs that hosts name.
#[test]
fn ironic_reaches_the_bmcs_that_hosts_name_on_any_wire() {
    isolated(
        "ironic_reaches_the_bmcs_that_hosts_name_on_any_wire",
        || {
            let (_pod, site) = pod_and_site();
            let mut python = Command::new("nsenter");
            python.arg(format!("--net=/proc/{}/ns/net", site.0.id()));
            let echo = Namespace(python.args(["python3", "-c", ECHO]).spawn().unwrap());
            let mut here = Command::new("busybox");
            here.args(["nc", "-ll", "-p", "6443", "-e", "echo", "welcome"]);
            let _servers = [site.listen(), echo, Namespace(here.spawn().unwrap())];
            site.run("ip address add 172.22.0.253/24 dev host");
            let (tcp, another, local) = (
                (ANY, SITE, 6443),
                (ANY, "172.22.0.253", 6443),
                (ANY, BOX, 6443),
            );
            let start = Instant::now();
            while !([tcp, another, local].into_iter().all(is_open) && is_echoed(SITE, 623)) {
                assert!(start.elapsed() < Duration::from_mins(1), "nobody listens");
            }

            let load = |bmcs: &[Endpoint]| load_as(0, ELSEWHERE, &bmcs.iter().copied().collect());
            load(&[]);
            assert!(!is_open(tcp) && !is_echoed(SITE, 623), "nobody is named");
            load(&[endpoint(SITE, Transport::Tcp, 6443)]);
            assert!(is_open(tcp), "a BMC that speaks Redfish");
            assert!(!is_open(another), "its neighbour");
            assert!(!is_echoed(SITE, 623), "another protocol of it");
            load(&[
                endpoint(SITE, Transport::Udp, 623),
                // As a person wrote it who would have Ironic speak to the box itself.
                endpoint(BOX, Transport::Tcp, 6443),
            ]);
            assert!(is_echoed(SITE, 623), "a BMC that speaks IPMI");
            assert!(!is_open(tcp), "it is named no more");
            assert!(!is_open(local), "the box's own doors stay closed");
        },
    );
}

#[test]
fn the_user_of_ironic_has_the_number_that_the_rules_name() {
    let users = std::fs::read_to_string("../overlays/box/usr/lib/sysusers.d/firstlight.conf");
    let number = firewall::IRONIC;
    let user = format!("u firstlight-ironic {number}:{number} ");
    assert!(users.unwrap().contains(&user), "{user}");
    let rules = std::fs::read_to_string(RULES).unwrap();
    assert!(rules.contains(&format!("define ironic = {number}\n")));
}

/// "I am the way to everywhere" (RFC 4861, 4.2); the kernel adds the checksum.
const ADVERTISE: &str = "
import socket, struct
out = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
here = socket.if_nametoindex('host')
out.sendto(struct.pack('!BBHBBHII', 134, 0, 0, 64, 0, 1800, 0, 0), ('ff02::1', 0, 0, here))
";

fn said(script: &str) -> String {
    let output = Command::new("sh").args(["-euc", script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_server_believes_no_router() {
    isolated("a_server_believes_no_router", || {
        let stranger = Namespace::new();
        let pid = stranger.0.id();
        said(&format!(
            "ip link add nic type veth peer name host netns {pid}; ip link set nic up"
        ));
        stranger.run("ip link set host up");
        let advertise = || {
            let mut python = Command::new("nsenter");
            python.arg(format!("--net=/proc/{pid}/ns/net"));
            let ended = python.args(["python3", "-c", ADVERTISE]).output();
            ended.unwrap().status.success()
        };
        let router = || said("ip -6 route show default");
        let start = Instant::now();
        // Neither end may send before it knows that its address is its own.
        while !(advertise() && router().contains("proto ra")) {
            assert!(
                start.elapsed() < Duration::from_mins(1),
                "without the rule it is believed"
            );
        }
        said("ip -6 route flush proto ra");
        assert_eq!(router(), "");
        let rules = "../overlays/node/etc/firstlight/segment.nft";
        // Twice: it replaces itself.
        said(&format!("nft -f {rules}; nft -f {rules}"));
        assert!(advertise());
        // What the stranger sends after it has arrived, so it has, too.
        let mine =
            said("ip -6 -o address show dev nic scope link | awk '{print $4}' | cut -d/ -f1");
        stranger.run(&format!("busybox ping6 -c 1 -w 60 {mine}%host >/dev/null"));
        assert_eq!(router(), "");
    });
}
