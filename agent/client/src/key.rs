//! The key of one boot: the ramdisk signs with it what it tells the box, and hands it on to the system that it installs.

use std::fmt;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firstlight_api::signed::{self, PublicKey, Succession};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// An Ed25519 key pair.
#[derive(Clone)]
pub struct Key {
    seed: [u8; 32],
    pair: Arc<Ed25519KeyPair>,
}

impl Key {
    /// From the kernel's random numbers.
    pub fn new() -> Result<Self> {
        let mut seed = [0; 32];
        SystemRandom::new()
            .fill(&mut seed)
            .map_err(|_| anyhow!("the kernel gives no random bytes"))?;
        Self::from_seed(seed)
    }

    fn from_seed(seed: [u8; 32]) -> Result<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed);
        let pair = Arc::new(pair.map_err(|_| anyhow!("this is no key"))?);
        Ok(Self { seed, pair })
    }

    /// From [`Key::private`].
    pub fn parse(text: &str) -> Result<Self> {
        let seed = STANDARD.decode(text).ok();
        let seed = seed.and_then(|seed| seed.try_into().ok());
        Self::from_seed(seed.ok_or_else(|| anyhow!("this is no key"))?)
    }

    /// The seed in base64, as long as the public key in base64.
    pub fn private(&self) -> String {
        STANDARD.encode(self.seed)
    }

    /// What the box knows the machine by.
    pub fn public(&self) -> PublicKey {
        let public = self.pair.public_key().as_ref().try_into();
        PublicKey::new(public.expect("an Ed25519 public key has 32 bytes"))
    }

    /// Speaks for the key of a later start of the same machine.
    pub fn hands_over(&self, boot_mac: &str, next: &PublicKey) -> Succession {
        let signature = self.pair.sign(&signed::succession(boot_mac, next));
        let signature = signature.as_ref().try_into();
        Succession {
            before: self.public(),
            signature: signature.expect("an Ed25519 signature has 64 bytes"),
        }
    }

    /// The values of the two headers.
    pub fn sign(&self, path: &str, body: &[u8]) -> (String, String) {
        let signature = self.pair.sign(&signed::message(path, body));
        (
            self.public().to_string(),
            signed::encode_signature(signature.as_ref()),
        )
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.public() == other.public()
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.public())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_private_key_is_as_long_as_its_public_one_and_makes_the_same_key_again() {
        let key = Key::new().unwrap();
        assert_eq!(key.private().len(), key.public().to_string().len());
        let again = Key::parse(&key.private()).unwrap();
        assert_eq!(again.public(), key.public());
        assert!(again == key && again != Key::new().unwrap());
        assert!(Key::parse("").is_err() && Key::parse("AAAA").is_err());
        assert!(!format!("{key:?}").contains(&key.private()));
    }

    #[test]
    fn a_key_speaks_for_one_key_of_one_machine_after_it() {
        let (before, next) = (Key::new().unwrap(), Key::new().unwrap().public());
        let said = before.hands_over("52:54:00:00:00:01", &next);
        let is_for = |mac: &str, next: &PublicKey| {
            let message = signed::succession(mac, next);
            let key = said.before;
            ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, key.as_bytes())
                .verify(&message, &said.signature)
                .is_ok()
        };
        assert!(is_for("52:54:00:00:00:01", &next));
        assert!(!is_for("52:54:00:00:00:02", &next));
        assert!(!is_for("52:54:00:00:00:01", &before.public()));
    }
}
