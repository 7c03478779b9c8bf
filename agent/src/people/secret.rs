//! Secrets that the box makes and gives away once: of sessions and tokens. What is kept is their digest: they are too long to be guessed.

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

pub type Digest = [u8; 32];

/// Letters that nobody takes for others, for codes that people copy from a screen.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

pub struct Secret(String);

impl Secret {
    /// 256 bits behind `prefix`.
    pub fn new(prefix: &str) -> Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).context("asking the kernel for randomness")?;
        Ok(Self(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    pub fn shown(&self) -> &str {
        &self.0
    }

    pub fn digest(&self) -> Digest {
        digest(&self.0)
    }
}

pub fn digest(shown: &str) -> Digest {
    Sha256::digest(shown).into()
}

/// Fifty bits, for a person to type: `ABCDE-23456`.
pub fn code() -> Result<String> {
    let mut bytes = [0_u8; 10];
    getrandom::fill(&mut bytes).context("asking the kernel for randomness")?;
    let letters = bytes.map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
    let (first, second) = letters.split_at(5);
    Ok(format!(
        "{}-{}",
        first.iter().collect::<String>(),
        second.iter().collect::<String>()
    ))
}

/// Whether a person meant this one, as people type.
pub fn is_code(code: &str, typed: &str) -> bool {
    let letters = |text: &str| -> String {
        let letters = text.chars().filter(char::is_ascii_alphanumeric);
        letters.map(|letter| letter.to_ascii_uppercase()).collect()
    };
    digest(&letters(code)) == digest(&letters(typed))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_code_is_read_as_people_type_it() {
        let one = code().unwrap();
        assert_ne!(one, code().unwrap());
        assert!(
            one.len() == 11 && !one.contains(['0', 'O', '1', 'I']),
            "{one}"
        );
        let spaced = one.to_lowercase().replace('-', " ");
        assert!(is_code(&one, &spaced) && is_code(&one, &one.replace('-', "")));
        assert!(!is_code(&one, "") && !is_code(&one, &one[..10]));
    }

    #[test]
    fn a_secret_says_what_it_is_for() {
        let token = Secret::new("firstlight_").unwrap();
        assert!(token.shown().starts_with("firstlight_") && token.shown().len() == 54);
        assert_eq!(token.digest(), digest(token.shown()));
    }
}
