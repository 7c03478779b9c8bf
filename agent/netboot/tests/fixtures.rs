//! Captures of real firmware, and the exact answers to them.
//!
//! `golden/replies/NAME.txt` shows each answer field by field, from its bytes. To add a client: put its capture into
//! `fixtures/` (first line: where it comes from), run with `UPDATE_GOLDEN=1`, and read what was written.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that reads files"
)]

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use firstlight_netboot::{
    BootOffer, ClientArch, Decision, DhcpConfig, DhcpRole, DhcpSpec, ForeignServer, LeaseTable,
    Listener, Now, Origin, Reason, Reply, Request, Server,
};
use proptest::prelude::*;

const NAMES: [&str; 6] = [
    "ipxe-1.21.1-snponly-efi64",
    "ipxe-1.21.1-undionly-pcbios",
    "ipxe-qemurom-pcbios",
    "linux-klibc-ipconfig",
    "ovmf-2025.02-httpboot-x64",
    "ovmf-2025.02-pxe-x64",
];

/// Whole packets, of which nothing is answered.
const BY_IPV6: [&str; 2] = [
    "ovmf-2022.11-pxe-x64-ipv6-solicit",
    "ovmf-2022.11-httpboot-x64-ipv6-solicit",
];

fn fixture(name: &str) -> Vec<u8> {
    let text = std::fs::read_to_string(format!("fixtures/{name}.hex")).unwrap();
    assert!(text.starts_with("# "), "{name} names its origin");
    let digits: String = text.lines().skip(1).collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

/// A box at the address of the one that the captures were made with, so that the requests fit its offers.
fn server(side: Side) -> Server {
    let mut spec = DhcpSpec::for_box("192.168.77.1/24".parse().unwrap(), 80);
    spec.subnets[0].range = firstlight_netboot::AddressRange::new(
        Ipv4Addr::new(192, 168, 77, 100),
        Ipv4Addr::new(192, 168, 77, 150),
    )
    .unwrap();
    spec.role = match side {
        Side::Lease => DhcpRole::Serve,
        Side::Proxy => DhcpRole::Proxy,
    };
    let mut server = Server::new(DhcpConfig::new(spec).unwrap(), LeaseTable::default());
    match side {
        Side::Lease => server.silence(now()),
        Side::Proxy => server.foreign_seen(
            ForeignServer {
                server: Ipv4Addr::new(192, 168, 77, 2),
                offered: Ipv4Addr::new(192, 168, 77, 50),
            },
            now(),
        ),
    };
    server
}

/// What the box does on the segment.
#[derive(Clone, Copy)]
enum Side {
    Lease,
    Proxy,
}

fn handle(server: &mut Server, datagram: &[u8], listener: Listener) -> Decision {
    let origin = Origin {
        listener,
        source: Ipv4Addr::UNSPECIFIED,
        destination: Ipv4Addr::BROADCAST,
    };
    match Request::parse(datagram) {
        Ok(request) => server.handle_request(&request, origin, now()),
        Err(error) => Decision::Ignore(Reason::Malformed(error)),
    }
}

fn now() -> Now {
    Now::from_unix_seconds(1_795_219_200)
}

/// The capture of a REQUEST names the server and address of its day: put ours in.
fn readdressed(mut request: Vec<u8>) -> Vec<u8> {
    let mut at = 240;
    while request[at] != 255 {
        let code = request[at];
        let length = usize::from(request[at + 1]);
        let value = &mut request[at + 2..at + 2 + length];
        match code {
            54 => value.copy_from_slice(&[192, 168, 77, 1]),
            50 => value.copy_from_slice(&[192, 168, 77, 100]),
            _ => {}
        }
        at += 2 + length;
    }
    request
}

#[test]
fn the_captures_say_what_they_come_from() {
    let count = std::fs::read_dir("fixtures").unwrap().count();
    assert_eq!(
        count,
        NAMES.len() * 2 + BY_IPV6.len(),
        "every capture is tested"
    );
    let parsed = NAMES.map(|name| {
        let request = Request::parse(&fixture(&format!("{name}-discover"))).unwrap();
        (
            request.arch,
            request.is_pxe(),
            request.is_http_boot(),
            request.is_ipxe(),
            request.broadcast,
        )
    });
    let wanted = [
        (Some(ClientArch::UefiX64), true, false, true, true),
        (Some(ClientArch::Bios), true, false, true, true),
        (Some(ClientArch::Bios), true, false, true, false),
        (None, false, false, false, true),
        (Some(ClientArch::UefiX64Http), false, true, false, true),
        (Some(ClientArch::UefiX64), true, false, false, true),
    ];
    assert_eq!(parsed, wanted);
}

#[test]
fn every_client_is_answered_exactly() {
    for name in NAMES {
        let mut text = String::new();
        let mut server = server(Side::Lease);
        for (step, datagram) in [
            ("DISCOVER", fixture(&format!("{name}-discover"))),
            ("REQUEST", readdressed(fixture(&format!("{name}-request")))),
        ] {
            let Decision::Reply(reply) = handle(&mut server, &datagram, Listener::Dhcp) else {
                panic!("{name}: no reply to {step}");
            };
            assert_eq!(reply.persist.len(), usize::from(step == "REQUEST"));
            writeln!(text, "# answer to {step}\n{}", describe(&reply)).unwrap();
        }
        expect_golden(name, &text);
    }
}

#[test]
fn every_client_is_answered_exactly_beside_another_server() {
    for name in NAMES {
        let datagram = fixture(&format!("{name}-discover"));
        let text = match handle(&mut server(Side::Proxy), &datagram, Listener::Dhcp) {
            Decision::Reply(reply) => format!("# answer to DISCOVER\n{}\n", describe(&reply)),
            other => format!("{other:?}\n"),
        };
        expect_golden(&format!("proxy-{name}"), &text);
    }
}

#[test]
fn a_machine_that_nothing_fits_gets_an_address_and_the_page_a_reason() {
    let mut datagram = fixture("ovmf-2025.02-pxe-x64-discover");
    let at = datagram
        .windows(4)
        .position(|w| w == [93, 2, 0, 7])
        .unwrap();
    datagram[at + 3] = 11;
    let Decision::Reply(reply) = handle(&mut server(Side::Lease), &datagram, Listener::Dhcp) else {
        panic!("no reply");
    };
    assert_eq!(reply.boot, BootOffer::Unsupported(ClientArch::Arm64));
    let bytes = reply.encode();
    assert_eq!(bytes[108..236], [0; 128]);
    assert!(!describe(&reply).contains("option 67"));
}

/// The message from its bytes, one line a field.
fn describe(reply: &Reply) -> String {
    let bytes = reply.encode();
    let address = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    let file: Vec<u8> = bytes[108..236]
        .iter()
        .copied()
        .take_while(|b| *b != 0)
        .collect();
    let mut text = format!(
        "to {:?}\nlength {}\nop {} htype {} hlen {} hops {}\nxid {}\nflags {}\nciaddr {}\nyiaddr {}\nsiaddr {}\ngiaddr {}\n\
         chaddr {}\nsname {}\nfile {}\n",
        reply.destination,
        bytes.len(),
        bytes[0],
        bytes[1],
        bytes[2],
        bytes[3],
        hex(&bytes[4..8]),
        hex(&bytes[10..12]),
        address(12),
        address(16),
        address(20),
        address(24),
        hex(&bytes[28..44]),
        hex(&bytes[44..108]).trim_end_matches('0'),
        show(&file),
    );
    let mut at = 240;
    while bytes[at] != 255 {
        let length = usize::from(bytes[at + 1]);
        writeln!(
            text,
            "option {} {}",
            bytes[at],
            show(&bytes[at + 2..at + 2 + length])
        )
        .unwrap();
        at += 2 + length;
    }
    assert!(bytes[at + 1..].iter().all(|b| *b == 0));
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn show(bytes: &[u8]) -> String {
    let printable = !bytes.is_empty() && bytes.iter().all(|b| (b' '..=b'~').contains(b));
    if printable && bytes.len() > 4 {
        format!("{:?}", String::from_utf8_lossy(bytes))
    } else {
        hex(bytes)
    }
}

#[track_caller]
fn expect_golden(name: &str, text: &str) {
    let path = PathBuf::from(format!("golden/replies/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; UPDATE_GOLDEN=1 writes it", path.display()));
    assert_eq!(
        text, wanted,
        "{name} differs; if that is meant, UPDATE_GOLDEN=1 rewrites it"
    );
}

proptest! {
    /// Real messages with a few bytes changed and an end cut off get furthest into the code.
    #[test]
    fn no_damaged_capture_brings_the_server_down(
        name in prop::sample::select(&NAMES[..]),
        request in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        proxy in any::<bool>(),
    ) {
        let mut datagram = fixture(&format!("{name}-{}", if request { "request" } else { "discover" }));
        for (at, value) in changes {
            let at = at.index(datagram.len());
            datagram[at] = value;
        }
        datagram.truncate(240 + cut.index(datagram.len() - 239));
        let mut server = server(if proxy { Side::Proxy } else { Side::Lease });
        for listener in [Listener::Dhcp, Listener::Pxe] {
            if let Decision::Reply(reply) = handle(&mut server, &datagram, listener) {
                prop_assert!(reply.encode().len() >= 300);
            }
        }
    }
}

#[test]
fn firmware_that_asks_by_ipv6_is_known_by_its_nic() {
    for name in BY_IPV6 {
        let mac = firstlight_netboot::boots_by_ipv6(&fixture(name)).unwrap();
        assert_eq!(mac.to_string(), "52:54:00:f1:00:07");
    }
}
