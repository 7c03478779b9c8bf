//! SSH to installed systems: does one answer there, and telling it to restart.
//!
//! Each host has a key pair of its own, made on the box before the host is installed; the public half is on its config
//! drive. The host's key is pinned at first sight (docs/decisions): the file beside the key pair holds it from then on,
//! and is thrown away with every new installation.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use firstlight_api::site::SshKey;
use firstlight_netboot::MacAddr;
use tokio::{io::AsyncReadExt, net::TcpStream, process::Command};

use super::plan::Towards;
use crate::files;

const TIME: Duration = Duration::from_secs(4);
/// An emulated host on a busy machine takes a minute for a login.
const ORDER_TIME: Duration = Duration::from_mins(2);
/// Said by a host that restarts now. Its network may go before ssh has heard how the order ended.
const TAKEN: &str = "restarting";
/// Of `ssh` itself: it has lost its connection, or never had one.
const LOST: i32 = 255;
/// The operator's login of plain hosts, and the one that Debian's cloud-init makes where user data says nothing else.
const USERS: [&str; 2] = ["admin", "debian"];

/// An SSH server says so before anybody logs in (RFC 4253, section 4.2).
pub async fn answers(address: Ipv4Addr, port: u16) -> bool {
    let banner = async {
        let mut stream = TcpStream::connect(SocketAddr::from((address, port)))
            .await
            .ok()?;
        let mut start = [0; 4];
        stream.read_exact(&mut start).await.ok()?;
        Some(start)
    };
    matches!(tokio::time::timeout(TIME, banner).await, Ok(Some(start)) if &start == b"SSH-")
}

/// The box's keys for its hosts.
#[derive(Clone, Debug)]
pub struct Keys {
    dir: PathBuf,
    port: u16,
}

impl Keys {
    pub fn new(dir: impl Into<PathBuf>, port: u16) -> Self {
        Self {
            dir: dir.into(),
            port,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn of(&self, mac: MacAddr) -> PathBuf {
        self.dir.join(mac.to_string().replace(':', "-"))
    }

    /// For a new installation: the public key that the host shall accept. What it showed as its own before is forgotten.
    pub async fn prepare(&self, mac: MacAddr) -> Result<SshKey> {
        let dir = self.of(mac);
        files::make_dir(&dir, 0o700)?;
        match tokio::fs::remove_file(dir.join("known_hosts")).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context("forgetting the host's key");
            }
            _ => {}
        }
        if tokio::fs::metadata(dir.join("key.pub")).await.is_err() {
            make_key(&dir).await?;
        }
        let text = tokio::fs::read_to_string(dir.join("key.pub"))
            .await
            .context("reading the public key")?;
        SshKey::parse(text.trim()).context("the public key that ssh-keygen made")
    }

    /// The public key that was made for the host, if there is one.
    pub async fn public(&self, mac: MacAddr) -> Option<SshKey> {
        let text = tokio::fs::read_to_string(self.of(mac).join("key.pub")).await;
        SshKey::parse(text.ok()?.trim()).ok()
    }

    /// Returns when the host has taken the order.
    pub async fn restart(&self, mac: MacAddr, address: Ipv4Addr, into: Towards) -> Result<()> {
        let dir = self.of(mac);
        if !dir.join("key").exists() {
            bail!(
                "the box has no key for it, because another box or an older version installed it"
            );
        }
        let mut reasons = Vec::new();
        for user in USERS {
            let Err(error) = order(&dir, user, address, self.port, &script(mac, into)).await else {
                return Ok(());
            };
            let reason = format!("{error:#}");
            let refused = reason.contains("Permission denied");
            reasons.push(reason);
            if !refused {
                break;
            }
        }
        bail!("SSH to {address}: {}", reasons.join("; "))
    }
}

/// The private half never has another name than the one under which it is whole.
async fn make_key(dir: &Path) -> Result<()> {
    let new = dir.join(".key.new");
    for old in [&new, &dir.join(".key.new.pub")] {
        drop(tokio::fs::remove_file(old).await);
    }
    let made = Command::new("ssh-keygen")
        .args([
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            "firstlight-box",
            "-f",
        ])
        .arg(&new)
        .stdin(Stdio::null())
        .output()
        .await
        .context("running ssh-keygen")?;
    if !made.status.success() {
        bail!(
            "ssh-keygen: {}",
            String::from_utf8_lossy(&made.stderr).trim()
        );
    }
    tokio::fs::rename(&new, dir.join("key"))
        .await
        .context("naming the key")?;
    tokio::fs::rename(dir.join(".key.new.pub"), dir.join("key.pub"))
        .await
        .context("naming the public key")
}

/// Runs as root on the host. Our image can set the firmware's next boot; any other has no order for that.
fn script(mac: MacAddr, into: Towards) -> String {
    let restart = match into {
        Towards::Disk => "systemctl reboot --no-block".to_owned(),
        Towards::Network => format!("firstlight-bootstrap restart {mac}"),
    };
    format!("echo {TAKEN}; {restart}")
}

/// Taken, or why not.
fn outcome(output: &Output) -> Result<()> {
    let lost = output.status.code() == Some(LOST);
    if output.status.success() || lost && output.stdout.starts_with(TAKEN.as_bytes()) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    bail!("{}", text.trim().lines().last().unwrap_or("it was refused"))
}

async fn order(dir: &Path, user: &str, address: Ipv4Addr, port: u16, script: &str) -> Result<()> {
    let known = format!("UserKnownHostsFile={}", dir.join("known_hosts").display());
    let options = [
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=accept-new",
        "GlobalKnownHostsFile=/dev/null",
        "ConnectTimeout=60",
        "LogLevel=ERROR",
        &known,
    ];
    let mut command = Command::new("ssh");
    command.args(["-F", "/dev/null", "-p", &port.to_string(), "-i"]);
    command.arg(dir.join("key"));
    for option in options {
        command.args(["-o", option]);
    }
    command.arg(format!("{user}@{address}"));
    command.args(["sudo", "-n", "sh", "-s"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let run = async {
        let mut child = command.spawn().context("running ssh")?;
        let mut stdin = child.stdin.take().context("the input of ssh")?;
        // A refused login closes it early; the exit code tells that better.
        drop(tokio::io::AsyncWriteExt::write_all(&mut stdin, script.as_bytes()).await);
        drop(stdin);
        outcome(&child.wait_with_output().await.context("waiting for ssh")?)
    };
    tokio::time::timeout(ORDER_TIME, run)
        .await
        .with_context(|| format!("no answer within {} s", ORDER_TIME.as_secs()))?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus};
    use tokio::{io::AsyncWriteExt, net::TcpListener};

    #[tokio::test]
    async fn only_a_banner_of_ssh_counts() {
        for (says, expected) in [
            ("SSH-2.0-OpenSSH_10.0\r\n", true),
            ("HTTP/1.1 400\r\n", false),
            ("", false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = tokio::spawn(async move {
                listener
                    .accept()
                    .await
                    .unwrap()
                    .0
                    .write_all(says.as_bytes())
                    .await
            });
            assert_eq!(
                answers(Ipv4Addr::LOCALHOST, port).await,
                expected,
                "{says:?}"
            );
            server.await.unwrap().unwrap();
        }
    }

    #[test]
    fn a_host_that_takes_the_order_may_be_gone_before_it_ends() {
        for (says, code, expected) in [
            ("restarting\n", 0, ""),
            ("restarting\n", 255, ""),
            ("", 255, "port 22: Connection refused"),
            ("restarting\n", 1, "port 22: Connection refused"),
        ] {
            let output = Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: says.into(),
                stderr: "port 22: Connection refused\n".into(),
            };
            let reason = outcome(&output).err().map(|error| error.to_string());
            assert_eq!(reason.unwrap_or_default(), expected, "{says:?} {code}");
        }
    }

    #[tokio::test]
    async fn each_host_has_a_key_of_its_own_that_stays_and_without_one_nothing_is_tried() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::new(dir.path().join("ssh"), 9);
        let mac = |text: &str| text.parse::<MacAddr>().unwrap();
        let (one, two) = (mac("52:54:00:00:00:01"), mac("52:54:00:00:00:02"));
        let first = keys.prepare(one).await.unwrap();
        std::fs::write(dir.path().join("ssh/52-54-00-00-00-01/known_hosts"), "old").unwrap();
        assert_eq!(keys.prepare(one).await.unwrap(), first);
        assert!(
            !dir.path()
                .join("ssh/52-54-00-00-00-01/known_hosts")
                .exists()
        );
        assert_ne!(keys.prepare(two).await.unwrap(), first);
        let other = mac("52:54:00:00:00:03");
        let error = keys
            .restart(other, Ipv4Addr::LOCALHOST, Towards::Disk)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no key"), "{error}");
        // Nobody listens on port 9.
        let error = keys
            .restart(one, Ipv4Addr::LOCALHOST, Towards::Network)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
    }
}
