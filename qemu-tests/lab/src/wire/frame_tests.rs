#![allow(clippy::unwrap_used)]

use super::*;

const MAC: Mac = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

fn site() -> Site {
    Site::new(Ipv4Addr::new(172, 22, 0, 1), 24)
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&[0xff; 6], &MAC[..], &kind.to_be_bytes(), payload].concat()
}

fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 1];
    ethernet(
        ETHERTYPE_ARP,
        &[&head[..], &MAC, &sender, &[0; 6], &target].concat(),
    )
}

fn udp(source: [u8; 4], target: [u8; 4], ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    let ip = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, UDP, 0, 0];
    let (from, to) = (ports.0.to_be_bytes(), ports.1.to_be_bytes());
    ethernet(
        ETHERTYPE_IPV4,
        &[&ip[..], &source, &target, &from, &to, &[0; 4], data].concat(),
    )
}

#[test]
fn traffic_of_the_site_is_no_leak() {
    let inside = [
        arp([172, 22, 0, 5], [172, 22, 0, 1]),
        arp([0; 4], [172, 22, 0, 9]),
        udp([0; 4], [255; 4], (68, 67), &[1]),
        udp([172, 22, 0, 5], [224, 0, 0, 251], (5353, 5353), &[]),
        udp([172, 22, 0, 1], [172, 22, 0, 255], (9, 9), &[]),
        ethernet(0x88cc, &[1, 2, 3]),
    ];
    for frame in inside {
        assert_eq!(leak(&frame, &site()), None);
    }
}

#[test]
fn a_packet_to_the_internet_is_a_leak_with_its_text() {
    let frame = udp([172, 22, 0, 5], [1, 1, 1, 1], (4000, 53), &[]);
    assert_eq!(
        leak(&frame, &site()).unwrap(),
        "52:54:00:12:34:56 sends UDP 172.22.0.5 to 1.1.1.1 port 53"
    );
}

#[test]
fn a_packet_from_a_foreign_address_is_a_leak() {
    let frame = udp([100, 64, 0, 1], [172, 22, 0, 5], (1, 2), &[]);
    assert!(
        leak(&frame, &site())
            .unwrap()
            .contains("100.64.0.1 to 172.22.0.5")
    );
}

#[test]
fn pods_of_the_site_talk_to_each_other_and_to_nobody_outside() {
    let with_pods = site().with_pods(Some(Ipv4Network::around([10, 244, 0, 0].into(), 16)));
    let packet = |target| udp([10, 244, 0, 2], target, (53, 53), &[]);
    let between_nodes = packet([10, 244, 1, 2]);
    assert_eq!(leak(&between_nodes, &with_pods), None);
    assert!(leak(&between_nodes, &site()).is_some());
    assert!(leak(&packet([1, 1, 1, 1]), &with_pods).is_some());
    assert!(leak(&arp([172, 22, 0, 5], [10, 244, 1, 2]), &with_pods).is_some());
}

#[test]
fn asking_for_a_foreign_address_by_arp_is_a_leak() {
    let text = leak(&arp([172, 22, 0, 5], [10, 0, 2, 2]), &site()).unwrap();
    assert!(text.ends_with("ARP for 10.0.2.2"), "{text}");
}

#[test]
fn a_leak_inside_a_vlan_tag_is_seen() {
    let plain = udp([172, 22, 0, 5], [8, 8, 8, 8], (1, 443), &[]);
    let tagged = [&plain[..12], &[0x81, 0, 0, 7], &plain[12..]].concat();
    let said = leak(&plain, &site()).unwrap() + " on VLAN 7";
    assert_eq!(leak(&tagged, &site()), Some(said));
}

#[test]
fn a_network_of_the_site_has_its_own_tag() {
    let plain = udp([10, 20, 0, 5], [10, 20, 0, 6], (1, 443), &[]);
    let on = |tag: u8| [&plain[..12], &[0x81, 0, 0, tag], &plain[12..]].concat();
    let site = site().with_networks(vec![(Some(20), "10.20.0.0/24".parse().unwrap())]);
    assert_eq!(leak(&on(20), &site), None);
    assert!(leak(&on(21), &site).is_some());
    assert!(leak(&plain, &site).is_some());
    let provisioning = udp([172, 22, 0, 5], [172, 22, 0, 6], (1, 443), &[]);
    let tagged = [&provisioning[..12], &[0x81, 0, 0, 20], &provisioning[12..]].concat();
    assert!(leak(&tagged, &site).is_some());
}

#[test]
fn global_ipv6_is_a_leak_and_link_local_is_not() {
    let packet = |target: Ipv6Addr| {
        let source = "fe80::1".parse::<Ipv6Addr>().unwrap();
        ethernet(
            ETHERTYPE_IPV6,
            &[
                &[0x60, 0, 0, 0, 0, 0, 58, 255][..],
                &source.octets(),
                &target.octets(),
            ]
            .concat(),
        )
    };
    assert_eq!(leak(&packet("ff02::2".parse().unwrap()), &site()), None);
    assert_eq!(leak(&packet("fe80::9".parse().unwrap()), &site()), None);
    assert!(leak(&packet("2001:db8::1".parse().unwrap()), &site()).is_some());
    // A network of the site has its own tag.
    let site = site().with_ipv6(vec![(Some(20), "fd00:20::/64".parse().unwrap())]);
    let plain = packet("fd00:20::1".parse().unwrap());
    let on = |tag: u8| [&plain[..12], &[0x81, 0, 0, tag], &plain[12..]].concat();
    assert_eq!(leak(&on(20), &site), None);
    assert!(leak(&on(21), &site).is_some());
    assert!(leak(&plain, &site).is_some());
}

#[test]
fn only_a_reply_of_a_server_is_a_dhcp_answer() {
    let client = [0x52, 0x54, 0, 0, 0, 1];
    let message = |op| {
        let mut message = vec![op];
        message.resize(28, 0);
        message.extend(client);
        message
    };
    let server = [172, 22, 0, 1];
    let answer = udp(server, [255; 4], (67, 68), &message(2));
    assert_eq!(dhcp_answer(&answer), Some((client, server.into())));
    let question = udp([0; 4], [255; 4], (68, 67), &message(1));
    assert_eq!(dhcp_answer(&question), None);
    assert_eq!(dhcp_answer(&arp([0; 4], [0; 4])), None);
}

#[test]
fn a_tftp_request_goes_to_port_69() {
    let server = [172, 22, 0, 1];
    assert!(is_tftp_request(&udp([1; 4], server, (2070, 69), &[0, 1])));
    assert!(!is_tftp_request(&udp(server, [1; 4], (69, 2070), &[0, 3])));
    assert!(!is_tftp_request(&arp([0; 4], [0; 4])));
}

#[test]
fn every_cut_of_a_frame_is_read_without_panic() {
    for frame in [
        arp([1; 4], [2; 4]),
        udp([1; 4], [2; 4], (67, 68), &[2; 40]),
        ethernet(ETHERTYPE_VLAN, &[0; 9]),
    ] {
        for length in 0..frame.len() {
            let cut = &frame[..length];
            let _ = (
                leak(cut, &site()),
                dhcp_answer(cut),
                is_tftp_request(cut),
                arp_sender(cut),
                capture_length(cut),
            );
        }
    }
}
