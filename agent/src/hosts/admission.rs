//! Who is taken as a host, and who is trusted with the private keys of a cluster. Pure.
//!
//! `join` of site.yaml decides the first. The second needs a person's word about this server (named in site.yaml, approved),
//! or that it was there before the first cluster was made.

use firstlight_api::{signed::PublicKey, site::JoinPolicy, status::Problem, tpm::Fingerprint};

use super::ledger::Ledger;

/// What is known of one host in this matter.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub name: &'a str,
    /// It is in `hosts` of site.yaml.
    pub named: bool,
    pub ledger: &'a Ledger,
    /// Of the ramdisk or the system that speaks for it.
    pub key: Option<PublicKey>,
    /// The TPM that it has shown.
    pub tpm: Option<Fingerprint>,
    /// A person wrote a code that is not its code.
    pub wrong_code: bool,
}

/// Why a host may be trusted with a cluster's keys; the reason of its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    Named,
    Approved,
    KnownBefore,
    Newcomer,
}

impl Trust {
    pub fn holds(self) -> bool {
        self != Self::Newcomer
    }

    pub fn reason(self) -> &'static str {
        match self {
            Self::Named => "Named",
            Self::Approved => "Approved",
            Self::KnownBefore => "KnownBefore",
            Self::Newcomer => "Newcomer",
        }
    }
}

impl Candidate<'_> {
    /// Why it is left alone.
    pub fn barred(&self, join: JoinPolicy) -> Option<Problem> {
        match join {
            JoinPolicy::Open => None,
            JoinPolicy::Named if self.named => None,
            JoinPolicy::Named => Some(Problem {
                what: "site.yaml says `join: named`, and does not name this server".to_owned(),
                next: "nothing, if it is not yours; otherwise add its MAC address to `hosts:` of site.yaml and restart the box".to_owned(),
            }),
            JoinPolicy::Approve if self.is_approved() => None,
            JoinPolicy::Approve => Some(self.unapproved()),
        }
    }

    /// The approval is of the key that speaks now, or of its machine's TPM: another machine needs one of its own.
    fn is_approved(&self) -> bool {
        if self.tpm.is_some() && self.tpm == self.ledger.approved_tpm {
            return true;
        }
        let approved = self.ledger.approved.as_deref().and_then(PublicKey::parse);
        approved.is_some() && approved == self.key
    }

    /// Its system was written by the ramdisk that a person approved, and has that one's key.
    fn holds_approved(&self) -> bool {
        let approved = self.ledger.approved.as_ref();
        let deployment = self.ledger.deployment.as_ref();
        approved.is_some() && deployment.is_some_and(|held| held.key.as_ref() == approved)
    }

    fn unapproved(&self) -> Problem {
        let what = if self.wrong_code {
            "the code that a person wrote is not the code of this server"
        } else {
            "it waits for a person who compares its code"
        };
        Problem {
            what: what.to_owned(),
            next: self.how_to_approve(),
        }
    }

    pub fn how_to_approve(&self) -> String {
        format!(
            "read the code on the server's own screen and run `firstlight hosts approve {name} --code CODE` with it, or on the box \
             `kubectl annotate --overwrite bmh {name} firstlight.internal/approve=CODE`",
            name = self.name
        )
    }

    pub fn trust(&self) -> Trust {
        if self.named {
            Trust::Named
        } else if self.is_approved() || self.holds_approved() {
            Trust::Approved
        } else if self.ledger.newcomer {
            Trust::Newcomer
        } else {
            Trust::KnownBefore
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::hosts::ledger::Deployment;

    fn key(number: u8) -> PublicKey {
        PublicKey::new([number; 32])
    }

    fn candidate(ledger: &Ledger, named: bool) -> Candidate<'_> {
        Candidate {
            name: "n1",
            named,
            ledger,
            key: Some(key(1)),
            tpm: None,
            wrong_code: false,
        }
    }

    fn approved(number: u8) -> Ledger {
        Ledger {
            approved: Some(key(number).to_string()),
            newcomer: true,
            ..Ledger::default()
        }
    }

    #[test]
    fn the_table_of_who_is_taken() {
        use JoinPolicy::{Approve, Named, Open};
        let (none, mine, other) = (Ledger::default(), approved(1), approved(2));
        for (join, named, ledger, taken) in [
            (Open, false, &none, true),
            (Named, false, &none, false),
            (Named, false, &mine, false),
            (Named, true, &none, true),
            (Approve, false, &none, false),
            (Approve, true, &none, false),
            (Approve, false, &mine, true),
            (Approve, false, &other, false),
        ] {
            let barred = candidate(ledger, named).barred(join);
            assert_eq!(barred.is_none(), taken, "{join:?} {named} {ledger:?}");
        }
        let by_tpm = Ledger {
            approved_tpm: Some(Fingerprint::new([1; 32])),
            ..approved(2)
        };
        for (tpm, taken) in [(Some(1), true), (Some(2), false), (None, false)] {
            let shown = Candidate {
                tpm: tpm.map(|byte| Fingerprint::new([byte; 32])),
                ..candidate(&by_tpm, false)
            };
            assert_eq!(shown.barred(Approve).is_none(), taken, "{tpm:?}");
        }
        let silent = Candidate {
            key: None,
            ..candidate(&none, false)
        };
        assert!(
            silent.barred(Approve).is_some(),
            "no key is no approved key"
        );
    }

    #[test]
    fn a_wrong_code_is_told_with_the_way_to_the_right_one() {
        let ledger = Ledger::default();
        let wrong = Candidate {
            wrong_code: true,
            ..candidate(&ledger, false)
        };
        let problem = wrong.barred(JoinPolicy::Approve).unwrap();
        assert!(problem.what.contains("is not the code of this server"));
        for way in [
            "firstlight hosts approve n1 --code CODE",
            "kubectl annotate --overwrite bmh n1 firstlight.internal/approve=CODE",
        ] {
            assert!(problem.next.contains(way), "{}", problem.next);
        }
    }

    #[test]
    fn a_newcomer_is_trusted_with_a_clusters_keys_by_a_persons_word_alone() {
        let newcomer = Ledger {
            newcomer: true,
            ..Ledger::default()
        };
        assert_eq!(candidate(&newcomer, false).trust(), Trust::Newcomer);
        assert_eq!(candidate(&newcomer, true).trust(), Trust::Named);
        assert_eq!(candidate(&approved(1), false).trust(), Trust::Approved);
        // Another machine with its MAC address, and the system that the approved one wrote.
        assert_eq!(candidate(&approved(2), false).trust(), Trust::Newcomer);
        let deployment = Some(Deployment {
            key: approved(2).approved,
            ..Deployment::default()
        });
        let written = Ledger {
            deployment,
            ..approved(2)
        };
        assert_eq!(candidate(&written, false).trust(), Trust::Approved);
        assert_eq!(
            candidate(&Ledger::default(), false).trust(),
            Trust::KnownBefore
        );
    }
}
