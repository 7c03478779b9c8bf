//! The agent's own program with its state on the disk, looked at as a person does: by its page.

use std::{fs, io, path::Path, process::Command, time::Duration};

use faults::{Fault, Kind, Operation, Random, When};
use firstlight_api::{
    artifact::{Artifact, ArtifactState},
    status::{Problem, SiteStatus, StepState},
};
use firstlight_artifacts::hex;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    SIZE, Site,
    agent::{Agent, wait_for},
};

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

struct Box {
    site: Site,
    agent: Agent,
    library: std::path::PathBuf,
    /// A file that says how far the agent's clock is off.
    clock: Option<std::path::PathBuf>,
}

impl Box {
    fn new(size: u64) -> Self {
        let site = Site::new(size);
        Self {
            library: faults::preload::library(site.dir.path()).unwrap(),
            agent: Agent::new(&site.root()),
            site,
            clock: None,
        }
    }

    fn start(&mut self) {
        let log = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.log())
            .unwrap();
        let mut command = self.agent.command();
        command.env("LD_PRELOAD", &self.library).stderr(log);
        if let Some(clock) = &self.clock {
            command
                .env(
                    "LD_PRELOAD",
                    format!("{}:{FAKETIME}", self.library.display()),
                )
                .env("FAKETIME_TIMESTAMP_FILE", clock)
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        self.agent.start(&mut command);
    }

    fn kill(&mut self) {
        self.agent.kill();
    }

    fn power_cut(&mut self, seed: u64) {
        self.site.mount.disk().cut();
        self.kill();
        self.site.mount.restart(seed).unwrap();
    }

    fn log(&self) -> std::path::PathBuf {
        self.site.dir.path().join("agent.log")
    }

    fn fail(&self, paths: &str, operation: Operation, when: When, kind: Kind) {
        self.site
            .mount
            .disk()
            .add(Fault::new(paths, operation, when, kind));
    }

    fn is_running(&mut self) -> bool {
        self.agent.ended().is_none()
    }

    /// What the answer is, and its status; `None` without one.
    fn call(&self, path: &str, arguments: &[&str]) -> Option<(u16, Vec<u8>)> {
        let output = Command::new("curl")
            .args(["-s", "-m", "20", "-w", "%{stderr}%{http_code}"])
            .args(arguments)
            .arg(format!("http://127.0.0.1:{}{path}", self.agent.port))
            .output()
            .unwrap();
        let code = String::from_utf8_lossy(&output.stderr).parse().ok()?;
        output.status.success().then_some((code, output.stdout))
    }

    fn status(&self) -> Option<SiteStatus> {
        let (_, content) = self.call("/api/v1/status", &[])?;
        Some(serde_json::from_slice(&content).unwrap())
    }

    fn step(&self, name: &str) -> Option<StepState> {
        let steps = self.status()?.bring_up;
        steps
            .into_iter()
            .find(|step| step.name == name)
            .map(|step| step.state)
    }

    fn wait<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        wait_for(
            what,
            || look(self),
            || {
                let log = fs::read_to_string(self.log()).unwrap_or_default();
                format!("{:?}\n{log}", self.status())
            },
        )
    }

    fn wait_for_keys(&self) {
        self.wait("certificates", |here| match here.step("pki")? {
            StepState::Done { .. } => Some(()),
            _ => None,
        });
    }

    fn wait_for_problem(&self, step: &str) -> Problem {
        self.wait("a problem", |here| match here.step(step)? {
            StepState::Failed { problem, .. } => Some(problem),
            _ => None,
        })
    }

    /// Everything that nobody could make again.
    fn keys(&self) -> Vec<Vec<u8>> {
        self.try_keys().unwrap()
    }

    fn try_keys(&self) -> io::Result<Vec<Vec<u8>>> {
        let names = [
            "pki/ca",
            "kube/pki/ca",
            "kube/pki/front-proxy-ca",
            "kube/pki/etcd-ca",
        ];
        let authorities = names
            .iter()
            .flat_map(|name| [format!("{name}.key"), format!("{name}.crt")]);
        let all = authorities.chain(["kube/pki/sa.key".to_owned(), "kube/pki/sa.pub".to_owned()]);
        all.map(|name| fs::read(self.site.state(&name))).collect()
    }

    fn artifact(&self, id: &str) -> Artifact {
        let path = format!("/api/v1/artifacts/{id}");
        self.wait("the store", |here| {
            let (code, content) = here.call(&path, &[])?;
            assert_ne!(code, 404, "an upload that was acknowledged is gone");
            (code == 200).then(|| serde_json::from_slice(&content).unwrap())
        })
    }
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn a_full_state_partition_is_told_and_the_box_comes_up_once_there_is_room() {
    let mut this = Box::new(3 * 4096);
    this.start();
    let problem = this.wait_for_problem("pki");
    assert!(problem.what.contains("No space left"), "{problem:?}");
    assert!(problem.next.contains("full"), "{problem:?}");
    assert!(this.is_running());
    this.site.mount.disk().resize_disk(SIZE);
    this.wait_for_keys();
    let keys = this.keys();
    this.power_cut(1);
    assert_eq!(this.keys(), keys);
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn keys_that_cannot_be_read_for_a_while_are_the_same_afterwards() {
    let mut this = Box::new(SIZE);
    this.start();
    this.wait_for_keys();
    let keys = this.keys();
    for file in [
        "/pki/ca.key",
        "/pki/ca.crt",
        "/kube/pki/sa.key",
        "/agent/issued.json",
    ] {
        this.kill();
        this.fail(file, Operation::Read, When::Always, Kind::Broken);
        this.start();
        let problem = this.wait_for_problem("pki");
        assert!(
            problem.what.contains(file) && !problem.next.is_empty(),
            "{problem:?}"
        );
        assert!(this.is_running());
        this.site.mount.disk().clear();
        assert_eq!(this.keys(), keys, "{file}");
        this.wait_for_keys();
        assert_eq!(this.keys(), keys, "{file}");
    }
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn on_a_read_only_state_partition_the_page_answers_and_nothing_is_replaced() {
    let mut this = Box::new(SIZE);
    this.start();
    this.wait_for_keys();
    let keys = this.keys();
    this.kill();
    this.fail("**", Operation::Change, When::Always, Kind::ReadOnly);
    this.start();
    this.wait("the step", |here| match here.step("state")? {
        StepState::Running { .. } => Some(()),
        _ => None,
    });
    assert_eq!(this.keys(), keys);
    assert!(this.is_running());
    this.site.mount.disk().clear();
    this.wait_for_keys();

    // It becomes so while the box runs: an upload is refused in words, the page goes on.
    this.fail("**", Operation::Change, When::Always, Kind::ReadOnly);
    let refused = this.wait("the store", |here| {
        let (code, content) = begin(here, "late", &disk_of(1))?;
        (code != 503).then_some((code, content))
    });
    let said = String::from_utf8_lossy(&refused.1).into_owned();
    assert!(
        refused.0 == 500 && said.contains("Read-only file system"),
        "{} {said}",
        refused.0
    );
    assert!(this.is_running() && this.status().is_some());
    assert_eq!(this.keys(), keys);
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn a_slow_disk_only_takes_longer() {
    let mut this = Box::new(SIZE);
    this.fail(
        "**",
        Operation::Sync,
        When::Always,
        Kind::Slow(Duration::from_millis(700)),
    );
    this.start();
    this.wait("the page", Box::status);
    this.wait_for_keys();
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn a_power_cut_in_the_first_start_leaves_a_box_that_starts_and_keys_that_were_known() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let mut this = Box::new(SIZE);
        this.fail(
            "**",
            Operation::Change,
            When::Nth(1 + random.below(320)),
            Kind::Cut,
        );
        this.start();
        let is_known = this.wait("the cut", |here| match here.step("pki") {
            Some(StepState::Done { .. }) => Some(true),
            _ => here.site.mount.disk().is_off().then_some(false),
        });
        // The cut may come while they are read.
        let keys = this.try_keys();
        assert!(!is_known || keys.is_ok() || this.site.mount.disk().is_off());
        let keys = keys.ok().filter(|_| is_known);
        this.power_cut(random.number());
        this.start();
        this.wait_for_keys();
        assert!(keys.is_none_or(|keys| keys == this.keys()), "seed {seed}");
    }
}

/// A disk as somebody uploads it.
fn disk_of(byte: u8) -> Vec<u8> {
    let mut disk = vec![byte; 3 << 20];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

fn begin(this: &Box, version: &str, content: &[u8]) -> Option<(u16, Vec<u8>)> {
    let about = json!({
        "kind": "image", "name": "debian", "version": version, "arch": "amd64",
        "size": content.len(), "sha256": hex(&Sha256::digest(content)),
    });
    let arguments = [
        "-H",
        "Content-Type: application/json",
        "-d",
        &about.to_string(),
    ];
    this.call("/api/v1/artifacts", &arguments)
}

fn send(this: &Box, id: &str, content: &[u8], offset: u64) {
    let rest = this.site.dir.path().join("rest");
    fs::write(&rest, &content[usize::try_from(offset).unwrap()..]).unwrap();
    let (offset, body) = (
        format!("Upload-Offset: {offset}"),
        format!("@{}", rest.display()),
    );
    // What it answers is seen in the artifact; after a cut it is an error.
    drop(this.call(
        &format!("/api/v1/artifacts/{id}"),
        &["-X", "PATCH", "-H", &offset, "--data-binary", &body],
    ));
}

/// Until it is used; sends what is missing.
fn bring_to_the_end(this: &Box, id: &str, content: &[u8]) -> Artifact {
    this.wait("the upload", |here| {
        let artifact = here.artifact(id);
        match artifact.state {
            ArtifactState::Ready => Some(artifact),
            ArtifactState::Uploading { offset } => {
                send(here, id, content, offset);
                None
            }
            ArtifactState::Publishing => None,
            ArtifactState::Failed { reason, .. } => panic!("{reason}"),
        }
    })
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn a_power_cut_in_an_upload_or_while_it_is_published_loses_nothing_that_was_acknowledged() {
    let content = disk_of(7);
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let mut this = Box::new(SIZE);
        this.start();
        let (code, begun) = this.wait("the store", |here| {
            begin(here, "13", &content).filter(|(code, _)| *code != 503)
        });
        assert_eq!(code, 201);
        let begun: Artifact = serde_json::from_slice(&begun).unwrap();
        this.fail(
            "**",
            Operation::Change,
            When::Nth(1 + random.below(60)),
            Kind::Cut,
        );
        send(&this, &begun.id, &content, 0);
        this.wait("the cut", |here| {
            let is_ready = || {
                here.call(&format!("/api/v1/artifacts/{}", begun.id), &[])?
                    .1
                    .windows(7)
                    .any(|word| word == b"\"ready\"")
                    .then_some(())
            };
            if here.site.mount.disk().is_off() {
                Some(())
            } else {
                is_ready()
            }
        });
        this.power_cut(random.number());
        this.start();
        let artifact = bring_to_the_end(&this, &begun.id, &content);
        let (code, served) = this.call(&artifact.reference, &[]).unwrap();
        assert_eq!(
            (code, hex(&Sha256::digest(&served))),
            (200, artifact.checksum),
            "seed {seed}"
        );
        assert!(
            zstd::decode_all(&*served).unwrap() == content,
            "seed {seed}"
        );
    }
}

fn certificate_holds_now(path: &Path) {
    let pem = fs::read(path).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
    let validity = pem.parse_x509().unwrap().validity().clone();
    assert!(validity.is_valid(), "{} {validity:?}", path.display());
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn a_clock_that_is_years_off_makes_no_certificate_that_is_void_when_it_is_right() {
    // Years before Firstlight, and years ahead.
    for days in [-9000, -400, 400, 3000] {
        let mut this = Box::new(SIZE);
        let clock = this.site.dir.path().join("clock");
        fs::write(&clock, format!("{days:+}d")).unwrap();
        this.clock = Some(clock.clone());
        this.start();
        this.wait_for_keys();
        let keys = this.keys();
        for file in [
            "pki/ca.crt",
            "kube/pki/ca.crt",
            "kube/pki/apiserver.crt",
            "kube/pki/etcd-server.crt",
        ] {
            certificate_holds_now(&this.site.state(file));
        }
        this.kill();
        fs::write(&clock, "+0d").unwrap();
        this.start();
        this.wait_for_keys();
        assert_eq!(this.keys(), keys, "{days} days");
    }
}

#[test]
#[ignore = "needs FUSE: scripts/test-faults"]
fn a_clock_that_jumps_a_year_in_either_direction_under_the_agent_stops_nothing() {
    let content = disk_of(9);
    let mut this = Box::new(SIZE);
    let clock = this.site.dir.path().join("clock");
    fs::write(&clock, "+0d").unwrap();
    this.clock = Some(clock.clone());
    this.start();
    this.wait_for_keys();
    let keys = this.keys();
    for (version, offset) in [("1", "+365d"), ("2", "-365d"), ("3", "+0d")] {
        // A name of its own, so that no half of it is ever read.
        let next = clock.with_extension("next");
        fs::write(&next, offset).unwrap();
        fs::rename(&next, &clock).unwrap();
        let uptime = this.status().unwrap().uptime;
        let begun = this.wait("the store", |here| {
            begin(here, version, &content).filter(|(code, _)| *code == 201)
        });
        let begun: Artifact = serde_json::from_slice(&begun.1).unwrap();
        bring_to_the_end(&this, &begun.id, &content);
        let later = this.status().unwrap().uptime;
        assert!(
            later >= uptime && later - uptime < 600.0,
            "{uptime} {later}"
        );
        assert!(this.is_running());
    }
    assert_eq!(this.keys(), keys);
}
