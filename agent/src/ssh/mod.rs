//! SSH to nodes: the box's keys for them, their host keys, and orders that need root.
//!
//! Each node has a user of its own ([`user`]) with a key pair of its own, both made on the box before it is installed, and
//! `firstlight-bootstrap` makes the user there. It may run a short list of commands as root and nothing else
//! (`agent/bootstrap/src/access.rs`): a new command goes there, and its caller uses [`Keys::run`]. Host keys of our own image
//! are made on the box too (docs/decisions/0011), those of other images are pinned at first sight.
//!
//! Must not: send anything to a machine that shows another host key.

mod backups;
mod bmc;
mod call;
mod error;
mod keys;
mod mirror;
mod restart;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use firstlight_netboot::MacAddr;
use tokio::{io::AsyncReadExt, net::TcpStream};

use call::Call;
use keys::Dir;

pub use error::SshError;
pub use keys::make_pair;
pub use restart::Towards;

pub const PORT: u16 = 22;

const TIME: Duration = Duration::from_secs(4);
/// Of a node that works, and is emulated on a busy machine.
const SILENCE: Duration = Duration::from_mins(2);

/// An installed system that the box logs in to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub mac: MacAddr,
    pub address: Ipv4Addr,
}

/// How the box comes to know a node's host key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// It makes it, and hands it over with the bootstrap data.
    Made,
    /// The node makes it, and the box keeps what it sees first.
    FirstSight,
}

/// A node's host key, in OpenSSH's own form.
#[derive(Clone, PartialEq, Eq)]
pub struct HostKey {
    pub private: String,
    pub public: String,
}

impl std::fmt::Debug for HostKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("HostKey").finish_non_exhaustive()
    }
}

/// The box's own login on a node.
pub fn user(mac: MacAddr) -> String {
    format!("box-{}", mac.to_string().replace(':', ""))
}

/// The box's keys for its nodes.
#[derive(Clone, Debug)]
pub struct Keys {
    dir: PathBuf,
    port: u16,
    silence: Duration,
}

impl Keys {
    pub fn new(dir: impl Into<PathBuf>, port: u16) -> Self {
        Self {
            dir: dir.into(),
            port,
            silence: SILENCE,
        }
    }

    /// With another idea of how long a node may say nothing before it counts as gone.
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn of(&self, mac: MacAddr) -> Dir {
        Dir::new(&self.dir, mac)
    }

    /// Runs `sudo -n COMMAND` as the node's own user, and returns what it wrote to its standard output.
    pub async fn run(
        &self,
        node: &Node,
        command: &[&str],
        input: &[u8],
        time: Duration,
    ) -> Result<Vec<u8>, SshError> {
        let command = [&["sudo", "-n"], command].concat();
        self.run_as_itself(node, &command, input, time).await
    }

    /// As [`Keys::run`], without root.
    async fn run_as_itself(
        &self,
        node: &Node,
        command: &[&str],
        input: &[u8],
        time: Duration,
    ) -> Result<Vec<u8>, SshError> {
        let (user, dir) = (user(node.mac), self.of(node.mac));
        let call = self.call(&dir, &user, node.address, command)?;
        call.outcome(call.output(input, time).await?)
    }

    fn call<'a>(
        &self,
        dir: &'a Dir,
        user: &'a str,
        address: Ipv4Addr,
        command: &'a [&'a str],
    ) -> Result<Call<'a>, SshError> {
        if !dir.key().exists() {
            return Err(SshError::NoKey);
        }
        Ok(Call {
            dir,
            user,
            address,
            port: self.port,
            silence: self.silence,
            command,
        })
    }
}

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
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

    #[tokio::test]
    async fn without_a_key_nothing_is_tried_and_without_a_server_it_says_so() {
        let dir = tempfile::tempdir().unwrap();
        // Nobody listens on port 9.
        let keys = Keys::new(dir.path(), 9);
        let node = Node {
            mac: "52:54:00:00:00:01".parse().unwrap(),
            address: Ipv4Addr::LOCALHOST,
        };
        let run = || keys.run(&node, &["true"], b"", Duration::from_mins(1));
        assert_eq!(run().await, Err(SshError::NoKey));
        keys.prepare(node.mac, Pin::Made).await.unwrap();
        let error = run().await.unwrap_err();
        assert!(
            matches!(&error, SshError::Unreachable(text) if text.contains("127.0.0.1")),
            "{error}"
        );
    }
}
