//! Metrics, alarms and logs with the real programs: `scripts/test-monitoring`, where MONITORING names their folder.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use firstlight_api::{
    logs::{self, System},
    site::parse_site,
    status::{HostState, HostStatus, Problem},
};
use firstlight_client::{
    logs::{Batch, Waiting, since_start},
    signed_client::{SignedClient, Untaken},
    tls::{BoxClock, trust_only},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::time::sleep;

use super::{
    super::{
        bootstrap::{Endpoint, PLACES, accept},
        monitoring::{DASHBOARDS, Engines, Servers},
        tls::acceptor,
    },
    browser::driver::{Browser, Settings},
    *,
};
use crate::{
    doors::Known,
    monitoring::{self, Places},
    pki::{self, CertSpec},
};

mod day;

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

const SAID: [&str; 2] = [
    "nvme0: controller is down",
    "kubeadm join --token abcdef.0123456789abcdef",
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs: scripts/test-monitoring"]
async fn lines_of_servers_come_signed_without_secrets_and_are_sought_by_their_starts() {
    let mut box_ = serve().await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running(Vec::new());
    let end = BootstrapEndpoint::start(dir.path()).await;
    let host = HostStatus {
        name: "n1".into(),
        mac: "52:54:00:00:00:01".into(),
        ..HostStatus::default()
    };
    let key = Key::new().unwrap();
    end.knows(&key, &host);
    box_.status
        .send(Update::Host(host.mac.clone(), Some(Box::new(host))));
    // It waits with the server as long as nobody keeps it.
    let untaken = end.hears(&key, System::Ramdisk, "0a9f", &SAID).await;
    assert_eq!(untaken.unwrap_err().again, Some(Duration::from_secs(10)));
    let arguments = [
        format!("-httpListenAddr={}", end.engines.logs),
        format!("-storageDataPath={}", dir.path().join("logs").display()),
        "-http.pathPrefix=/monitoring/logs".to_owned(),
    ];
    running.start("victoria-logs", &arguments);
    until("VictoriaLogs", async || {
        TcpStream::connect(end.engines.logs).await.ok()
    })
    .await;
    for (system, start, said) in [
        (System::Ramdisk, "0a9f", &SAID[..]),
        (System::Installed, "0b00", &["up"]),
    ] {
        end.hears(&key, system, start, said).await.unwrap();
    }
    let stranger = Key::new().unwrap();
    let refused = end
        .hears(&stranger, System::Installed, "0b01", &["I am n1"])
        .await;
    assert!(refused.unwrap_err().reason.contains("409"));
    let mut web = box_.web.clone();
    web.engines = end.engines;
    box_.listens(web);
    they_are_sought(&box_).await;
}

async fn they_are_sought(box_: &Fixture) {
    let values = |text: &str| -> Option<Vec<Value>> {
        let values = text.lines().map(|line| serde_json::from_str(line).ok());
        values.collect()
    };
    let lines = until("the lines", async || {
        let (_, text) = box_.text("/api/v1/logs?q=n1").await;
        values(&text).filter(|lines| lines.len() == 3)
    })
    .await;
    let said: Vec<_> = lines.iter().map(|line| &line["message"]).collect();
    assert_eq!(
        said,
        [SAID[0], "kubeadm join --token (removed)", "up"],
        "in their order"
    );
    assert_eq!(
        (&lines[0]["host"], &lines[0]["system"], &lines[0]["start"]),
        (&json!("n1"), &json!("ramdisk"), &json!("0a9f"))
    );
    for (asked, count) in [
        ("step=ramdisk", 2),
        ("step=system", 1),
        ("start=0b00", 1),
        ("step=box", 0),
    ] {
        let (_, text) = box_.text(&format!("/api/v1/logs?q=n1&{asked}")).await;
        assert_eq!(text.lines().count(), count, "{asked}: {text}");
    }
    for step in logs::STEPS {
        let (status, text) = box_.text(&format!("/api/v1/logs?step={}", step.0)).await;
        assert_eq!(status, 200, "{step:?}: {text}");
    }
    let (status, _) = box_.text("/api/v1/logs?step=kubelt").await;
    assert_eq!(status, 400);
    let (_, starts) = box_.text("/api/v1/logs/starts?q=52:54:00:00:00:01").await;
    let starts = values(&starts).unwrap();
    assert_eq!(starts.len(), 2, "{starts:?}");
    let ramdisk = starts.iter().find(|start| start["system"] == "ramdisk");
    let ramdisk = ramdisk.unwrap();
    assert_eq!(
        (&ramdisk["id"], &ramdisk["lines"]),
        (&json!("0a9f"), &json!("2"))
    );
    let (_, page) = box_.text("/logs?q=n1&start=0a9f").await;
    assert!(
        page.contains("Starts of n1 (2)") && page.contains(SAID[0]) && !page.contains(">up</td>"),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs: scripts/test-monitoring"]
async fn a_server_measures_itself_and_dashboards_show_it() {
    let mut box_ = serve().await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running(Vec::new());
    let end = BootstrapEndpoint::start(dir.path()).await;
    let key = Key::new().unwrap();
    let host = HostStatus {
        name: "n1".into(),
        mac: "52:54:00:00:00:01".into(),
        ..HostStatus::default()
    };
    end.knows(&key, &host);
    let dashboards = Path::new(SHIPPED).join("dashboards");
    let arguments = [
        format!("-httpListenAddr={}", end.engines.metrics),
        format!("-storageDataPath={}", dir.path().join("metrics").display()),
        "-http.pathPrefix=/monitoring/metrics".to_owned(),
        "-search.latencyOffset=0s".to_owned(),
        format!("-vmui.customDashboardsPath={}", dashboards.display()),
    ];
    running.start("victoria-metrics", &arguments);
    until("VictoriaMetrics", async || {
        TcpStream::connect(end.engines.metrics).await.ok()
    })
    .await;
    let said = "# TYPE node_load1 gauge\nnode_load1 0.5\nnode_time_seconds{server=\"n2\"} 1\n";
    end.measures(&key, said).await.unwrap();
    let refused = end.measures(&Key::new().unwrap(), said).await;
    assert!(refused.unwrap_err().reason.contains("409"));
    let mut web = box_.web.clone();
    web.engines = end.engines;
    box_.listens(web);
    let found = until("the measurement", async || {
        let (_, text) = measured(&box_, "{server!=\"\"}").await;
        let found: Value = serde_json::from_str(&text).ok()?;
        let found = found["data"]["result"].as_array()?.clone();
        (found.len() == 2).then_some(found)
    })
    .await;
    for sample in &found {
        assert_eq!(
            (&sample["metric"]["server"], &sample["metric"]["job"]),
            (&json!("n1"), &json!("server")),
            "{found:?}"
        );
    }
    // All that dashboards ask can be asked.
    let (_, served) = box_
        .text("/monitoring/metrics/vmui/custom-dashboards")
        .await;
    let served: Value = serde_json::from_str(&served).unwrap();
    let served = served["dashboardsSettings"].as_array().unwrap();
    assert_eq!(served.len(), 4);
    let panels = served
        .iter()
        .flat_map(|board| board["rows"].as_array().unwrap())
        .flat_map(|row| row["panels"].as_array().unwrap());
    for asks in panels.flat_map(|panel| panel["expr"].as_array().unwrap()) {
        let (status, text) = measured(&box_, asks.as_str().unwrap()).await;
        assert_eq!(status, 200, "{asks}: {text}");
    }
    let browser = Browser::start(Settings::default()).await;
    let page = format!("http://{}{DASHBOARDS}", box_.address);
    browser.open(page).await;
    browser
        .until("document.body.innerText.includes('Servers by state')")
        .await;
}

/// What a program gets that asks the box.
async fn measured(box_: &Fixture, query: &str) -> (StatusCode, String) {
    let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
    let path = format!("/monitoring/metrics/prometheus/api/v1/query?query={query}");
    box_.text(&path).await
}

/// What rules and dashboards ask of the agent, it tells.
#[test]
fn rules_and_dashboards_ask_for_metrics_that_there_are() {
    let told = [
        include_str!("../../status/metrics.rs"),
        include_str!("../../status/counters.rs"),
    ]
    .concat();
    let mut asked = fs::read_to_string(Path::new(SHIPPED).join("alarms.yaml")).unwrap();
    for board in fs::read_dir(Path::new(SHIPPED).join("dashboards")).unwrap() {
        asked += &fs::read_to_string(board.unwrap().path()).unwrap();
    }
    let names = regex::Regex::new("firstlight_[a-z_]+").unwrap();
    let names: BTreeSet<_> = names.find_iter(&asked).map(|name| name.as_str()).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let name = name.trim_end_matches("_bucket");
        assert!(told.contains(name), "nobody tells {name}");
    }
}

struct BootstrapEndpoint {
    /// Where its logs and metrics are kept.
    engines: Engines,
    ca: CertificateDer<'static>,
    base: String,
    controller: Controller,
}

impl BootstrapEndpoint {
    async fn start(dir: &Path) -> Self {
        let pki = pki::load_or_make(&Paths::new(dir), 1_795_219_200).unwrap();
        let (fleet, controller) = fleet::channel();
        let engines = Engines {
            metrics: free_port(),
            logs: free_port(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("https://{}", listener.local_addr().unwrap());
        let shown = acceptor(&pki, &CertSpec::for_bootstrap(Ipv4Addr::LOCALHOST)).unwrap();
        let (_, held) = watch::channel(Arc::default());
        let endpoint = Endpoint {
            servers: Servers::new(fleet.clone(), engines),
            fleet,
            door: Door::new(PLACES, Known::new(held)),
        };
        tokio::spawn(async move { accept(&endpoint, shown, listener).await });
        Self {
            engines,
            ca: CertificateDer::from_pem_slice(pki.site.certificate.as_bytes()).unwrap(),
            base,
            controller,
        }
    }

    async fn measures(&self, key: &Key, said: &'static str) -> Result<(), Untaken> {
        let tls = trust_only(self.ca.clone(), Arc::new(BoxClock::default())).unwrap();
        let client = SignedClient::new(&self.base, tls, key.clone());
        let sent = tokio::task::spawn_blocking(move || {
            client.post(firstlight_api::metrics::PATH, said.as_bytes())
        });
        sent.await.unwrap()
    }

    async fn hears(
        &self,
        key: &Key,
        system: System,
        start: &str,
        said: &[&str],
    ) -> Result<(), Untaken> {
        let mut batch = Batch::new(start);
        for message in said {
            batch.push(Waiting {
                at: since_start() - 5000,
                unit: "kernel".into(),
                priority: Some(3),
                message: (*message).to_owned(),
            });
        }
        self.takes(key, system, batch).await
    }

    async fn takes(&self, key: &Key, system: System, batch: Batch) -> Result<(), Untaken> {
        let tls = trust_only(self.ca.clone(), Arc::new(BoxClock::default())).unwrap();
        let client = SignedClient::new(&self.base, tls, key.clone());
        let sent =
            tokio::task::spawn_blocking(move || client.post(logs::PATH, &batch.body(system)));
        sent.await.unwrap()
    }

    /// From now on `key` is this host's.
    fn knows(&self, key: &Key, host: &HostStatus) {
        let named = fleet::Named {
            mac: host.mac.parse().unwrap(),
            name: host.name.clone(),
        };
        self.controller.view.send_modify(|view| {
            Arc::make_mut(view).speakers.insert(key.public(), named);
        });
    }
}
