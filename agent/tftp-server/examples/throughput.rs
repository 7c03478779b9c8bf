//! TFTP of 20 MiB in blocks of 1468 bytes on loopback, beside the servers that people trust, as a table: throughput, and what
//! it costs their processors.
//!
//! `cargo run --release -p tftp-server --example throughput` (as root: the others serve TFTP on port 69 only; packages
//! `dnsmasq-base`, `tftpd-hpa`, `atftpd`). All are asked in turn by the same client, so that other load on the machine meets
//! all of them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a measuring program"
)]
#![allow(clippy::cast_precision_loss, reason = "megabytes")]

use std::error::Error;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tftp_server::{FilePath, Limits, OpenFile, Provider, Server, Source};
use tokio_util::sync::CancellationToken;

const SIZE: usize = 20 * 1024 * 1024;
const ROUNDS: usize = 15;
const PARALLEL: usize = 8;
/// Windows, and how many times the best of the others is to be reached.
const WINDOWS: [(u16, f64); 3] = [(1, 1.0), (4, 1.5), (16, 2.0)];
const SERVE: &str = "--serve";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Folder(PathBuf);

impl Provider for Folder {
    fn open(&self, path: &FilePath, _client: SocketAddr) -> io::Result<Option<Source>> {
        let file = std::fs::File::open(self.0.join(path.as_str()))?;
        OpenFile::new(file).map(|file| Some(Source::File(file)))
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, folder] = arguments.as_slice()
        && flag == SERVE
    {
        return serve(folder);
    }
    let folder = tempfile::tempdir()?;
    let content: Vec<u8> = (0_u32..)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .take(SIZE)
        .collect();
    std::fs::write(folder.path().join("file"), &content)?;
    // The others give up root and must still be able to read the folder.
    Command::new("chmod")
        .args(["-R", "a+rX"])
        .arg(folder.path())
        .status()?;
    let servers = Peer::start_all(folder.path())?;

    println!("| figure | measured | peer | ratio | limit | |\n|---|---|---|---|---|---|");
    for (window, limit) in WINDOWS {
        let figures = measure(&servers, ROUNDS, |server| fetch(server, window))?;
        let what = format!("TFTP, windowsize {window}");
        tell(&what, &figures, limit);
    }
    let figures = measure(&servers, ROUNDS / 3, |server| {
        std::thread::scope(|scope| {
            let fetching: Vec<_> = (0..PARALLEL)
                .map(|_| scope.spawn(|| fetch(server, 1)))
                .collect();
            let ends = fetching
                .into_iter()
                .map(|one| one.join().expect("no panic"));
            ends.sum()
        })
    })?;
    tell(&format!("TFTP, {PARALLEL} in parallel"), &figures, 1.0);
    Ok(())
}

/// One server's part in a figure.
struct Figure {
    name: &'static str,
    megabytes_a_second: f64,
    milliseconds_a_megabyte: f64,
}

/// `fetch` returns the bytes that came.
fn measure(
    servers: &[Peer],
    rounds: usize,
    fetch: impl Fn(SocketAddr) -> io::Result<usize>,
) -> Result<Vec<Figure>> {
    let mut all = vec![Vec::new(); servers.len()];
    let mut used = vec![Duration::ZERO; servers.len()];
    let mut bytes = 0;
    for _ in 0..rounds {
        for (at, server) in servers.iter().enumerate() {
            let (before, began) = (server.processor_time()?, Instant::now());
            bytes = fetch(server.address)
                .map_err(|error| format!("fetching from {}: {error}", server.name))?;
            all[at].push(bytes as f64 / 1e6 / began.elapsed().as_secs_f64());
            used[at] += server.processor_time()?.saturating_sub(before);
        }
    }
    let megabytes = (bytes * rounds) as f64 / 1e6;
    let figures = servers.iter().zip(all).zip(used);
    Ok(figures
        .map(|((server, rates), used)| Figure {
            name: server.name,
            megabytes_a_second: median(rates),
            milliseconds_a_megabyte: used.as_secs_f64() * 1e3 / megabytes,
        })
        .collect())
}

/// The first of the figures is ours. A ratio is how many times better it is than the best of the others.
fn tell(what: &str, figures: &[Figure], limit: f64) {
    let [ours, others @ ..] = figures else {
        return;
    };
    let row = |what: &str, ours: f64, best: (&str, f64), ratio: f64, limit: f64| {
        let (name, theirs) = best;
        let verdict = if ratio >= limit { "ok" } else { "misses" };
        println!(
            "| {what} | {ours:.1} | {name} {theirs:.1} | {ratio:.2} | >= {limit:.2} | {verdict} |"
        );
    };
    let rates = others
        .iter()
        .map(|other| (other.name, other.megabytes_a_second));
    if let Some(best) = rates.max_by(|a, b| a.1.total_cmp(&b.1)) {
        let rate = ours.megabytes_a_second;
        let what = format!("{what}: MB/s");
        row(&what, rate, best, rate / best.1, limit);
    }
    // tftpd-hpa lets nobody count the processes that it starts.
    let costs = others
        .iter()
        .filter(|other| other.name != "tftpd-hpa")
        .map(|other| (other.name, other.milliseconds_a_megabyte));
    if let Some(best) = costs.min_by(|a, b| a.1.total_cmp(&b.1)) {
        let cost = ours.milliseconds_a_megabyte;
        let what = format!("{what}: ms of processor for each MB");
        row(&what, cost, best, best.1 / cost, 1.0);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A server that runs until it is dropped.
struct Peer {
    name: &'static str,
    address: SocketAddr,
    child: Child,
}

impl Peer {
    /// Ours is the first.
    fn start_all(folder: &Path) -> Result<Vec<Self>> {
        let root = folder.display();
        let ours = std::env::current_exe()?.display().to_string();
        let dnsmasq = format!(
            "--keep-in-foreground --conf-file=/dev/null --pid-file= --port=0 --enable-tftp --bind-interfaces \
             --listen-address=127.0.0.69 --log-facility=/dev/null --tftp-root={root}"
        );
        [
            ("ours", ours.as_str(), "", 68, format!("{SERVE} {root}")),
            ("dnsmasq", "dnsmasq", "dnsmasq-base", 69, dnsmasq),
            (
                "tftpd-hpa",
                "in.tftpd",
                "tftpd-hpa",
                70,
                format!("--foreground --address 127.0.0.70:69 --secure {root}"),
            ),
            (
                "atftpd",
                "atftpd",
                "atftpd",
                71,
                format!("--daemon --no-fork --bind-address 127.0.0.71 --port 69 --logfile /dev/null {root}"),
            ),
        ]
        .into_iter()
        .map(|(name, program, package, last, arguments)| {
            let child = Command::new(program)
                .args(arguments.split(' '))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|error| {
                    format!("starting {program}: {error}; install the Debian package {package}, and run as root")
                })?;
            let address = SocketAddr::from(([127, 0, 0, last], 69));
            let peer = Self { name, address, child };
            peer.wait()?;
            Ok(peer)
        })
        .collect()
    }

    fn wait(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while try_fetch(self.address, 1, Duration::from_secs(1)).is_err() {
            if Instant::now() > deadline {
                let (name, address) = (self.name, self.address);
                return Err(format!(
                    "{name} does not answer on {address}: run as root, and free that port"
                )
                .into());
            }
        }
        Ok(())
    }

    /// Of the server and of those that it started and saw end.
    fn processor_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Behind the name, which may have spaces: utime, stime, cutime and cstime are 14 to 17 of all fields.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(4);
        let ticks: u64 = ticks.map(|field| field.parse().unwrap_or(0)).sum();
        // USER_HZ
        Ok(Duration::from_millis(ticks * 10))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn serve(folder: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let provider = Arc::new(Folder(folder.into()));
        let address = "127.0.0.68:69".parse()?;
        let server = Server::bind(address, provider, Limits::default()).await?;
        Ok(server.run(CancellationToken::new()).await?)
    })
}

/// Fetches the file once; its length.
fn fetch(server: SocketAddr, window: u16) -> io::Result<usize> {
    try_fetch(server, window, Duration::from_secs(10))
}

fn try_fetch(server: SocketAddr, window: u16, patience: Duration) -> io::Result<usize> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(patience))?;
    let request = format!("\0\x01file\0octet\0blksize\x001468\0windowsize\0{window}\0");
    socket.send_to(request.as_bytes(), server)?;
    let mut buffer = [0; 2048];
    let (length, from) = socket.recv_from(&mut buffer)?;
    let oack = String::from_utf8_lossy(&buffer[..length]).into_owned();
    if buffer[..2] != [0, 6] || !oack.contains("blksize\x001468\0") {
        return Err(io::Error::other(format!("unexpected answer {oack:?}")));
    }
    // A server that does not know windows leaves the option out.
    let window = if oack.contains("windowsize") {
        window
    } else {
        1
    };
    socket.connect(from)?;
    socket.send(&[0, 4, 0, 0])?;
    let (mut expected, mut received, mut in_window, mut complained) = (1_u16, 0, 0, false);
    loop {
        let length = socket.recv(&mut buffer)?;
        let number = u16::from_be_bytes([buffer[2], buffer[3]]);
        if buffer[..2] != [0, 3] || number != expected {
            // Behind a gap: complain once. A block that was here already: nothing.
            let is_ahead = number.wrapping_sub(expected) < 0x8000;
            if is_ahead && !complained {
                let [high, low] = expected.wrapping_sub(1).to_be_bytes();
                socket.send(&[0, 4, high, low])?;
                in_window = 0;
                complained = true;
            }
            continue;
        }
        complained = false;
        received += length - 4;
        in_window += 1;
        let last = length < 1468 + 4;
        if last || in_window == window {
            socket.send(&[0, 4, buffer[2], buffer[3]])?;
            in_window = 0;
        }
        if last {
            break;
        }
        expected = expected.wrapping_add(1);
    }
    if received != SIZE {
        return Err(io::Error::other(format!(
            "{received} bytes instead of {SIZE}"
        )));
    }
    Ok(received)
}
