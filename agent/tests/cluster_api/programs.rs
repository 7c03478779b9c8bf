//! Starting programs and looking into their logs.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use crate::PATIENCE;

/// One of the programs in the folder that the environment names.
pub fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os(crate::PROGRAMS).expect("the story runs with the programs");
    Path::new(&folder).join(name)
}

/// A server of ours; it ends with this value.
pub struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub fn start(name: &str, logs: &Path, command: &mut Command) -> Self {
        let log = logs.join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("{name}: {error}"));
        Self {
            name: name.to_owned(),
            child,
            log,
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Until `ready` holds; a program that ended is told with the end of its log.
    pub async fn wait(&mut self, ready: impl AsyncFn() -> bool) {
        let since = Instant::now();
        while !ready().await {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && since.elapsed() < PATIENCE,
                "{} is not ready ({ended:?}):\n{}",
                self.name,
                self.tail()
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    /// Megabytes that it has had at once.
    pub fn most_memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = most.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<f64>().unwrap() * 1024.0 / 1e6
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs to its end; what it said on stdout.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

pub fn ip(arguments: &str) {
    run(Command::new("ip").args(arguments.split(' ')));
}

pub async fn listens(address: &str) -> bool {
    tokio::net::TcpStream::connect(address).await.is_ok()
}
