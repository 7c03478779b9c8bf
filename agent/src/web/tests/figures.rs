//! What a flood costs the box and another server: figures of `scripts/bench base`.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::*;

const LARGE: usize = 64 << 20;
const FLOODED: &str = "FLOODED_BOX";
/// Of each of eight addresses; the box gives each a share of it.
const OF_EACH: u8 = 32;

/// MB that this process has in memory now.
fn memory() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes: f64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kilobytes * 1024.0 / 1e6
}

/// The shortest of several downloads by a server with a lease: other work of this machine is not what is measured.
async fn shortest(box_: &Fixture) -> f64 {
    let mut shortest = f64::MAX;
    for _ in 0..9 {
        let request = Request::get("/images/large").header("host", "box");
        let began = Instant::now();
        let response = send_from(100, box_.address, request.body(Full::default()).unwrap()).await;
        let mut body = response.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame.unwrap().into_data().unwrap().len();
        }
        assert_eq!(length, LARGE);
        shortest = shortest.min(began.elapsed().as_secs_f64());
    }
    shortest
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "figures of scripts/bench base, measured alone"]
async fn figures_of_a_flood() {
    let box_ = serve().await;
    let leased = BTreeSet::from([Ipv4Addr::new(127, 0, 0, 100)]);
    box_.leased.send_replace(Arc::new(leased));
    let images = Paths::new(box_.dir.path()).images();
    fs::write(images.join("large"), vec![7; LARGE]).unwrap();
    let (quiet, before) = (shortest(&box_).await, memory());
    // Another process, so that its memory is not counted.
    let mut flooder = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "web::tests::figures::floods"])
        .env(FLOODED, box_.address.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Some go and come all the time.
    let strangers = server::SEGMENT.all - server::SEGMENT.kept;
    let full = async {
        while box_.door.open() < strangers / 2 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), full).await.unwrap();
    let watched = tokio::spawn(async move {
        let mut most = memory();
        for _ in 0..100 {
            sleep(Duration::from_millis(50)).await;
            most = most.max(memory());
        }
        most
    });
    let meanwhile = shortest(&box_).await;
    let most = watched.await.unwrap();
    flooder.kill().unwrap();
    flooder.wait().unwrap();
    let empty = async {
        while box_.door.open() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), empty).await.unwrap();
    eprintln!("figure base-flood-memory {:.1}", most - before);
    eprintln!("figure base-flood-slower {:.3}", meanwhile / quiet);
}

/// Until it is killed: idle connections, readers that do not read, requests that do not end, and 41 MB of JSON.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the flood of the figures of scripts/bench base"]
async fn floods() {
    let box_: SocketAddr = std::env::var(FLOODED).unwrap().parse().unwrap();
    let mut all = tokio::task::JoinSet::new();
    for number in 11..19 {
        for kind in 0..OF_EACH {
            all.spawn(async move {
                loop {
                    drop(annoy(box_, number, kind % 4).await);
                    sleep(Duration::from_secs(2)).await;
                }
            });
        }
    }
    all.join_next().await;
}

async fn annoy(box_: SocketAddr, number: u8, kind: u8) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, number], 0).into())?;
    let mut stream: TcpStream = socket.connect(box_).await?;
    let report =
        "POST /api/v1/ramdisk/report HTTP/1.1\r\nhost: box\r\ncontent-length: 41000000\r\n\r\n[";
    let says = match kind {
        0 => "GET /readyz HTTP/1.1\r\nhost: box\r\n\r\n",
        1 => "GET /images/large HTTP/1.1\r\nhost: box\r\n\r\n",
        _ => report,
    };
    stream.write_all(says.as_bytes()).await?;
    if kind == 3 {
        for _ in 0..41 {
            stream.write_all(&vec![b' '; 1_000_000]).await?;
        }
    }
    if kind == 1 {
        sleep(Duration::from_mins(1)).await;
    }
    let mut answer = vec![];
    stream.read_to_end(&mut answer).await.map(drop)
}
