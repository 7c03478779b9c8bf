//! One timeline for each rule of the standards, which its name has with the section.

use super::*;

/// The box's segment, and 10.9.0.0/24 behind the relay agent 10.9.0.1.
pub(super) fn relayed_site() -> DhcpSpec {
    let mut spec = small_site();
    spec.subnets.push(SubnetSpec {
        subnet: "10.9.0.1/24".parse().unwrap(),
        range: AddressRange::new(ip("10.9.0.50"), ip("10.9.0.60")).unwrap(),
        router: Some(ip("10.9.0.1")),
    });
    spec
}

fn reserved(address: &str) -> Reservation {
    Reservation {
        address: ip(address),
        host_name: Some(HostName::parse("db-1").unwrap()),
    }
}

fn codes(reply: &Reply) -> Vec<u8> {
    let options = dump_options(&reply.encode());
    options.iter().map(|(code, _)| *code).collect()
}

/// By DISCOVER and REQUEST, through a relay agent if there is one.
pub(super) fn lease(
    line: &mut Timeline,
    seconds: u64,
    client: MacAddr,
    address: &str,
    relay: Option<&str>,
) {
    let through = |packet: Packet| match relay {
        Some(relay) => packet.through(relay),
        None => packet,
    };
    line.at(seconds)
        .send(&through(discover(client)))
        .expect(&format!("OFFER {address}"));
    line.at(seconds)
        .send(&through(select(client, address)))
        .expect(&format!("ACK {address}"));
}

#[test]
fn rfc2131_4_3_1_a_binding_that_ran_out_is_offered_to_its_client_again() {
    let mut line = Timeline::new(small_site());
    lease(&mut line, 0, mac(1), "172.22.0.100", None);
    lease(&mut line, 0, mac(2), "172.22.0.101", None);
    line.at(90_000)
        .send(&discover(mac(2)).address(50, "172.22.0.102"))
        .expect("OFFER 172.22.0.101");
}

#[test]
fn rfc2131_4_3_1_an_address_of_another_network_is_not_what_a_client_that_moved_gets() {
    let mut line = Timeline::new(relayed_site());
    lease(&mut line, 0, mac(1), "172.22.0.100", None);
    lease(&mut line, 1, mac(1), "10.9.0.50", Some("10.9.0.1"));
    assert_eq!(line.server.leases().iter().count(), 1);
}

#[test]
fn rfc2131_4_3_2_selecting_by_another_identifier_ends_the_offer() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    let other = Packet::new(mac(1), 3)
        .address(50, "172.22.0.100")
        .address(54, "172.22.0.254");
    let server = ip("172.22.0.254");
    assert_eq!(
        line.at(0).send(&other).decision,
        Decision::Ignore(Reason::ChoseOtherServer { server })
    );
    line.at(0)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.100");
}

#[test]
fn rfc2131_4_3_2_init_reboot_is_confirmed_on_the_right_network_and_refused_on_a_wrong_one() {
    let mut line = Timeline::new(relayed_site());
    lease(&mut line, 0, mac(1), "172.22.0.100", None);
    line.restart();
    line.at(60)
        .send(&reboot(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    // The same machine behind the relay agent, where that address is none.
    let moved = reboot(mac(1), "172.22.0.100").through("10.9.0.1");
    let refused = line.at(61).send(&moved).reply();
    assert_eq!(option(&refused, 53), Some(vec![6]));
    let address = ip("10.9.0.1");
    assert_eq!(
        refused.destination,
        Destination::Relay { address, port: 67 }
    );
    assert_eq!(refused.encode()[10], 0x80, "the relay broadcasts it");
    // An address that is another client's.
    line.at(62)
        .send(&reboot(mac(2), "172.22.0.100"))
        .expect("NAK");
}

#[test]
fn rfc2131_4_3_2_init_reboot_who_knows_nothing_of_a_client_is_silent_and_who_knows_better_refuses()
{
    let mut quiet = Timeline::not_authoritative(small_site());
    let wanted = ip("172.22.0.102");
    let unknown = quiet.at(0).send(&reboot(mac(1), "172.22.0.102")).decision;
    assert_eq!(unknown, Decision::Ignore(Reason::UnknownClient { wanted }));
    lease(&mut quiet, 1, mac(1), "172.22.0.100", None);
    quiet
        .at(2)
        .send(&reboot(mac(1), "172.22.0.102"))
        .expect("NAK");
    quiet
        .at(3)
        .send(&reboot(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    // A lease that ran out is no knowledge.
    let late = quiet.at(90_000).send(&reboot(mac(1), "172.22.0.102"));
    assert_eq!(
        late.decision,
        Decision::Ignore(Reason::UnknownClient { wanted })
    );
}

#[test]
fn rfc2131_4_3_2_renewing_comes_without_the_relay_and_is_answered_at_the_clients_address() {
    let mut line = Timeline::new(relayed_site());
    lease(&mut line, 0, mac(1), "10.9.0.50", Some("10.9.0.1"));
    let renewed = line.at(1800).send(&renew(mac(1), "10.9.0.50")).reply();
    assert_eq!(option(&renewed, 53), Some(vec![5]));
    assert_eq!(option(&renewed, 3), Some(vec![10, 9, 0, 1]));
    let address = ip("10.9.0.50");
    assert_eq!(
        renewed.destination,
        Destination::Unicast { address, port: 68 }
    );
    // REBINDING goes through the relay again, and so does its answer.
    let rebinding = renew(mac(1), "10.9.0.50").through("10.9.0.1");
    let rebound = line.at(3500).send(&rebinding).reply();
    let address = ip("10.9.0.1");
    assert_eq!(
        rebound.destination,
        Destination::Relay { address, port: 67 }
    );
    assert_eq!(rebound.encode()[12..16], [10, 9, 0, 50], "ciaddr");
}

#[test]
fn rfc2131_4_3_2_rebinding_after_the_leases_were_lost_keeps_a_free_address_and_no_other() {
    let mut line = Timeline::new(small_site());
    line.at(0)
        .send(&renew(mac(1), "172.22.0.101"))
        .expect("ACK 172.22.0.101");
    line.at(0)
        .send(&renew(mac(2), "172.22.0.101"))
        .expect("NAK");
    line.at(0).send(&renew(mac(2), "172.22.0.9")).expect("NAK");
}

#[test]
fn rfc2131_4_3_3_a_decline_without_a_probe_that_finds_it_free_gives_the_address_to_nobody() {
    let mut line = Timeline::new(small_site());
    lease(&mut line, 0, mac(1), "172.22.0.100", None);
    let decline = Packet::new(mac(1), 4)
        .address(50, "172.22.0.100")
        .address(54, "172.22.0.1");
    line.at(1)
        .send(&decline)
        .expect("Declined { mac: 52:54:00:aa:00:01, address: 172.22.0.100 }");
    // Neither by a wish, nor to who says that it has it, nor later.
    for seconds in [2, 3700] {
        line.at(seconds)
            .send(&discover(mac(1)).address(50, "172.22.0.100"))
            .expect("OFFER 172.22.0.101");
        line.at(seconds)
            .send(&reboot(mac(2), "172.22.0.100"))
            .expect("NAK");
    }
    let address = ip("172.22.0.100");
    let now = line.at(3700).now();
    assert!(line.server.probe_ahead(now).contains(&address));
    line.server.probed(address, ProbeResult::InUse, now);
    assert!(!line.server.probe_ahead(now).contains(&address));
}

#[test]
fn rfc2131_4_3_4_a_release_is_from_the_holder_to_this_server() {
    let mut line = Timeline::new(relayed_site());
    lease(&mut line, 0, mac(1), "10.9.0.50", Some("10.9.0.1"));
    let release = Packet::new(mac(1), 7).ciaddr("10.9.0.50");
    let address = ip("10.9.0.50");
    let ignored = Decision::Ignore(Reason::NotItsLease { address });
    let elsewhere = release.clone().address(54, "172.22.0.254");
    assert_eq!(line.at(1).send(&elsewhere).decision, ignored);
    let forged = release.clone().address(54, "172.22.0.1").from("172.22.0.9");
    assert_eq!(line.at(1).send(&forged).decision, ignored);
    line.at(1)
        .send(&release.address(54, "172.22.0.1"))
        .expect("Released { mac: 52:54:00:aa:00:01, address: 10.9.0.50 }");
}

#[test]
fn rfc2131_4_3_5_inform_is_answered_at_the_clients_address_whoever_passed_it_on() {
    let mut line = Timeline::new(relayed_site());
    let inform = Packet::new(mac(1), 8);
    let has_it = inform.clone().ciaddr("10.9.0.77");
    for (packet, address) in [
        (has_it.clone(), "10.9.0.77"),
        (has_it.through("10.9.0.1"), "10.9.0.77"),
        (inform.clone().from("172.22.0.9"), "172.22.0.9"),
    ] {
        let reply = line.at(0).send(&packet).reply();
        let address = ip(address);
        assert_eq!(
            reply.destination,
            Destination::Unicast { address, port: 68 }
        );
        assert_eq!(reply.encode()[16..20], [0; 4], "yiaddr");
        for times in [51, 58, 59] {
            assert_eq!(option(&reply, times), None);
        }
    }
    assert_eq!(line.server.leases().iter().count(), 0);
    let address = ip("0.0.0.0");
    assert_eq!(
        line.at(0).send(&inform).decision,
        Decision::Ignore(Reason::NotItsLease { address })
    );
}

#[test]
fn rfc2131_table_3_a_refusal_says_who_and_why_and_nothing_else() {
    let mut line = Timeline::new(small_site());
    let packet = reboot(mac(1), "10.1.2.3")
        .option(61, b"\x01id")
        .option(82, b"\x01\x01a");
    let refused = line.at(0).send(&packet).reply();
    assert_eq!(codes(&refused), [53, 54, 56, 61, 82]);
    assert_eq!(refused.encode()[12..24], [0; 12], "no address");
}

#[test]
fn rfc2131_4_1_an_answer_fits_the_message_that_the_client_takes() {
    let mut spec = small_site();
    spec.domain = Some(vec!["a".repeat(60); 4].join("."));
    let mut line = Timeline::new(spec);
    let packet = discover(mac(1))
        .option(60, b"PXEClient:Arch:00007")
        .option(93, &[0, 7])
        .option(61, &[7; 200]);
    let short = line.at(0).send(&packet).reply();
    assert!(short.encode().len() <= 548);
    assert_eq!(option(&short, 61), Some(vec![7; 200]));
    assert_eq!(option(&short, 67).as_deref(), Some(&b"shimx64.efi"[..]));
    assert_eq!(option(&short, 15), None);
    let large = packet.option(57, &[0x05, 0xc0]);
    let whole = line.at(0).send(&large).reply();
    assert_eq!(option(&whole, 15).map(|domain| domain.len()), Some(243));
}

#[test]
fn rfc3046_2_2_relay_information_comes_back_even_from_a_switch_that_is_no_relay() {
    let mut line = Timeline::new(small_site());
    let circuit = b"\x01\x04port";
    let reply = line
        .at(0)
        .send(&discover(mac(1)).option(82, circuit))
        .reply();
    let options = dump_options(&reply.encode());
    assert_eq!(options.last(), Some(&(82, circuit.to_vec())));
}

#[test]
fn rfc3527_3_the_link_decides_the_address_and_the_relay_gets_the_answer() {
    let mut line = Timeline::new(relayed_site());
    let of_link = b"\x05\x04\x0a\x09\x00\x00";
    let packet = discover(mac(1)).through("172.22.0.9").option(82, of_link);
    let reply = line.at(0).send(&packet).reply();
    assert_eq!(reply.encode()[16..20], [10, 9, 0, 50]);
    let address = ip("172.22.0.9");
    assert_eq!(reply.destination, Destination::Relay { address, port: 67 });
    let request = select(mac(1), "10.9.0.50")
        .through("172.22.0.9")
        .option(82, of_link);
    line.at(0).send(&request).expect("ACK 10.9.0.50");
}

#[test]
fn rfc1534_2_a_bootp_client_gets_its_reserved_address_for_ever_and_no_other() {
    let mut spec = small_site();
    spec.reservations.insert(mac(7), reserved("172.22.0.20"));
    let mut line = Timeline::new(spec);
    let bootp = |client| {
        let mut packet = Packet::new(client, 0);
        packet.options.clear();
        packet
    };
    let reply = line.at(0).send(&bootp(mac(7))).reply();
    assert_eq!(reply.persist, []);
    let bytes = reply.encode();
    assert_eq!(bytes.len(), 300, "RFC 951 section 3");
    assert_eq!(bytes[16..20], [172, 22, 0, 20]);
    assert_eq!(codes(&reply), [1, 12, 28, 42], "nothing that DHCP added");
    let stranger = line.at(0).send(&bootp(mac(1))).decision;
    assert_eq!(stranger, Decision::Ignore(Reason::NotReserved));
    line.foreign(1);
    let beside = line.at(2).send(&bootp(mac(7))).decision;
    let server = ip("172.22.0.254");
    assert_eq!(beside, Decision::Ignore(Reason::OtherServer { server }));
}

#[test]
fn rfc4578_2_1_each_architecture_gets_what_it_can_run() {
    let file = |class: &[u8], arch| {
        let packet = discover(mac(1)).option(60, class).option(93, &[0, arch]);
        let reply = Timeline::new(small_site()).at(0).send(&packet).reply();
        option(&reply, 67).map(|file| String::from_utf8(file).unwrap())
    };
    let pxe = |arch| file(b"PXEClient:Arch", arch);
    let http = |arch| file(b"HTTPClient:Arch", arch);
    assert_eq!(pxe(0).as_deref(), Some("undionly.kpxe"));
    for arch in [7, 9] {
        assert_eq!(pxe(arch).as_deref(), Some("shimx64.efi"));
    }
    assert_eq!(http(16).as_deref(), Some("http://172.22.0.1/shimx64.efi"));
    for arch in [6, 10, 11, 255] {
        assert_eq!(pxe(arch), None, "{arch}");
    }
    for arch in [15, 18, 19] {
        assert_eq!(http(arch), None, "{arch}");
    }
}

#[test]
fn pxe_2_2_3_port_4011_answers_whoever_boots_where_it_asked_from() {
    let mut line = Timeline::new(small_site());
    let asked = |kind, arch| {
        Packet::new(mac(1), kind)
            .ciaddr("172.22.0.77")
            .option(60, b"PXEClient:Arch")
            .option(93, &[0, arch])
            .option(97, &[0; 17])
            .encode()
    };
    let now = line.at(0).now();
    let mut ask = |datagram: &[u8]| {
        let origin = origin(Listener::Pxe, "172.22.0.77");
        handle(&mut line.server, datagram, origin, now)
    };
    for kind in [3, 8] {
        let Decision::Reply(reply) = ask(&asked(kind, 0)) else {
            panic!("no answer to message type {kind}");
        };
        assert_eq!(reply.destination, Destination::Sender);
        assert_eq!(option(&reply, 53), Some(vec![5]));
        assert_eq!(option(&reply, 51), None, "no lease");
        assert_eq!(option(&reply, 97), Some(vec![0; 17]));
    }
    assert_eq!(ask(&asked(1, 0)), Decision::Ignore(Reason::NotAsked));
    let arm = Decision::Ignore(Reason::Unsupported(ClientArch::Arm64));
    assert_eq!(ask(&asked(3, 11)), arm);
}
