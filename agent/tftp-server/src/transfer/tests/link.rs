//! A client and a link in virtual time, in one loop with the transfer. Everything follows from the seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::{Action, Blocks, Input, Negotiated, Outcome, Transfer};
use crate::options::RequestedOptions;

const DELAY: Duration = Duration::from_micros(200);
const CLIENT_PATIENCE: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss_percent: u64,
    pub duplicate_percent: u64,
    pub jitter: Duration,
}

impl Faults {
    pub const NONE: Self = Self {
        loss_percent: 0,
        duplicate_percent: 0,
        jitter: Duration::ZERO,
    };
}

/// A block number as packets have it.
#[expect(clippy::cast_possible_truncation, reason = "block numbers roll over")]
pub fn on_the_wire(block: u64) -> u16 {
    block as u16
}

/// What happened.
#[derive(Debug)]
pub struct Run {
    pub data_packets: u64,
    /// Packets that were lost, doubled or overtaken.
    pub faults: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Packet {
    Oack,
    /// Number on the wire and payload length.
    Data(u16, u64),
    Ack(u16),
}

/// An event: when, a serial number that keeps the order of equal times, and what arrives.
type Event = Reverse<(Duration, u64, Packet)>;

struct Link {
    random: u64,
    faults: Faults,
    queue: BinaryHeap<Event>,
    serial: u64,
    fault_count: u64,
    latest: Duration,
}

impl Link {
    /// xorshift64*
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % below
    }

    fn send(&mut self, packet: &Packet, now: Duration) {
        if self.random(100) < self.faults.loss_percent {
            self.fault_count += 1;
            return;
        }
        let copies = if self.random(100) < self.faults.duplicate_percent {
            self.fault_count += 1;
            2
        } else {
            1
        };
        for _ in 0..copies {
            let jitter = u64::try_from(self.faults.jitter.as_micros()).unwrap();
            let late = Duration::from_micros(if jitter == 0 { 0 } else { self.random(jitter) });
            let arrival = now + DELAY + late;
            if arrival < self.latest {
                self.fault_count += 1;
            }
            self.latest = self.latest.max(arrival);
            self.serial += 1;
            self.queue
                .push(Reverse((arrival, self.serial, packet.clone())));
        }
    }
}

/// A client after RFC 7440: acknowledges full windows, and the last good block when one is missing.
struct Client {
    block_size: u64,
    window: u16,
    expected: u64,
    in_window: u16,
    complained: bool,
    received: u64,
    done: bool,
    deadline: Duration,
}

impl Client {
    fn ack(&mut self, now: Duration) -> Packet {
        self.deadline = now + CLIENT_PATIENCE;
        Packet::Ack(on_the_wire(self.expected - 1))
    }

    fn receive(&mut self, packet: &Packet, now: Duration) -> Option<Packet> {
        match packet {
            Packet::Oack if self.expected == 1 => Some(self.ack(now)),
            Packet::Data(number, length) if *number == on_the_wire(self.expected) && !self.done => {
                self.expected += 1;
                self.received += length;
                self.complained = false;
                self.done = *length < self.block_size;
                self.in_window += 1;
                let full = self.in_window == self.window || self.done;
                self.deadline = now + CLIENT_PATIENCE;
                full.then(|| {
                    self.in_window = 0;
                    self.ack(now)
                })
            }
            // RFC 1350: a block that came again is acknowledged again. In a window that would be once a block, so that
            // clients complain once.
            Packet::Data(..) if self.window == 1 || !self.complained || self.done => {
                self.complained = true;
                self.in_window = 0;
                Some(self.ack(now))
            }
            _ => None,
        }
    }
}

/// Carries a file of `size` bytes over the link. Panics, naming the seed, if it does not arrive whole.
pub fn simulate(seed: u64, block_size: u16, size: u64, window: u16, faults: Faults) -> Run {
    let asked = RequestedOptions {
        block_size: Some(block_size),
        window: Some(window),
        ..RequestedOptions::default()
    };
    let (settings, oack) = Negotiated::new(&asked, size, &super::LIMITS);
    let mut transfer = Transfer::new(settings, oack, size, Duration::ZERO);
    let mut client = Client {
        block_size: block_size.into(),
        window,
        expected: 1,
        in_window: 0,
        complained: false,
        received: 0,
        done: false,
        deadline: CLIENT_PATIENCE,
    };
    let mut link = Link {
        random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        faults,
        queue: BinaryHeap::new(),
        serial: 0,
        fault_count: 0,
        latest: Duration::ZERO,
    };
    let mut now = Duration::ZERO;
    let mut data_packets = 0;
    let mut input = Some(Input::Tick);
    loop {
        if let Some(input) = input.take() {
            match transfer.handle(input, now) {
                Action::SendOack(_) => link.send(&Packet::Oack, now),
                Action::SendBlocks(Blocks { first, count }) => {
                    for block in first..first + count {
                        let length =
                            (size - (block - 1) * u64::from(block_size)).min(block_size.into());
                        data_packets += 1;
                        link.send(&Packet::Data(on_the_wire(block), length), now);
                    }
                }
                Action::Finish(outcome) => {
                    assert_eq!(outcome, Outcome::Complete, "seed {seed}, window {window}");
                    assert_eq!(
                        (client.done, client.received),
                        (true, size),
                        "seed {seed}, window {window}"
                    );
                    return Run {
                        data_packets,
                        faults: link.fault_count,
                    };
                }
                Action::Nothing => {}
            }
        }
        let arrival = link.queue.peek().map(|Reverse((at, ..))| *at);
        let timer = transfer.deadline().min(client.deadline);
        match arrival {
            Some(at) if at <= timer => {
                now = at;
                let Some(Reverse((_, _, packet))) = link.queue.pop() else {
                    unreachable!("it was peeked at")
                };
                match packet {
                    Packet::Ack(number) => input = Some(Input::Ack(number)),
                    other => {
                        if let Some(reply) = client.receive(&other, now) {
                            link.send(&reply, now);
                        }
                    }
                }
            }
            _ => {
                now = timer;
                if client.deadline <= now {
                    let reply = client.ack(now);
                    link.send(&reply, now);
                }
                if transfer.deadline() <= now {
                    input = Some(Input::Tick);
                }
            }
        }
    }
}
