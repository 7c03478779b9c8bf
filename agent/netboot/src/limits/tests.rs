//! Floods, on a virtual clock.

use crate::limits::{Limits, REMEMBERED, Standing};
use crate::testing::*;
use crate::*;

fn invented(n: u32) -> MacAddr {
    let mut octets = [2, 0x66, 0, 0, 0, 0];
    octets[2..].copy_from_slice(&n.to_be_bytes());
    MacAddr::new(octets).unwrap()
}

/// As `site.yaml` has it without a word: 151 addresses.
fn site() -> DhcpSpec {
    let mut spec = small_site();
    spec.subnets[0].range = AddressRange::new(ip("172.22.0.100"), ip("172.22.0.250")).unwrap();
    let reservation = Reservation {
        address: ip("172.22.0.200"),
        host_name: None,
    };
    spec.reservations.insert(mac(7), reservation);
    spec
}

fn boots(packet: Packet) -> Packet {
    packet
        .option(60, b"PXEClient:Arch:00007:UNDI:003000")
        .option(93, &[0, 7])
}

/// A known server, then what 100,000 invented MACs do in 100 seconds by `attack`; then known servers are served.
fn flood(attack: impl Fn(&mut Timeline, u64, MacAddr)) -> Timeline {
    let mut line = Timeline::new(site());
    line.at(0)
        .send(&boots(discover(mac(1))))
        .expect("OFFER 172.22.0.100");
    line.at(0)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    for n in 0..100_000 {
        let at = 1 + u64::from(n) / 1000;
        attack(&mut line, at, invented(n));
        if n % 10_000 == 0 {
            line.at(at)
                .send(&renew(mac(1), "172.22.0.100"))
                .expect("ACK 172.22.0.100");
        }
    }
    assert!(line.server.limits().remembered() <= REMEMBERED + 256);
    assert!(line.server.leases().iter().count() <= 151);
    line.at(102)
        .send(&renew(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    line.at(102)
        .send(&discover(mac(7)))
        .expect("OFFER 172.22.0.200");
    line.at(102)
        .send(&select(mac(7), "172.22.0.200"))
        .expect("ACK 172.22.0.200");
    line
}

/// A server that nobody knew finds an address in the share of those that boot.
fn a_new_server_boots(line: &mut Timeline, at: u64) {
    let address = line.at(at).send(&boots(discover(mac(2)))).summary();
    let address = address.strip_prefix("OFFER ").unwrap().to_owned();
    line.at(at)
        .send(&select(mac(2), &address))
        .expect(&format!("ACK {address}"));
}

/// Two days later nothing is left of it.
fn nothing_is_left(line: &mut Timeline) {
    let late = 2 * 86_400;
    let now = line.at(late).now();
    assert_eq!(line.server.leases().active(now), 0);
    assert_eq!(line.server.leases().quarantines(now), 0);
    for n in 0..120_u32 {
        let wish = invented(1_000_000 + n);
        let mut decision = line.at(late + u64::from(n)).send(&discover(wish)).decision;
        if let Decision::Probe { address } = decision {
            let now = line.at(late).now();
            line.server.probed(address, ProbeResult::Free, now);
            decision = line.at(late + u64::from(n)).send(&discover(wish)).decision;
        }
        assert!(matches!(decision, Decision::Reply(_)), "{n}: {decision:?}");
    }
}

#[test]
fn a_flood_of_discovers_leaves_addresses_for_servers() {
    let mut line = flood(|line, at, mac| drop(line.at(at).send(&discover(mac))));
    a_new_server_boots(&mut line, 102);
    nothing_is_left(&mut line);
}

#[test]
fn a_flood_of_requests_for_addresses_that_nobody_offered_leaves_addresses_for_servers() {
    let mut line = flood(|line, at, mac| {
        let wanted = format!("172.22.0.{}", 100 + mac.octets()[5] % 151);
        line.at(at).send(&reboot(mac, &wanted));
    });
    a_new_server_boots(&mut line, 102);
    nothing_is_left(&mut line);
}

#[test]
fn a_flood_of_declines_leaves_addresses_for_servers() {
    let mut line = flood(|line, at, mac| {
        let offer = line.at(at).send(&boots(discover(mac))).summary();
        if let Some(address) = offer.strip_prefix("OFFER ") {
            line.at(at).send(&Packet::new(mac, 4).address(50, address));
        }
    });
    let now = line.at(102).now();
    assert!(line.server.leases().quarantines(now) <= 151 / 4);
    a_new_server_boots(&mut line, 200);
    nothing_is_left(&mut line);
}

#[test]
fn one_client_declines_two_addresses_an_hour() {
    let mut line = Timeline::new(site());
    let decline = |line: &mut Timeline, at| {
        let offer = line.at(at).send(&discover(mac(3))).summary();
        let address = offer.strip_prefix("OFFER ").unwrap().to_owned();
        line.at(at)
            .send(&Packet::new(mac(3), 4).address(50, &address))
            .decision
    };
    for at in [0, 1] {
        assert!(matches!(decline(&mut line, at), Decision::Record { .. }));
    }
    assert_eq!(
        decline(&mut line, 2),
        Decision::Ignore(Reason::Limited(Limit::Declines))
    );
    assert!(matches!(decline(&mut line, 3700), Decision::Record { .. }));
}

#[test]
fn a_client_that_repeats_itself_without_end_is_heard_once_a_second() {
    let mut line = Timeline::new(site());
    let answered = (0..1000)
        .filter(|n| {
            let decision = line.at(n / 100).send(&discover(mac(3))).decision;
            matches!(decision, Decision::Reply(_))
        })
        .count();
    assert_eq!(answered, 40 + 9);
    assert_eq!(line.server.counters().limited, 1000 - 49);
    line.at(10)
        .send(&discover(mac(4)))
        .expect("OFFER 172.22.0.101");
}

#[test]
fn renewals_write_to_the_stick_once_in_half_a_lease_time() {
    let mut line = Timeline::new(site());
    line.at(0).send(&discover(mac(1)));
    line.at(0)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    let before = line.disk.len();
    for seconds in 1..1800 {
        line.at(seconds)
            .send(&renew(mac(1), "172.22.0.100"))
            .expect("ACK 172.22.0.100");
    }
    assert_eq!(line.disk.len(), before, "the disk has it for longer");
    line.at(1801)
        .send(&renew(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    assert!(line.disk.len() > before);
    // What was promised last holds after a power cut, to the last second.
    line.at(3600)
        .send(&renew(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    line.restart();
    let refused = line.at(3600 + 3599).send(&reboot(mac(2), "172.22.0.100"));
    refused.expect("NAK");
}

#[test]
fn only_the_holder_gives_an_address_back_and_from_that_address() {
    let mut line = Timeline::new(site());
    line.at(0).send(&discover(mac(1)));
    line.at(0)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    let release = Packet::new(mac(1), 7).ciaddr("172.22.0.100");
    let address = ip("172.22.0.100");
    assert_eq!(
        line.at(1)
            .send(&release.clone().from("172.22.0.66"))
            .decision,
        Decision::Ignore(Reason::NotItsLease { address })
    );
    line.at(1)
        .send(&release)
        .expect("Released { mac: 52:54:00:aa:00:01, address: 172.22.0.100 }");
}

#[test]
fn an_address_range_that_was_full_has_room_again() {
    let mut line = Timeline::new(small_site());
    for n in 1..4 {
        let offer = line.at(0).send(&discover(mac(n))).summary();
        let address = offer.strip_prefix("OFFER ").unwrap().to_owned();
        line.at(0).send(&select(mac(n), &address));
    }
    let (full, later) = (line.at(1).now(), line.at(5401).now());
    let range = line.server.config().spec().subnets[0].range;
    assert!(!line.server.has_room(range, full));
    assert!(line.server.has_room(range, later));
}

#[test]
fn known_clients_are_remembered_also_when_strangers_fill_the_memory() {
    let now = Now::from_unix_seconds(START);
    let mut limits = Limits::new(Guard::Up);
    for n in 0..20_000 {
        let _ = limits.message(invented(n), Standing::Stranger, now);
    }
    let answered = (0..100)
        .filter(|_| limits.message(mac(1), Standing::Known, now).is_ok())
        .count();
    assert_eq!((limits.remembered(), answered), (REMEMBERED + 1, 40));
}
