//! A Debian of their own for tests of what changes the system it runs on: sshd, sudo, apt. A script makes it with mmdebstrap, as
//! an archive, and names it in `FIRSTLIGHT_ROOT`; a test unpacks it into memory, in namespaces that take everything with them.
//!
//! Works as root and, with the package uidmap, as anybody. Nothing in it reaches a network: there is only a loopback.
#![allow(clippy::unwrap_used, dead_code)]

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::{PermissionsExt, chroot},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

const ARCHIVE: &str = "FIRSTLIGHT_ROOT";

/// Names an empty directory, in which memory is mounted where only the story sees it.
const INSIDE: &str = "FIRSTLIGHT_TEST_INSIDE";
/// Set for a part of a test that runs with the tree as its root, together with what it is told.
const PART: &str = "FIRSTLIGHT_TEST_PART";
const PART_ROOT: &str = "FIRSTLIGHT_TEST_PART_ROOT";
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Runs `story`, the body of the test `name`, as root of namespaces of its own; or `part` of it, if [`Root::play`] asks.
pub fn with_root(name: &str, part: impl FnOnce(&str), story: impl FnOnce(&Tree)) {
    if let (Ok(told), Some(root)) = (env::var(PART), env::var_os(PART_ROOT)) {
        chroot(root).unwrap();
        env::set_current_dir("/").unwrap();
        return part(&told);
    }
    let archive = env::var_os(ARCHIVE).expect("scripts/test-nodes sets FIRSTLIGHT_ROOT");
    let archive = PathBuf::from(archive);
    if let Some(place) = env::var_os(INSIDE).map(PathBuf::from) {
        run("ip", ["link", "set", "lo", "up"]);
        run("mount", ["-t", "tmpfs", "tmpfs", place.to_str().unwrap()]);
        return story(&Tree { archive, place });
    }
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user", "--map-auto"]);
    }
    let namespaces = ["--net", "--mount", "--pid", "--mount-proc", "--fork"];
    let status = command
        .args(namespaces)
        .arg("--kill-child")
        .arg(env::current_exe().unwrap())
        .args(run_one(name))
        .env(INSIDE, place.path())
        .status()
        .expect("unshare of util-linux runs");
    assert!(
        status.success(),
        "the story inside the namespaces failed, see above (or user namespaces are switched off here)"
    );
}

/// Arguments of this program for the test `name`, which is ignored where nobody made the archive.
fn run_one(name: &str) -> [&str; 5] {
    [
        "--exact",
        name,
        "--include-ignored",
        "--nocapture",
        "--test-threads=1",
    ]
}

/// The archive, and room for what is in it.
pub struct Tree {
    archive: PathBuf,
    place: PathBuf,
}

impl Tree {
    /// Several may stand side by side.
    pub fn unpack(&self, name: &str) -> Root {
        let path = self.place.join(name);
        fs::create_dir(&path).unwrap();
        let tar = ["tar", "--numeric-owner", "--exclude=./dev/*", "-xpf"].map(OsStr::new);
        let folder = [self.archive.as_os_str(), OsStr::new("-C"), path.as_os_str()];
        run(tar[0], tar[1..].iter().copied().chain(folder));
        Root::furnish(path)
    }
}

/// An unpacked tree.
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// Another one like this, which costs only what differs.
    pub fn over(&self, name: &str) -> Self {
        let at = |kind: &str| self.path.with_file_name(format!("{name}{kind}"));
        let (path, upper, work) = (at(""), at(".upper"), at(".work"));
        for folder in [&path, &upper, &work] {
            fs::create_dir(folder).unwrap();
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            self.path.display(),
            upper.display(),
            work.display()
        );
        let place = path.to_str().unwrap();
        run("mount", ["-t", "overlay", "-o", &options, "overlay", place]);
        Self::furnish(path)
    }

    fn furnish(path: PathBuf) -> Self {
        let at = |inside: &str| path.join(inside);
        run(
            "mount",
            ["-t", "proc", "proc", at("proc").to_str().unwrap()],
        );
        for device in DEVICES {
            let here = at("dev").join(device);
            fs::write(&here, "").unwrap();
            let there = format!("/dev/{device}");
            run("mount", ["--bind", &there, here.to_str().unwrap()]);
        }
        Self { path }
    }

    pub fn path(&self, inside: &str) -> PathBuf {
        self.path.join(inside)
    }

    pub fn read(&self, inside: &str) -> String {
        fs::read_to_string(self.path(inside)).unwrap_or_default()
    }

    pub fn write(&self, inside: &str, mode: u32, content: impl AsRef<[u8]>) {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A program of the tree, to be run in it.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.path).args(words);
        command.env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        output
    }

    /// Runs the part of the test `name` that belongs in the tree, with what it is told.
    pub fn play(&self, name: &str, told: &str) {
        let status = Command::new(env::current_exe().unwrap())
            .args(run_one(name))
            .env(PART, told)
            .env(PART_ROOT, &self.path)
            .status();
        assert!(status.unwrap().success(), "{name} in the tree, see above");
    }
}

/// A program that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn run<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = S>) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
