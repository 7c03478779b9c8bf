//! The digest that an image must have.

use std::fmt;
use std::sync::mpsc::Receiver;

use hyper::body::Bytes;
use md5::Md5;
use sha2::{Sha256, Sha512};

use super::ImageError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Sha256,
    Sha512,
    Md5,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
            Self::Md5 => "md5",
        })
    }
}

/// Lower-case hex of the right length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

impl Digest {
    /// `os_hash_algo` and `os_hash_value`.
    pub fn parse(algorithm: &str, hex: &str, md5_allowed: bool) -> Result<Self, String> {
        let algorithm = match algorithm.to_ascii_lowercase().as_str() {
            "sha256" => Algorithm::Sha256,
            "sha512" => Algorithm::Sha512,
            "md5" => Algorithm::Md5,
            other => return Err(format!("digest {other} is not known; use sha256 or sha512")),
        };
        Self::new(algorithm, hex, md5_allowed)
    }

    /// A bare `checksum`: its length tells the algorithm.
    pub fn guess(checksum: &str, md5_allowed: bool) -> Result<Self, String> {
        if checksum.contains("://") {
            return Err(format!(
                "the checksum is a URL ({checksum}); set os_hash_algo and os_hash_value instead"
            ));
        }
        let algorithm = match checksum.len() {
            64 => Algorithm::Sha256,
            128 => Algorithm::Sha512,
            32 => Algorithm::Md5,
            other => {
                return Err(format!(
                    "a checksum of {other} digits is neither sha256, sha512 nor md5"
                ));
            }
        };
        Self::new(algorithm, checksum, md5_allowed)
    }

    fn new(algorithm: Algorithm, hex: &str, md5_allowed: bool) -> Result<Self, String> {
        let digits = match algorithm {
            Algorithm::Sha256 => 64,
            Algorithm::Sha512 => 128,
            Algorithm::Md5 if md5_allowed => 32,
            Algorithm::Md5 => {
                return Err("Ironic does not allow md5 (md5_enabled); use sha256".to_owned());
            }
        };
        let hex = hex.trim().to_ascii_lowercase();
        if hex.len() != digits || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!("a {algorithm} digest has {digits} hex digits"));
        }
        Ok(Self { algorithm, hex })
    }

    /// Hashes what comes in; lower-case hex.
    pub(super) fn compute(&self, chunks: Receiver<Bytes>) -> String {
        match self.algorithm {
            Algorithm::Sha256 => compute::<Sha256>(chunks),
            Algorithm::Sha512 => compute::<Sha512>(chunks),
            Algorithm::Md5 => compute::<Md5>(chunks),
        }
    }

    pub(super) fn check(&self, found: &str) -> Result<(), ImageError> {
        if self.hex == found {
            return Ok(());
        }
        Err(ImageError::Digest {
            algorithm: self.algorithm,
            found: found.to_owned(),
            wanted: self.hex.clone(),
        })
    }
}

fn compute<D: sha2::Digest>(chunks: Receiver<Bytes>) -> String {
    use std::fmt::Write as _;
    let mut hasher = D::new();
    for chunk in chunks {
        hasher.update(&chunk);
    }
    hasher
        .finalize()
        .iter()
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_that_cannot_be_right_is_refused_with_the_reason() {
        let hex = "ab".repeat(32);
        assert!(Digest::parse("SHA256", &hex.to_uppercase(), false).is_ok());
        assert_eq!(
            Digest::guess(&hex, false),
            Digest::parse("sha256", &hex, false)
        );
        for (algorithm, value) in [
            ("sha256", "ab"),
            ("sha1", &hex),
            ("md5", &hex[..32]),
            ("sha512", &hex),
        ] {
            assert!(
                Digest::parse(algorithm, value, false).is_err(),
                "{algorithm}"
            );
        }
        assert!(Digest::parse("md5", &hex[..32], true).is_ok());
        assert!(
            Digest::guess("http://box/SHA256SUMS", false)
                .unwrap_err()
                .contains("os_hash_value")
        );
    }

    #[test]
    fn the_three_algorithms_give_the_published_digests_of_abc() {
        // FIPS 180-4 examples and RFC 1321, appendix A.5.
        for (algorithm, hex) in [
            (
                "sha256",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                "sha512",
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                 2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
        ] {
            let digest = Digest::parse(algorithm, hex, true).unwrap();
            let (send, receive) = std::sync::mpsc::channel();
            for part in ["a", "bc"] {
                send.send(Bytes::from_static(part.as_bytes())).unwrap();
            }
            drop(send);
            digest.check(&digest.compute(receive)).unwrap();
        }
    }
}
