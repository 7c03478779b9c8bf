//! etcd and `SQLite`, as the box uses them, on a disk that is full or loses its power: what they acknowledged is there afterwards.

#![allow(clippy::unwrap_used)]

use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use faults::{Disk, Fault, Kind, Mount, Names, Operation, Random, When};

const PATIENCE: Duration = Duration::from_mins(1);
/// A folder with the program `kube`; scripts/test-cluster-api builds it.
const PROGRAMS: &str = "FIRSTLIGHT_CLUSTER_API";

fn mount(size: u64) -> (tempfile::TempDir, Mount) {
    let dir = tempfile::tempdir().unwrap();
    let mount = Mount::new(Disk::new(size, Names::WithFile), dir.path()).unwrap();
    (dir, mount)
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Python's module, as Ironic opens its file where `LAUNCHER` is told, or with the library's own settings: a row a transaction; says
/// each number once it is committed.
const WRITER: &str = r"
import sqlite3, sys
path, first = sys.argv[1], int(sys.argv[2])
database = sqlite3.connect(path, timeout=1)
if sys.argv[3]:
    sys.dont_write_bytecode = True
    sys.path.append(sys.argv[3])
    import launch
    launch.settle(database)
for number in range(first, first + 100):
    try:
        with database:
            database.execute('CREATE TABLE IF NOT EXISTS nodes (number INTEGER PRIMARY KEY, state TEXT)')
            database.execute('INSERT INTO nodes VALUES (?, ?)', (number, 'x' * 3000))
        print(number, flush=True)
    except sqlite3.Error:
        pass
";
/// The folder of what starts the box's Ironic.
const LAUNCHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rootfs/ironic");
const READER: &str = r#"
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
assert database.execute('PRAGMA integrity_check').fetchall() == [('ok',)]
if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'nodes'").fetchall():
    for (number, state) in database.execute('SELECT number, state FROM nodes'):
        assert state == 'x' * 3000
        print(number)
"#;

fn python(program: &str, arguments: &[&str]) -> Vec<u64> {
    let output = Command::new("python3")
        .arg("-c")
        .arg(program)
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // Only the reader may not fail.
    assert!(
        program != READER || output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// How many committed rows are lost in all of a seed's rounds; never more than the last of a round.
fn lost_rows(seed: u64, launcher: &str) -> usize {
    let mut random = Random::new(seed);
    let (dir, mut mount) = mount(1 << 20);
    let path = dir.path().join("ironic.sqlite");
    let path = path.to_str().unwrap();
    let (mut committed, mut all_lost) = (Vec::new(), 0);
    for round in 0..3 {
        let cut = When::Nth(1 + random.below(400));
        let cut = Fault::new("**", Operation::Change, cut, Kind::Cut);
        mount.disk().add(cut);
        if round == 1 {
            mount.disk().resize_disk(200_000);
        }
        let first = (round * 1000).to_string();
        committed.extend(python(WRITER, &[path, &first, launcher]));
        mount.disk().resize_disk(1 << 20);
        mount.restart(random.number()).unwrap();
        let found = python(READER, &[path]);
        let newest = committed.last().copied();
        let lost = committed.extract_if(.., |number| !found.contains(number));
        let lost: Vec<u64> = lost.collect();
        let is_last = lost.is_empty() || lost.iter().copied().eq(newest);
        assert!(is_last, "seed {seed}, round {round}: {lost:?}");
        all_lost += lost.len();
    }
    all_lost
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn sqlite_is_whole_after_cuts_and_a_full_disk_and_keeps_the_last_commit_only_if_told_to() {
    let lost = |launcher| (0..15).map(|seed| lost_rows(seed, launcher)).sum::<usize>();
    // The library's own setting does not wait for the removal of its journal.
    assert_ne!(lost(""), 0);
    assert_eq!(lost(LAUNCHER), 0);
}

struct Etcd {
    child: Child,
    url: String,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

impl Etcd {
    fn start(program: &Path, data: &Path) -> Self {
        let (url, peer) = [free_port(), free_port()]
            .map(|port| format!("http://127.0.0.1:{port}"))
            .into();
        let child = Command::new(program)
            .args([
                "etcd",
                "--name=box",
                "--log-level=error",
                "--snapshot-count=50",
            ])
            .arg(format!("--data-dir={}", data.display()))
            .arg(format!("--listen-client-urls={url}"))
            .arg(format!("--advertise-client-urls={url}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=box={peer}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, url }
    }

    fn call(&self, path: &str, body: &str) -> Option<String> {
        let output = Command::new("curl")
            .args(["-sf", "-m", "3", "-d", body])
            .arg(format!("{}/v3/kv/{path}", self.url))
            .output()
            .unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// Keys are numbers in the alphabet of base64, so that nothing must be encoded: `AAAn` is three bytes.
    fn put(&self, key: &str) -> bool {
        let value = "eHh4".repeat(500);
        self.call("put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#))
            .is_some()
    }

    fn has(&self, key: &str) -> Option<bool> {
        let found = self.call("range", &format!(r#"{{"key":"{key}"}}"#))?;
        Some(found.contains(r#""count":"1""#))
    }
}

fn key(number: u64) -> String {
    let digit = |shift: u64| char::from(b'A' + u8::try_from((number >> shift) % 16).unwrap());
    format!("A{}{}{}", digit(8), digit(4), digit(0))
}

#[test]
#[ignore = "needs FUSE and FIRSTLIGHT_CLUSTER_API: scripts/test-cluster-api"]
fn etcd_starts_again_after_cuts_and_a_full_disk_with_all_that_it_acknowledged() {
    let program = PathBuf::from(std::env::var_os(PROGRAMS).unwrap()).join("kube");
    for seed in 0..5 {
        let mut random = Random::new(seed);
        let (dir, mut mount) = mount(1 << 30);
        let data = dir.path().join("etcd");
        let mut acknowledged = Vec::new();
        for round in 0..3 {
            let etcd = Etcd::start(&program, &data);
            wait_for("etcd", || etcd.has(&key(0)));
            for number in &acknowledged {
                let found = wait_for("an answer", || etcd.has(&key(*number)));
                assert!(found, "seed {seed}, round {round}: {number} is lost");
            }
            if round == 1 {
                let used = mount.disk().usage().1;
                mount.disk().resize_disk(used + 20_000);
            } else {
                let cut = When::Nth(1 + random.below(300));
                mount
                    .disk()
                    .add(Fault::new("**", Operation::Change, cut, Kind::Cut));
            }
            for number in 0..60 {
                let number = round * 100 + number;
                if etcd.put(&key(number)) {
                    acknowledged.push(number);
                } else if mount.disk().is_off() || round == 1 {
                    break;
                }
            }
            mount.disk().cut();
            drop(etcd);
            mount.disk().resize_disk(1 << 30);
            mount.restart(random.number()).unwrap();
        }
        assert!(!acknowledged.is_empty());
        let etcd = Etcd::start(&program, &data);
        for number in &acknowledged {
            let found = wait_for("an answer", || etcd.has(&key(*number)));
            assert!(found, "seed {seed}: {number} is lost");
        }
    }
}
