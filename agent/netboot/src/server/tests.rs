//! Timelines of whole conversations, and what holds for all of them.

mod relays;
mod rfc;

use proptest::prelude::*;

use crate::testing::*;
use crate::*;

#[test]
fn a_new_client_is_offered_the_first_address_at_once_and_keeps_it() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(0)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    line.at(1800)
        .send(&renew(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    line.at(2000)
        .send(&reboot(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    let lease = *line.server.leases().of_mac(mac(1)).unwrap();
    assert_eq!(
        lease.expires,
        Now::from_unix_seconds(START + 2000 + 3600 + 1800)
    );
}

#[test]
fn an_offer_promises_nothing_to_the_disk_and_an_ack_does() {
    let mut line = Timeline::new(small_site());
    let offer = line.at(0).send(&discover(mac(1))).reply();
    assert_eq!(offer.persist, []);
    let ack = line.at(1).send(&select(mac(1), "172.22.0.100")).reply();
    let leased = LeaseChange::Leased {
        mac: mac(1),
        address: ip("172.22.0.100"),
        expires: Now::from_unix_seconds(START + 1 + 3600 + 1800),
    };
    assert_eq!(ack.persist, [leased]);
}

#[test]
fn firmware_ramdisk_and_system_of_one_nic_get_one_address() {
    let mut line = Timeline::new(small_site());
    let ids: [&[u8]; 3] = [
        b"\x00firmware",
        b"\x01\x52\x54\x00\xaa\x00\x01",
        b"\xff\x00\x01\x02\x03\x04",
    ];
    for id in ids {
        line.at(0)
            .send(&discover(mac(1)).option(61, id))
            .expect("OFFER 172.22.0.100");
        let request = select(mac(1), "172.22.0.100").option(61, id);
        let ack = line.at(0).send(&request).reply();
        assert_eq!(option(&ack, 61).as_deref(), Some(id), "RFC 6842");
    }
}

#[test]
fn a_lease_survives_a_power_cut_and_an_offer_need_not() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(0)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    line.at(1)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.101");
    line.restart();
    line.at(20)
        .send(&discover(mac(3)))
        .expect("OFFER 172.22.0.101");
    line.at(20)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(21)
        .send(&renew(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    // The second client comes back with its offer, which somebody else has now.
    line.at(22)
        .send(&select(mac(2), "172.22.0.101"))
        .expect("NAK");
}

#[test]
fn a_client_that_was_offered_before_a_restart_is_served_after_it() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.restart();
    line.at(2)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
}

#[test]
fn two_clients_race_for_the_last_address_and_one_is_told_why() {
    let mut spec = small_site();
    spec.subnets[0].range = AddressRange::new(ip("172.22.0.100"), ip("172.22.0.100")).unwrap();
    let range = spec.subnets[0].range;
    let mut line = Timeline::new(spec);
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    let second = line.at(0).send(&discover(mac(2)));
    assert_eq!(
        second.decision,
        Decision::Ignore(Reason::Exhausted { range })
    );
    line.at(1)
        .send(&select(mac(2), "172.22.0.100"))
        .expect("NAK");
    line.at(1)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
}

#[test]
fn an_offer_that_nobody_took_is_free_again_after_a_minute() {
    let mut spec = small_site();
    spec.subnets[0].range = AddressRange::new(ip("172.22.0.100"), ip("172.22.0.100")).unwrap();
    let mut line = Timeline::new(spec);
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(61)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.100");
}

#[test]
fn a_crowd_that_takes_no_offer_is_offered_each_address_once_and_others_find_one() {
    let mut spec = small_site();
    spec.guard = Guard::Down;
    spec.subnets[0].range = AddressRange::new(ip("172.22.0.20"), ip("172.22.0.219")).unwrap();
    let mut line = Timeline::new(spec);
    // A quarter is kept for servers that boot.
    let mut offered = std::collections::BTreeSet::new();
    for client in 0..150 {
        let reply = line.at(0).send(&discover(mac(client))).reply();
        let address = reply.message.yiaddr();
        assert!(offered.insert(address), "{address} twice");
        // One that takes it, among all the others.
        if client == 100 {
            let taken = line.at(0).send(&select(mac(client), &address.to_string()));
            taken.expect(&format!("ACK {address}"));
        }
    }
    let refused = line.at(0).send(&discover(mac(200))).summary();
    assert!(refused.starts_with("Ignore(Exhausted"), "{refused}");
    // They are over, and behind the end of the range comes its beginning.
    for client in 0..51 {
        let reply = line.at(61).send(&discover(mac(client + 150))).reply();
        offered.remove(&reply.message.yiaddr());
    }
    assert_eq!(offered.len(), 149);
    assert!(!offered.contains(&ip("172.22.0.20")));
}

#[test]
fn only_an_address_that_another_host_had_is_probed_before_it_is_offered() {
    let mut spec = small_site();
    spec.subnets[0].range = AddressRange::new(ip("172.22.0.100"), ip("172.22.0.101")).unwrap();
    let mut line = Timeline::new(spec);
    for (n, address) in [(1, "172.22.0.100"), (2, "172.22.0.101")] {
        line.at(n.into())
            .send(&discover(mac(n)))
            .expect(&format!("OFFER {address}"));
        line.at(n.into())
            .send(&select(mac(n), address))
            .expect(&format!("ACK {address}"));
    }
    // Both leases ran out. The host that had an address gets it at once.
    line.at(6000)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(6000)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    // A third one waits for a probe, which finds the old holder still there.
    let probe = line.at(6000).send(&discover(mac(3))).decision;
    let address = ip("172.22.0.101");
    assert_eq!(probe, Decision::Probe { address });
    let now = line.at(6001).now();
    line.server.probed(address, ProbeResult::InUse, now);
    let range = line.server.config().spec().subnets[0].range;
    let refused = line.at(6001).send(&discover(mac(3))).decision;
    assert_eq!(refused, Decision::Ignore(Reason::Exhausted { range }));
    // An hour later it is asked for again, and free.
    assert_eq!(
        line.at(9602).send(&discover(mac(3))).decision,
        Decision::Probe { address }
    );
    let now = line.at(9603).now();
    line.server.probed(address, ProbeResult::Free, now);
    line.at(9603)
        .send(&discover(mac(3)))
        .expect("OFFER 172.22.0.101");
    line.at(9603)
        .send(&select(mac(3), "172.22.0.101"))
        .expect("ACK 172.22.0.101");
    line.at(9604)
        .send(&renew(mac(2), "172.22.0.101"))
        .expect("NAK");
}

#[test]
fn a_server_that_boots_gets_an_address_although_invented_clients_have_them_all() {
    let mut line = Timeline::new(small_site());
    for (n, at) in [(1, 0), (2, 600), (3, 601)] {
        let address = format!("172.22.0.{}", 99 + n);
        line.at(at)
            .send(&boots(discover(mac(n))))
            .expect(&format!("OFFER {address}"));
        line.at(at)
            .send(&boots(select(mac(n), &address)))
            .expect(&format!("ACK {address}"));
    }
    let range = line.server.config().spec().subnets[0].range;
    let exhausted = Decision::Ignore(Reason::Exhausted { range });
    let ask =
        |line: &mut Timeline, seconds, n| line.at(seconds).send(&boots(discover(mac(n)))).decision;
    let probe = |address| Decision::Probe {
        address: ip(address),
    };
    // Two may be between two stages of their boot.
    assert_eq!(ask(&mut line, 700, 4), probe("172.22.0.100"));
    let stranger = line.at(700).send(&discover(mac(5))).decision;
    assert_eq!(stranger, exhausted);
    // Later the one that came last is asked for first. It is there.
    assert_eq!(ask(&mut line, 950, 4), probe("172.22.0.102"));
    let now = line.at(951).now();
    line.server
        .probed(ip("172.22.0.102"), ProbeResult::InUse, now);
    assert_eq!(ask(&mut line, 951, 4), probe("172.22.0.101"));
    line.server
        .probed(ip("172.22.0.101"), ProbeResult::Free, now);
    line.at(951)
        .send(&boots(discover(mac(4))))
        .expect("OFFER 172.22.0.101");
    line.at(951)
        .send(&boots(select(mac(4), "172.22.0.101")))
        .expect("ACK 172.22.0.101");
    // What was found out before somebody came counts no more.
    assert_eq!(ask(&mut line, 952, 5), probe("172.22.0.100"));
    line.at(2500)
        .send(&renew(mac(3), "172.22.0.102"))
        .expect("ACK 172.22.0.102");
    line.at(2500)
        .send(&renew(mac(2), "172.22.0.101"))
        .expect("NAK");
    line.restart();
    line.at(2501)
        .send(&boots(discover(mac(4))))
        .expect("OFFER 172.22.0.101");
}

#[test]
fn addresses_probed_ahead_of_time_are_offered_without_a_pause() {
    let mut spec = small_site();
    spec.subnets[0].range = AddressRange::new(ip("172.22.0.100"), ip("172.22.0.101")).unwrap();
    let mut line = Timeline::new(spec);
    let now = line.at(0).now();
    assert_eq!(
        line.server.probe_ahead(now),
        [ip("172.22.0.100"), ip("172.22.0.101")]
    );
    line.server
        .probed(ip("172.22.0.100"), ProbeResult::InUse, now);
    line.server
        .probed(ip("172.22.0.101"), ProbeResult::Free, now);
    assert_eq!(
        line.server.probe_ahead(now),
        Vec::<std::net::Ipv4Addr>::new()
    );
    line.at(1)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.101");
    line.at(1)
        .send(&select(mac(1), "172.22.0.101"))
        .expect("ACK 172.22.0.101");
    // The lease runs out; what was probed long ago is asked for again, ahead of the next client.
    let now = line.at(6000).now();
    assert_eq!(
        line.server.probe_ahead(now),
        [ip("172.22.0.100"), ip("172.22.0.101")]
    );
    line.server
        .probed(ip("172.22.0.100"), ProbeResult::InUse, now);
    line.server
        .probed(ip("172.22.0.101"), ProbeResult::Free, now);
    line.at(6001)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.101");
}

#[test]
fn rfc2131_4_3_3_a_declined_address_is_left_alone_for_an_hour_and_then_probed() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(0)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    let decline = Packet::new(mac(1), 4)
        .address(50, "172.22.0.100")
        .address(54, "172.22.0.1");
    line.at(1)
        .send(&decline)
        .expect("Declined { mac: 52:54:00:aa:00:01, address: 172.22.0.100 }");
    line.restart();
    line.at(2)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.101");
    line.at(3000)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.101");
    // Then it is asked for by ARP, as whoever uses it may still be there.
    let address = ip("172.22.0.100");
    line.at(3602)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.101");
    line.at(3602)
        .send(&discover(mac(4)))
        .expect("OFFER 172.22.0.102");
    let last = line.at(3602).send(&boots(discover(mac(3))));
    assert_eq!(last.decision, Decision::Probe { address });
    let now = line.at(3603).now();
    line.server.probed(address, ProbeResult::Free, now);
    line.at(3603)
        .send(&boots(discover(mac(3))))
        .expect("OFFER 172.22.0.100");
}

fn boots(packet: Packet) -> Packet {
    packet.option(60, b"PXEClient:Arch:00007:UNDI:003016")
}

#[test]
fn nobody_declines_or_releases_what_is_not_theirs() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(0)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    let address = ip("172.22.0.100");
    let decline = Packet::new(mac(2), 4)
        .address(50, "172.22.0.100")
        .address(54, "172.22.0.1");
    let release = Packet::new(mac(2), 7)
        .ciaddr("172.22.0.100")
        .address(54, "172.22.0.1");
    for packet in [decline, release] {
        let decision = line.at(1).send(&packet).decision;
        assert_eq!(decision, Decision::Ignore(Reason::NotItsLease { address }));
    }
    line.at(2)
        .send(&renew(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
}

#[test]
fn a_released_address_goes_to_others_last_and_back_to_its_host_first() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(0)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    let release = Packet::new(mac(1), 7)
        .ciaddr("172.22.0.100")
        .address(54, "172.22.0.1");
    line.at(1)
        .send(&release)
        .expect("Released { mac: 52:54:00:aa:00:01, address: 172.22.0.100 }");
    assert_eq!(
        line.server
            .leases()
            .active(Now::from_unix_seconds(START + 1)),
        0
    );
    line.at(2)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.101");
    line.restart();
    line.at(3)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
}

#[test]
fn a_wrong_address_is_refused_only_by_who_speaks_for_the_network() {
    let strange = reboot(mac(1), "10.1.2.3");
    Timeline::new(small_site())
        .at(0)
        .send(&strange)
        .expect("NAK");
    let mut quiet = Timeline::not_authoritative(small_site());
    let wanted = ip("10.1.2.3");
    let decision = quiet.at(0).send(&strange).decision;
    assert_eq!(decision, Decision::Ignore(Reason::UnknownClient { wanted }));
    // Whoever selects this server by its identifier is told in any case.
    quiet.at(0).send(&select(mac(1), "10.1.2.3")).expect("NAK");
}

#[test]
fn a_client_that_lost_its_server_keeps_a_free_address_of_the_range() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&reboot(mac(1), "172.22.0.102"))
        .expect("ACK 172.22.0.102");
    line.at(0)
        .send(&renew(mac(2), "172.22.0.101"))
        .expect("ACK 172.22.0.101");
    line.at(0)
        .send(&renew(mac(3), "172.22.0.102"))
        .expect("NAK");
    line.at(0).send(&renew(mac(3), "172.22.0.50")).expect("NAK");
    let quiet = Timeline::not_authoritative(small_site())
        .at(0)
        .send(&reboot(mac(1), "172.22.0.102"))
        .decision;
    let wanted = ip("172.22.0.102");
    assert_eq!(quiet, Decision::Ignore(Reason::UnknownClient { wanted }));
}

#[test]
fn a_client_that_takes_another_servers_offer_betrays_that_server() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    let request = Packet::new(mac(1), 3)
        .address(50, "172.22.0.77")
        .address(54, "172.22.0.254");
    let server = ip("172.22.0.254");
    assert_eq!(
        line.at(1).send(&request).decision,
        Decision::Ignore(Reason::ChoseOtherServer { server })
    );
    line.at(1)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.100");
}

#[test]
fn reserved_addresses_go_to_their_hosts_only() {
    let mut spec = small_site();
    let reservation = |address, name: &str| Reservation {
        address: ip(address),
        host_name: Some(HostName::parse(name).unwrap()),
    };
    spec.reservations
        .insert(mac(7), reservation("172.22.0.20", "db-1"));
    spec.reservations
        .insert(mac(8), reservation("172.22.0.100", "db-2"));
    let mut line = Timeline::new(spec);
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.101");
    line.at(0)
        .send(&select(mac(1), "172.22.0.20"))
        .expect("NAK");
    let offer = line.at(0).send(&discover(mac(7)));
    assert_eq!(offer.summary(), "OFFER 172.22.0.20");
    assert_eq!(
        option(&offer.reply(), 12).as_deref(),
        Some(b"db-1".as_slice())
    );
    line.at(0)
        .send(&select(mac(7), "172.22.0.20"))
        .expect("ACK 172.22.0.20");
    line.at(0)
        .send(&discover(mac(8)))
        .expect("OFFER 172.22.0.100");
}

#[test]
fn a_reservation_made_later_wins_when_its_address_is_free() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(0)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    let mut spec = small_site();
    let reservation = Reservation {
        address: ip("172.22.0.100"),
        host_name: None,
    };
    spec.reservations.insert(mac(2), reservation);
    line.server.set_config(DhcpConfig::new(spec).unwrap());
    // While the other host holds it, the owner gets some address rather than none.
    line.at(1)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.101");
    line.at(1)
        .send(&select(mac(2), "172.22.0.101"))
        .expect("ACK 172.22.0.101");
    line.at(1800)
        .send(&renew(mac(1), "172.22.0.100"))
        .expect("NAK");
    line.at(5401)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.100");
}

#[test]
fn a_wish_is_granted_if_nobody_ever_had_the_address() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&discover(mac(1)).address(50, "172.22.0.102"))
        .expect("OFFER 172.22.0.102");
    line.at(0)
        .send(&discover(mac(2)).address(50, "172.22.0.102"))
        .expect("OFFER 172.22.0.100");
    line.at(0)
        .send(&discover(mac(3)).address(50, "192.168.1.5"))
        .expect("OFFER 172.22.0.101");
}

#[test]
fn an_answer_goes_where_the_client_can_hear_it() {
    let mut line = Timeline::new(small_site());
    let unicast = line.at(0).send(&discover(mac(1))).reply().destination;
    let address = ip("172.22.0.100");
    assert_eq!(
        unicast,
        Destination::Hardware {
            address,
            mac: mac(1),
            port: 68
        }
    );
    let deaf = line.at(0).send(&discover(mac(1)).broadcast()).reply();
    assert_eq!(deaf.destination, Destination::Broadcast { port: 68 });
    assert_eq!(deaf.encode()[10], 0x80, "the flag is mirrored");
    line.at(0)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    let renewed = line.at(1).send(&renew(mac(1), "172.22.0.100")).reply();
    assert_eq!(
        renewed.destination,
        Destination::Unicast { address, port: 68 }
    );
    assert_eq!(
        renewed.encode()[12..16],
        address.octets(),
        "ciaddr of RFC 2131 table 3"
    );
    let refused = line.at(1).send(&reboot(mac(2), "10.0.0.1")).reply();
    assert_eq!(refused.destination, Destination::Broadcast { port: 68 });
}

#[test]
fn relayed_clients_get_an_address_of_their_subnet_through_their_relay() {
    let mut spec = small_site();
    spec.subnets.push(SubnetSpec {
        subnet: "10.9.0.1/24".parse().unwrap(),
        range: AddressRange::new(ip("10.9.0.50"), ip("10.9.0.60")).unwrap(),
        router: Some(ip("10.9.0.1")),
    });
    let mut line = Timeline::new(spec);
    let circuit = b"\x01\x03abc\x02\x02xy";
    let reply = line
        .at(0)
        .send(&discover(mac(1)).through("10.9.0.1").option(82, circuit))
        .reply();
    let address = ip("10.9.0.1");
    assert_eq!(reply.destination, Destination::Relay { address, port: 67 });
    let bytes = reply.encode();
    assert_eq!(bytes[16..20], [10, 9, 0, 50]);
    assert_eq!(bytes[24..28], [10, 9, 0, 1]);
    let options = dump_options(&bytes);
    assert_eq!(
        options.last(),
        Some(&(82, circuit.to_vec())),
        "RFC 3046 section 2.2"
    );
    assert_eq!(option(&reply, 3), Some(vec![10, 9, 0, 1]));
    // RFC 3527: the relay may name the subnet apart from its own address.
    let linked = discover(mac(2))
        .through("172.22.0.9")
        .option(82, b"\x05\x04\x0a\x09\x00\x00");
    line.at(0).send(&linked).expect("OFFER 10.9.0.51");
    let unknown = line
        .at(0)
        .send(&discover(mac(3)).through("192.0.2.1"))
        .decision;
    let relay = ip("192.0.2.1");
    assert_eq!(
        unknown,
        Decision::Ignore(Reason::UnknownRelay { relay, link: relay })
    );
    // A refusal is broadcast by the relay.
    let nak = line
        .at(0)
        .send(&reboot(mac(1), "172.22.0.100").through("10.9.0.1"))
        .reply();
    assert_eq!(nak.encode()[10], 0x80);
    assert_eq!(nak.destination, Destination::Relay { address, port: 67 });
}

#[test]
fn a_client_that_asks_for_rapid_commit_has_its_lease_in_one_step() {
    let mut line = Timeline::new(small_site());
    let ack = line.at(0).send(&discover(mac(1)).option(80, b""));
    assert_eq!(ack.summary(), "ACK 172.22.0.100");
    let reply = ack.reply();
    assert_eq!(option(&reply, 80), Some(Vec::new()));
    assert_eq!(reply.persist.len(), 1);
    line.restart();
    line.at(1)
        .send(&renew(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    // Beside another server a promise without a choice would be wrong.
    let mut quiet = Timeline::not_authoritative(small_site());
    quiet
        .at(0)
        .send(&discover(mac(1)).option(80, b""))
        .expect("OFFER 172.22.0.100");
}

#[test]
fn inform_is_answered_with_settings_and_no_lease() {
    let mut line = Timeline::new(small_site());
    let reply = line
        .at(0)
        .send(&Packet::new(mac(1), 8).ciaddr("172.22.0.9"))
        .reply();
    let codes: Vec<u8> = dump_options(&reply.encode())
        .iter()
        .map(|(code, _)| *code)
        .collect();
    assert_eq!(codes, [1, 28, 42, 53, 54]);
    let address = ip("172.22.0.9");
    assert_eq!(
        reply.destination,
        Destination::Unicast { address, port: 68 }
    );
    assert_eq!(line.server.leases().iter().count(), 0);
}

#[test]
fn a_proxy_gives_boot_information_and_nothing_else() {
    let mut line = Timeline::new(DhcpSpec {
        role: DhcpRole::Proxy,
        ..small_site()
    });
    line.foreign(0);
    let pxe = |packet: Packet| {
        packet
            .option(60, b"PXEClient:Arch:00007:UNDI:003000")
            .option(93, &[0, 7])
    };
    let reply = line.at(0).send(&pxe(discover(mac(1)))).reply();
    let bytes = reply.encode();
    assert_eq!(bytes[16..20], [0; 4], "no address");
    assert_eq!(bytes[20..24], [172, 22, 0, 1], "next server");
    assert_eq!(&bytes[108..120], b"shimx64.efi\0");
    assert_eq!(option(&reply, 60).as_deref(), Some(b"PXEClient".as_slice()));
    assert_eq!((option(&reply, 1), option(&reply, 51)), (None, None));
    assert_eq!(reply.destination, Destination::Broadcast { port: 68 });
    for packet in [
        discover(mac(1)),
        pxe(select(mac(1), "172.22.0.100")),
        renew(mac(1), "172.22.0.100"),
    ] {
        let decision = line.at(0).send(&packet).decision;
        assert_eq!(decision, Decision::Ignore(Reason::ProxyOnly));
    }
    // The boot server's port: answered to where the question came from.
    let asked = pxe(Packet::new(mac(1), 3).ciaddr("172.22.0.9")).encode();
    let now = line.at(0).now();
    let Decision::Reply(ack) = handle(
        &mut line.server,
        &asked,
        origin(Listener::Pxe, "172.22.0.9"),
        now,
    ) else {
        panic!("no reply");
    };
    assert_eq!(ack.destination, Destination::Sender);
    assert_eq!(option(&ack, 53), Some(vec![5]));
    assert_eq!(&ack.encode()[108..120], b"shimx64.efi\0");
    assert!(line.server.probe_ahead(now).is_empty());
}

/// What a random client does.
#[derive(Clone, Debug)]
enum Step {
    Discover(u8),
    /// Takes whatever the last offer to this client was.
    Select(u8),
    Request(u8, u8),
    Renew(u8, u8),
    Decline(u8, u8),
    Release(u8, u8),
    Probed(u8, bool),
    Wait(u16),
    PowerCut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = || 1..5_u8;
    let address = || 99..104_u8;
    let step = prop_oneof![
        4 => client().prop_map(Step::Discover),
        4 => client().prop_map(Step::Select),
        2 => (client(), address()).prop_map(|(c, a)| Step::Request(c, a)),
        2 => (client(), address()).prop_map(|(c, a)| Step::Renew(c, a)),
        1 => (client(), address()).prop_map(|(c, a)| Step::Decline(c, a)),
        1 => (client(), address()).prop_map(|(c, a)| Step::Release(c, a)),
        1 => (address(), any::<bool>()).prop_map(|(a, free)| Step::Probed(a, free)),
        2 => (1..5000_u16).prop_map(Step::Wait),
        1 => Just(Step::PowerCut),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever happens, no address is promised to two hosts at once, and the disk knows all that was promised.
    #[test]
    fn no_address_is_leased_twice_and_nothing_acknowledged_is_lost(steps in steps()) {
        let mut line = Timeline::new(small_site());
        let mut offers: std::collections::BTreeMap<u8, String> = std::collections::BTreeMap::new();
        // What clients believe to hold: address, and until when.
        let mut promised: std::collections::BTreeMap<MacAddr, (String, u64)> = std::collections::BTreeMap::new();
        let mut time = 0_u64;
        for step in steps {
            let address = |a: u8| format!("172.22.0.{a}");
            let (client, packet) = match step {
                Step::Discover(c) => (c, discover(mac(c))),
                Step::Select(c) => match offers.get(&c) {
                    Some(offer) => (c, select(mac(c), offer)),
                    None => continue,
                },
                Step::Request(c, a) => (c, reboot(mac(c), &address(a))),
                Step::Renew(c, a) => (c, renew(mac(c), &address(a))),
                Step::Decline(c, a) => {
                    if promised.get(&mac(c)).is_some_and(|(held, _)| *held == address(a)) {
                        promised.remove(&mac(c));
                    }
                    (c, Packet::new(mac(c), 4).address(50, &address(a)))
                }
                Step::Release(c, a) => {
                    if promised.get(&mac(c)).is_some_and(|(held, _)| *held == address(a)) {
                        promised.remove(&mac(c));
                    }
                    (c, Packet::new(mac(c), 7).ciaddr(&address(a)))
                }
                Step::Probed(a, free) => {
                    let result = if free { ProbeResult::Free } else { ProbeResult::InUse };
                    let now = line.at(time).now();
                    line.server.probed(ip(&address(a)), result, now);
                    continue;
                }
                Step::Wait(seconds) => {
                    time += u64::from(seconds);
                    continue;
                }
                Step::PowerCut => {
                    line.restart();
                    continue;
                }
            };
            let summary = line.at(time).send(&packet).summary();
            if let Some(offered) = summary.strip_prefix("OFFER ") {
                offers.insert(client, offered.to_owned());
            }
            if let Some(leased) = summary.strip_prefix("ACK ") {
                for (other, (held, until)) in &promised {
                    prop_assert!(
                        *other == mac(client) || held != leased || *until <= time,
                        "{leased} is promised to {other} until {until}, and at {time} to {}", mac(client)
                    );
                }
                prop_assert!(("172.22.0.100"..="172.22.0.102").contains(&leased));
                promised.insert(mac(client), (leased.to_owned(), time + 3600));
            }
            if summary == "NAK" {
                promised.remove(&mac(client));
            }
            let on_disk = decode_log(&line.disk).unwrap().table;
            prop_assert_eq!(&on_disk, line.server.leases());
        }
    }

    #[test]
    fn no_datagram_brings_the_server_down(datagram in proptest::collection::vec(any::<u8>(), 0..700)) {
        let mut line = Timeline::new(small_site());
        let now = line.at(0).now();
        for listener in [Listener::Dhcp, Listener::Pxe] {
            handle(&mut line.server, &datagram, origin(listener, "0.0.0.0"), now);
        }
    }

    /// Past the fixed part, so that random options reach the code behind the decoder; every reply can be encoded.
    #[test]
    fn no_options_bring_the_server_down(
        kind in 1..9_u8,
        options in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..60)), 0..12),
        tail in proptest::collection::vec(any::<u8>(), 0..20),
        ciaddr in any::<u32>(),
        proxy in any::<bool>(),
    ) {
        let mut packet = Packet::new(mac(1), kind);
        packet.ciaddr = std::net::Ipv4Addr::from_bits(ciaddr);
        packet.options.extend(options);
        let mut datagram = packet.encode();
        datagram.extend(tail);
        let role = if proxy { DhcpRole::Proxy } else { DhcpRole::Serve };
        let mut line = Timeline::new(DhcpSpec { role, ..small_site() });
        let now = line.at(0).now();
        for listener in [Listener::Dhcp, Listener::Pxe] {
            if let Decision::Reply(reply) = handle(&mut line.server, &datagram, origin(listener, "0.0.0.0"), now) {
                let bytes = reply.encode();
                prop_assert!(bytes.len() >= 300);
                dump_options(&bytes);
            }
        }
    }
}
