//! Logs in with the `ssh` program, as a person does.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A way into one machine, through a forwarded port.
#[derive(Clone, Debug)]
pub struct Ssh {
    pub door: SocketAddr,
    pub key: PathBuf,
}

impl Ssh {
    pub fn new(door: SocketAddr, key: &Path) -> Self {
        Self {
            door,
            key: key.to_owned(),
        }
    }

    /// Runs a command as `admin` and returns what it prints.
    pub fn run(&self, command: &str) -> Result<String> {
        let output = Command::new("ssh")
            .arg("-i")
            .arg(&self.key)
            .args(["-p", &self.door.port().to_string()])
            // The machines are made for this test; their host keys are new each time.
            .args([
                "-o",
                "StrictHostKeyChecking=no",
                "-o",
                "UserKnownHostsFile=/dev/null",
            ])
            .args([
                "-o",
                "BatchMode=yes",
                "-o",
                "IdentitiesOnly=yes",
                "-o",
                "LogLevel=ERROR",
            ])
            .args(["-o", "ConnectTimeout=60", "-o", "ServerAliveInterval=20"])
            .arg(format!("admin@{}", self.door.ip()))
            .arg(command)
            .output()
            .context("starting ssh (package openssh-client)")?;
        if !output.status.success() {
            bail!(
                "ssh `{command}`: {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}
