//! The agent's program and a `site.yaml` that goes bad: what a person sees on the page, start by start.
#![allow(clippy::unwrap_used)]

#[path = "common/agent.rs"]
mod agent;

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
};

use agent::{Agent, wait_for};
use firstlight_api::status::SiteStatus;

struct Desk {
    dir: tempfile::TempDir,
    agent: Agent,
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
        let agent = Agent::new(dir.path());
        Self { dir, agent }
    }

    fn site(&self) -> PathBuf {
        self.dir.path().join("firstlight/site/site.yaml")
    }

    fn start(&mut self) {
        let mut command = self.agent.command();
        self.agent.start(&mut command);
    }

    fn status(&self) -> Option<SiteStatus> {
        let mut page = TcpStream::connect((Ipv4Addr::LOCALHOST, self.agent.port)).ok()?;
        page.write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut said = String::new();
        page.read_to_string(&mut said).ok()?;
        serde_json::from_str(said.split_once("\r\n\r\n")?.1).ok()
    }

    fn read_site(&self) -> SiteStatus {
        wait_for(
            "the site's name",
            || self.status().filter(|status| !status.site.is_empty()),
            || format!("{:?}", self.status()),
        )
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
    let ended = wait_for("the agent's end", || desk.agent.ended(), String::new);
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
    let mut command = desk.agent.command();
    command
        .env("JOURNAL_STREAM", "8:1")
        .stderr(fs::File::create(&log).unwrap());
    desk.agent.start(&mut command);
    desk.read_site();
    desk.agent.kill();
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
