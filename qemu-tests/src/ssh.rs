//! Logs in with the `ssh` program, as a person does.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use imagebuilder::ssh::ssh_to_machine;

/// A way into one machine, through a forwarded port.
#[derive(Clone, Debug)]
pub struct Ssh {
    pub door: SocketAddr,
    pub key: PathBuf,
}

/// A port of the machine's loopback, carried here until this ends.
pub struct Tunnel {
    pub address: SocketAddr,
    child: Child,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // It may have ended with its machine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
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
        let output = self
            .way()
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

    /// Everything but the command.
    pub fn way(&self) -> Command {
        let mut way = self.command();
        way.arg(self.destination());
        way
    }

    /// It takes a moment until the tunnel carries anything.
    pub fn tunnel(&self, port: u16) -> Result<Tunnel> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .context("finding a free port")?;
        let child = self
            .command()
            .args(["-N", "-L", &format!("{address}:127.0.0.1:{port}")])
            .arg(self.destination())
            .stdin(Stdio::null())
            .spawn()
            .context("starting ssh (package openssh-client)")?;
        Ok(Tunnel { address, child })
    }

    fn command(&self) -> Command {
        let mut ssh = ssh_to_machine(Some(&self.key), self.door.port());
        ssh.args(["-o", "IdentitiesOnly=yes", "-o", "ServerAliveInterval=20"]);
        ssh
    }

    fn destination(&self) -> String {
        format!("admin@{}", self.door.ip())
    }
}
