//! `etcd-data`, which the box's `etcd.service` runs around etcd: copies after a clean stop, and the way from damaged data to a
//! start with older ones. The first tests play systemd with files; the last one runs the real etcd.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use firstlight_agent::kubernetes::{Etcdctl, Relief};

const SCRIPT: &str = "../overlays/box/usr/lib/firstlight/etcd-data";
const PATIENCE: Duration = Duration::from_mins(2);

struct Data {
    dir: tempfile::TempDir,
}

impl Data {
    fn new() -> Self {
        let data = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(data.path("data")).unwrap();
        data.boots();
        data
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// What is in memory is gone.
    fn boots(&self) {
        drop(fs::remove_dir_all(self.path("run")));
        fs::create_dir(self.path("run")).unwrap();
    }

    fn run(&self, what: &str, result: &str) {
        let ended = Command::new("sh")
            .args([SCRIPT, what])
            .args([self.path("data"), self.path("run")])
            .env("SERVICE_RESULT", result)
            .stderr(Stdio::null())
            .status();
        assert!(ended.unwrap().success(), "{what} {result}");
    }

    /// What etcd keeps.
    fn write(&self, content: &str) {
        fs::create_dir_all(self.path("data/member")).unwrap();
        fs::write(self.path("data/member/db"), content).unwrap();
    }

    fn read(&self, place: &str) -> Option<String> {
        fs::read_to_string(self.path("data").join(place).join("db")).ok()
    }

    /// A day with etcd, and its clean end.
    fn day(&self, content: &str) {
        self.run("before", "");
        self.write(content);
        self.run("started", "");
        self.run("stopped", "success");
        self.age("data/copy-1");
    }

    /// As if it had been made yesterday.
    fn age(&self, path: &str) {
        if let Ok(file) = fs::File::open(self.path(path)) {
            let day = Duration::from_hours(24);
            file.set_modified(SystemTime::now() - day).unwrap();
        }
    }

    fn fails(&self, times: usize) {
        for _ in 0..times {
            self.run("before", "");
            self.run("stopped", "exit-code");
        }
    }

    /// Which data etcd finds now.
    fn next(&self) -> Option<String> {
        self.run("before", "");
        self.read("member")
    }

    fn told(&self) -> Option<String> {
        fs::read_to_string(self.path("data/restored")).ok()
    }
}

#[test]
fn two_copies_are_kept_of_the_last_clean_stops() {
    let data = Data::new();
    for day in ["one", "two", "three"] {
        data.day(day);
    }
    let copies = ["copy-1", "copy-2"].map(|copy| data.read(copy).unwrap());
    assert_eq!(copies, ["three", "two"]);
    // A stop soon after another, and the end of an etcd that never started, leave them alone.
    fs::File::open(data.path("data/copy-1"))
        .unwrap()
        .set_modified(SystemTime::now())
        .unwrap();
    data.write("four");
    data.run("started", "");
    data.run("stopped", "success");
    data.run("stopped", "success");
    assert_eq!(data.read("copy-1").unwrap(), "three");
    assert!(fs::read_dir(data.path("data")).unwrap().count() <= 3);
}

#[test]
fn damaged_data_end_in_a_start_with_the_newest_copy_that_works() {
    let data = Data::new();
    for day in ["one", "two"] {
        data.day(day);
    }
    data.write("damaged");
    data.fails(4);
    assert_eq!(data.next().unwrap(), "damaged", "four times are no sign");
    data.run("stopped", "exit-code");
    assert_eq!(data.next().unwrap(), "two");
    assert_eq!(data.told(), None, "not started yet");
    data.run("started", "");
    assert!(data.told().unwrap().starts_with("the copy of 20"));
    assert_eq!(
        data.read("damaged").unwrap(),
        "damaged",
        "for who wants to look"
    );

    // That one is damaged, too: the older copy, and then none.
    data.write("damaged again");
    data.run("stopped", "exit-code");
    data.fails(4);
    assert_eq!(data.next().unwrap(), "one");
    data.fails(5);
    assert_eq!(data.next(), None);
    data.run("started", "");
    assert_eq!(data.told().unwrap(), "nothing\n");
}

#[test]
fn if_even_no_data_start_the_fault_is_elsewhere_and_everything_gets_back_to_its_place() {
    let data = Data::new();
    for day in ["one", "two"] {
        data.day(day);
    }
    data.write("healthy");
    let places = |data: &Data| ["member", "copy-1", "copy-2"].map(|place| data.read(place));
    let before = places(&data);
    data.fails(40);
    assert_eq!(data.next().unwrap(), "healthy");
    assert_eq!(places(&data), before);
    data.boots();
    data.fails(20);
    data.fails(20);
    assert_eq!(
        (data.next().unwrap().as_str(), data.told()),
        ("healthy", None)
    );
}

#[test]
fn a_power_cut_in_the_middle_is_taken_up_again() {
    let data = Data::new();
    data.day("one");
    data.write("damaged");
    // Put aside, and nothing brought yet.
    fs::rename(data.path("data/member"), data.path("data/damaged")).unwrap();
    data.boots();
    assert_eq!(data.next().unwrap(), "one");
    // Noted, and not brought.
    fs::rename(data.path("data/member"), data.path("data/copy-1")).unwrap();
    data.boots();
    assert_eq!(data.next().unwrap(), "one");
    data.boots();
    assert_eq!(data.next().unwrap(), "one");
    data.run("started", "");
    assert!(data.told().is_some());
}

#[test]
fn who_is_ended_by_others_or_ran_for_long_is_not_damaged() {
    let data = Data::new();
    data.day("one");
    data.write("healthy");
    for _ in 0..10 {
        for result in ["oom-kill", "watchdog", "timeout", "resources"] {
            data.run("before", "");
            data.run("stopped", result);
        }
        // Up for an hour.
        fs::write(data.path("run/started"), "0").unwrap();
        data.run("stopped", "core-dump");
    }
    assert_eq!(data.next().unwrap(), "healthy");
}

struct Etcd {
    child: Child,
    port: u16,
}

impl Etcd {
    fn start(program: &Path, data: &Data) -> Self {
        Self::start_with(program, data, &[])
    }

    fn start_with(program: &Path, data: &Data, more: &[&str]) -> Self {
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ports = [free(), free()].map(|port| port.local_addr().unwrap().port());
        let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        let child = Command::new(program)
            .arg("--data-dir")
            .arg(data.path("data"))
            .args(["--name=box", &format!("--initial-cluster=box={peer}")])
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--log-level=error", "--unsafe-no-fsync"])
            .args(more)
            .stderr(Stdio::null())
            .spawn();
        Self {
            child: child.unwrap(),
            port: ports[0],
        }
    }

    /// Whether it serves, or ends.
    fn serves(&mut self) -> bool {
        let since = Instant::now();
        loop {
            if self.is_well() {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(since.elapsed() < PATIENCE, "etcd neither serves nor ends");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_well(&self) -> bool {
        let health = Command::new("curl")
            .args(["-sf", "--max-time", "5"])
            .arg(format!("http://127.0.0.1:{}/health", self.port))
            .stdout(Stdio::null())
            .status();
        health.unwrap().success()
    }

    fn stop(mut self) {
        let id = self.child.id().to_string();
        Command::new("kill").arg(id).status().unwrap();
        self.child.wait().unwrap();
    }

    fn curl(&self, path: &str, body: &str) -> String {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let said = Command::new("curl")
            .args(["-sf", &url, "-d", body])
            .output()
            .unwrap();
        String::from_utf8(said.stdout).unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
#[ignore = "needs FIRSTLIGHT_ETCD: scripts/test-cluster-api"]
fn the_real_etcd_comes_up_with_yesterdays_data_after_its_database_was_damaged() {
    let program = PathBuf::from(std::env::var_os("FIRSTLIGHT_ETCD").unwrap());
    let data = Data::new();
    data.run("before", "");
    let mut etcd = Etcd::start(&program, &data);
    assert!(etcd.serves());
    data.run("started", "");
    // "key" and "value" in base64.
    etcd.curl("/v3/kv/put", r#"{"key":"a2V5","value":"dmFsdWU="}"#);
    etcd.stop();
    data.run("stopped", "success");

    let database = data.path("data/member/snap/db");
    let length = fs::metadata(&database).unwrap().len();
    fs::write(&database, vec![0x5a; usize::try_from(length).unwrap()]).unwrap();
    let mut failed = 0;
    loop {
        data.run("before", "");
        let mut etcd = Etcd::start(&program, &data);
        if etcd.serves() {
            data.run("started", "");
            let found = etcd.curl("/v3/kv/range", r#"{"key":"a2V5"}"#);
            assert!(found.contains("dmFsdWU="), "{found}");
            break;
        }
        data.run("stopped", "exit-code");
        failed += 1;
        assert!(failed <= 5, "it ends");
    }
    assert_eq!(failed, 5);
    assert!(data.told().unwrap().starts_with("the copy of"));
}

#[tokio::test]
#[ignore = "needs FIRSTLIGHT_ETCD and FIRSTLIGHT_ETCDCTL: scripts/test-cluster-api"]
async fn a_full_etcd_takes_writes_again_once_the_newest_state_of_its_objects_fits() {
    let program = |name| PathBuf::from(std::env::var_os(name).unwrap());
    let data = Data::new();
    let quota = "--quota-backend-bytes=4194304";
    let mut etcd = Etcd::start_with(&program("FIRSTLIGHT_ETCD"), &data, &[quota]);
    assert!(etcd.serves());
    let endpoint = format!("http://127.0.0.1:{}", etcd.port);
    let etcdctl = Etcdctl {
        program: program("FIRSTLIGHT_ETCDCTL"),
        environment: vec![("ETCDCTL_ENDPOINTS", endpoint.into())],
    };
    let put = |key: &str| {
        let value = "A".repeat(64 << 10);
        !etcd
            .curl(
                "/v3/kv/put",
                &format!(r#"{{"key":"{key}","value":"{value}"}}"#),
            )
            .is_empty()
    };

    // One object that changes again and again.
    let changes = (0..200).take_while(|_| put("a2V5")).count();
    assert!((40..200).contains(&changes), "{changes}");
    assert!(!put("a2V5") && !etcd.is_well());
    let Relief::Disarmed(space) = etcdctl.relieve().await.unwrap() else {
        panic!("one object of 48 KiB fits");
    };
    assert!(space.used < space.quota / 4, "{space:?}");
    assert!(put("a2V5") && etcd.is_well());

    // Objects that are all of this size: somebody has to delete some.
    let keys: Vec<String> = (100..300).map(|number| format!("QUF{number}AA")).collect();
    let mut rest = keys.iter().peekable();
    loop {
        // The one that is refused comes again.
        while rest.next_if(|key| put(key)).is_some() {}
        assert!(rest.peek().is_some(), "it is never full");
        if matches!(etcdctl.relieve().await.unwrap(), Relief::Full(_)) {
            break;
        }
    }
    let again = etcdctl.relieve().await.unwrap();
    assert!(matches!(again, Relief::Full(_)), "{again:?}");
    assert!(!etcd.is_well() && !put("a2V5"));
    for key in &keys {
        etcd.curl("/v3/kv/deleterange", &format!(r#"{{"key":"{key}"}}"#));
    }
    let relief = etcdctl.relieve().await.unwrap();
    assert!(matches!(relief, Relief::Disarmed(_)), "{relief:?}");
    assert!(put("a2V5") && etcd.is_well());
}
