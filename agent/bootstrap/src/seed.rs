//! What cloud-init is to read, on this disk, as a config drive that it finds before it looks at devices: the same files, the
//! same keys of the metadata, and the same instance at every later boot. It takes the last device with a config drive, and another
//! disk may have one of an earlier installation. The host key is no part of it: cloud-init would keep a copy.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::answer::Data;
use crate::clock::plan_clock;
use crate::drive::Drive;
use crate::files::{NewFile, write_files, write_folder};
use crate::plan::Held;

/// cloud-init's source `ConfigDrive` looks here first.
const FOLDER: &str = "var/lib/cloud/seed/config_drive";
/// Named in overlays/node/etc/ssh.
const HOST_KEY: &str = "etc/ssh/ssh_host_ed25519_key";
const LATEST: &str = "openstack/latest";
/// SHA-256 of the user data whose receipt the box has confirmed.
const CONFIRMED: &str = "var/lib/firstlight/bootstrap/confirmed";

/// The seed below the root of a file system.
#[derive(Clone, Debug)]
pub struct Seed {
    root: PathBuf,
}

impl Seed {
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    pub fn held(&self) -> Result<Held> {
        let user_data = self.root.join(FOLDER).join(LATEST).join("user_data");
        let digest = match fs::read(&user_data) {
            Ok(bytes) => hex(&Sha256::digest(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Held::Nothing),
            Err(error) => return Err(error).context("reading the stored bootstrap data"),
        };
        let confirmed = fs::read_to_string(self.root.join(CONFIRMED)).unwrap_or_default();
        Ok(if confirmed == digest {
            Held::Confirmed
        } else {
            Held::Unconfirmed(digest)
        })
    }

    /// Returns once everything is durable. The seed comes last: it is what says that all of it is here.
    pub fn store(&self, data: &Data, drive: &Drive) -> Result<()> {
        write_files(&self.root, &plan_host_key(data))?;
        let network = data.network_data.as_ref();
        write_files(
            &self.root,
            &plan_clock(network.or(drive.network_data.as_ref())),
        )?;
        write_folder(&self.root.join(FOLDER), &plan_seed(data, drive))
    }

    /// For a server that asks nobody for more.
    pub fn keep(&self, drive: &Drive) -> Result<()> {
        let folder = self.root.join(FOLDER);
        if folder.exists() {
            return Ok(());
        }
        write_files(&self.root, &plan_clock(drive.network_data.as_ref()))?;
        let user_data = drive.user_data.clone();
        write_folder(
            &folder,
            &files(
                drive.meta_data.clone(),
                user_data,
                drive.network_data.as_ref(),
            ),
        )
    }

    pub fn confirm(&self, digest: &str) -> Result<()> {
        write_files(&self.root, &[NewFile::new(CONFIRMED, 0o600, digest)])
    }
}

/// cloud-init makes keys only where there are none.
pub fn plan_host_key(data: &Data) -> Vec<NewFile> {
    let Some(key) = &data.host_key else {
        return vec![];
    };
    vec![
        NewFile::new(HOST_KEY, 0o600, key.private.as_str()),
        NewFile::new(format!("{HOST_KEY}.pub"), 0o644, key.public.as_str()),
    ]
}

/// Files of the seed: what was sent, over what the config drive says.
pub fn plan_seed(data: &Data, drive: &Drive) -> Vec<NewFile> {
    let mut meta_data = drive.meta_data.clone();
    meta_data.extend(data.meta_data.clone());
    let network = data.network_data.as_ref().or(drive.network_data.as_ref());
    files(
        meta_data,
        Some(data.user_data.clone().into_bytes()),
        network,
    )
}

/// What the box says to us is no business of cloud-init's: a token may be in it.
fn files(
    mut meta_data: Map<String, Value>,
    user_data: Option<Vec<u8>>,
    network_data: Option<&Value>,
) -> Vec<NewFile> {
    meta_data.remove("firstlight");
    let file =
        |name: &str, content: Vec<u8>| NewFile::new(Path::new(LATEST).join(name), 0o600, content);
    let json = |value: &Value| value.to_string().into_bytes();
    let mut files = vec![file("meta_data.json", json(&Value::Object(meta_data)))];
    files.extend(user_data.map(|content| file("user_data", content)));
    files.extend(network_data.map(|value| file("network_data.json", json(value))));
    files
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn drive() -> Drive {
        let meta_data = json!({"name": "host-1", "public_keys": {"key-0": "ssh-ed25519 A"}, "firstlight": {"token": "t"}});
        Drive {
            meta_data: meta_data.as_object().unwrap().clone(),
            network_data: Some(json!({"links": ["of the drive"]})),
            user_data: Some(b"\x1f\x8bpacked".to_vec()),
        }
    }

    fn data(network_data: Option<Value>) -> Data {
        let meta_data = json!({"uuid": "u", "name": "worker-7"});
        Data {
            user_data: "#cloud-config\n".to_owned(),
            meta_data: meta_data.as_object().unwrap().clone(),
            network_data,
            host_key: None,
        }
    }

    #[test]
    fn what_was_sent_goes_over_what_the_drive_says_and_the_token_goes_away() {
        let files = plan_seed(&data(None), &drive());
        let content: Vec<Value> = [0, 2]
            .map(|index: usize| serde_json::from_slice(&files[index].content).unwrap())
            .to_vec();
        assert_eq!(
            content[0],
            json!({"name": "worker-7", "public_keys": {"key-0": "ssh-ed25519 A"}, "uuid": "u"})
        );
        assert_eq!(content[1], json!({"links": ["of the drive"]}));
        let sent = plan_seed(&data(Some(json!({"links": ["sent"]}))), &drive());
        assert_eq!(sent[2].content, br#"{"links":["sent"]}"#);
        assert!(files.iter().all(|file| file.mode == 0o600));
    }

    #[test]
    fn a_drive_without_an_invitation_is_kept_as_it_was_at_the_first_start() {
        let dir = tempfile::tempdir().unwrap();
        let seed = Seed::new(dir.path());
        seed.keep(&drive()).unwrap();
        let read = |name: &str| fs::read(dir.path().join(FOLDER).join(LATEST).join(name)).unwrap();
        assert_eq!(read("user_data"), b"\x1f\x8bpacked");
        assert_eq!(read("network_data.json"), br#"{"links":["of the drive"]}"#);
        let meta_data: Value = serde_json::from_slice(&read("meta_data.json")).unwrap();
        assert_eq!(
            meta_data,
            json!({"name": "host-1", "public_keys": {"key-0": "ssh-ed25519 A"}})
        );
        // The drive of another disk at a later start.
        let other = Drive {
            user_data: None,
            ..drive()
        };
        seed.keep(&other).unwrap();
        assert_eq!(read("user_data"), b"\x1f\x8bpacked");
    }

    #[test]
    fn a_seed_is_held_unconfirmed_until_the_box_has_confirmed_this_very_one() {
        let dir = tempfile::tempdir().unwrap();
        let seed = Seed::new(dir.path());
        assert_eq!(seed.held().unwrap(), Held::Nothing);
        seed.store(&data(None), &drive()).unwrap();
        let Held::Unconfirmed(digest) = seed.held().unwrap() else {
            panic!("nothing is confirmed yet");
        };
        assert_eq!(digest, hex(&Sha256::digest("#cloud-config\n")));
        seed.confirm("another").unwrap();
        assert_eq!(seed.held().unwrap(), Held::Unconfirmed(digest.clone()));
        seed.confirm(&digest).unwrap();
        assert_eq!(seed.held().unwrap(), Held::Confirmed);
    }
}
