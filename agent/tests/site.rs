//! The agent's program and a `site.yaml` that goes bad: what a person sees on the page, start by start.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use firstlight_api::status::SiteStatus;

const PATIENCE: Duration = Duration::from_mins(1);

struct Desk {
    dir: tempfile::TempDir,
    port: u16,
    agent: Option<Child>,
}

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in [
            "run/firstlight",
            "var/lib/firstlight/agent",
            "firstlight/site",
        ] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        Self {
            dir,
            port,
            agent: None,
        }
    }

    fn site(&self) -> PathBuf {
        self.dir.path().join("firstlight/site/site.yaml")
    }

    /// After a power cut, if it ran before.
    fn start(&mut self) {
        self.kill();
        let agent = Command::new(env!("CARGO_BIN_EXE_firstlight-agent"))
            .arg("--root")
            .arg(self.dir.path())
            .args(["--loopback", &self.port.to_string()])
            .stdout(Stdio::null())
            .spawn();
        self.agent = Some(agent.unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            drop(agent.kill());
            drop(agent.wait());
        }
    }

    fn status(&self) -> Option<SiteStatus> {
        let mut page = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        page.write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut said = String::new();
        page.read_to_string(&mut said).ok()?;
        serde_json::from_str(said.split_once("\r\n\r\n")?.1).ok()
    }

    fn wait_for<T>(&mut self, what: &str, look: impl Fn(&mut Self) -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(since.elapsed() < PATIENCE, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn read_site(&mut self) -> SiteStatus {
        self.wait_for("the site's name", |desk| {
            desk.status().filter(|status| !status.site.is_empty())
        })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn a_site_whose_file_went_bad_goes_on_says_so_and_starts_anew_once_it_is_mended() {
    let mut desk = Desk::new();
    fs::write(desk.site(), "name: lab\n").unwrap();
    desk.start();
    let status = desk.read_site();
    assert_eq!((status.site.as_str(), status.problems.len()), ("lab", 0));

    fs::write(desk.site(), "name: lab\nprovisoning: {}\n").unwrap();
    desk.start();
    let status = desk.read_site();
    assert_eq!(status.site, "lab", "as at the last start");
    let told = &status.problems[0].what;
    assert!(
        told.contains("line 2, column 1") && told.contains("no server is installed"),
        "{told}"
    );

    fs::write(desk.site(), "name: lab-2\n").unwrap();
    let ended = desk.wait_for("the agent's end", |desk| {
        desk.agent.as_mut().unwrap().try_wait().unwrap()
    });
    assert!(!ended.success(), "systemd starts it anew");
    desk.start();
    let status = desk.read_site();
    assert_eq!((status.site.as_str(), status.problems.len()), ("lab-2", 0));
}

#[test]
fn the_journal_is_told_which_lines_are_warnings() {
    let mut desk = Desk::new();
    fs::write(desk.site(), "name: [\n").unwrap();
    let log = desk.dir.path().join("log");
    let agent = Command::new(env!("CARGO_BIN_EXE_firstlight-agent"))
        .arg("--root")
        .arg(desk.dir.path())
        .args(["--loopback", &desk.port.to_string()])
        .env("JOURNAL_STREAM", "8:1")
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn();
    desk.agent = Some(agent.unwrap());
    desk.read_site();
    desk.kill();
    let log = fs::read_to_string(log).unwrap();
    let about_site = |line: &&str| line.contains("site.yaml is not used");
    assert!(
        log.lines().find(about_site).unwrap().starts_with("<4>"),
        "{log}"
    );
    assert!(log.lines().all(|line| line.starts_with('<')), "{log}");
}

#[test]
fn without_an_earlier_file_a_bad_one_is_told_and_nothing_is_kept_of_it() {
    let mut desk = Desk::new();
    fs::write(desk.site(), [0; 512]).unwrap();
    desk.start();
    let status = desk.read_site();
    let told = &status.problems[0].what;
    assert!(told.contains("leases no addresses"), "{told}");
    let kept = desk.dir.path().join("var/lib/firstlight/agent/site.yaml");
    assert!(!kept.exists());
}
