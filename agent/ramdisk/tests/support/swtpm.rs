//! TPMs: emulated by `swtpm`, which `scripts/bootstrap` installs, or played by a few lines.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// A TPM with seeds of its own.
pub struct Swtpm {
    seeds: tempfile::TempDir,
    running: Mutex<Child>,
}

impl Swtpm {
    pub fn new() -> Self {
        let seeds = tempfile::tempdir().unwrap();
        let running = Mutex::new(start(&seeds));
        Self { seeds, running }
    }

    /// Everything but the seeds is lost.
    pub fn power_cycle(&self) {
        let mut running = self.running.lock().unwrap();
        end(&mut running);
        *running = start(&self.seeds);
    }

    /// For [`connect`], which does not keep the TPM running.
    pub fn way(&self) -> PathBuf {
        socket(&self.seeds)
    }
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        end(&mut self.running.lock().unwrap());
    }
}

pub fn connect(way: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(way)
}

/// It finds its socket bound: whoever connects from now on is served.
fn start(seeds: &tempfile::TempDir) -> Child {
    let socket = socket(seeds);
    let _ = std::fs::remove_file(&socket);
    let door = OwnedFd::from(UnixListener::bind(socket).unwrap());
    Command::new("swtpm")
        .args(["socket", "--tpm2", "--flags", "startup-clear"])
        .args(["--server", "type=unixio,fd=0", "--tpmstate"])
        .arg(format!("dir={}", seeds.path().display()))
        .stdin(Stdio::from(door))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("swtpm starts; scripts/bootstrap installs it")
}

fn end(running: &mut Child) {
    running.kill().unwrap();
    running.wait().unwrap();
}

fn socket(seeds: &tempfile::TempDir) -> PathBuf {
    seeds.path().join("socket")
}
