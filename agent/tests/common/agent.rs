//! The agent's program without a box: its state below a folder, its page on a port of loopback.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// Busy machines are slow; every wait ends as soon as its condition holds.
const PATIENCE: Duration = Duration::from_mins(2);

pub struct Agent {
    root: PathBuf,
    pub port: u16,
    child: Option<Child>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Agent {
    /// On a box whose partitions are mounted, with nothing on them.
    pub fn new(root: &Path) -> Self {
        for folder in [
            "proc",
            "run/firstlight",
            "var/lib/firstlight/agent",
            "var/lib/firstlight/kube",
            "firstlight/site",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Self {
            root: root.to_owned(),
            port: free.local_addr().unwrap().port(),
            child: None,
        }
    }

    /// The caller may add an environment, and say where the log goes.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight-agent"));
        command
            .arg("--root")
            .arg(&self.root)
            .args(["--loopback", &self.port.to_string()])
            .stdout(Stdio::null());
        command
    }

    /// After a power cut, if it ran before.
    pub fn start(&mut self, command: &mut Command) {
        self.kill();
        self.child = Some(command.spawn().unwrap());
    }

    /// As a power cut ends it.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Once it has ended by itself.
    #[allow(dead_code, reason = "not each of the tests that share this file asks")]
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().unwrap()
    }
}

/// What `look` finds; panics with `what` and `state` if it finds nothing for too long.
pub fn wait_for<T>(
    what: &str,
    mut look: impl FnMut() -> Option<T>,
    state: impl FnOnce() -> String,
) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        let is_late = since.elapsed() > PATIENCE;
        assert!(!is_late, "waited in vain for {what}: {}", state());
        std::thread::sleep(Duration::from_millis(5));
    }
}
