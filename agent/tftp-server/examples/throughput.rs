//! Throughput on loopback beside dnsmasq's TFTP server, as a table.
//!
//! `cargo run --release -p tftp-server --example throughput` (as root: dnsmasq serves TFTP on port 69 only; packages
//! `dnsmasq-base`). Both are asked in turn by the same client, so that other load on the machine meets both.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a measuring program"
)]

use std::error::Error;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tftp_server::{FilePath, Limits, OpenFile, Provider, Server, Source};
use tokio_util::sync::CancellationToken;

const SIZE: usize = 4 * 1024 * 1024;
const ROUNDS: usize = 31;
const DNSMASQ: &str = "127.0.0.69:69";

struct Folder(PathBuf);

impl Provider for Folder {
    fn open(&self, path: &FilePath, _client: SocketAddr) -> io::Result<Option<Source>> {
        let file = std::fs::File::open(self.0.join(path.as_str()))?;
        OpenFile::new(file).map(|file| Some(Source::File(file)))
    }
}

/// Ends dnsmasq with the measurement.
struct Dnsmasq(Child);

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let content: Vec<u8> = (0_u32..)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .take(SIZE)
        .collect();
    std::fs::write(folder.path().join("file"), &content)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let provider = Arc::new(Folder(folder.path().to_owned()));
    let server = runtime.block_on(Server::bind(
        "127.0.0.1:0".parse()?,
        provider,
        Limits::default(),
    ))?;
    let ours = server.local_addr();
    let stop = CancellationToken::new();
    let task = runtime.spawn(server.run(stop.clone()));
    let dnsmasq = start_dnsmasq(folder.path())?;

    println!("| figure | measured | dnsmasq | ratio | limit | |\n|---|---|---|---|---|---|");
    for window in [1, 16] {
        let (mut ours_all, mut theirs_all) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours_all.push(fetch(ours, window)?);
            theirs_all.push(fetch(DNSMASQ.parse()?, window)?);
        }
        let (our_median, their_median) = (median(ours_all), median(theirs_all));
        let ratio = our_median / their_median;
        let verdict = if ratio >= 1.0 { "ok" } else { "misses" };
        println!(
            "| MB/s, blksize 1468, windowsize {window} | {our_median:.0} | {their_median:.0} | {ratio:.2} | >= 1.00 | {verdict} |"
        );
    }
    drop(dnsmasq);
    stop.cancel();
    runtime.block_on(task)??;
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn start_dnsmasq(folder: &Path) -> Result<Dnsmasq, Box<dyn Error>> {
    // dnsmasq gives up root and must still be able to read the folder.
    Command::new("chmod")
        .args(["-R", "a+rX"])
        .arg(folder)
        .status()?;
    let child = Command::new("dnsmasq")
        .args(["--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--port=0", "--enable-tftp"])
        .args(["--bind-interfaces", "--listen-address=127.0.0.69", "--log-facility=/dev/null"])
        .arg(format!("--tftp-root={}", folder.display()))
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("starting dnsmasq: {error}; install the Debian package dnsmasq-base, and run as root"))?;
    let dnsmasq = Dnsmasq(child);
    let deadline = Instant::now() + Duration::from_secs(10);
    while try_fetch(DNSMASQ.parse()?, 1, Duration::from_secs(1)).is_err() {
        if Instant::now() > deadline {
            return Err(
                "dnsmasq does not answer on 127.0.0.69 port 69: run as root, and free that port"
                    .into(),
            );
        }
    }
    Ok(dnsmasq)
}

/// Fetches the file once; megabytes a second.
fn fetch(server: SocketAddr, window: u16) -> io::Result<f64> {
    try_fetch(server, window, Duration::from_secs(10))
        .map_err(|error| io::Error::other(format!("fetching from {server}: {error}")))
}

fn try_fetch(server: SocketAddr, window: u16, patience: Duration) -> io::Result<f64> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(patience))?;
    let request = format!("\0\x01file\0octet\0blksize\x001468\0windowsize\0{window}\0");
    let started = Instant::now();
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
    #[allow(clippy::cast_precision_loss, reason = "megabytes")]
    let megabytes = SIZE as f64 / 1e6;
    Ok(megabytes / started.elapsed().as_secs_f64())
}
