//! Signatures of requests: the verifying half of `firstlight_api::signed`.

use firstlight_api::signed::{self, Succession};
use http::HeaderMap;

/// As its headers have it; nothing is verified yet.
pub struct Signature {
    pub key: signed::PublicKey,
    signature: [u8; 64],
}

impl Signature {
    /// `None` without well-formed headers.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let key = signed::PublicKey::parse(text(signed::KEY_HEADER)?)?;
        let signature = signed::parse_signature(text(signed::SIGNATURE_HEADER)?)?;
        Some(Self { key, signature })
    }

    pub fn is_of(&self, path: &str, body: &[u8]) -> bool {
        verifies(self.key, &signed::message(path, body), &self.signature)
    }
}

/// The earlier keys that speak for `next`, the key of a machine that is known by `boot_mac`.
pub fn followed(
    by: &[Succession],
    boot_mac: &str,
    next: signed::PublicKey,
) -> Vec<signed::PublicKey> {
    let message = signed::succession(boot_mac, &next);
    by.iter()
        .filter(|it| verifies(it.before, &message, &it.signature))
        .map(|it| it.before)
        .collect()
}

fn verifies(key: signed::PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
    let algorithm = &ring::signature::ED25519;
    ring::signature::UnparsedPublicKey::new(algorithm, key.as_bytes())
        .verify(message, signature)
        .is_ok()
}
