//! A day of ten nodes: what it takes of the stick, and how long a search over it takes. Figures of `scripts/bench operate`.

use std::fmt::Write as _;

use super::*;

const NODES: u16 = 10;
/// Of a node within a day: a kubelet and a containerd whose pods come and go say some twenty thousand.
const LINES: u32 = 24_000;
const TOGETHER: u32 = 800;
const DAY: i64 = 86_400_000;
/// Of a node with sixteen processors, two disks and two network cards.
const SERIES: u32 = 600;
/// Each half minute; one hour stands for a day, as each costs the same.
const MEASUREMENTS: u32 = 120;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs: scripts/test-monitoring"]
async fn a_day_of_ten_nodes_is_kept_and_sought() {
    let mut box_ = serve().await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running(Vec::new());
    let end = BootstrapEndpoint::start(dir.path()).await;
    let (logs, metrics) = (dir.path().join("logs"), dir.path().join("metrics"));
    let arguments = |at: SocketAddr, data: &Path, prefix: &str| {
        [
            format!("-httpListenAddr={at}"),
            format!("-storageDataPath={}", data.display()),
            format!("-http.pathPrefix=/monitoring/{prefix}"),
            "-memory.allowedBytes=48MiB".to_owned(),
        ]
    };
    running.start("victoria-logs", &arguments(end.engines.logs, &logs, "logs"));
    running.start(
        "victoria-metrics",
        &arguments(end.engines.metrics, &metrics, "metrics"),
    );
    for engine in [end.engines.logs, end.engines.metrics] {
        until("a program", async || TcpStream::connect(engine).await.ok()).await;
    }
    for node in 0..NODES {
        says_for_a_day(&box_, &end, node).await;
    }
    measures_for_an_hour(&end).await;
    let mut web = box_.web.clone();
    web.engines = end.engines;
    box_.listens(web);
    flush(end.engines.logs, "logs").await;
    flush(end.engines.metrics, "metrics").await;
    // One line of each node has it.
    let wanted = "/api/v1/logs?q=exploded";
    let found = until("all lines", async || {
        let (_, text) = box_.text(wanted).await;
        (text.lines().count() == usize::from(NODES)).then_some(text)
    })
    .await;
    let began = Instant::now();
    let (_, again) = box_.text(wanted).await;
    let took = began.elapsed();
    assert_eq!(again, found);
    let (_, of_one) = box_.text("/api/v1/logs?q=n3+exploded").await;
    assert_eq!(of_one.lines().count(), 1, "{of_one}");
    let megabytes = |folder: &Path| {
        let size = Command::new("du").arg("-sk").arg(folder).output().unwrap();
        let size = String::from_utf8(size.stdout).unwrap();
        size.split_whitespace()
            .next()
            .unwrap()
            .parse::<f64>()
            .unwrap()
            / 1000.0
    };
    let (logs, metrics) = (megabytes(&logs), 24.0 * megabytes(&metrics));
    eprintln!("a day of logs takes {logs:.1} MB, one of metrics {metrics:.1} MB");
    eprintln!("figure operate-search {:.3}", took.as_secs_f64());
    eprintln!("figure operate-day {:.1}", logs + metrics);
}

async fn says_for_a_day(box_: &Fixture, end: &BootstrapEndpoint, node: u16) {
    let (key, host) = (
        Key::new().unwrap(),
        HostStatus {
            name: format!("n{node}"),
            mac: format!("52:54:00:00:00:{node:02x}"),
            ..HostStatus::default()
        },
    );
    end.knows(&key, &host);
    box_.status
        .send(Update::Host(host.mac.clone(), Some(Box::new(host))));
    let now = since_start();
    let mut batch = Batch::new("0b00");
    for number in 0..LINES {
        let said = match number % 4 {
            _ if number == LINES / 2 => "the kettle has exploded".to_owned(),
            0 => format!(
                "I1130 06:12:{:02}.{number:06} 1087 kubelet.go:2459] \"SyncLoop (PLEG): event for pod\" pod=\"default/web-{:x}\"",
                number % 60,
                number.wrapping_mul(2_654_435_761)
            ),
            1 => format!(
                "time=\"2026-11-30T06:12:{:02}Z\" level=info msg=\"StopPodSandbox for \\\"{:032x}\\\" returns successfully\"",
                number % 60,
                u128::from(number) * 0x9e37_79b9_7f4a_7c15
            ),
            2 => format!(
                "Started cri-containerd-{:032x}.scope - libcontainer container.",
                u128::from(number) * 0xbf58_476d_1ce4_e5b9
            ),
            _ => format!(
                "systemd-networkd[{}]: veth{:08x}: Gained carrier",
                400 + number % 7,
                number.wrapping_mul(2_246_822_519)
            ),
        };
        batch.push(Waiting {
            at: now - DAY + DAY / i64::from(LINES) * i64::from(number) + 1,
            unit: "kubelet.service".to_owned(),
            priority: Some(6),
            message: said,
        });
        if batch.is_full() || number % TOGETHER == TOGETHER - 1 || number + 1 == LINES {
            let full = std::mem::replace(&mut batch, Batch::new("0b00"));
            end.takes(&key, System::Installed, full).await.unwrap();
        }
    }
}

/// Of each node, with times, which what a server sends has not.
async fn measures_for_an_hour(end: &BootstrapEndpoint) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = u64::try_from(now.unwrap().as_millis()).unwrap();
    for measurement in 0..MEASUREMENTS {
        let mut text = String::new();
        let at = now - u64::from(MEASUREMENTS - measurement) * 30_000;
        for node in 0..NODES {
            for series in 0..SERIES {
                // A third stands still, as on a machine.
                let step = u64::from(series % 3) * u64::from(series * 7 + measurement * 13 % 11);
                let value = u64::from(measurement) * step;
                let _ = writeln!(
                    text,
                    "node_s{}_total{{server=\"n{node}\",instance=\"n{node}\",job=\"server\",of=\"{}\"}} {value} {at}",
                    series / 8,
                    series % 8
                );
            }
        }
        let path = "/monitoring/metrics/api/v1/import/prometheus";
        let request = Request::post(format!("http://{}{path}", end.engines.metrics));
        let request = request.body(Full::from(text)).unwrap();
        crate::monitoring::ask(request, 1 << 20).await.unwrap();
    }
}

/// What was taken is on the disk, as it would be a minute later.
async fn flush(engine: SocketAddr, prefix: &str) {
    for asked in ["force_flush", "force_merge"] {
        let url = format!("http://{engine}/monitoring/{prefix}/internal/{asked}");
        let request = Request::get(url).body(Full::default()).unwrap();
        crate::monitoring::ask(request, 1 << 20).await.unwrap();
    }
}
