//! A client for tests: builds the datagrams that machines send, byte by byte, so that no decoder checks itself.

mod golden;

pub use golden::expect_golden;

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::{
    AddressRange, Authority, Decision, DhcpConfig, DhcpSpec, ForeignServer, LeaseTable, Listener,
    MacAddr, ModeStep, Now, Origin, Overheard, Reason, Reply, Request, Server,
};

/// 2026-11-21, an arbitrary moment.
pub const START: u64 = 1_795_219_200;

pub fn ip(text: &str) -> Ipv4Addr {
    text.parse().expect("an address in a test")
}

pub fn mac(last: u8) -> MacAddr {
    MacAddr::new([0x52, 0x54, 0, 0xaa, 0, last]).expect("a unicast address")
}

/// The box at 172.22.0.1/24 with three addresses to lease: .100, .101, .102.
pub fn small_site() -> DhcpSpec {
    let mut spec = DhcpSpec::for_box("172.22.0.1/24".parse().expect("a subnet"), 80);
    spec.subnets[0].range =
        AddressRange::new(ip("172.22.0.100"), ip("172.22.0.102")).expect("a range");
    spec.lease_time = Duration::from_hours(1);
    spec
}

/// A message of a client, with the fields that tests vary.
#[derive(Clone)]
pub struct Packet {
    pub mac: MacAddr,
    pub broadcast: bool,
    pub ciaddr: Ipv4Addr,
    pub giaddr: Ipv4Addr,
    /// Of the IP packet, if it is not ciaddr.
    pub source: Option<Ipv4Addr>,
    /// Of the IP packet, if it is not the one that such a message goes to.
    pub destination: Option<Ipv4Addr>,
    pub options: Vec<(u8, Vec<u8>)>,
}

impl Packet {
    pub fn new(mac: MacAddr, message_type: u8) -> Self {
        Self {
            mac,
            broadcast: false,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: Ipv4Addr::UNSPECIFIED,
            source: None,
            destination: None,
            options: vec![(53, vec![message_type])],
        }
    }

    pub fn option(mut self, code: u8, data: &[u8]) -> Self {
        self.options.push((code, data.to_vec()));
        self
    }

    pub fn address(self, code: u8, address: &str) -> Self {
        self.option(code, &ip(address).octets())
    }

    pub fn ciaddr(mut self, address: &str) -> Self {
        self.ciaddr = ip(address);
        self
    }

    pub fn through(mut self, relay: &str) -> Self {
        self.giaddr = ip(relay);
        self
    }

    pub fn from(mut self, source: &str) -> Self {
        self.source = Some(ip(source));
        self
    }

    pub fn to(mut self, destination: &str) -> Self {
        self.destination = Some(ip(destination));
        self
    }

    /// To the box by its relay or by a client that has an address, otherwise to everybody.
    fn origin(&self) -> Origin {
        let source = self.source.unwrap_or(self.ciaddr);
        let knows_the_box = !source.is_unspecified() || !self.giaddr.is_unspecified();
        let usual = if knows_the_box {
            ip("172.22.0.1")
        } else {
            Ipv4Addr::BROADCAST
        };
        Origin {
            listener: Listener::Dhcp,
            source,
            destination: self.destination.unwrap_or(usual),
        }
    }

    pub fn broadcast(mut self) -> Self {
        self.broadcast = true;
        self
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![1, 1, 6, 0, 0x12, 0x34, 0x56, 0x78, 0, 0];
        bytes.extend([u8::from(self.broadcast) << 7, 0]);
        bytes.extend(self.ciaddr.octets());
        bytes.extend([0; 8]);
        bytes.extend(self.giaddr.octets());
        bytes.extend(self.mac.octets());
        bytes.resize(236, 0);
        bytes.extend([99, 130, 83, 99]);
        for (code, data) in &self.options {
            bytes.push(*code);
            bytes.push(u8::try_from(data.len()).expect("a short option"));
            bytes.extend(data);
        }
        bytes.push(255);
        bytes
    }
}

pub fn discover(mac: MacAddr) -> Packet {
    Packet::new(mac, 1)
}

/// REQUEST in the state SELECTING, to the box.
pub fn select(mac: MacAddr, address: &str) -> Packet {
    Packet::new(mac, 3)
        .address(50, address)
        .address(54, "172.22.0.1")
}

/// REQUEST in the state INIT-REBOOT.
pub fn reboot(mac: MacAddr, address: &str) -> Packet {
    Packet::new(mac, 3).address(50, address)
}

/// REQUEST in the states RENEWING and REBINDING.
pub fn renew(mac: MacAddr, address: &str) -> Packet {
    Packet::new(mac, 3).ciaddr(address)
}

/// A server on a virtual clock, with the disk that it would have: what is not persisted is lost at a restart.
pub struct Timeline {
    pub server: Server,
    pub disk: Vec<u8>,
}

pub struct Moment<'a> {
    timeline: &'a mut Timeline,
    now: Now,
}

pub struct Answer {
    pub decision: Decision,
}

/// To the box, from `source`.
pub fn origin(listener: Listener, source: &str) -> Origin {
    Origin {
        listener,
        source: ip(source),
        destination: ip("172.22.0.1"),
    }
}

/// One datagram to a server, as the edge does it.
pub fn handle(server: &mut Server, datagram: &[u8], origin: Origin, now: Now) -> Decision {
    match Request::parse(datagram) {
        Ok(request) => server.handle_request(&request, origin, now),
        Err(error) => Decision::Ignore(Reason::Malformed(error)),
    }
}

impl Timeline {
    /// On a segment that was asked, and has no other server.
    pub fn new(spec: DhcpSpec) -> Self {
        let mut line = Self::unasked(spec);
        line.silence(0);
        line
    }

    pub fn unasked(spec: DhcpSpec) -> Self {
        let config = DhcpConfig::new(spec).expect("settings of a test make sense");
        let table = LeaseTable::default();
        let disk = crate::compact(&table, Now::from_unix_seconds(START));
        Self {
            server: Server::new(config, table),
            disk,
        }
    }

    pub fn not_authoritative(mut spec: DhcpSpec) -> Self {
        spec.authority = Authority::NotAuthoritative;
        Self::new(spec)
    }

    /// Seconds after the start.
    pub fn at(&mut self, seconds: u64) -> Moment<'_> {
        Moment {
            timeline: self,
            now: Now::from_unix_seconds(START + seconds),
        }
    }

    pub fn ask(&mut self, seconds: u64) -> Option<ModeStep> {
        let now = self.at(seconds).now;
        self.server.ask(now)
    }

    pub fn silence(&mut self, seconds: u64) -> Option<ModeStep> {
        let now = self.at(seconds).now;
        self.server.silence(now)
    }

    /// 172.22.0.254 answers the question.
    pub fn foreign(&mut self, seconds: u64) -> Option<ModeStep> {
        let now = self.at(seconds).now;
        let found = ForeignServer {
            server: ip("172.22.0.254"),
            offered: ip("172.22.0.60"),
        };
        self.server.foreign_seen(found, now)
    }

    pub fn overheard(&mut self, heard: &Overheard, seconds: u64) -> Option<ModeStep> {
        let now = self.at(seconds).now;
        self.server.overheard(heard, now)
    }

    pub fn contested(&mut self, seconds: u64) -> Option<ModeStep> {
        let now = self.at(seconds).now;
        self.server.contested(now)
    }

    /// A power cut: only what is on the disk is left.
    pub fn restart(&mut self) {
        let decoded = crate::decode_log(&self.disk).expect("the disk has a lease log");
        assert_eq!(decoded.valid_bytes, self.disk.len());
        self.server = Server::new(self.server.config().clone(), decoded.table);
        self.silence(0);
    }
}

impl Moment<'_> {
    pub fn now(&self) -> Now {
        self.now
    }

    pub fn send(self, packet: &Packet) -> Answer {
        let server = &mut self.timeline.server;
        let decision = handle(server, &packet.encode(), packet.origin(), self.now);
        let persist = match &decision {
            Decision::Reply(reply) => reply.persist.as_slice(),
            Decision::Record { persist, .. } => persist.as_slice(),
            Decision::Probe { .. } | Decision::Ignore(_) => &[],
        };
        self.timeline.disk.extend(crate::encode_records(persist));
        Answer { decision }
    }
}

impl Answer {
    pub fn reply(self) -> Reply {
        match self.decision {
            Decision::Reply(reply) => reply,
            other => panic!("no reply but {other:?}"),
        }
    }

    /// `OFFER 172.22.0.100`, `ACK …`, `NAK`, or what else was decided.
    pub fn summary(&self) -> String {
        match &self.decision {
            Decision::Reply(reply) => {
                let bytes = reply.encode();
                let kind = match dump_options(&bytes).iter().find(|(code, _)| *code == 53) {
                    Some((_, data)) if data == &[2] => "OFFER",
                    Some((_, data)) if data == &[5] => "ACK",
                    Some((_, data)) if data == &[6] => return "NAK".to_owned(),
                    other => panic!("message type {other:?}"),
                };
                format!(
                    "{kind} {}.{}.{}.{}",
                    bytes[16], bytes[17], bytes[18], bytes[19]
                )
            }
            Decision::Record { event, .. } => format!("{event:?}"),
            other => format!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn expect(self, wanted: &str) {
        assert_eq!(self.summary(), wanted);
    }
}

/// The options of an encoded message, in their order.
pub fn dump_options(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    assert_eq!(bytes[236..240], [99, 130, 83, 99]);
    let mut rest = &bytes[240..];
    let mut options = Vec::new();
    loop {
        match rest {
            [255, padding @ ..] => {
                assert!(
                    padding.iter().all(|b| *b == 0),
                    "only padding behind the end"
                );
                return options;
            }
            [0, tail @ ..] => rest = tail,
            [code, length, tail @ ..] => {
                let (data, next) = tail.split_at(usize::from(*length));
                options.push((*code, data.to_vec()));
                rest = next;
            }
            _ => panic!("the options have no end"),
        }
    }
}

pub fn option(reply: &Reply, code: u8) -> Option<Vec<u8>> {
    dump_options(&reply.encode())
        .into_iter()
        .find(|(c, _)| *c == code)
        .map(|(_, data)| data)
}

/// The site that the golden boot scripts are made for.
pub fn site() -> crate::BootSite {
    crate::BootSite {
        http: crate::BoxHttp::new(ip("172.22.0.1"), 80),
        ironic_port: 6385,
        ca: crate::CaFingerprint::new([0xab; 32]),
        extra_args: Vec::new(),
    }
}
