//! Whose a system is: the key that signs it, and the keys that somebody believes. The signature itself is `ssh-keygen`'s work, so that a key
//! may have a passphrase, live in an agent or on a security key.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use firstlight_api::slot::SystemContent;
use firstlight_signature::{Keys, NAMESPACE, without_armour};

use crate::UsageError;

const MISSING: &str = "running ssh-keygen; install openssh-client";

/// Whom somebody believes who is given an image.
#[derive(Debug, Args)]
pub struct SignedBy {
    /// Refuse the image unless one of these SSH keys has signed it, and nothing in it was changed since (a file like KEY.pub)
    #[arg(long, value_name = "KEYS")]
    signed_by: Option<PathBuf>,
}

impl SignedBy {
    pub fn keys(&self) -> Result<Option<Keys>> {
        self.signed_by.as_deref().map(load_keys).transpose()
    }
}

/// Public keys out of a file.
pub fn load_keys(path: &Path) -> Result<Keys> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| UsageError(format!("{name}: {error}")))?;
    let keys = Keys::parse(&text).map_err(|error| UsageError(format!("{name}: {error}")))?;
    if keys.is_empty() {
        return Err(UsageError(format!("{name} has no key")).into());
    }
    Ok(keys)
}

/// The key that signs a build.
#[derive(Clone, Debug)]
pub struct Signer {
    key: PathBuf,
    public: Keys,
}

impl Signer {
    /// `key`: a private key, or the public half of one that an agent has.
    pub fn load(key: &Path) -> Result<Self> {
        let name = key.display();
        let text = fs::read(key).map_err(|error| UsageError(format!("--sign {name}: {error}")))?;
        let is_private = String::from_utf8_lossy(&text).contains("PRIVATE KEY");
        let beside = key.with_added_extension("pub");
        let public = match (is_private, beside.is_file()) {
            (false, _) => load_keys(key)?,
            (true, true) => load_keys(&beside)?,
            (true, false) => {
                let shown = Command::new("ssh-keygen")
                    .arg("-yf")
                    .arg(key)
                    .stderr(Stdio::inherit())
                    .output()
                    .context(MISSING)?;
                ensure!(shown.status.success(), "{name} is no key that opens");
                let text = String::from_utf8_lossy(&shown.stdout);
                Keys::parse(&text).map_err(|error| UsageError(format!("{name}: {error}")))?
            }
        };
        Ok(Self {
            key: key.to_owned(),
            public,
        })
    }

    pub fn public(&self) -> &Keys {
        &self.public
    }

    /// Returns who has signed.
    pub fn sign(&self, system: &mut SystemContent) -> Result<String> {
        let mut keygen = Command::new("ssh-keygen")
            .args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"])
            .arg(&self.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(MISSING)?;
        let mut input = keygen.stdin.take().context("ssh-keygen has no input")?;
        input.write_all(system.statement().as_bytes())?;
        drop(input);
        let signed = keygen
            .wait_with_output()
            .context("waiting for ssh-keygen")?;
        ensure!(
            signed.status.success(),
            "ssh-keygen did not sign with {}, and says why above",
            self.key.display()
        );
        let signature = String::from_utf8_lossy(&signed.stdout);
        system.signature = without_armour(&signature);
        self.public
            .check(system)
            .with_context(|| format!("checking the signature by {}", self.key.display()))
    }
}

/// For tests: a key that nobody else has.
#[cfg(test)]
pub fn make_key(folder: &Path) -> PathBuf {
    let key = folder.join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .status();
    assert!(made.is_ok_and(|made| made.success()), "ssh-keygen");
    key
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::slot::LayerContent;

    use super::*;

    #[test]
    fn a_system_is_signed_and_then_believed() {
        let folder = tempfile::tempdir().unwrap();
        let key = make_key(folder.path());
        let mut system = SystemContent {
            layers: vec![LayerContent {
                name: "agent".to_owned(),
                length: 512,
                sha256: [1; 32].into(),
                root: [2; 32].into(),
            }],
            ..SystemContent::default()
        };
        let public = key.with_added_extension("pub");
        let who = Signer::load(&key).unwrap().sign(&mut system).unwrap();
        let args = SignedBy {
            signed_by: Some(public.clone()),
        };
        let keys = args.keys().unwrap().unwrap();
        assert_eq!(keys.check(&system), Ok(who));
        // Without its public half beside it.
        fs::remove_file(&public).unwrap();
        let signer = Signer::load(&key).unwrap();
        assert!(signer.sign(&mut system).is_ok());
        system.layers[0].length = 1024;
        assert!(signer.public().check(&system).is_err());
    }

    #[test]
    fn what_is_no_key_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none");
        assert!(Signer::load(&path).is_err());
        fs::write(&path, "# nobody\n").unwrap();
        let error = load_keys(&path).unwrap_err();
        assert!(error.downcast_ref::<UsageError>().is_some(), "{error:#}");
        fs::write(&path, "ssh-rsa AAAA\n").unwrap();
        let error = format!("{:#}", Signer::load(&path).unwrap_err());
        assert!(error.contains("none: line 1"), "{error}");
    }
}
