//! Passwords: argon2id, with the cost that OWASP's password sheet names as its first choice (19 MiB, two rounds).

use anyhow::{Context, Result};
use argon2::{
    Argon2,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, SaltString},
};
use firstlight_api::people::PasswordHash;

/// What is kept of it.
pub fn hash(password: &str) -> Result<PasswordHash> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).context("asking the kernel for randomness")?;
    let salt = SaltString::encode_b64(&salt).map_err(|error| anyhow::anyhow!("{error}"))?;
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
    let hash = hash.map_err(|error| anyhow::anyhow!("hashing a password: {error}"))?;
    Ok(PasswordHash::parse(&hash.to_string())?)
}

/// It takes as long for a wrong one.
pub fn is_right(hash: &PasswordHash, password: &str) -> bool {
    let hash = argon2::password_hash::PasswordHash::new(hash.as_str());
    hash.is_ok_and(|hash| {
        let checked = Argon2::default().verify_password(password.as_bytes(), &hash);
        checked.is_ok()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_password_is_right_and_no_two_hashes_are_the_same() {
        let first = hash("four plain words here").unwrap();
        assert_ne!(first, hash("four plain words here").unwrap());
        assert!(is_right(&first, "four plain words here"));
        for wrong in ["", "four plain words her", "Four plain words here"] {
            assert!(!is_right(&first, wrong), "{wrong}");
        }
    }
}
