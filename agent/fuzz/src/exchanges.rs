//! Both ends of DHCP, the real ones, on a virtual clock, with a network between them that loses, doubles and reorders, a box
//! that loses its power, and machines that do. Everything follows from the seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::time::Duration;

use firstlight_client::net::dhcp::{Client, Output};
use firstlight_netboot::{
    AddressRange, Decision, DhcpConfig, DhcpSpec, LeaseTable, Listener, MacAddr, Now, Origin,
    ProbeResult, Request, Server, compact, decode_log, encode_records,
};

const START: u64 = 1_795_219_200;
const CLIENTS: usize = 3;
/// Until then everything fails, from then on nothing.
const FAULTS: Duration = Duration::from_secs(100);
/// The longest that a client may take when nothing fails.
const ENOUGH: Duration = Duration::from_secs(80);
const LEASE: Duration = Duration::from_mins(2);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    ToBox(Vec<u8>),
    ToClient(usize, Vec<u8>),
    /// The end of a probe, for which this request waits.
    Probed(Ipv4Addr, Vec<u8>),
    PowerCut,
    /// A machine is switched off and on, or its link is.
    Restart(usize),
    LinkUp(usize),
}

struct World {
    random: u64,
    now: Duration,
    serial: u64,
    queue: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    server: Server,
    disk: Vec<u8>,
    clients: [Client; CLIENTS],
    /// What a client uses, and until when.
    held: [Option<(Ipv4Addr, Duration)>; CLIENTS],
}

impl World {
    fn new(seed: u64) -> Self {
        let mut spec = DhcpSpec::for_box("192.168.77.1/24".parse().expect("a subnet"), 80);
        let (first, last) = ([192, 168, 77, 100].into(), [192, 168, 77, 105].into());
        spec.subnets[0].range = AddressRange::new(first, last).expect("a range");
        spec.lease_time = LEASE;
        let config = DhcpConfig::new(spec).expect("settings of a box");
        let mut world = Self {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now: Duration::ZERO,
            serial: 0,
            queue: BinaryHeap::new(),
            server: Server::new(config, LeaseTable::default()),
            disk: compact(&LeaseTable::default(), Now::from_unix_seconds(START)),
            clients: [0, 1, 2].map(new_client),
            held: [None; CLIENTS],
        };
        world.server.silence(world.wall());
        for _ in 0..world.below(3) {
            world.some_time(Event::PowerCut);
        }
        for client in 0..CLIENTS {
            match world.below(4) {
                0 => world.some_time(Event::Restart(client)),
                1 => world.some_time(Event::LinkUp(client)),
                _ => {}
            }
        }
        world
    }

    /// xorshift64*
    fn below(&mut self, below: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % below
    }

    fn wall(&self) -> Now {
        Now::from_unix_seconds(START + self.now.as_secs())
    }

    fn at(&mut self, when: Duration, event: Event) {
        self.serial += 1;
        self.queue.push(Reverse((when, self.serial, event)));
    }

    fn some_time(&mut self, event: Event) {
        let when = Duration::from_millis(self.below(90_000));
        self.at(when, event);
    }

    /// Over the network.
    fn send(&mut self, event: &Event) {
        let fails = self.now < FAULTS;
        let copies = match self.below(100) {
            0..25 if fails => 0,
            25..40 if fails => 2,
            _ => 1,
        };
        for _ in 0..copies {
            // Some come after what was sent seconds later.
            let most = if fails && self.below(5) == 0 { 4000 } else { 5 };
            let late = Duration::from_millis(1 + self.below(most));
            self.at(self.now + late, event.clone());
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::ToBox(datagram) => self.served(datagram),
            Event::ToClient(client, datagram) => {
                let outputs = self.clients[client].receive(self.now, &datagram);
                self.carry_out(client, outputs);
            }
            Event::Probed(address, datagram) => {
                let used = self.holders(address) > 0;
                let result = if used {
                    ProbeResult::InUse
                } else {
                    ProbeResult::Free
                };
                self.server.probed(address, result, self.wall());
                self.served(datagram);
            }
            Event::PowerCut => {
                let decoded = decode_log(&self.disk).expect("a lease log");
                assert_eq!(&decoded.table, self.server.leases());
                self.server = Server::new(self.server.config().clone(), decoded.table);
                self.server.silence(self.wall());
            }
            Event::Restart(client) => {
                self.clients[client] = new_client(client + 10);
                self.clients[client].link_up(self.now);
                self.held[client] = None;
            }
            Event::LinkUp(client) => self.clients[client].link_up(self.now),
        }
    }

    fn served(&mut self, datagram: Vec<u8>) {
        let request = Request::parse(&datagram).expect("our own client's");
        let origin = Origin {
            listener: Listener::Dhcp,
            source: request.ciaddr,
            destination: Ipv4Addr::BROADCAST,
        };
        match self.server.handle_request(&request, origin, self.wall()) {
            Decision::Reply(reply) => {
                self.disk.extend(encode_records(&reply.persist));
                let client = (0..CLIENTS).find(|client| mac(*client) == request.mac);
                let client = client.expect("one of the clients");
                self.send(&Event::ToClient(client, reply.encode()));
            }
            Decision::Record { persist, .. } => self.disk.extend(encode_records(&persist)),
            Decision::Probe { address } => {
                let end = self.now + Duration::from_millis(500);
                self.at(end, Event::Probed(address, datagram));
            }
            Decision::Ignore(_) => {}
        }
    }

    fn carry_out(&mut self, client: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send { packet, .. } => self.send(&Event::ToBox(packet)),
                Output::Bound(lease) => {
                    self.held[client] = Some((lease.address, self.now + lease.expire));
                    assert_eq!(self.holders(lease.address), 1, "{}", lease.address);
                }
                Output::Lost => self.held[client] = None,
            }
        }
    }

    fn holders(&self, address: Ipv4Addr) -> usize {
        let held = self.held.iter().flatten();
        held.filter(|(other, until)| *other == address && self.now < *until)
            .count()
    }

    fn run(&mut self) {
        while self.now < FAULTS + ENOUGH {
            let next = self.queue.peek().map(|Reverse((at, ..))| *at);
            let due = self.clients.iter().map(Client::deadline).min();
            let due = due.expect("there are clients").max(self.now);
            if let Some(at) = next.filter(|at| *at <= due) {
                self.now = at;
                if let Some(Reverse((_, _, event))) = self.queue.pop() {
                    self.happens(event);
                }
            } else {
                self.now = due;
                for client in 0..CLIENTS {
                    if self.clients[client].deadline() <= self.now {
                        let outputs = self.clients[client].poll(self.now);
                        self.carry_out(client, outputs);
                    }
                }
            }
        }
        for held in self.held {
            assert!(held.is_some_and(|(_, until)| self.now < until));
        }
    }
}

fn mac(client: usize) -> MacAddr {
    MacAddr::new(octets(client)).expect("a unicast address")
}

fn octets(client: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, u8::try_from(client).expect("a few")]
}

/// From 10 on, one of them in another life.
fn new_client(client: usize) -> Client {
    let xid = u32::try_from(client * 1000).expect("a small number");
    Client::new(octets(client % 10), xid)
}

#[test]
fn whatever_the_network_does_no_address_has_two_owners_and_everybody_gets_one() {
    for seed in 0..10_000 {
        let played = std::panic::catch_unwind(|| World::new(seed).run());
        assert!(played.is_ok(), "seed {seed}");
    }
}
