//! That a ramdisk runs on the machine whose TPM the box has seen before: what travels, and the bytes that are proved.
//!
//! The key is a primary key in the endorsement hierarchy, on P-256: the same at each start, out of the TPM's own seed. The box
//! sends a point of its own; only who has the TPM and who made that point know the secret of the two, and the answer is made
//! of it ([`SALT`], [`Claim::bytes`]). So only points travel, and the box reads no structure of a TPM.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::bounded::{self, Excess};
use crate::measured::Boot;
use crate::signed::{self, PublicKey};

/// Of the HKDF (SHA-256) that makes the proof: its secret is the X coordinate, its `info` is [`Claim::bytes`].
pub const SALT: &[u8] = b"firstlight tpm proof 1";

/// So many bytes, in base64 where they travel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline)]
pub struct Bytes<const N: usize>([u8; N]);

/// On P-256: 4, X, Y (SEC 1, 2.3.3, not compressed). Whether it is on the curve is found by who computes with it.
pub type Point = Bytes<65>;
/// Of HKDF or HMAC with SHA-256.
pub type Digest = Bytes<32>;
/// SHA-256 of a TPM's point: which TPM it is.
pub type Fingerprint = Bytes<32>;

impl<const N: usize> Bytes<N> {
    /// Nothing is checked.
    pub const fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// Raw: base64 is only how they travel.
    pub fn as_bytes(&self) -> &[u8; N] {
        &self.0
    }
}

impl Point {
    /// What the box remembers of a TPM.
    pub fn fingerprint(&self) -> Fingerprint {
        Bytes(Sha256::digest(self.0).into())
    }
}

impl<const N: usize> std::fmt::Display for Bytes<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&signed::base64(&self.0))
    }
}

impl<const N: usize> std::fmt::Debug for Bytes<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({self})")
    }
}

impl<const N: usize> TryFrom<String> for Bytes<N> {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        signed::bytes(&text)
            .map(Self)
            .ok_or_else(|| format!("this is not the base64 of {N} bytes"))
    }
}

impl<const N: usize> From<Bytes<N>> for String {
    fn from(bytes: Bytes<N>) -> Self {
        bytes.to_string()
    }
}

/// What a report says of its machine's TPM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Tpm {
    /// By a ramdisk that does not know of TPMs.
    #[default]
    Unsaid,
    /// The machine has none that its kernel knows.
    Absent,
    /// It has not answered yet.
    Asked,
    /// It does not answer, or refuses; why goes to the page.
    Silent {
        /// In the ramdisk's words, at most 256 characters.
        reason: String,
    },
    /// It has answered.
    Key {
        /// Its public key.
        point: Point,
        /// Once the box has asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proof: Option<Proof>,
        /// What it vouches for, with the proof.
        #[serde(default)]
        boot: Boot,
    },
}

/// What the box asks for. It keeps nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Challenge {
    /// Made for this one question.
    pub point: Point,
    /// By which the box knows its own question, and the one right answer, again.
    pub ticket: Digest,
}

/// The answer to a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// As the box sent it.
    pub challenge: Challenge,
    /// HKDF of the secret of both points, over [`Claim::bytes`], with [`SALT`].
    pub answer: Digest,
}

/// What is proved: this TPM is in the machine whose ramdisk signs with this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Of the box.
    pub session: &'a str,
    /// As in [`crate::report::Report::boot_mac`].
    pub boot_mac: &'a str,
    /// As in [`crate::report::Report::boot_id`].
    pub boot_id: &'a str,
    /// Whose signature the report has.
    pub key: PublicKey,
    /// The machine's public key.
    pub tpm: Point,
}

impl Claim<'_> {
    /// `theirs` is the point of the challenge. No text in a claim has a zero byte, and all else has one length.
    pub fn bytes(&self, theirs: &Point) -> Vec<u8> {
        let texts = [self.session, self.boot_mac, self.boot_id];
        let mut bytes = Vec::with_capacity(320);
        for text in texts {
            bytes.extend(text.as_bytes());
            bytes.push(0);
        }
        bytes.extend(self.key.as_bytes());
        bytes.extend(self.tpm.as_bytes());
        bytes.extend(theirs.as_bytes());
        bytes
    }
}

impl Tpm {
    pub(crate) fn bounded(self) -> Result<Self, Excess> {
        Ok(match self {
            Self::Silent { reason } => Self::Silent {
                reason: bounded::text(&reason),
            },
            Self::Key { point, proof, boot } => Self::Key {
                point,
                proof,
                boot: boot.bounded()?,
            },
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const CLAIM: Claim<'_> = Claim {
        session: "ab",
        boot_mac: "52:54:00:00:00:01",
        boot_id: "b-1",
        key: PublicKey::new([7; 32]),
        tpm: Point::new([4; 65]),
    };

    #[test]
    fn a_proof_is_of_one_session_machine_boot_key_and_question() {
        let theirs = Point::new([5; 65]);
        let all = [
            (CLAIM, theirs),
            (
                Claim {
                    session: "abb",
                    ..CLAIM
                },
                theirs,
            ),
            (
                Claim {
                    boot_mac: "52:54:00:00:00:02",
                    ..CLAIM
                },
                theirs,
            ),
            (
                Claim {
                    boot_id: "b-2",
                    ..CLAIM
                },
                theirs,
            ),
            (
                Claim {
                    key: PublicKey::new([8; 32]),
                    ..CLAIM
                },
                theirs,
            ),
            (
                Claim {
                    tpm: Point::new([6; 65]),
                    ..CLAIM
                },
                theirs,
            ),
            (CLAIM, Point::new([6; 65])),
            // What one text loses the next has not won.
            (
                Claim {
                    session: "a",
                    boot_mac: "b52:54:00:00:00:01",
                    ..CLAIM
                },
                theirs,
            ),
        ];
        let bytes: std::collections::BTreeSet<_> = all
            .iter()
            .map(|(claim, theirs)| claim.bytes(theirs))
            .collect();
        assert_eq!(bytes.len(), all.len());
    }

    #[test]
    fn it_travels_as_documented() {
        let challenge = Challenge {
            point: Point::new([4; 65]),
            ticket: Digest::new([1; 32]),
        };
        let answer = Digest::new([2; 32]);
        let said = Tpm::Key {
            point: Point::new([4; 65]),
            proof: Some(Proof { challenge, answer }),
            boot: Boot::Told,
        };
        let sent = serde_json::to_value(&said).unwrap();
        assert_eq!(sent["state"], "key");
        assert_eq!(sent["proof"]["answer"], Digest::new([2; 32]).to_string());
        assert_eq!(serde_json::from_value::<Tpm>(sent).unwrap(), said);
        let absent: Tpm = serde_json::from_value(json!({"state": "absent"})).unwrap();
        assert_eq!(absent, Tpm::Absent);
        for bad in [
            json!({"state": "key"}),
            json!({"state": "key", "point": "BA=="}),
            json!({"state": "key", "point": "-".repeat(88)}),
            json!({"state": "silent"}),
            json!("absent"),
        ] {
            assert!(serde_json::from_value::<Tpm>(bad.clone()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_text_holds_it_is_so_many_bytes_or_nothing(text in ".{0,100}", bytes in any::<[u8; 32]>()) {
            if let Ok(parsed) = Digest::try_from(text.clone()) {
                prop_assert_eq!(parsed.to_string(), text);
            }
            let digest = Digest::new(bytes);
            prop_assert_eq!(Digest::try_from(digest.to_string()), Ok(digest));
        }
    }
}
