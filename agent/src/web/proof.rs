//! Proofs of a TPM: the box's half of `firstlight_api::tpm`.
//!
//! Nothing is kept of a question that was asked, so that no number of them takes room or pushes another out: the ticket, a
//! keyed digest of the claim with its one right answer, travels with it and comes back.

use firstlight_api::tpm::{Challenge, Claim, Digest, Point, Proof, SALT};
use ring::{
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    error::Unspecified,
    hkdf::{HKDF_SHA256, Salt},
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};

/// Lives as long as the box's session.
#[derive(Clone, Debug)]
pub struct Examiner {
    random: SystemRandom,
    tickets: hmac::Key,
}

impl Examiner {
    pub fn new() -> Self {
        let random = SystemRandom::new();
        let tickets = hmac::Key::generate(HMAC_SHA256, &random);
        Self {
            tickets: tickets.expect("the kernel has random bytes"),
            random,
        }
    }

    /// A question that only the TPM of the claim can answer; none if the claim's point is not on the curve.
    pub fn ask(&self, claim: &Claim<'_>) -> Option<Challenge> {
        self.made(claim).ok()
    }

    fn made(&self, claim: &Claim<'_>) -> Result<Challenge, Unspecified> {
        let mine = EphemeralPrivateKey::generate(&ECDH_P256, &self.random)?;
        let point = mine.compute_public_key()?;
        let point = point.as_ref().try_into().map_err(|_| Unspecified)?;
        let point = Point::new(point);
        let theirs = UnparsedPublicKey::new(&ECDH_P256, claim.tpm.as_bytes());
        let claimed = claim.bytes(&point);
        let answer = agree_ephemeral(mine, &theirs, |secret| answer(secret, &claimed))??;
        let ticket = hmac::sign(&self.tickets, &ticketed(claimed, &answer));
        let ticket = ticket.as_ref().try_into().map_err(|_| Unspecified)?;
        Ok(Challenge {
            point,
            ticket: Digest::new(ticket),
        })
    }

    /// Is it the right answer to a question of this session about this claim?
    pub fn holds(&self, claim: &Claim<'_>, proof: &Proof) -> bool {
        let claimed = claim.bytes(&proof.challenge.point);
        let ticketed = ticketed(claimed, &proof.answer);
        hmac::verify(&self.tickets, &ticketed, proof.challenge.ticket.as_bytes()).is_ok()
    }
}

fn answer(secret: &[u8], claim: &[u8]) -> Result<Digest, Unspecified> {
    let mut answer = [0; 32];
    let made = Salt::new(HKDF_SHA256, SALT).extract(secret);
    made.expand(&[claim], HKDF_SHA256)?.fill(&mut answer)?;
    Ok(Digest::new(answer))
}

fn ticketed(mut claim: Vec<u8>, answer: &Digest) -> Vec<u8> {
    claim.extend(answer.as_bytes());
    claim
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::signed::PublicKey;

    use super::*;

    /// A TPM as far as this file can tell: somebody who knows the private half of a point.
    fn answered(challenge: Challenge, claim: &Claim<'_>, mine: EphemeralPrivateKey) -> Proof {
        let theirs = UnparsedPublicKey::new(&ECDH_P256, challenge.point.as_bytes());
        let claimed = claim.bytes(&challenge.point);
        let answer = agree_ephemeral(mine, &theirs, |secret| answer(secret, &claimed));
        Proof {
            challenge,
            answer: answer.unwrap().unwrap(),
        }
    }

    fn tpm() -> (EphemeralPrivateKey, Point) {
        let key = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
        let point = key.compute_public_key().unwrap();
        let point = Point::new(point.as_ref().try_into().unwrap());
        (key, point)
    }

    fn claim(tpm: Point) -> Claim<'static> {
        Claim {
            session: "ab",
            boot_mac: "52:54:00:00:00:01",
            boot_id: "b",
            key: PublicKey::new([1; 32]),
            tpm,
        }
    }

    #[test]
    fn the_answer_of_the_tpm_holds_for_its_claim_and_for_no_other() {
        let examiner = Examiner::new();
        let (key, point) = tpm();
        let claim = claim(point);
        let proof = answered(examiner.ask(&claim).unwrap(), &claim, key);
        assert!(examiner.holds(&claim, &proof));
        // Overheard, or passed on by who sits between: it is another ramdisk's, another server's, or of another boot.
        for stolen in [
            Claim {
                key: PublicKey::new([2; 32]),
                ..claim
            },
            Claim {
                boot_mac: "52:54:00:00:00:02",
                ..claim
            },
            Claim {
                boot_id: "c",
                ..claim
            },
            Claim {
                session: "cd",
                ..claim
            },
            Claim {
                tpm: tpm().1,
                ..claim
            },
        ] {
            assert!(!examiner.holds(&stolen, &proof), "{stolen:?}");
        }
        assert!(!Examiner::new().holds(&claim, &proof), "of another start");
    }

    #[test]
    fn another_tpm_an_invented_answer_and_an_invented_question_do_not_hold() {
        let examiner = Examiner::new();
        let (_, point) = tpm();
        let claim = claim(point);
        let challenge = examiner.ask(&claim).unwrap();
        let other = answered(challenge, &claim, tpm().0);
        assert!(!examiner.holds(&claim, &other));
        let answer = Digest::new([0; 32]);
        assert!(!examiner.holds(&claim, &Proof { challenge, answer }));
        // Whoever makes the point of the question knows the secret, but has no ticket for it.
        let (mine, my_point) = tpm();
        let challenge = Challenge {
            point: my_point,
            ..challenge
        };
        let theirs = UnparsedPublicKey::new(&ECDH_P256, point.as_bytes());
        let claimed = claim.bytes(&my_point);
        let answer = agree_ephemeral(mine, &theirs, |secret| super::answer(secret, &claimed));
        let answer = answer.unwrap().unwrap();
        assert!(!examiner.holds(&claim, &Proof { challenge, answer }));
    }

    #[test]
    fn what_is_not_on_the_curve_is_asked_nothing() {
        let asked = |point| Examiner::new().ask(&claim(Point::new(point)));
        assert_eq!(asked([4; 65]), None);
        assert_eq!(asked([0; 65]), None);
    }
}
