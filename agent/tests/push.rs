//! `firstlight push` as a person calls it, against the agent's own program. `scripts/test-store` builds both and says where the
//! command is.

#![allow(clippy::unwrap_used)]

#[path = "common/agent.rs"]
mod agent;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use agent::{Agent, wait_for};

const CLI: &str = "FIRSTLIGHT_CLI";

/// An agent without a box: a page and a store.
struct Desk {
    dir: tempfile::TempDir,
    cli: PathBuf,
    agent: Agent,
}

impl Desk {
    fn new() -> Self {
        let cli = PathBuf::from(std::env::var_os(CLI).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("box");
        let agent = Agent::new(&root);
        fs::write(root.join("firstlight/site/site.yaml"), "cluster: none\n").unwrap();
        Self { dir, cli, agent }
    }

    fn start(&mut self) {
        let mut command = self.agent.command();
        self.agent.start(command.stderr(Stdio::null()));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn push(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.cli);
        command
            .args([
                "push",
                "--box",
                &format!("http://127.0.0.1:{}", self.agent.port),
            ])
            .args(arguments)
            .current_dir(self.dir.path());
        command
    }

    /// The file of the one upload, as far as it has come.
    fn partial(&self) -> u64 {
        let store = self.path("box/var/lib/firstlight/agent/store");
        let folders = fs::read_dir(store).into_iter().flatten().flatten();
        folders
            .filter_map(|folder| fs::metadata(folder.path().join("partial")).ok())
            .map(|file| file.len())
            .max()
            .unwrap_or(0)
    }
}

fn package(dir: &Path, version: &str) {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    fs::write(
        tree.join("DEBIAN/control"),
        format!("Package: hello\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\nDescription: hello\n"),
    )
    .unwrap();
    let made = Command::new("dpkg-deb")
        .args(["--build", "--root-owner-group", "tree", "hello.deb"])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

fn said(output: &Output) -> (bool, String) {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLI: scripts/test-store"]
fn a_package_is_found_out_pushed_and_its_rival_refused() {
    let mut desk = Desk::new();
    package(desk.dir.path(), "1.0");
    // The box may still be starting.
    let pushing = desk
        .push(&["hello.deb"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    desk.start();
    let (well, text) = said(&pushing.wait_with_output().unwrap());
    assert!(well && text == "hello=1.0\thello.deb\n", "{text}");
    let index = desk.path("box/var/lib/firstlight/agent/apt/dists/uploads/InRelease");
    assert!(fs::read_to_string(index).unwrap().contains("SHA256:"));

    fs::write(desk.path("tree/more"), "more").unwrap();
    package(desk.dir.path(), "1.0");
    let (well, text) = said(&desk.push(&["hello.deb"]).output().unwrap());
    assert!(
        !well && text.contains("is here with other content"),
        "{text}"
    );

    fs::write(desk.path("notes.txt"), "no artifact").unwrap();
    let (well, text) = said(&desk.push(&["notes.txt"]).output().unwrap());
    assert!(!well && text.contains("notes.txt"), "{text}");
}

#[test]
#[ignore = "needs FIRSTLIGHT_CLI: scripts/test-store"]
fn an_upload_goes_on_after_the_box_lost_its_power() {
    let mut desk = Desk::new();
    let mut image = vec![0; 256 << 20];
    getrandom::fill(&mut image[512..]).unwrap();
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(desk.path("debian-13.2.raw"), &image).unwrap();
    desk.start();
    let mut pushing = desk
        .push(&["debian-13.2.raw"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(
        "the first bytes or a refusal",
        || (desk.partial() > 1 << 20 || pushing.try_wait().unwrap().is_some()).then_some(()),
        || format!("{} bytes", desk.partial()),
    );
    assert!(
        pushing.try_wait().unwrap().is_none(),
        "{}",
        said(&pushing.wait_with_output().unwrap()).1
    );
    desk.agent.kill();
    let had = desk.partial();
    assert!(had < image.len() as u64, "it was too fast to be cut");
    desk.start();
    let (well, text) = said(&pushing.wait_with_output().unwrap());
    assert!(
        well && text.starts_with("/images/debian-13.2.raw.zst\t"),
        "{text}"
    );
    let served = desk.path("box/var/lib/firstlight/agent/images/debian-13.2.raw.zst");
    assert!(zstd::decode_all(fs::File::open(served).unwrap()).unwrap() == image);
}
