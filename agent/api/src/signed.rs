//! Who is who: a ramdisk makes an Ed25519 key at its start and signs each post to the box with it, and the system that it
//! installs signs with the same key. Here are the names, the bytes that are signed, and the code that a person compares.
//! Making keys and signatures is the programs' part.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Base64 of the public key, 32 bytes.
pub const KEY_HEADER: &str = "firstlight-key";
/// Base64 of the signature over [`message`], 64 bytes.
pub const SIGNATURE_HEADER: &str = "firstlight-signature";

/// So that a signature means nothing anywhere else.
const CONTEXT: &[u8] = b"firstlight signed request 1\0";
const SUCCESSION: &[u8] = b"firstlight succession 1\0";
/// Crockford's alphabet: no letter looks like a digit.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const CODE_LENGTH: usize = 16;

/// An Ed25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Of the 32 bytes of RFC 8032. Whether they are a point of the curve is found by who verifies with them.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Of the base64 that [`KEY_HEADER`] carries, with padding; `None` for anything but 32 bytes.
    pub fn parse(text: &str) -> Option<Self> {
        bytes(text).map(Self)
    }

    /// As in [`PublicKey::new`].
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What a person compares: 80 bits of its SHA-256 as four groups of four, `7Q2M-XK4P-09AB-CDEF`.
    pub fn code(&self) -> String {
        let digest = Sha256::digest(self.0);
        let bits = digest[..10]
            .iter()
            .fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        let mut code = String::with_capacity(CODE_LENGTH + 3);
        for at in 0..CODE_LENGTH {
            if at > 0 && at % 4 == 0 {
                code.push('-');
            }
            let index = bits >> (5 * (CODE_LENGTH - 1 - at)) & 31;
            code.push(char::from(ALPHABET[usize::try_from(index).unwrap_or(0)]));
        }
        code
    }

    /// Is this the code, as a person may have typed it?
    pub fn has_code(&self, typed: &str) -> bool {
        same_code(typed, &self.code())
    }
}

/// Is `typed` the code, as a person may have typed it?
pub fn same_code(typed: &str, code: &str) -> bool {
    let plain = |text: &str| -> String {
        let letters = text.chars().filter(|c| !matches!(c, '-' | ' '));
        let clear = letters.map(|c| match c.to_ascii_uppercase() {
            'O' => '0',
            'I' | 'L' => '1',
            c => c,
        });
        clear.take(CODE_LENGTH + 1).collect()
    };
    plain(typed) == plain(code)
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&base64(&self.0))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// The value of [`SIGNATURE_HEADER`].
pub fn encode_signature(signature: &[u8]) -> String {
    base64(signature)
}

/// Of [`SIGNATURE_HEADER`]; `None` for anything but the base64 of 64 bytes. Nothing is verified.
pub fn parse_signature(text: &str) -> Option<[u8; 64]> {
    bytes(text)
}

/// What is signed. `path` is the request's, without host and query.
pub fn message(path: &str, body: &[u8]) -> Vec<u8> {
    [CONTEXT, path.as_bytes(), b"\0", body].concat()
}

/// The key of an earlier ramdisk, which that one left on a disk of this machine, speaks for the key of this start. Worth nothing to
/// who overhears it: what follows has to be signed by the new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Succession {
    /// Of the earlier ramdisk.
    pub before: PublicKey,
    /// Of `before`, over [`succession`]. Nothing is verified yet.
    pub signature: [u8; 64],
}

/// What `before` signs for a machine that is known by `boot_mac`, and for the key of its new start.
pub fn succession(boot_mac: &str, next: &PublicKey) -> Vec<u8> {
    [SUCCESSION, boot_mac.as_bytes(), b"\0", next.as_bytes()].concat()
}

/// Both in base64.
#[derive(Serialize, Deserialize)]
struct Wire {
    before: String,
    signature: String,
}

impl TryFrom<Wire> for Succession {
    type Error = &'static str;
    fn try_from(wire: Wire) -> Result<Self, Self::Error> {
        let before = PublicKey::parse(&wire.before);
        let signature = parse_signature(&wire.signature);
        let both = before.zip(signature);
        let (before, signature) = both.ok_or("this is no key and its signature in base64")?;
        Ok(Self { before, signature })
    }
}

impl From<Succession> for Wire {
    fn from(it: Succession) -> Self {
        Self {
            before: it.before.to_string(),
            signature: base64(&it.signature),
        }
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// `None` for anything but the base64 of at most `most` bytes.
pub(crate) fn decode(text: &str, most: usize) -> Option<Vec<u8>> {
    if text.len() > most.div_ceil(3) * 4 {
        return None;
    }
    let bytes = STANDARD.decode(text).ok()?;
    (bytes.len() <= most).then_some(bytes)
}

pub(crate) fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    // Four characters for three bytes, rounded up.
    if text.len() != N.div_ceil(3) * 4 {
        return None;
    }
    STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_code_is_four_groups_of_four_and_is_recognised_however_it_is_typed() {
        let key = PublicKey::new([7; 32]);
        let code = key.code();
        let groups: Vec<usize> = code.split('-').map(str::len).collect();
        assert_eq!(groups, [4, 4, 4, 4], "{code}");
        let sloppy = code.to_lowercase().replace('-', " ").replace('0', "o");
        assert!(key.has_code(&code) && key.has_code(&sloppy), "{sloppy}");
        let other = PublicKey::new([8; 32]);
        assert!(!other.has_code(&code) && !key.has_code("") && !key.has_code(&code[..14]));
    }

    #[test]
    fn a_signature_is_for_one_path_and_one_body() {
        assert_ne!(message("/a", b"b"), message("/a\0", b"b"));
        assert_ne!(message("/a", b"b"), message("/b", b"b"));
        assert!(message("/a", b"b").starts_with(b"firstlight signed request"));
    }

    proptest! {
        #[test]
        fn whatever_a_header_holds_it_is_a_key_or_nothing(text in ".{0,100}", key in any::<[u8; 32]>()) {
            if let Some(parsed) = PublicKey::parse(&text) {
                prop_assert_eq!(&parsed.to_string(), &text);
            }
            let key = PublicKey::new(key);
            prop_assert_eq!(PublicKey::parse(&key.to_string()), Some(key));
            if let Some(signature) = parse_signature(&text) {
                prop_assert_eq!(encode_signature(&signature), text);
            }
            let signature = [*key.as_bytes(), *key.as_bytes()].concat();
            prop_assert_eq!(parse_signature(&encode_signature(&signature)).map(Vec::from), Some(signature));
        }

        #[test]
        fn a_succession_is_a_key_and_a_signature_or_refused(before in ".{0,50}", key in any::<[u8; 32]>(), half in any::<[u8; 32]>()) {
            let mut signature = [0; 64];
            signature[..32].copy_from_slice(&half);
            let whole = Succession { before: PublicKey::new(key), signature };
            let mut wire = serde_json::to_value(whole).unwrap();
            prop_assert_eq!(serde_json::from_value::<Succession>(wire.clone()).unwrap(), whole);
            let is_key = PublicKey::parse(&before).is_some();
            wire["before"] = before.into();
            prop_assert_eq!(serde_json::from_value::<Succession>(wire).is_ok(), is_key);
        }
    }
}
