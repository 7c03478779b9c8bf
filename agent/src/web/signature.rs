//! Signatures of requests: the verifying half of `firstlight_api::signed`.

use firstlight_api::signed;
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
        let algorithm = &ring::signature::ED25519;
        ring::signature::UnparsedPublicKey::new(algorithm, self.key.as_bytes())
            .verify(&signed::message(path, body), &self.signature)
            .is_ok()
    }
}
