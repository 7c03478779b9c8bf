//! Metrics, alarms and logs with the real programs: `scripts/test-monitoring`, where MONITORING names their folder.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use firstlight_api::{
    site::parse_site,
    status::{HostState, HostStatus, Problem},
};
use tokio::time::sleep;

use super::{
    super::monitoring::Engines,
    browser::driver::{Browser, Settings},
    *,
};
use crate::monitoring::{self, Places};

const SHIPPED: &str = "../overlays/box/usr/share/firstlight/monitoring";
/// Rules wait for their time.
const PATIENCE: Duration = Duration::from_mins(3);

/// Ends with the test.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Running {
    fn start(&mut self, program: &str, arguments: &[String]) {
        let folder =
            env::var("MONITORING").expect("MONITORING names the programs: scripts/test-monitoring");
        let child = Command::new(Path::new(&folder).join(program))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.0.push(child);
    }

    /// MB in memory of all of them.
    fn memory(&self) -> f64 {
        let of = |child: &Child| {
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            let line = status
                .lines()
                .find(|line| line.starts_with("VmRSS:"))
                .unwrap();
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<f64>()
                .unwrap()
                * 1024.0
                / 1e6
        };
        self.0.iter().map(of).sum()
    }

    /// Of a box, by what it ships with other ports and a shorter patience.
    fn start_all(
        &mut self,
        box_: SocketAddr,
        dir: &Path,
        receivers: &Path,
        metrics: SocketAddr,
        places: Places,
    ) {
        let scrape = changed(
            dir,
            "scrape.yaml",
            &[
                ("127.0.0.1:80]", &format!("{box_}]")),
                ("scrape_interval: 30s", "scrape_interval: 1s"),
                ("scrape_timeout: 20s", "scrape_timeout: 1s"),
            ],
        );
        let rules = changed(
            dir,
            "alarms.yaml",
            &[
                ("interval: 30s", "interval: 1s"),
                ("for: 1m", "for: 2s"),
                ("for: 5m", "for: 2s"),
            ],
        );
        let database = format!("http://{metrics}/monitoring/metrics");
        let listen = |address: SocketAddr| format!("-httpListenAddr={address}");
        let arguments = [
            listen(metrics),
            "-http.pathPrefix=/monitoring/metrics".to_owned(),
            format!("-storageDataPath={}", dir.join("metrics").display()),
            format!("-promscrape.config={}", scrape.display()),
            "-search.latencyOffset=0s".to_owned(),
        ];
        self.start("victoria-metrics", &arguments);
        let arguments = [
            listen(places.vmalert),
            format!("-rule={}", rules.display()),
            format!("-datasource.url={database}"),
            format!("-notifier.url=http://{}", places.alertmanager),
        ];
        self.start("vmalert", &arguments);
        let arguments = [
            format!("--config.file={}", receivers.display()),
            format!("--storage.path={}", dir.join("alertmanager").display()),
            format!("--web.listen-address={}", places.alertmanager),
            "--cluster.listen-address=".to_owned(),
        ];
        self.start("alertmanager", &arguments);
    }
}

fn free_port() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A shipped file, of which some words are others.
fn changed(dir: &Path, name: &str, words: &[(&str, &str)]) -> PathBuf {
    let mut text = fs::read_to_string(Path::new(SHIPPED).join(name)).unwrap();
    for (from, to) in words {
        assert!(text.contains(from), "{name} says nothing of {from}");
        text = text.replace(from, to);
    }
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path
}

async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(Instant::now() < end, "{what} does not come");
        sleep(Duration::from_millis(200)).await;
    }
}

/// The body of the next request that is posted there.
async fn posted(listener: &tokio::net::TcpListener) -> Value {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).await.unwrap();
        request.extend(&piece[..length]);
        let text = String::from_utf8_lossy(&request);
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
                .await
                .unwrap();
            return body;
        }
        assert!(length > 0, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs: scripts/test-monitoring"]
async fn a_metric_becomes_an_alarm_on_the_page_and_a_problem_reaches_whom_the_site_names() {
    let box_ = serve().await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running(Vec::new());
    let hook = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = format!(
        "name: lab\nalarms: {{webhook: 'http://{}/hook'}}",
        hook.local_addr().unwrap()
    );
    // The agent's part: whom to tell, and what holds.
    let metrics = free_port();
    let places = Places {
        vmalert: free_port(),
        alertmanager: free_port(),
    };
    let paths = Paths::new(box_.dir.path());
    fs::create_dir_all(paths.vmalert().parent().unwrap()).unwrap();
    fs::write(paths.vmalert(), "").unwrap();
    fs::create_dir_all(paths.run()).unwrap();
    let (_, settings) = watch::channel(Some(Arc::new(parse_site(site).unwrap())));
    let agent = tokio::spawn(monitoring::run(
        paths.clone(),
        places,
        settings,
        box_.web.status.clone(),
        box_.status.clone(),
        box_.stop.clone(),
    ));
    let receivers = paths.run_monitoring().join("alertmanager.yaml");
    until("Alertmanager's file", async || {
        receivers.exists().then_some(())
    })
    .await;
    running.start_all(box_.address, dir.path(), &receivers, metrics, places);
    // A server fails, and addresses go.
    box_.status.send(Update::Addresses(100));
    box_.status.send(Update::Leases(95));
    let host = HostStatus {
        name: "n1".into(),
        mac: "52:54:00:00:00:01".into(),
        state: HostState::Failed,
        problem: Some(Problem {
            what: "no disk is \"large\" enough".into(),
            next: "put one in".into(),
        }),
        ..HostStatus::default()
    };
    box_.status
        .send(Update::Host(host.mac.clone(), Some(Box::new(host))));
    let status = box_.web.status.clone();
    let alarm = until("the alarm", async || {
        let alarms = status.borrow().alarms.clone();
        alarms
            .into_iter()
            .find(|alarm| alarm.name == "AddressesNearlyGone")
    })
    .await;
    assert_eq!(
        alarm.problem.what,
        "95% of the addresses for servers are leased"
    );
    let (_, page) = box_.text("/").await;
    assert!(
        page.contains("95% of the addresses") && page.contains("alarm AddressesNearlyGone"),
        "{page}"
    );
    // Each rule is told by itself, in whatever order.
    let told = async {
        loop {
            let told = posted(&hook).await;
            assert_eq!(told["receiver"], "lab", "{told}");
            if told["groupLabels"]["alertname"] == "Problem" {
                return told["alerts"][0]["annotations"]["summary"].clone();
            }
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await.unwrap();
    assert_eq!(told, "server n1: no disk is \"large\" enough");
    // What was is over, and so is the alarm.
    box_.status.send(Update::Leases(10));
    until("the end of the alarm", async || {
        let alarms = &status.borrow().alarms;
        (!alarms
            .iter()
            .any(|alarm| alarm.name == "AddressesNearlyGone"))
        .then_some(())
    })
    .await;
    eprintln!("figure operate-monitoring {:.1}", running.memory());
    agent.abort();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs: scripts/test-monitoring"]
async fn logs_are_sought_by_words_and_read_by_programs() {
    let mut box_ = serve().await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running(Vec::new());
    let engine = free_port();
    let arguments = [
        format!("-httpListenAddr={engine}"),
        format!("-storageDataPath={}", dir.path().display()),
        "-http.pathPrefix=/monitoring/logs".to_owned(),
    ];
    running.start("victoria-logs", &arguments);
    let mut web = box_.web.clone();
    web.engines = Engines {
        logs: engine,
        ..Engines::default()
    };
    box_.listens(web);
    // A journal, and what sends it on a box.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap().as_micros();
    let entry = |ago: u128, unit: &str, message: &str| {
        format!(
            "__REALTIME_TIMESTAMP={}\n__MONOTONIC_TIMESTAMP={}\n_BOOT_ID=3d3c9efaf556496a9b04259ee35df7f7\n\
             _HOSTNAME=box\n_SYSTEMD_UNIT={unit}\nPRIORITY=4\nMESSAGE={message}\n\n",
            now - ago * 1_000_000,
            100_000_000 - ago * 1_000_000
        )
    };
    let journal = entry(
        30,
        "firstlight-agent.service",
        "host n1: <b>its image</b> was written",
    ) + &entry(20, "etcd.service", "slow fdatasync of N1")
        + &entry(10, "etcd.service", "compacted");
    let (text, file) = (dir.path().join("export"), dir.path().join("box.journal"));
    fs::write(&text, journal).unwrap();
    let done = |program: &str, arguments: &[&str]| {
        let program = Path::new("/usr/lib/systemd").join(program);
        let done = Command::new(program).args(arguments).output().unwrap();
        done.status.success()
    };
    let (text, file) = (text.to_str().unwrap(), file.to_str().unwrap());
    assert!(done("systemd-journal-remote", &["--output", file, text]));
    until("VictoriaLogs", async || {
        TcpStream::connect(engine).await.ok()
    })
    .await;
    let url = format!("--url=http://{engine}/monitoring/logs/insert/journald");
    assert!(done(
        "systemd-journal-upload",
        &[&url, "--follow=no", "--file", file]
    ));
    let lines = until("the lines", async || {
        let (status, text) = box_.text("/api/v1/logs?q=n1").await;
        let lines: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        (status == 200 && lines.len() == 2).then_some(lines)
    })
    .await;
    assert_eq!(
        lines[0]["message"], "host n1: <b>its image</b> was written",
        "oldest first"
    );
    assert_eq!(
        (&lines[1]["unit"], &lines[1]["priority"]),
        (&json!("etcd.service"), &json!(4))
    );
    let after = lines[0]["time"].as_str().unwrap();
    let (_, newer) = box_
        .text(&format!("/api/v1/logs?q=etcd&after={after}"))
        .await;
    assert_eq!(newer.lines().count(), 2, "{newer}");
    let (_, page) = box_.text("/logs?q=etcd+slow").await;
    assert!(
        page.contains("slow fdatasync of N1") && !page.contains("compacted"),
        "{page}"
    );
    let (_, page) = box_.text("/logs?q=image").await;
    assert!(page.contains("&lt;b&gt;its image"), "{page}");
    // Its own page runs below ours, with what is allowed there.
    let browser = Browser::start(Settings::default()).await;
    browser
        .open(format!(
            "http://{}/monitoring/logs/select/vmui/",
            box_.address
        ))
        .await;
    browser
        .until("document.querySelectorAll('button').length > 3")
        .await;
    let (status, _) = box_.text("/monitoring/logs/insert/jsonline").await;
    assert_eq!(status, 404, "it is for reading");
}
