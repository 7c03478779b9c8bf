//! The apt repository of uploads as apt itself sees it: the real `dpkg-deb`, `apt-get` and their check of signatures.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Instant,
};

use firstlight_agent::store::apt::{Deb, Repository};
use sha2::{Digest, Sha256};

const NOW: i64 = 1_790_000_000;

struct Site {
    dir: tempfile::TempDir,
    repository: Repository,
}

fn run(command: &mut Command) -> Output {
    command.env("LC_ALL", "C").output().unwrap()
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository {
            dir: dir.path().join("apt"),
            key: dir.path().join("key.asc"),
        };
        for folder in [
            "debs",
            "etc/apt/preferences.d",
            "state/lists/partial",
            "cache/archives/partial",
        ] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("state/status"), "").unwrap();
        fs::write(
            dir.path().join("etc/apt/sources.list"),
            format!(
                "deb [signed-by={0}/uploads.asc arch=amd64] file:{0} uploads main\n",
                repository.dir.display()
            ),
        )
        .unwrap();
        Self { dir, repository }
    }

    fn deb(&self, name: &str, version: &str) -> Deb {
        let tree = self.dir.path().join(format!("tree-{name}-{version}"));
        fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        fs::write(
            tree.join("DEBIAN/control"),
            format!("Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\nDescription: {name}\n {name}\n"),
        )
        .unwrap();
        let path = self
            .dir
            .path()
            .join(format!("debs/{name}-{}", version.replace(':', "-")));
        let made = run(Command::new("dpkg-deb")
            .args(["--build", "--root-owner-group"])
            .arg(&tree)
            .arg(&path));
        assert!(made.status.success(), "{made:?}");
        describe(path)
    }

    /// As root of its own, which touches nothing of this machine.
    fn apt(&self, program: &str, arguments: &[&str]) -> String {
        self.try_apt(program, arguments).unwrap()
    }

    fn try_apt(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let at = |path: &str| self.dir.path().join(path).display().to_string();
        let output = run(Command::new(program)
            .current_dir(self.dir.path())
            .arg("-oDir::Etc=".to_owned() + &at("etc/apt"))
            .arg("-oDir::State=".to_owned() + &at("state"))
            .arg("-oDir::State::status=".to_owned() + &at("state/status"))
            .arg("-oDir::Cache=".to_owned() + &at("cache"))
            .args([
                "-oAPT::Architecture=amd64",
                "-oAPT::Sandbox::User=root",
                "-oAPT::Get::List-Cleanup=1",
            ])
            .args(arguments));
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(text)
        } else {
            Err(text)
        }
    }
}

fn describe(path: PathBuf) -> Deb {
    let content = fs::read(&path).unwrap();
    let sha256 = firstlight_artifacts::hex(&Sha256::digest(&content));
    Deb {
        size: content.len() as u64,
        sha256,
        path,
    }
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, |entries| {
        entries
            .map(|entry| entry.unwrap().path())
            .map(|path| if path.is_dir() { files(&path) } else { 1 })
            .sum()
    })
}

#[test]
fn apt_trusts_the_repository_and_gets_exactly_what_is_in_it() {
    let site = Site::new();
    let one = site.deb("hello", "1:1.0~rc1+b1");
    let two = site.deb("hello", "1:1.0");
    site.repository
        .rebuild(&[one.clone(), two.clone()], NOW)
        .unwrap();
    let said = site.apt("apt-get", &["update"]);
    assert!(!said.contains("W:") && !said.contains("E:"), "{said}");
    let policy = site.apt("apt-cache", &["policy", "hello"]);
    assert!(
        policy.contains("Candidate: 1:1.0\n") && policy.contains("1:1.0~rc1+b1"),
        "{policy}"
    );
    site.apt("apt-get", &["download", "hello=1:1.0~rc1+b1"]);
    let name = fs::read_dir(site.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|ending| ending == "deb"))
        .unwrap();
    assert_eq!(describe(name).sha256, one.sha256);

    site.repository.rebuild(&[two], NOW + 1).unwrap();
    assert_eq!(files(&site.repository.dir.join("pool")), 1);
    site.apt("apt-get", &["update"]);
    assert!(!site.apt("apt-cache", &["policy", "hello"]).contains("rc1"));
}

#[test]
fn apt_refuses_an_index_that_somebody_changed() {
    let site = Site::new();
    site.repository
        .rebuild(&[site.deb("hello", "1")], NOW)
        .unwrap();
    let path = site.repository.dir.join("dists/uploads/InRelease");
    let changed = fs::read_to_string(&path)
        .unwrap()
        .replace("Origin: Firstlight", "Origin: Elsewhere");
    fs::write(&path, changed).unwrap();
    let refused = site.try_apt("apt-get", &["update", "-oAPT::Update::Error-Mode=any"]);
    let said = refused.unwrap_err();
    assert!(
        said.contains("BADSIG") || said.contains("signature"),
        "{said}"
    );
}

/// `scripts/bench payload` reads the figure.
#[test]
fn five_hundred_packages_are_indexed() {
    let site = Site::new();
    let debs: Vec<Deb> = (0..500)
        .map(|number| site.deb(&format!("package{number}"), "1.0"))
        .collect();
    let began = Instant::now();
    site.repository.rebuild(&debs, NOW).unwrap();
    eprintln!(
        "figure payload-apt-index {:.3}",
        began.elapsed().as_secs_f64()
    );
    site.apt("apt-get", &["update"]);
    let names = site.apt("apt-cache", &["pkgnames", "package"]);
    assert_eq!(names.lines().count(), 500);
}
