//! The cable of all servers: one network namespace in which each of them has an address of its own, DHCP and TFTP.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::UdpSocket,
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::timeout,
};

/// Of the one NIC.
pub const NIC: &str = "servers";
const MAGIC: [u8; 4] = [99, 130, 83, 99];
/// Option 53, RFC 2132 section 9.6.
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
/// As firmware asks again, RFC 2131 section 4.1.
const FIRST_WAIT: Duration = Duration::from_secs(4);
const LONGEST_WAIT: Duration = Duration::from_secs(32);

/// Who asks for an address, as far as DHCP tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A BIOS that boots from the network.
    Firmware,
    Ipxe,
    System,
}

/// What a server says.
#[derive(Clone, Debug)]
pub struct Lease {
    pub kind: u8,
    pub address: Ipv4Addr,
    pub server: Ipv4Addr,
    pub file: String,
}

pub struct Wire {
    dhcp: UdpSocket,
    waiting: Mutex<HashMap<u32, UnboundedSender<Lease>>>,
    next: AtomicU32,
}

impl Wire {
    pub async fn open() -> Arc<Self> {
        let dhcp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68)).await.unwrap();
        dhcp.set_broadcast(true).unwrap();
        dhcp.bind_device(Some(NIC.as_bytes())).unwrap();
        let wire = Arc::new(Self {
            dhcp,
            waiting: Mutex::default(),
            next: AtomicU32::new(1),
        });
        tokio::spawn(receive(wire.clone()));
        wire
    }

    /// By the whole exchange, however often it has to be begun.
    pub async fn ask(&self, mac: [u8; 6], asker: Asker) -> Lease {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, mut answers) = mpsc::unbounded_channel();
        self.waiting.lock().unwrap().insert(id, tell);
        let mut wait = FIRST_WAIT;
        let lease = loop {
            self.send(&message(id, mac, asker, DISCOVER, None)).await;
            if let Some(offer) = next(&mut answers, OFFER, wait).await {
                let taken = message(id, mac, asker, REQUEST, Some(&offer));
                self.send(&taken).await;
                if let Some(lease) = next(&mut answers, ACK, wait).await {
                    break lease;
                }
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        };
        self.waiting.lock().unwrap().remove(&id);
        lease
    }

    async fn send(&self, datagram: &[u8]) {
        let to = (Ipv4Addr::BROADCAST, 67);
        self.dhcp.send_to(datagram, to).await.unwrap();
    }
}

async fn receive(wire: Arc<Wire>) {
    let mut buffer = [0; 2048];
    loop {
        let (length, _) = wire.dhcp.recv_from(&mut buffer).await.unwrap();
        let datagram = &buffer[..length];
        if let Some((id, lease)) = read(datagram)
            && let Some(waiting) = wire.waiting.lock().unwrap().get(&id)
        {
            drop(waiting.send(lease));
        }
    }
}

async fn next(answers: &mut UnboundedReceiver<Lease>, kind: u8, wait: Duration) -> Option<Lease> {
    let found = async {
        loop {
            let lease = answers.recv().await.unwrap();
            if lease.kind == kind {
                return lease;
            }
        }
    };
    timeout(wait, found).await.ok()
}

fn message(id: u32, mac: [u8; 6], asker: Asker, kind: u8, offer: Option<&Lease>) -> Vec<u8> {
    let mut message = vec![0; 236];
    // BOOTREQUEST over Ethernet, to be answered to all.
    message[..3].copy_from_slice(&[1, 1, 6]);
    message[4..8].copy_from_slice(&id.to_be_bytes());
    message[10] = 0x80;
    message[28..34].copy_from_slice(&mac);
    message.extend(MAGIC);
    let mut option = |code: u8, value: &[u8]| {
        message.extend([code, u8::try_from(value.len()).unwrap()]);
        message.extend(value);
    };
    option(53, &[kind]);
    option(55, &[1, 3, 6, 43, 60, 66, 67]);
    option(57, &1400_u16.to_be_bytes());
    if asker != Asker::System {
        option(60, b"PXEClient:Arch:00000:UNDI:002001");
        option(93, &[0, 0]);
    }
    if asker == Asker::Ipxe {
        option(77, b"iPXE");
    }
    if let Some(offer) = offer {
        option(50, &offer.address.octets());
        option(54, &offer.server.octets());
    }
    message.push(255);
    message
}

fn read(datagram: &[u8]) -> Option<(u32, Lease)> {
    let four = |at: usize| -> Option<[u8; 4]> { datagram.get(at..at + 4)?.try_into().ok() };
    let mut lease = Lease {
        kind: 0,
        address: four(16)?.into(),
        server: four(20)?.into(),
        file: text(datagram.get(108..236)?),
    };
    let mut rest = datagram.get(240..)?;
    while let [code, length, after @ ..] = rest {
        if *code == 255 {
            break;
        }
        let (value, next) = after.split_at_checked(usize::from(*length))?;
        match (code, value) {
            (53, [kind]) => lease.kind = *kind,
            (54, [a, b, c, d]) => lease.server = [*a, *b, *c, *d].into(),
            (67, file) => lease.file = text(file),
            _ => {}
        }
        rest = next;
    }
    Some((u32::from_be_bytes(four(4)?), lease))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// It stays when the server restarts: the lease is by the MAC.
pub async fn take_address(address: Ipv4Addr) {
    let done = tokio::process::Command::new("ip")
        .args(["address", "replace", &format!("{address}/20"), "dev", NIC])
        .stderr(Stdio::inherit())
        .status()
        .await;
    assert!(done.unwrap().success(), "ip address replace {address}");
}

/// Reads the file to its end (RFC 1350, 2348), as firmware does; bytes.
pub async fn load(from: Ipv4Addr, server: Ipv4Addr, file: &str) -> usize {
    let mut tries = 0;
    loop {
        if let Some(length) = load_once(from, server, file).await {
            return length;
        }
        tries += 1;
        assert!(tries < 10, "TFTP: {file} does not come");
    }
}

async fn load_once(from: Ipv4Addr, server: Ipv4Addr, file: &str) -> Option<usize> {
    const BLOCK: usize = 1428;
    let socket = UdpSocket::bind((from, 0)).await.unwrap();
    let mut ask = vec![0, 1];
    for word in [file, "octet", "blksize", &BLOCK.to_string()] {
        ask.extend(word.as_bytes());
        ask.push(0);
    }
    let mut to = SocketAddr::from((server, 69));
    socket.send_to(&ask, to).await.unwrap();
    let (mut buffer, mut length, mut expected) = ([0; 2048], 0, 1_u16);
    loop {
        let received = timeout(FIRST_WAIT, socket.recv_from(&mut buffer)).await;
        let (size, peer) = received.ok()?.unwrap();
        to = peer;
        let number = match buffer[..size] {
            // OACK
            [0, 6, ..] => 0,
            [0, 3, high, low, ..] => u16::from_be_bytes([high, low]),
            _ => return None,
        };
        let acknowledged = [&[0, 4][..], &number.to_be_bytes()].concat();
        socket.send_to(&acknowledged, to).await.unwrap();
        if number == expected {
            length += size - 4;
            expected = expected.wrapping_add(1);
            if size - 4 < BLOCK {
                return Some(length);
            }
        }
    }
}
