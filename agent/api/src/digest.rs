//! SHA-256 digests, as they travel.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// 64 hex digits, as text and as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// `None` unless it is 64 hex digits.
    pub fn parse(hex: &str) -> Option<Self> {
        let digits: Vec<u8> = hex
            .chars()
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()?;
        let mut bytes = [0; 32];
        (digits.len() == 64).then(|| {
            for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = pair[0] << 4 | pair[1];
            }
            Self(bytes)
        })
    }

    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// As they were digested.
    pub const fn bytes(self) -> [u8; 32] {
        self.0
    }
}

impl From<[u8; 32]> for Sha256Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl From<Sha256Digest> for String {
    fn from(digest: Sha256Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Sha256Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("a SHA-256 is 64 hex digits")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_else(bytes: [u8; 32], text in "[0-9a-fA-F]{60,66}|\\PC{0,70}") {
            let digest = Sha256Digest::from(bytes);
            prop_assert_eq!(Sha256Digest::parse(&digest.to_string()), Some(digest));
            let is_one = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            prop_assert_eq!(Sha256Digest::parse(&text).is_some(), is_one);
        }
    }
}
