//! The agent's program and a `site.yaml` that goes bad: what a person sees on the page, start by start.
#![allow(clippy::unwrap_used)]

#[path = "common/agent.rs"]
mod agent;

use std::{fs, path::PathBuf, time::Duration};

use agent::{Agent, wait_for};
use firstlight_api::status::SiteStatus;
use firstlight_client::http::{Client, Request};

struct Desk {
    dir: tempfile::TempDir,
    agent: Agent,
}

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
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
        let url = format!("http://127.0.0.1:{}/api/v1/status", self.agent.port);
        let client = Client::new(None, Duration::from_secs(20));
        let mut reply = client.send(&Request::get(&url)).ok()?;
        serde_json::from_slice(&reply.read_body(1 << 20).ok()?).ok()
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
