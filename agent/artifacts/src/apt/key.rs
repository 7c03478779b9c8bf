//! The key that signs a repository: `OpenPGP` with Ed25519, in the form that both `gpgv` and `sqv` read.

use pgp::{
    composed::{
        ArmorOptions, CleartextSignedMessage, Deserializable, KeyType, SecretKeyParamsBuilder,
        SignedSecretKey,
    },
    packet::{SignatureConfig, SignatureType, Subpacket, SubpacketData},
    types::{KeyDetails, KeyVersion, Password, Tag, Timestamp},
};
use rand::{CryptoRng, Rng};

/// Why there is no key or no signature.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum KeyError {
    #[error("making a key")]
    Make(#[source] pgp::errors::Error),
    #[error("reading the key")]
    Read(#[source] pgp::errors::Error),
    #[error("signing")]
    Sign(#[source] pgp::errors::Error),
}

/// The secret key; the public one can be had from it.
#[derive(Clone, Debug)]
pub struct SigningKey(SignedSecretKey);

impl SigningKey {
    /// `now` in seconds since 1970: a signature must not be older than its key.
    pub fn make<R: Rng + CryptoRng>(rng: R, name: &str, now: u32) -> Result<Self, KeyError> {
        let parameters = SecretKeyParamsBuilder::default()
            .version(KeyVersion::V4)
            .key_type(KeyType::Ed25519Legacy)
            .created_at(Timestamp::from_secs(now))
            .can_certify(true)
            .can_sign(true)
            .primary_user_id(name.to_owned())
            .build()
            .expect("all that it needs is here");
        let mut key = parameters.generate(rng).map_err(KeyError::Make)?;
        bind(&mut key, now).map_err(KeyError::Make)?;
        Ok(Self(key))
    }

    /// Of what [`SigningKey::secret`] wrote.
    pub fn parse(armored: &str) -> Result<Self, KeyError> {
        let (key, _) = SignedSecretKey::from_string(armored).map_err(KeyError::Read)?;
        Ok(Self(key))
    }

    /// Secret: for a file that only its owner reads.
    pub fn secret(&self) -> Result<String, KeyError> {
        self.0
            .to_armored_string(ArmorOptions::default())
            .map_err(KeyError::Make)
    }

    /// What apt is given as `Signed-By`.
    pub fn public(&self) -> Result<String, KeyError> {
        let public = self.0.to_public_key();
        public
            .to_armored_string(ArmorOptions::default())
            .map_err(KeyError::Make)
    }

    /// `InRelease`.
    pub fn clear_sign(&self, text: &str, now: u32) -> Result<String, KeyError> {
        let key = &self.0.primary_key;
        let sign = || {
            let mut config = SignatureConfig::v4(
                SignatureType::Text,
                key.algorithm(),
                pgp::crypto::hash::HashAlgorithm::Sha512,
            );
            config.hashed_subpackets = vec![
                Subpacket::regular(SubpacketData::SignatureCreationTime(Timestamp::from_secs(
                    now,
                )))?,
                Subpacket::regular(SubpacketData::IssuerFingerprint(key.fingerprint()))?,
            ];
            config.unhashed_subpackets = vec![Subpacket::regular(SubpacketData::IssuerKeyId(
                key.legacy_key_id(),
            ))?];
            CleartextSignedMessage::new(text, config, key, &Password::empty())?
                .to_armored_string(ArmorOptions::default())
        };
        sign().map_err(KeyError::Sign)
    }
}

/// A key counts from the time at which it has signed its own name, which the library takes from the machine's clock. `sqv`, which
/// apt of Debian 13 asks, knows no key when a signature is older than that; `gpgv` does not look.
fn bind(key: &mut SignedSecretKey, now: u32) -> pgp::errors::Result<()> {
    let own = &key.primary_key;
    for user in &mut key.details.users {
        for signature in &mut user.signatures {
            let Some(mut config) = signature.config().cloned() else {
                continue;
            };
            for subpacket in &mut config.hashed_subpackets {
                if let SubpacketData::SignatureCreationTime(time) = &mut subpacket.data {
                    *time = Timestamp::from_secs(now);
                }
            }
            let (password, name) = (Password::empty(), &user.id);
            *signature =
                config.sign_certification(own, own.public_key(), &password, Tag::UserId, name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    // gpgv and sqv judge what was signed, from files.
    #![allow(clippy::disallowed_methods)]
    use std::{fs, process::Command};

    use super::*;

    const MADE: u32 = 1_790_000_000;

    /// With the program that apt of Debian 12 uses.
    fn gpgv(dir: &std::path::Path, signed: &str) -> bool {
        let file = dir.join("InRelease");
        fs::write(&file, signed).unwrap();
        let output = Command::new("gpgv")
            .args(["--ignore-time-conflict", "--keyring"])
            .arg(dir.join("key.gpg"))
            .arg(&file)
            .output()
            .unwrap();
        output.status.success()
    }

    fn dearmor(armored: &str) -> Vec<u8> {
        use std::io::Read as _;
        let mut plain = Vec::new();
        pgp::armor::Dearmor::new(armored.as_bytes())
            .read_to_end(&mut plain)
            .unwrap();
        plain
    }

    #[test]
    fn a_key_counts_from_the_time_that_it_was_made_for() {
        let key = SigningKey::make(rand::thread_rng(), "box", MADE).unwrap();
        let key = key.0.to_public_key();
        assert!(key.verify_bindings().is_ok());
        let signed: Vec<_> = key
            .details
            .users
            .iter()
            .flat_map(|user| &user.signatures)
            .map(|signature| signature.created().unwrap().as_secs())
            .collect();
        assert_eq!((key.created_at().as_secs(), signed), (MADE, vec![MADE]));
    }

    #[test]
    fn what_is_signed_is_verified_by_gpgv_and_what_was_changed_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let key = SigningKey::make(rand::thread_rng(), "box", MADE).unwrap();
        let key = SigningKey::parse(&key.secret().unwrap()).unwrap();
        fs::write(dir.path().join("key.gpg"), dearmor(&key.public().unwrap())).unwrap();
        let text = "Origin: Firstlight\n- a dash\nSHA256:\n ab 1 main\n";
        let signed = key.clear_sign(text, MADE + 1).unwrap();
        assert!(gpgv(dir.path(), &signed), "{signed}");
        assert!(!gpgv(dir.path(), &signed.replace("ab 1", "ac 1")));
        let other = SigningKey::make(rand::thread_rng(), "other", MADE).unwrap();
        assert!(!gpgv(
            dir.path(),
            &other.clear_sign(text, MADE + 1).unwrap()
        ));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

        #[test]
        fn a_damaged_key_is_refused_or_signs(bytes: Vec<u8>, at in 0..600_usize) {
            let whole = SigningKey::make(rand::thread_rng(), "box", MADE).unwrap().secret().unwrap();
            let mut damaged = whole.into_bytes();
            let at = at.min(damaged.len());
            let end = (at + bytes.len()).min(damaged.len());
            damaged.splice(at..end, bytes);
            if let Ok(key) = SigningKey::parse(&String::from_utf8_lossy(&damaged)) {
                let _ = key.clear_sign("text", MADE + 1);
            }
        }
    }
}
