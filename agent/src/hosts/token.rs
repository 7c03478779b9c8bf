//! The secret with which an installed system shows at the bootstrap endpoint which deployment it came from.

use sha2::{Digest, Sha256};

/// `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// 256 random bits in hex; `None` while the kernel gives none.
    pub fn random() -> Option<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).ok()?;
        Some(Self(firstlight_artifacts::hex(&secret)))
    }

    /// As somebody shows it.
    pub fn of(secret: String) -> Self {
        Self(secret)
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// SHA-256 in hex: what is kept of it, and compared, so that the time it takes says nothing about the token.
    pub fn hash(&self) -> String {
        firstlight_artifacts::hex(&Sha256::digest(&self.0))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}
