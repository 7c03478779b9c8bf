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
    /// As `kubectl` is told which host is meant.
    pub called: &'a str,
    /// It is in `hosts` of site.yaml.
    pub named: bool,
    pub ledger: &'a Ledger,
    /// Of the ramdisk that spoke for it last.
    pub key: Option<PublicKey>,
    /// Of the ramdisk that wrote its system, once that speaks for it: the ramdisk has ended.
    pub system: Option<&'a str>,
    /// The TPM that it has shown.
    pub tpm: Option<Fingerprint>,
    /// A person wrote a code that is not its code.
    pub wrong_code: bool,
    /// A person gave it the role of a control plane.
    pub is_chosen: bool,
}

/// Why a host may be trusted with a cluster's keys; the reason of its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    Named,
    Approved,
    KnownBefore,
    Newcomer,
    /// It was known before, or another machine is that says it has its MAC address.
    Unproven,
}

impl Trust {
    pub fn holds(self) -> bool {
        self.lack().is_none()
    }

    /// Why it gets no cluster's keys.
    pub fn lack(self) -> Option<&'static str> {
        match self {
            Self::Newcomer => Some("it showed up after the first cluster was made"),
            Self::Unproven => Some(
                "it has the MAC address of a server that was there before the first cluster, and nothing that shows that it is that one: no TPM, and no disk of that one",
            ),
            Self::Named | Self::Approved | Self::KnownBefore => None,
        }
    }

    pub fn reason(self) -> &'static str {
        match self {
            Self::Named => "Named",
            Self::Approved => "Approved",
            Self::KnownBefore => "KnownBefore",
            Self::Newcomer => "Newcomer",
            Self::Unproven => "Unproven",
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

    /// Is it the machine that was there before the first cluster?
    fn was_there(&self) -> bool {
        let Some(known) = self.ledger.known.as_deref() else {
            return true;
        };
        let speaks = self.key.map(|key| key.to_string());
        // Nobody has spoken since the box started: nothing is written, and no data go out, before somebody does.
        let is_silent = self.key.is_none() && self.system.is_none();
        is_silent || self.system == Some(known) || speaks.as_deref() == Some(known)
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
             `kubectl annotate --overwrite bmh {called} firstlight.internal/approve=CODE`",
            name = self.name,
            called = self.called
        )
    }

    pub fn trust(&self) -> Trust {
        let approved = self.ledger.approved.as_deref();
        let wrote_it = approved.is_some() && approved == self.system;
        if self.named {
            Trust::Named
        } else if self.is_chosen || self.is_approved() || wrote_it {
            Trust::Approved
        } else if self.ledger.newcomer {
            Trust::Newcomer
        } else if self.was_there() {
            Trust::KnownBefore
        } else {
            Trust::Unproven
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::new([number; 32])
    }

    fn candidate(ledger: &Ledger, named: bool) -> Candidate<'_> {
        Candidate {
            name: "n1",
            called: "n1",
            named,
            ledger,
            key: Some(key(1)),
            system: None,
            tpm: None,
            wrong_code: false,
            is_chosen: false,
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
        let wrote_it = approved(2);
        let runs = Candidate {
            system: wrote_it.approved.as_deref(),
            ..candidate(&wrote_it, false)
        };
        assert_eq!(runs.trust(), Trust::Approved);
        let chosen = Candidate {
            is_chosen: true,
            ..candidate(&newcomer, false)
        };
        assert_eq!(chosen.trust(), Trust::Approved);
    }

    #[test]
    fn who_was_there_before_is_known_by_its_key_and_by_what_that_one_wrote() {
        // With the key 1 its ramdisk spoke.
        for (known, system, trust) in [
            (Some(1), None, Trust::KnownBefore),
            (Some(2), None, Trust::Unproven),
            (Some(2), Some(2), Trust::KnownBefore),
            (Some(2), Some(3), Trust::Unproven),
            (None, None, Trust::KnownBefore),
        ] {
            let text = |number: u8| key(number).to_string();
            let ledger = Ledger {
                known: known.map(text),
                ..Ledger::default()
            };
            let system = system.map(text);
            let candidate = Candidate {
                system: system.as_deref(),
                ..candidate(&ledger, false)
            };
            assert_eq!(candidate.trust(), trust, "{known:?} {system:?}");
            let silent = Candidate {
                key: None,
                system: None,
                ..candidate
            };
            assert_eq!(silent.trust(), Trust::KnownBefore);
        }
    }

    #[test]
    fn a_key_is_followed_by_who_has_it_or_the_machines_tpm() {
        let of = |number: u8| Some(key(number).to_string());
        let before = Ledger {
            known: of(1),
            approved: of(1),
            ..Ledger::default()
        };
        let bound = Ledger {
            tpm: Some(Fingerprint::new([1; 32])),
            ..before.clone()
        };
        let newcomer = Ledger {
            newcomer: true,
            ..Ledger::default()
        };
        for (ledger, follows, raised, known, approved) in [
            (&before, &[key(1)][..], true, of(2), of(2)),
            (&before, &[key(3)], true, of(1), of(1)),
            (&before, &[], true, of(1), of(1)),
            (&before, &[], false, of(2), of(1)),
            (&bound, &[], true, of(2), of(1)),
            (&Ledger::default(), &[], true, None, None),
            (&newcomer, &[key(1)], false, None, None),
        ] {
            let mut after = ledger.clone();
            after.met(key(2), follows, raised);
            assert_eq!(
                (after.known, after.approved),
                (known, approved),
                "{ledger:?}"
            );
        }
    }
}
