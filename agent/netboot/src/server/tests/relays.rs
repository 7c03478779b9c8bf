//! What relay agents, and clients that move between subnets, are answered.

use super::rfc::{lease, relayed_site};
use super::*;

const RELAY: &str = "10.9.0.1";

/// Option 82 with the override of RFC 5107: the relay 10.9.0.1 is the server for its clients.
const OVERRIDE: &[u8] = b"\x01\x04port\x0b\x04\x0a\x09\x00\x01";

#[test]
fn rfc3011_the_selected_subnet_decides_the_address_and_comes_back() {
    let mut line = Timeline::new(relayed_site());
    let packet = discover(mac(1)).address(118, "10.9.0.0");
    let reply = line.at(0).send(&packet).reply();
    assert_eq!(reply.encode()[16..20], [10, 9, 0, 50]);
    assert_eq!(option(&reply, 118), Some(vec![10, 9, 0, 0]));
    assert_eq!(option(&reply, 3), Some(vec![10, 9, 0, 1]));
    assert_eq!(
        reply.destination,
        Destination::Broadcast { port: 68 },
        "nobody has that address here"
    );
    // RFC 3527 section 3: the relay's selection is the stronger one.
    let both = discover(mac(2))
        .through("172.22.0.9")
        .option(82, b"\x05\x04\x0a\x09\x00\x00")
        .address(118, "172.22.0.0");
    line.at(0).send(&both).expect("OFFER 10.9.0.51");
    let through_its_own = discover(mac(3))
        .through("172.22.0.9")
        .address(118, "10.9.0.0");
    line.at(0).send(&through_its_own).expect("OFFER 10.9.0.52");
    let selected = ip("192.0.2.0");
    let unknown = line.at(0).send(&discover(mac(4)).address(118, "192.0.2.0"));
    assert_eq!(
        unknown.decision,
        Decision::Ignore(Reason::UnknownSubnet { selected })
    );
}

#[test]
fn rfc5107_4_the_relay_is_the_server_for_its_clients_from_offer_to_release() {
    let mut line = Timeline::new(relayed_site());
    let through = |packet: Packet| packet.through(RELAY).option(82, OVERRIDE).from(RELAY);
    let offer = line.at(0).send(&through(discover(mac(1)))).reply();
    assert_eq!(option(&offer, 54), Some(vec![10, 9, 0, 1]));
    assert_eq!(offer.encode()[20..24], [172, 22, 0, 1], "siaddr stays");
    let chosen = || reboot(mac(1), "10.9.0.50").address(54, RELAY);
    line.at(0).send(&through(chosen())).expect("ACK 10.9.0.50");
    let renewed = line
        .at(1800)
        .send(&through(renew(mac(1), "10.9.0.50")))
        .reply();
    assert_eq!(option(&renewed, 54), Some(vec![10, 9, 0, 1]));
    let address = ip(RELAY);
    assert_eq!(
        renewed.destination,
        Destination::Relay { address, port: 67 }
    );
    // Without the override in the same message the relay is somebody else.
    let server = ip(RELAY);
    assert_eq!(
        line.at(1801).send(&chosen().through(RELAY)).decision,
        Decision::Ignore(Reason::ChoseOtherServer { server })
    );
    let alone = chosen().option(82, OVERRIDE);
    assert_eq!(
        line.at(1802).send(&alone).decision,
        Decision::Ignore(Reason::ChoseOtherServer { server }),
        "who is no relay overrides nothing"
    );
    let release = Packet::new(mac(1), 7)
        .ciaddr("10.9.0.50")
        .address(54, RELAY);
    line.at(1803)
        .send(&through(release))
        .expect("Released { mac: 52:54:00:aa:00:01, address: 10.9.0.50 }");
}

#[test]
fn rfc5107_4_an_override_that_is_no_address_of_a_host_is_none() {
    let mut line = Timeline::new(relayed_site());
    for odd in [[0; 4], [255; 4], [224, 0, 0, 1]] {
        let mut info = vec![11, 4];
        info.extend(odd);
        let packet = discover(mac(1)).through(RELAY).option(82, &info);
        let offer = line.at(0).send(&packet).reply();
        assert_eq!(option(&offer, 54), Some(vec![172, 22, 0, 1]));
    }
}

#[test]
fn rfc2131_4_3_2_rebinding_on_the_boxs_own_segment_ends_an_address_of_another_network() {
    let mut line = Timeline::new(relayed_site());
    lease(&mut line, 0, mac(1), "10.9.0.50", Some(RELAY));
    line.at(1800)
        .send(&renew(mac(1), "10.9.0.50"))
        .expect("ACK 10.9.0.50");
    for everybody in ["255.255.255.255", "172.22.0.255"] {
        let moved = renew(mac(1), "10.9.0.50").to(everybody);
        let refused = line.at(3200).send(&moved);
        assert_eq!(refused.summary(), "NAK", "to {everybody}");
        assert_eq!(
            refused.reply().destination,
            Destination::Broadcast { port: 68 }
        );
    }
    // At home it goes on, and so does who never moved.
    line.at(3300)
        .send(&renew(mac(1), "10.9.0.50").through(RELAY))
        .expect("ACK 10.9.0.50");
    lease(&mut line, 3300, mac(2), "172.22.0.100", None);
    line.at(5000)
        .send(&renew(mac(2), "172.22.0.100").to("255.255.255.255"))
        .expect("ACK 172.22.0.100");
}

#[test]
fn rfc2131_4_3_5_inform_without_an_address_is_answered_through_its_relay() {
    let mut line = Timeline::new(relayed_site());
    let inform = Packet::new(mac(1), 8).through(RELAY).from(RELAY);
    let reply = line.at(0).send(&inform).reply();
    let address = ip(RELAY);
    assert_eq!(reply.destination, Destination::Relay { address, port: 67 });
    let bytes = reply.encode();
    assert_eq!(bytes[10], 0x80, "the relay broadcasts it");
    assert_eq!(bytes[12..20], [0; 8], "ciaddr and yiaddr");
    assert_eq!(option(&reply, 1), Some(vec![255, 255, 255, 0]));
    assert_eq!(option(&reply, 3), Some(vec![10, 9, 0, 1]));
    assert_eq!(option(&reply, 51), None);
}

#[test]
fn a_server_that_boots_gets_a_deserted_address_of_its_own_subnet_once_a_probe_finds_it_free() {
    let mut spec = relayed_site();
    spec.subnets[1].range = AddressRange::new(ip("10.9.0.50"), ip("10.9.0.50")).unwrap();
    let mut line = Timeline::new(spec);
    let boots = |client| discover(client).option(60, b"PXEClient").through(RELAY);
    line.at(0).send(&boots(mac(1))).expect("OFFER 10.9.0.50");
    line.at(0)
        .send(&select(mac(1), "10.9.0.50").through(RELAY))
        .expect("ACK 10.9.0.50");
    let address = ip("10.9.0.50");
    let probe = line.at(400).send(&boots(mac(2))).decision;
    assert_eq!(probe, Decision::Probe { address });
    let now = line.at(401).now();
    line.server.probed(address, ProbeResult::Free, now);
    line.at(401).send(&boots(mac(2))).expect("OFFER 10.9.0.50");
}

#[test]
fn the_next_addresses_of_every_subnet_are_probed_ahead() {
    let mut line = Timeline::new(relayed_site());
    let now = line.at(0).now();
    let ahead = line.server.probe_ahead(now);
    for address in ["172.22.0.100", "10.9.0.50", "10.9.0.53"] {
        assert!(ahead.contains(&ip(address)), "{address} in {ahead:?}");
    }
    assert!(!ahead.contains(&ip("10.9.0.54")));
}

#[test]
fn a_relay_is_there_for_what_relay_agents_forward() {
    let mut spec = relayed_site();
    spec.role = DhcpRole::Relay;
    let mut line = Timeline::new(spec);
    for foreign in [false, true] {
        if foreign {
            line.foreign(10);
        }
        let own = line.at(20).send(&discover(mac(1))).decision;
        assert_eq!(own, Decision::Ignore(Reason::RelayedOnly));
        let through = discover(mac(2)).through("10.9.0.1");
        line.at(20).send(&through).expect("OFFER 10.9.0.50");
    }
}
