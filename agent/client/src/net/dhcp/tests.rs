#![allow(clippy::unwrap_used)]

use super::{
    reply::{BOOT_REPLY, FIXED, MAGIC},
    *,
};
use dhcproto::Decodable;
use dhcproto::v4::Opcode;
use proptest::prelude::*;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 0xcc];
const ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 50);
const SERVER: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 1);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn client() -> Client {
    Client::new(MAC, 100)
}

/// The one packet in `outputs`.
fn sent(outputs: &[Output]) -> (Option<Ipv4Addr>, Message) {
    let [Output::Send { to, packet }] = outputs else {
        panic!("not one packet: {outputs:?}")
    };
    (*to, Message::from_bytes(packet).unwrap())
}

fn reply(question: &Message, kind: MessageType, more: &[DhcpOption]) -> Vec<u8> {
    let mut message = Message::new_with_id(
        question.xid(),
        Ipv4Addr::UNSPECIFIED,
        ADDRESS,
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::UNSPECIFIED,
        question.chaddr(),
    );
    message.set_opcode(Opcode::BootReply);
    let options = [
        DhcpOption::MessageType(kind),
        DhcpOption::ServerIdentifier(SERVER),
    ];
    for option in options.iter().chain(more) {
        message.opts_mut().insert(option.clone());
    }
    message.to_vec().unwrap()
}

fn hour() -> [DhcpOption; 3] {
    [
        DhcpOption::AddressLeaseTime(3600),
        DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0)),
        DhcpOption::Router(vec![SERVER]),
    ]
}

/// Discover, offer, request, acknowledge, all at second 0.
fn bound() -> (Client, Lease) {
    let mut client = client();
    let (_, discover) = sent(&client.poll(at(0)));
    let (_, request) = sent(&client.receive(at(0), &reply(&discover, MessageType::Offer, &hour())));
    let outputs = client.receive(at(0), &reply(&request, MessageType::Ack, &hour()));
    let [Output::Bound(lease)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    (client, lease.clone())
}

#[test]
fn an_address_takes_four_packets() {
    let mut client = client();
    let (to, discover) = sent(&client.poll(at(0)));
    assert_eq!(
        (to, discover.opts().msg_type(), discover.xid()),
        (None, Some(MessageType::Discover), 100)
    );
    assert!(discover.flags().broadcast() && discover.chaddr() == MAC);
    assert!(!discover.opts().contains(OptionCode::ClientIdentifier));

    let (to, request) =
        sent(&client.receive(at(1), &reply(&discover, MessageType::Offer, &hour())));
    assert_eq!(
        (to, request.opts().msg_type(), request.xid()),
        (None, Some(MessageType::Request), 100)
    );
    assert_eq!(
        request.opts().get(OptionCode::RequestedIpAddress),
        Some(&DhcpOption::RequestedIpAddress(ADDRESS))
    );
    assert_eq!(
        request.opts().get(OptionCode::ServerIdentifier),
        Some(&DhcpOption::ServerIdentifier(SERVER))
    );

    let lease = Lease {
        address: ADDRESS,
        prefix: 24,
        router: Some(SERVER),
        server: SERVER,
        hostname: None,
        renew: at(1800),
        rebind: at(3150),
        expire: at(3600),
    };
    assert_eq!(
        client.receive(at(1), &reply(&request, MessageType::Ack, &hour())),
        [Output::Bound(lease)]
    );
    assert_eq!(client.deadline(), at(1801));
}

#[test]
fn silence_is_asked_again_at_growing_intervals() {
    let mut client = client();
    let mut times = Vec::new();
    for _ in 0..6 {
        let now = client.deadline();
        times.push(now.as_secs());
        assert_eq!(
            sent(&client.poll(now)).1.opts().msg_type(),
            Some(MessageType::Discover)
        );
        assert!(client.poll(now).is_empty());
    }
    assert_eq!(times, [0, 1, 3, 7, 15, 23]);
}

#[test]
fn an_offer_whose_server_falls_silent_is_given_up() {
    let mut client = client();
    let (_, discover) = sent(&client.poll(at(0)));
    client.receive(at(0), &reply(&discover, MessageType::Offer, &hour()));
    let mut kinds = Vec::new();
    for _ in 0..4 {
        kinds.push(
            sent(&client.poll(client.deadline()))
                .1
                .opts()
                .msg_type()
                .unwrap(),
        );
    }
    assert_eq!(
        kinds,
        [
            MessageType::Request,
            MessageType::Request,
            MessageType::Request,
            MessageType::Discover
        ]
    );
}

#[test]
fn answers_to_others_are_ignored() {
    let mut client = client();
    let (_, discover) = sent(&client.poll(at(0)));
    let mut other_xid = discover.clone();
    other_xid.set_xid(7);
    let mut other_mac = discover.clone();
    other_mac.set_chaddr(&[2; 6]);
    let no_server = {
        let mut message =
            Message::from_bytes(&reply(&discover, MessageType::Offer, &hour())).unwrap();
        message.opts_mut().remove(OptionCode::ServerIdentifier);
        message.to_vec().unwrap()
    };
    let before = client.clone();
    for packet in [
        reply(&other_xid, MessageType::Offer, &hour()),
        reply(&other_mac, MessageType::Offer, &hour()),
        reply(&discover, MessageType::Ack, &hour()),
        no_server,
        discover.to_vec().unwrap(),
        vec![0; 20],
    ] {
        assert_eq!(client.receive(at(0), &packet), []);
    }
    assert_eq!(client, before);
}

#[test]
fn a_hardware_address_longer_than_its_field_is_not_believed() {
    let mut client = client();
    let (_, discover) = sent(&client.poll(at(0)));
    let mut packet = reply(&discover, MessageType::Offer, &hour());
    packet[2] = 255;
    assert_eq!(client.receive(at(0), &packet), []);
}

#[test]
fn a_lease_is_renewed_with_its_server_then_with_anybody_then_lost() {
    let (mut client, lease) = bound();
    let (to, renew) = sent(&client.poll(at(1800)));
    assert_eq!(
        (to, renew.ciaddr(), renew.flags().broadcast()),
        (Some(SERVER), ADDRESS, false)
    );
    assert!(
        !renew.opts().contains(OptionCode::RequestedIpAddress)
            && !renew.opts().contains(OptionCode::ServerIdentifier)
    );
    let mut renewed = client.clone();
    assert_eq!(
        renewed.receive(at(1801), &reply(&renew, MessageType::Ack, &hour())),
        [Output::Bound(lease)]
    );
    assert_eq!(renewed.deadline(), at(3601));

    assert_eq!(client.deadline(), at(1800 + 675));
    let mut broadcast = false;
    loop {
        let outputs = client.poll(client.deadline());
        if let [Output::Lost, Output::Send { packet, .. }] = &outputs[..] {
            assert_eq!(
                Message::from_bytes(packet).unwrap().opts().msg_type(),
                Some(MessageType::Discover)
            );
            break;
        }
        let (to, _) = sent(&outputs);
        assert!(to.is_some() || client.deadline() > at(3150));
        broadcast |= to.is_none();
    }
    assert!(broadcast);
}

#[test]
fn after_the_link_was_down_the_address_is_asked_for_again() {
    let (mut client, lease) = bound();
    client.link_up(at(100));
    let (to, request) = sent(&client.poll(at(100)));
    assert_eq!(
        (to, request.opts().msg_type()),
        (None, Some(MessageType::Request))
    );
    assert_eq!(
        request.opts().get(OptionCode::RequestedIpAddress),
        Some(&DhcpOption::RequestedIpAddress(ADDRESS))
    );
    assert!(
        !request.opts().contains(OptionCode::ServerIdentifier) && request.ciaddr().is_unspecified()
    );

    let mut refused = client.clone();
    assert_eq!(
        client.receive(at(100), &reply(&request, MessageType::Ack, &hour())),
        [Output::Bound(lease)]
    );
    let outputs = refused.receive(at(100), &reply(&request, MessageType::Nak, &[]));
    assert_eq!(outputs[0], Output::Lost);
    assert_eq!(
        sent(&outputs[1..]).1.opts().msg_type(),
        Some(MessageType::Discover)
    );
}

#[test]
fn odd_leases_are_mended_and_useless_ones_refused() {
    let (_, discover) = sent(&client().poll(at(0)));
    let lease = |more: &[DhcpOption]| {
        Reply::parse(&reply(&discover, MessageType::Ack, more))
            .unwrap()
            .lease()
    };
    assert_eq!(lease(&[]), None);
    let short = lease(&[
        DhcpOption::AddressLeaseTime(1),
        DhcpOption::Renewal(90),
        DhcpOption::Rebinding(80),
    ])
    .unwrap();
    assert_eq!((short.prefix, short.expire), (16, at(30)));
    assert!(short.renew < short.rebind && short.rebind < short.expire);
    let holes = DhcpOption::SubnetMask(Ipv4Addr::new(255, 0, 255, 0));
    assert_eq!(
        lease(&[DhcpOption::AddressLeaseTime(60), holes])
            .unwrap()
            .prefix,
        16
    );
}

proptest! {
    #[test]
    fn any_datagram_is_answered(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..400), ours in any::<bool>(),
    ) {
        if ours && bytes.len() > FIXED {
            bytes[..3].copy_from_slice(&[BOOT_REPLY, 1, 6]);
            bytes[4..8].copy_from_slice(&100u32.to_be_bytes());
            bytes[28..34].copy_from_slice(&MAC);
            bytes[FIXED - 4..FIXED].copy_from_slice(&MAGIC);
        }
        let (mut bound, _) = bound();
        let mut new = client();
        new.poll(at(0));
        bound.receive(at(1), &bytes);
        new.receive(at(1), &bytes);
    }

    /// Whatever the lease times, the client neither stops asking nor asks without a pause.
    #[test]
    fn time_always_goes_on(lease in any::<u32>(), t1 in any::<u32>(), t2 in any::<u32>()) {
        let mut client = client();
        let (_, discover) = sent(&client.poll(at(0)));
        let options = [DhcpOption::AddressLeaseTime(lease), DhcpOption::Renewal(t1), DhcpOption::Rebinding(t2)];
        let (_, request) = sent(&client.receive(at(0), &reply(&discover, MessageType::Offer, &options)));
        client.receive(at(0), &reply(&request, MessageType::Ack, &options));
        let mut now = at(0);
        for _ in 0..50 {
            let next = client.deadline();
            prop_assert!(next >= now && next.saturating_sub(now) < at(1 << 33));
            now = next;
            prop_assert!(!client.poll(now).is_empty());
            prop_assert!(client.deadline() > now);
        }
    }
}
