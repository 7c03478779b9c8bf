//! The server on loopback with real clients: curl, atftp, and sockets where exact packets matter.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test of the edge"
)]

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tftp_server::{
    FilePath, Limits, NegotiationLimits, OpenFile, Outcome, Provider, Server, Shares, Source,
    Stats, TransferReport,
};
use tokio_util::sync::CancellationToken;

/// Larger than two read-ahead chunks, and no multiple of any block size.
const BIG: usize = 3 * 1024 * 1024 + 12345;

/// A client for which places are kept.
const KNOWN: [u8; 4] = [127, 0, 0, 200];

fn content(length: usize) -> Vec<u8> {
    (0_u32..)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .take(length)
        .collect()
}

struct Files {
    folder: tempfile::TempDir,
    memory: HashMap<&'static str, Arc<[u8]>>,
    reports: Mutex<Vec<TransferReport>>,
}

impl Provider for Files {
    fn open(&self, path: &FilePath, _client: SocketAddr) -> io::Result<Option<Source>> {
        if let Some(bytes) = self.memory.get(path.as_str()) {
            return Ok(Some(Source::Bytes(Arc::clone(bytes))));
        }
        match std::fs::File::open(self.folder.path().join(path.as_str())) {
            Ok(file) => OpenFile::new(file).map(|file| Some(Source::File(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn knows(&self, client: IpAddr) -> bool {
        client == IpAddr::from(KNOWN)
    }

    fn finished(&self, report: &TransferReport) {
        self.reports.lock().unwrap().push(report.clone());
    }
}

struct Running {
    address: SocketAddr,
    files: Arc<Files>,
    stats: Arc<Stats>,
    stop: CancellationToken,
    runtime: tokio::runtime::Runtime,
    task: tokio::task::JoinHandle<io::Result<()>>,
}

impl Running {
    fn start(ip: &str, limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("big.bin"), content(BIG)).unwrap();
        std::fs::write(folder.path().join("even.bin"), content(512 * 64)).unwrap();
        std::fs::write(folder.path().join("empty"), b"").unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/small.cfg"), b"hello\n").unwrap();
        let memory = HashMap::from([(
            "grub/mac-52:54:00:aa:00:01.cfg",
            Arc::from(&b"generated\n"[..]),
        )]);
        let files = Arc::new(Files {
            folder,
            memory,
            reports: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let provider: Arc<dyn Provider> = Arc::<Files>::clone(&files);
        let address = format!("{ip}:0").parse().unwrap();
        let server = runtime
            .block_on(Server::bind(address, provider, limits))
            .unwrap();
        let (address, stats, stop) = (
            server.local_addr(),
            server.stats(),
            CancellationToken::new(),
        );
        let task = runtime.spawn(server.run(stop.clone()));
        Self {
            address,
            files,
            stats,
            stop,
            runtime,
            task,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.files.folder.path().join(name)
    }

    /// Waits until `count` transfers have been reported.
    fn reports(&self, count: usize) -> Vec<TransferReport> {
        for _ in 0..1000 {
            let reports = self.files.reports.lock().unwrap().clone();
            if reports.len() >= count {
                return reports;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!(
            "waiting for {count} reports, there are {:?}",
            self.files.reports.lock().unwrap()
        );
    }

    fn client(&self) -> UdpSocket {
        let socket = UdpSocket::bind((self.address.ip(), 0)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        socket
    }

    fn request(&self, socket: &UdpSocket, request: &[u8]) {
        socket.send_to(request, self.address).unwrap();
    }
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 4096];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..length].to_vec(), from)
}

/// The next packet that another transfer than `known` sends: that one repeats itself when the machine is slow.
fn receive_from_elsewhere(socket: &UdpSocket, known: SocketAddr) -> (Vec<u8>, SocketAddr) {
    loop {
        let (packet, from) = receive(socket);
        if from != known {
            return (packet, from);
        }
    }
}

fn run(program: &str, package: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; install the Debian package {package}"))
}

fn curl(server: &Running, name: &str, arguments: &[&str]) -> (Option<i32>, Vec<u8>) {
    let url = format!("tftp://{}/{name}", server.address);
    let mut all = vec!["-sS", "--path-as-is", "--max-time", "300", &url];
    all.extend(arguments);
    let output = run("curl", "curl", &all);
    (output.status.code(), output.stdout)
}

fn atftp(server: &Running, arguments: &[&str]) -> Output {
    let (ip, port) = (
        server.address.ip().to_string(),
        server.address.port().to_string(),
    );
    let mut all = arguments.to_vec();
    all.extend([ip.as_str(), port.as_str()]);
    run("atftp", "atftp", &all)
}

#[test]
fn curl_fetches_files_of_all_shapes() {
    let server = Running::start("127.0.0.1", Limits::default());
    for options in [
        &[][..],
        &["--tftp-no-options"],
        &["--tftp-blksize", "1468"],
        &["--tftp-blksize", "8"],
    ] {
        let big = if options.last() == Some(&"8") {
            "even.bin"
        } else {
            "big.bin"
        };
        for name in [big, "even.bin", "empty", "sub/small.cfg", "/sub//small.cfg"] {
            let (code, body) = curl(&server, name, options);
            assert_eq!(code, Some(0), "{name} {options:?}");
            assert!(
                body == std::fs::read(server.path(name.trim_start_matches('/'))).unwrap(),
                "{name} {options:?}"
            );
        }
    }
    let (_, body) = curl(&server, "grub/mac-52:54:00:aa:00:01.cfg", &[]);
    assert_eq!(body, b"generated\n");
    let reports = server.reports(21);
    assert!(
        reports
            .iter()
            .all(|report| report.outcome == Outcome::Complete),
        "{reports:?}"
    );
    assert_eq!(server.stats.completed(), 21);
}

#[test]
fn atftp_fetches_with_every_option() {
    let server = Running::start("127.0.0.1", Limits::default());
    let target = server.path("fetched");
    let target = target.to_str().unwrap();
    for options in [
        &[][..],
        &["--option", "blksize 1428"],
        &["--option", "blksize 1428", "--option", "windowsize 16"],
        &[
            "--option",
            "tsize 1",
            "--option",
            "timeout 2",
            "--option",
            "windowsize 7",
        ],
    ] {
        let mut arguments = options.to_vec();
        arguments.extend(["--get", "--remote-file", "big.bin", "--local-file", target]);
        let output = atftp(&server, &arguments);
        assert!(output.status.success(), "{options:?}: {output:?}");
        assert!(
            std::fs::read(Path::new(target)).unwrap() == content(BIG),
            "{options:?}"
        );
        std::fs::remove_file(target).unwrap();
    }
}

#[test]
fn what_is_not_served_is_refused_with_a_reason() {
    let server = Running::start("127.0.0.1", Limits::default());
    assert_eq!(
        curl(&server, "missing", &[]).0,
        Some(68),
        "curl: file not found on server"
    );
    let source = server.path("sub/small.cfg");
    let put = atftp(
        &server,
        &[
            "--put",
            "--local-file",
            source.to_str().unwrap(),
            "--remote-file",
            "stolen",
        ],
    );
    assert!(!put.status.success());
    assert!(!server.path("stolen").exists());
    for (request, code, text) in [
        (&b"\0\x02stolen\0octet\0"[..], 2, "read-only"),
        (b"\0\x01sub/small.cfg\0netascii\0", 4, "only mode octet"),
        (b"\0\x01../secret\0octet\0", 2, "no such file name"),
        (b"\0\x01missing\0octet\0", 1, "no such file"),
        (b"\0\x01sub\0octet\0", 0, "cannot read"),
    ] {
        let client = server.client();
        server.request(&client, request);
        let (answer, _) = receive(&client);
        assert_eq!(answer[..4], [0, 5, 0, code], "{answer:?}");
        let message = String::from_utf8_lossy(&answer[4..]);
        assert!(
            message.contains(text) && message.ends_with('\0'),
            "{message}"
        );
    }
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    let server = Running::start("127.0.0.7", Limits::default());
    let client = server.client();
    server.request(&client, b"\0\x01sub/small.cfg\0octet\0");
    let (answer, from) = receive(&client);
    assert_eq!(answer, b"\0\x03\0\x01hello\n");
    assert_eq!(from.ip(), server.address.ip());
    assert_ne!(
        from.port(),
        server.address.port(),
        "RFC 1350 section 4: a port of its own"
    );
    client.send_to(b"\0\x04\0\x01", from).unwrap();
    assert_eq!(server.reports(1)[0].outcome, Outcome::Complete);
}

#[test]
fn the_same_request_twice_is_one_transfer_and_another_from_the_same_port_replaces_it() {
    let server = Running::start("127.0.0.1", Limits::default());
    let client = server.client();
    let request = b"\0\x01big.bin\0octet\0tsize\x000\0";
    server.request(&client, request);
    let (first, from) = receive(&client);
    assert_eq!(first, format!("\0\x06tsize\0{BIG}\0").as_bytes());
    server.request(&client, request);
    assert_eq!(
        receive(&client),
        (first, from),
        "the same packet from the same port"
    );
    // As firmware does that asked for the size first.
    server.request(&client, b"\0\x01big.bin\0octet\0blksize\x0016\0");
    let (oack, other) = receive_from_elsewhere(&client, from);
    assert_eq!(oack, b"\0\x06blksize\x0016\0");
    client.send_to(b"\0\x04\0\0", other).unwrap();
    assert_eq!(receive(&client).0[..4], [0, 3, 0, 1]);
    // A copy of the request that was overtaken by the answer: the transfer goes on where the client knows it.
    server.request(&client, b"\0\x01big.bin\0octet\0blksize\x0016\0");
    client.send_to(b"\0\x04\0\x01", other).unwrap();
    let (block, from) = receive(&client);
    assert_eq!((&block[..4], from), (&[0, 3, 0, 2][..], other));
    // A client that has been silent since and begins anew.
    assert_eq!(receive(&client), (block, other), "sent again");
    server.request(&client, b"\0\x01big.bin\0octet\0blksize\x0016\0");
    let (oack, _) = receive_from_elsewhere(&client, other);
    assert_eq!(oack, b"\0\x06blksize\x0016\0");
}

#[test]
fn one_client_cannot_take_all_transfers() {
    let shares = Shares {
        all: 3,
        kept: 0,
        of_peer: 2,
    };
    let negotiation = NegotiationLimits::default();
    let server = Running::start(
        "127.0.0.1",
        Limits {
            negotiation,
            shares,
        },
    );
    let request = b"\0\x01big.bin\0octet\0";
    // Begins a transfer and answers, so that it keeps its place.
    let begin = |client: &UdpSocket| {
        server.request(client, request);
        let (first, from) = receive(client);
        if first[..2] == [0, 3] {
            client.send_to(b"\0\x04\0\x01", from).unwrap();
            assert_eq!(receive(client).0[..4], [0, 3, 0, 2]);
        }
        (first, from)
    };
    let clients: Vec<UdpSocket> = (0..3).map(|_| server.client()).collect();
    let answers: Vec<_> = clients.iter().map(begin).collect();
    assert_eq!(answers[0].0[..2], [0, 3]);
    assert_eq!(answers[1].0[..2], [0, 3]);
    assert_eq!(answers[2].0[..4], [0, 5, 0, 0], "the third of this client");
    // Another has room, and takes more of what this one has too much of.
    let other = client_at([127, 0, 0, 2]);
    assert_eq!(begin(&other).0[..2], [0, 3]);
    // A client that ends its transfer makes room.
    clients[0]
        .send_to(b"\0\x05\0\0enough\0", answers[0].1)
        .unwrap();
    server.reports(1);
    let again = server.client();
    for _ in 0..100 {
        server.request(&again, request);
        if receive(&again).0[1] == 3 {
            return;
        }
    }
    panic!("no room was made");
}

fn client_at(ip: [u8; 4]) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::from((ip, 0))).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    socket
}

/// All of `name`, in blocks of 512 bytes.
fn fetch(server: &Running, client: &UdpSocket, name: &str) -> Vec<u8> {
    let request = format!("\0\x01{name}\0octet\0");
    server.request(client, request.as_bytes());
    let mut whole = vec![];
    let mut buffer = [0; 4096];
    for repeated in 0.. {
        // As firmware does: what the flood pushed out of the server's socket is asked for again.
        let Ok((length, from)) = client.recv_from(&mut buffer) else {
            assert!(repeated < 20 && whole.is_empty(), "no answer");
            server.request(client, request.as_bytes());
            continue;
        };
        let packet = &buffer[..length];
        assert_eq!(packet[..2], [0, 3], "{:?}", String::from_utf8_lossy(packet));
        whole.extend_from_slice(&packet[4..]);
        client.send_to(&[0, 4, packet[2], packet[3]], from).unwrap();
        if packet.len() < 516 {
            break;
        }
    }
    whole
}

#[test]
fn forged_requests_from_everywhere_keep_no_server_out() {
    let server = Running::start("127.0.0.1", Limits::default());
    let request = b"\0\x01big.bin\0octet\0";
    // Open, so that nobody tells the server that they are gone, and silent.
    let forged: Vec<_> = (0..600_u16)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            client_at([127, 1, high, low])
        })
        .collect();
    let stop = AtomicBool::new(false);
    let pace = Duration::from_micros(100);
    for client in &forged {
        server.request(client, request);
        std::thread::sleep(pace);
    }
    let wholes = std::thread::scope(|scope| {
        scope.spawn(|| {
            for client in forged.iter().cycle() {
                server.request(client, request);
                std::thread::sleep(pace);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let fetching = [KNOWN, [127, 0, 0, 9]].map(|ip| {
            let server = &server;
            scope.spawn(move || {
                let client = client_at(ip);
                client
                    .set_read_timeout(Some(Duration::from_millis(500)))
                    .unwrap();
                fetch(server, &client, "even.bin")
            })
        });
        let wholes = fetching.map(std::thread::ScopedJoinHandle::join);
        stop.store(true, Ordering::Relaxed);
        wholes
    });
    for whole in wholes {
        assert!(whole.unwrap() == content(512 * 64));
    }
    drop(forged);
    // Whoever is answered after them shows that the socket is empty: curl asks once, and what a full one drops is lost.
    let after = client_at([127, 0, 0, 10]);
    after
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    fetch(&server, &after, "even.bin");
    // Nothing of it is in the way of the next one.
    assert_eq!(curl(&server, "big.bin", &[]).0, Some(0));
}

#[test]
fn a_client_that_closes_its_port_ends_its_transfer() {
    let server = Running::start("127.0.0.1", Limits::default());
    let client = server.client();
    server.request(&client, b"\0\x01big.bin\0octet\0");
    let (_, from) = receive(&client);
    client.send_to(b"\0\x04\0\x01", from).unwrap();
    receive(&client);
    drop(client);
    let outcome = &server.reports(1)[0].outcome;
    assert_eq!(*outcome, Outcome::ClientGone { acknowledged: 512 });
}

#[test]
fn bytes_that_were_sent_are_counted_and_stopping_ends_everything() {
    let server = Running::start("127.0.0.1", Limits::default());
    assert_eq!(curl(&server, "big.bin", &[]).0, Some(0));
    server.reports(1);
    assert_eq!(server.stats.sent_bytes(), BIG as u64);
    let client = server.client();
    server.request(&client, b"\0\x01big.bin\0octet\0");
    receive(&client);
    server.stop.cancel();
    server.runtime.block_on(server.task).unwrap().unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(1500)))
        .unwrap();
    assert!(
        client.recv(&mut [0; 600]).is_err(),
        "no retransmission after the end"
    );
}
