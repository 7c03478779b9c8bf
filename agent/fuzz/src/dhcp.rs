//! Both sides of DHCP, a conversation at a time.

use std::net::Ipv4Addr;
use std::time::Duration;

use firstlight_client::net::dhcp::{Client, Output};
use firstlight_netboot::{
    AddressRange, Decision, DhcpConfig, DhcpRole, DhcpSpec, ForeignProbe, ForeignServer,
    LeaseTable, Listener, MacAddr, Now, Origin, ProbeResult, Request, Server, SubnetSpec, compact,
    decode_log, encode_records, observe_foreign,
};

use crate::{join, messages};

/// Captures of real firmware, in hex.
const CAPTURES: [&str; 4] = [
    include_str!("../../netboot/fixtures/ovmf-2025.02-pxe-x64-discover.hex"),
    include_str!("../../netboot/fixtures/ovmf-2025.02-pxe-x64-request.hex"),
    include_str!("../../netboot/fixtures/ipxe-1.21.1-undionly-pcbios-discover.hex"),
    include_str!("../../netboot/fixtures/ipxe-1.21.1-undionly-pcbios-request.hex"),
];
const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
const XID: u32 = 7;

/// Where the relay agent of the relayed network is.
const RELAY: [u8; 4] = [10, 9, 0, 1];

/// The first message says how the box stands on the segment; each one after it comes a little later.
pub fn server(bytes: &[u8]) {
    conversation(bytes, None);
}

/// The same through a relay agent.
pub fn relay(bytes: &[u8]) {
    conversation(bytes, Some(RELAY));
}

fn conversation(bytes: &[u8], relay: Option<[u8; 4]>) {
    let mut messages = messages(bytes);
    let how = messages.next().unwrap_or_default().first().copied();
    let how = how.unwrap_or_default();
    let role = [
        DhcpRole::Serve,
        DhcpRole::Proxy,
        DhcpRole::Relay,
        DhcpRole::Serve,
    ];
    let mut server = site(role[usize::from(how >> 2 & 3)]);
    let mut now = Now::from_unix_seconds(1_795_219_200);
    if how & 1 == 0 {
        server.silence(now);
    } else {
        let found = ForeignServer {
            server: Ipv4Addr::new(192, 168, 77, 2),
            offered: Ipv4Addr::new(192, 168, 77, 50),
        };
        server.foreign_seen(found, now);
    }
    let listener = if how & 2 == 0 {
        Listener::Dhcp
    } else {
        Listener::Pxe
    };
    let mut probe = ForeignProbe::new(mac(), [XID; 3], Duration::ZERO);
    probe.step(Duration::ZERO);
    let mut log = compact(&LeaseTable::default(), now);
    for datagram in messages {
        let mut datagram = datagram.to_vec();
        if let (Some(relay), Some(giaddr)) = (relay, datagram.get_mut(24..28)) {
            giaddr.copy_from_slice(&relay);
        }
        let datagram = datagram.as_slice();
        now = Now::from_unix_seconds(now.unix_seconds() + u64::from(how));
        let overheard = observe_foreign(datagram);
        probe.receive(datagram);
        let Ok(request) = Request::parse(datagram) else {
            continue;
        };
        assert!(overheard.is_none(), "nobody takes a client for a server");
        let origin = Origin {
            listener,
            source: Ipv4Addr::UNSPECIFIED,
            destination: if how & 4 == 0 {
                Ipv4Addr::BROADCAST
            } else {
                Ipv4Addr::new(192, 168, 77, 1)
            },
        };
        let mut decision = server.handle_request(&request, origin, now);
        if let Decision::Probe { address } = decision {
            server.probed(address, ProbeResult::Free, now);
            decision = server.handle_request(&request, origin, now);
        }
        let persist = match &decision {
            Decision::Reply(reply) => {
                assert!(reply.encode().len() >= 300);
                &reply.persist
            }
            Decision::Record { persist, .. } => persist,
            Decision::Probe { .. } | Decision::Ignore(_) => continue,
        };
        log.extend(encode_records(persist));
    }
    let decoded = decode_log(&log).expect("it was just written");
    assert_eq!(decoded.valid_bytes, log.len());
    assert_eq!(&decoded.table, server.leases());
    drop(decode_log(bytes));
}

fn site(role: DhcpRole) -> Server {
    let subnet = "192.168.77.1/24".parse().expect("a subnet");
    let mut spec = DhcpSpec::for_box(subnet, 80);
    spec.role = role;
    let (first, last) = ([192, 168, 77, 100].into(), [192, 168, 77, 102].into());
    spec.subnets[0].range = AddressRange::new(first, last).expect("a range");
    let (first, last) = ([10, 9, 0, 50].into(), [10, 9, 0, 52].into());
    spec.subnets.push(SubnetSpec {
        subnet: "10.9.0.1/24".parse().expect("a subnet"),
        range: AddressRange::new(first, last).expect("a range"),
        router: Some(RELAY.into()),
    });
    let config = DhcpConfig::new(spec).expect("settings of a box");
    Server::new(config, LeaseTable::default())
}

fn mac() -> MacAddr {
    MacAddr::new(MAC).expect("a unicast address")
}

pub fn server_seeds() -> Vec<Vec<u8>> {
    let captures = CAPTURES.map(decoded);
    let mut seeds: Vec<Vec<u8>> = [0, 1, 2, 3]
        .map(|how: u8| {
            let mut all: Vec<&[u8]> = captures.iter().map(Vec::as_slice).collect();
            let how = [how];
            all.insert(0, &how);
            join(&all)
        })
        .to_vec();
    seeds.extend(captures.iter().map(|capture| join(&[&[0], capture])));
    seeds
}

/// With what relay agents add: circuit, link, override; a selected subnet.
pub fn relay_seeds() -> Vec<Vec<u8>> {
    let infos: [&[u8]; 4] = [
        &[82, 6, 1, 4, b'p', b'o', b'r', b't'],
        &[82, 6, 5, 4, 10, 9, 0, 0],
        &[82, 12, 5, 4, 10, 9, 0, 0, 11, 4, 10, 9, 0, 1],
        &[118, 4, 10, 9, 0, 0],
    ];
    let message = |kind: u8, info: &[u8]| {
        let mut packet = vec![1, 1, 6, 0, 0, 0, 0, 7];
        packet.resize(28, 0);
        packet.extend(MAC);
        packet.resize(236, 0);
        packet.extend([99, 130, 83, 99, 53, 1, kind, 50, 4, 10, 9, 0, 50]);
        packet.extend(info);
        packet.push(255);
        packet
    };
    let conversation = |info: &&[u8]| {
        let [discover, request, inform] = [1, 3, 8].map(|kind| message(kind, info));
        join(&[&[4], &discover, &request, &inform])
    };
    infos.iter().map(conversation).collect()
}

fn decoded(hex: &str) -> Vec<u8> {
    let digits: String = hex.lines().skip(1).collect();
    let pairs = (0..digits.len() / 2).map(|at| &digits[at * 2..at * 2 + 2]);
    pairs
        .filter_map(|pair| u8::from_str_radix(pair, 16).ok())
        .collect()
}

/// What servers answer, each a little later than the one before. The fields by which the client knows its own are put right.
pub fn client(bytes: &[u8]) {
    let mut client = Client::new(MAC, XID);
    let mut now = Duration::ZERO;
    let mut xid = XID;
    for message in messages(bytes) {
        for output in client.poll(now) {
            if let Output::Send { packet, .. } = output {
                xid = packet.get(4..8).map_or(xid, |bytes| {
                    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
                });
            }
        }
        let mut packet = message.to_vec();
        if packet.len() >= 240 {
            packet[..4].copy_from_slice(&[2, 1, 6, 0]);
            packet[4..8].copy_from_slice(&xid.to_be_bytes());
            packet[28..34].copy_from_slice(&MAC);
            packet[236..240].copy_from_slice(&[99, 130, 83, 99]);
        }
        for output in client.receive(now, &packet) {
            if let Output::Bound(lease) = output {
                assert!(lease.prefix <= 32 && !lease.expire.is_zero());
                assert!(lease.renew <= lease.expire.max(Duration::from_secs(10)));
            }
        }
        let before = now;
        now = client.deadline().max(now + Duration::from_secs(1));
        assert!(now > before);
        if now.as_secs().is_multiple_of(5) {
            client.link_up(now);
        }
    }
}

pub fn client_seeds() -> Vec<Vec<u8>> {
    let answer = |kind: u8| {
        let mut packet = vec![0; 240];
        packet[16..20].copy_from_slice(&[172, 22, 0, 9]);
        let options: [&[u8]; 8] = [
            &[53, 1, kind],
            &[54, 4, 172, 22, 0, 1],
            &[1, 4, 255, 255, 255, 0],
            &[3, 4, 172, 22, 0, 1],
            &[12, 2, b'n', b'1'],
            &[51, 4, 0, 0, 14, 16],
            &[58, 4, 0, 0, 7, 8],
            &[255],
        ];
        packet.extend(options.concat());
        packet
    };
    let (offer, ack, nak) = (answer(2), answer(5), answer(6));
    vec![
        join(&[&offer, &ack, &ack]),
        join(&[&offer, &nak, &offer, &ack, &nak]),
    ]
}
