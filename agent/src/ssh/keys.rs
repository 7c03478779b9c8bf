//! What the box has about each node: a directory with the key pair of its login, and its host key.
//!
//! | file | what |
//! |---|---|
//! | `key`, `key.pub` | the box logs in with it; stays until a person removes the host |
//! | `host_key`, `host_key.pub` | the node's own, where the box makes it; new with every installation |
//! | `known_hosts` | the host key that is expected: made of `host_key.pub`, or seen first |

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use firstlight_api::site::SshKey;
use firstlight_netboot::MacAddr;
use tokio::process::Command;

use super::{HostKey, Keys, Pin};
use crate::files::{self, Access, NewFile};

/// The node's name in `known_hosts`, whatever its address.
const ALIAS: &str = "node";

/// One node's directory.
#[derive(Clone, Debug)]
pub struct Dir(PathBuf);

impl Dir {
    pub fn new(keys: &Path, mac: MacAddr) -> Self {
        Self(keys.join(mac.to_string().replace(':', "-")))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn key(&self) -> PathBuf {
        self.0.join("key")
    }

    pub fn known_hosts(&self) -> PathBuf {
        self.0.join("known_hosts")
    }
}

impl Keys {
    /// For a new installation: the public key that the host shall accept. What it showed as its own before is forgotten.
    pub async fn prepare(&self, mac: MacAddr, pin: Pin) -> Result<SshKey> {
        let dir = self.of(mac);
        files::make_dir(dir.path(), 0o700)?;
        for old in ["host_key.pub", "host_key", "known_hosts"] {
            match tokio::fs::remove_file(dir.path().join(old)).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).context("forgetting the host's key");
                }
                _ => {}
            }
        }
        // Only where there is none: one that cannot be read now is the one that the host lets in.
        let known = tokio::fs::try_exists(dir.path().join("key.pub"));
        if !known.await.context("looking for the box's key")? {
            let (key, public) = make_pair(dir.path(), "firstlight-box").await?;
            write(&dir, &[("key", &key), ("key.pub", &public)])?;
        }
        if pin == Pin::Made {
            let (key, public) = make_pair(dir.path(), "firstlight-node").await?;
            let known = format!("{ALIAS} {public}");
            let files = [
                ("host_key", &key),
                ("known_hosts", &known),
                ("host_key.pub", &public),
            ];
            write(&dir, &files)?;
        }
        let text = tokio::fs::read_to_string(dir.path().join("key.pub"))
            .await
            .context("reading the public key")?;
        SshKey::parse(text.trim()).context("the public key that ssh-keygen made")
    }

    /// The box has nothing to do with the host any more.
    pub async fn forget(&self, mac: MacAddr) {
        match tokio::fs::remove_dir_all(self.of(mac).path()).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%mac, %error, "the keys of a removed host stay where they are");
            }
            _ => {}
        }
    }

    /// The public key that was made for the host, if there is one.
    pub async fn public(&self, mac: MacAddr) -> Option<SshKey> {
        let text = tokio::fs::read_to_string(self.of(mac).path().join("key.pub")).await;
        SshKey::parse(text.ok()?.trim()).ok()
    }

    /// What was made for this installation, if it was.
    pub async fn host_key(&self, mac: MacAddr) -> Option<HostKey> {
        let dir = self.of(mac);
        let read = async |name: &str| tokio::fs::read_to_string(dir.path().join(name)).await.ok();
        // The public half is there last.
        Some(HostKey {
            public: read("host_key.pub").await?,
            private: read("host_key").await?,
        })
    }
}

/// All of them are on the disk before the first has its name.
fn write(dir: &Dir, files: &[(&str, &String)]) -> Result<()> {
    let files = files.iter().map(|(name, content)| NewFile {
        path: dir.path().join(name),
        content: content.as_bytes().to_vec(),
        access: Access::Owner,
    });
    files::write_all(&files.collect::<Vec<_>>())
}

/// The halves of a new pair.
pub async fn make_pair(dir: &Path, comment: &str) -> Result<(String, String)> {
    let (new, public) = (dir.join(".made"), dir.join(".made.pub"));
    let remove = || {
        for file in [&new, &public] {
            // Left by a power cut, or not there.
            drop(std::fs::remove_file(file));
        }
    };
    remove();
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"])
        .arg(&new)
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .context("running ssh-keygen")?;
    if !made.status.success() {
        bail!(
            "ssh-keygen: {}",
            String::from_utf8_lossy(&made.stderr).trim()
        );
    }
    let pair = std::fs::read_to_string(&new).and_then(|private| {
        let public = std::fs::read_to_string(&public)?;
        Ok((private, public))
    });
    remove();
    pair.context("reading what ssh-keygen made")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const MAC: &str = "52:54:00:00:00:01";

    #[tokio::test]
    async fn each_host_has_a_key_of_its_own_that_stays() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::new(dir.path().join("ssh"), 9);
        let (one, two) = (MAC.parse().unwrap(), "52:54:00:00:00:02".parse().unwrap());
        let first = keys.prepare(one, Pin::FirstSight).await.unwrap();
        let seen = dir.path().join("ssh/52-54-00-00-00-01/known_hosts");
        std::fs::write(&seen, "old").unwrap();
        assert_eq!(keys.prepare(one, Pin::FirstSight).await.unwrap(), first);
        assert!(!seen.exists());
        assert_ne!(keys.prepare(two, Pin::FirstSight).await.unwrap(), first);
        assert_eq!(keys.public(one).await, Some(first));
    }

    #[tokio::test]
    async fn a_key_that_cannot_be_looked_up_is_not_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::new(dir.path(), 9);
        let mac = MAC.parse().unwrap();
        let first = keys.prepare(mac, Pin::FirstSight).await.unwrap();
        let public = keys.of(mac).path().join("key.pub");
        let aside = dir.path().join("aside");
        std::fs::rename(&public, &aside).unwrap();
        // A loop of links fails for root, too, and is not "not found".
        std::os::unix::fs::symlink(&public, &public).unwrap();
        assert!(keys.prepare(mac, Pin::FirstSight).await.is_err());
        std::fs::rename(&aside, &public).unwrap();
        assert_eq!(keys.prepare(mac, Pin::FirstSight).await.unwrap(), first);
    }

    #[tokio::test]
    async fn a_host_key_is_new_with_every_installation_and_known_from_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::new(dir.path(), 9);
        let mac = MAC.parse().unwrap();
        keys.prepare(mac, Pin::Made).await.unwrap();
        let first = keys.host_key(mac).await.unwrap();
        keys.prepare(mac, Pin::Made).await.unwrap();
        let second = keys.host_key(mac).await.unwrap();
        assert_ne!(first, second);
        assert!(second.private.starts_with("-----BEGIN OPENSSH PRIVATE KEY"));
        assert_eq!(format!("{second:?}"), "HostKey { .. }");
        let of = keys.of(mac);
        let read = |name: &str| std::fs::read_to_string(of.path().join(name)).unwrap();
        let (known, public) = (read("known_hosts"), read("host_key.pub"));
        assert_eq!(known, format!("node {public}"));
        let names = std::fs::read_dir(of.path()).unwrap();
        for entry in names.map(Result::unwrap) {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{entry:?}");
            assert!(!entry.file_name().to_string_lossy().starts_with('.'));
        }
        keys.prepare(mac, Pin::FirstSight).await.unwrap();
        assert_eq!(keys.host_key(mac).await, None);
        assert!(!of.known_hosts().exists());
    }
}
