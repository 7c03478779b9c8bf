//! Whose system this is: SSH signatures (`ssh-keygen -Y sign -n firstlight-system`) over what [`SystemContent::statement`] says, by Ed25519
//! or ECDSA P-256 keys, also those that never leave a security key. [`Keys`] are those that somebody believes.
//! And whose receipt ([`receipt`]).
#![warn(missing_docs)]

pub mod receipt;

use firstlight_api::slot::SystemContent;
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, LineEnding, PublicKey, SshSig};

/// What a signature is for, so that one for a commit or a file is none for a system.
pub const NAMESPACE: &str = "firstlight-system";
/// On a box: the keys of who may sign its next system.
pub const KEYS: &str = "usr/share/firstlight/update-keys";
/// The armour that SSH puts around a signature.
const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
const END: &str = "-----END SSH SIGNATURE-----";
const LINE: usize = 70;
const MOST_KEYS: usize = 64;
const LONGEST_NAME: usize = 64;

/// Public keys, as `authorized_keys` has them: a key a line, without options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(Vec<PublicKey>);

/// A line of a file of keys that is none.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "line {line}: {reason}; expected is a public key like `ssh-ed25519 AAAA… name` (`ssh-keygen -t ed25519` makes one)"
)]
pub struct KeyError {
    /// From 1.
    pub line: usize,
    /// Of a line that is not taken.
    pub reason: &'static str,
}

/// Why a system is not believed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unbelieved {
    /// It came without a signature.
    #[error("the system is not signed")]
    Unsigned,
    /// The signature is none.
    #[error("the system's signature cannot be read")]
    Unreadable,
    /// Nobody who is believed.
    #[error("the system is signed by {0}, and that key is not among those that are believed")]
    Unknown(String),
    /// Somebody put a signature of another system, or for another purpose, beside it.
    #[error("the signature of {0} is not for this system: it was changed after it was signed")]
    Changed(String),
}

impl Keys {
    /// Empty lines and `#` comments are passed over.
    ///
    /// # Errors
    /// Where a line is no key, or one of another kind.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys = Vec::new();
        let lines = text.lines().map(str::trim).enumerate();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let error = |reason| KeyError {
                line: number + 1,
                reason,
            };
            let key = PublicKey::from_openssh(line).map_err(|_| error("this is no public key"))?;
            if !is_usable(&key.algorithm()) {
                return Err(error("the key is neither Ed25519 nor ECDSA P-256"));
            }
            if keys.len() >= MOST_KEYS {
                return Err(error("these are too many keys"));
            }
            keys.push(key);
        }
        Ok(Self(keys))
    }

    /// Nobody is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As people compare them: `SHA256:… (name)`.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(name).collect()
    }

    /// A key a line.
    pub fn to_text(&self) -> String {
        let line = |key: &PublicKey| key.to_openssh().map(|line| format!("{line}\n"));
        self.0.iter().filter_map(|key| line(key).ok()).collect()
    }

    /// Those of both, each once.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        for key in others.0 {
            if !self
                .0
                .iter()
                .any(|known| known.key_data() == key.key_data())
            {
                self.0.push(key);
            }
        }
        self
    }

    /// Who signed it.
    ///
    /// # Errors
    /// Where that is none of these.
    pub fn check(&self, system: &SystemContent) -> Result<String, Unbelieved> {
        let signature = parse(system)?;
        let key = self
            .0
            .iter()
            .find(|key| key.key_data() == signature.public_key())
            .ok_or_else(|| Unbelieved::Unknown(fingerprint(&signature)))?;
        verify(key, system, &signature)?;
        Ok(name(key))
    }
}

/// Who says to have signed it, and has: whether that is somebody to be believed is another question.
///
/// # Errors
/// Where nobody has.
pub fn signer(system: &SystemContent) -> Result<String, Unbelieved> {
    let signature = parse(system)?;
    let key = PublicKey::from(signature.public_key().clone());
    verify(&key, system, &signature)?;
    Ok(name(&key))
}

/// As it goes into a slot's table: what `ssh-keygen -Y sign` prints, without its armour.
pub fn without_armour(signature: &str) -> Option<String> {
    let signature = SshSig::from_pem(signature).ok()?;
    let armoured = signature.to_pem(LineEnding::LF).ok()?;
    Some(
        armoured
            .lines()
            .filter(|line| !line.starts_with('-'))
            .collect(),
    )
}

fn parse(system: &SystemContent) -> Result<SshSig, Unbelieved> {
    let text = system.signature.as_ref().ok_or(Unbelieved::Unsigned)?;
    if !text.is_ascii() {
        return Err(Unbelieved::Unreadable);
    }
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(LINE)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    let armoured = format!("{BEGIN}\n{}\n{END}\n", lines.join("\n"));
    SshSig::from_pem(armoured).map_err(|_| Unbelieved::Unreadable)
}

fn verify(key: &PublicKey, system: &SystemContent, signature: &SshSig) -> Result<(), Unbelieved> {
    // The crate asks for the namespace, too.
    let verified = is_usable(&key.algorithm())
        && key
            .verify(NAMESPACE, system.statement().as_bytes(), signature)
            .is_ok();
    if verified {
        Ok(())
    } else {
        Err(Unbelieved::Changed(fingerprint(signature)))
    }
}

fn is_usable(algorithm: &Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::Ed25519
            | Algorithm::SkEd25519
            | Algorithm::SkEcdsaSha2NistP256
            | Algorithm::Ecdsa {
                curve: EcdsaCurve::NistP256
            }
    )
}

fn fingerprint(signature: &SshSig) -> String {
    signature
        .public_key()
        .fingerprint(HashAlg::Sha256)
        .to_string()
}

fn name(key: &PublicKey) -> String {
    let fingerprint = key.fingerprint(HashAlg::Sha256);
    let comment = key.comment();
    if comment.is_empty() {
        return fingerprint.to_string();
    }
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let comment: String = comment.chars().map(plain).take(LONGEST_NAME).collect();
    format!("{fingerprint} ({comment})")
}

#[cfg(test)]
mod tests;
