//! Whether a host was started by what this box serves, where its TPM vouches for that. Pure.
//!
//! The first start that was measured is remembered with the host. From then on no other is believed in its name, until a person
//! approves the code of the machine.

use firstlight_api::{site::MeasuredBoot, status::MeasuredBootStatus};
use firstlight_measured::Booted;

use super::ledger::{Ledger, Measured};

/// Why a start is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It was started by something else; half a sentence.
    Altered(String),
    /// It was measured before, and this is not the same; half a sentence.
    Changed(String),
    /// site.yaml wants it to be measured; half a sentence.
    Unmeasured(String),
}

impl Doubt {
    /// Half a sentence about the machine.
    pub fn lack(&self) -> String {
        match self {
            Self::Altered(what) => {
                format!("was started by something else than what this box serves: {what}")
            }
            Self::Changed(what) => format!("was not started as it was before: {what}"),
            Self::Unmeasured(reason) => format!(
                "does not show how it was started, as `measuredBoot: required` in site.yaml wants it: {reason}"
            ),
        }
    }

    pub fn next(&self, host: &str) -> String {
        match self {
            Self::Altered(_) => format!(
                "restart {host}, which may have started before site.yaml or the stick was changed; if it comes again, find out who else answers \
                 DHCP, TFTP or HTTP on this network; if its own firmware does this, say `measuredBoot: ignore` in site.yaml and restart the box"
            ),
            Self::Changed(_) => format!(
                "restart {host} by its firmware; if the firmware or its settings were changed, read the code on the server's own screen and \
                 run `firstlight hosts approve {host} --code CODE` with it"
            ),
            Self::Unmeasured(_) => format!(
                "switch on the TPM and UEFI in the firmware of {host} and restart it; a server without them needs another `measuredBoot` in \
                 site.yaml"
            ),
        }
    }
}

impl Ledger {
    /// Why `booted` is not believed in this host's name.
    pub fn doubts(&self, booted: Option<&Booted>, wanted: MeasuredBoot) -> Option<Doubt> {
        if wanted == MeasuredBoot::Ignore {
            return None;
        }
        match (&self.measured, booted) {
            (_, Some(Booted::Altered { what })) => Some(Doubt::Altered(what.clone())),
            (Some(pinned), Some(Booted::Measured { key, before, .. })) => {
                if pinned.key != *key {
                    return Some(Doubt::Changed(
                        "another key of a TPM vouches for it".to_owned(),
                    ));
                }
                let new = before.difference(&pinned.before).next()?;
                Some(Doubt::Changed(format!(
                    "its firmware has started another program first ({new})"
                )))
            }
            (None, Some(Booted::Measured { .. })) => None,
            (pinned, unmeasured) => {
                let reason = match unmeasured {
                    Some(Booted::Unmeasured { reason }) => reason.clone(),
                    _ => "it says nothing of it".to_owned(),
                };
                match pinned {
                    Some(_) => Some(Doubt::Changed(reason)),
                    None if wanted == MeasuredBoot::Required => Some(Doubt::Unmeasured(reason)),
                    None => None,
                }
            }
        }
    }

    /// `taken`: as `join` wants it.
    pub fn saw_start(&mut self, booted: &Booted, taken: bool) {
        if let Booted::Measured {
            key, before, quote, ..
        } = booted
            && taken
            && !self.removed
        {
            let measured = self.measured.get_or_insert_with(|| Measured {
                key: *key,
                before: before.clone(),
                quote: None,
            });
            measured.quote = Some(quote.clone());
        }
    }
}

pub fn status(booted: Option<&Booted>) -> MeasuredBootStatus {
    match booted {
        None => MeasuredBootStatus::Unknown,
        Some(Booted::Measured { secure_boot, .. }) => MeasuredBootStatus::Measured {
            secure_boot: *secure_boot,
        },
        Some(Booted::Unmeasured { reason }) => MeasuredBootStatus::Unmeasured {
            reason: reason.clone(),
        },
        Some(Booted::Altered { what }) => MeasuredBootStatus::Altered { what: what.clone() },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use firstlight_api::{
        measured::{Attest, Quote},
        tpm::{Bytes, Digest, Fingerprint, Point},
    };

    use super::*;

    const KEY: Fingerprint = Fingerprint::new([1; 32]);

    fn measured(key: Fingerprint, before: &[u8]) -> Booted {
        Booted::Measured {
            key,
            before: before.iter().map(|byte| Digest::new([*byte; 32])).collect(),
            secure_boot: true,
            quote: Box::new(quote(1)),
        }
    }

    fn quote(start: u8) -> Quote {
        Quote {
            key: Point::new([1; 65]),
            attest: Attest::new(&[start]).unwrap(),
            signature: Bytes::new([1; 64]),
            registers: [Digest::new([start; 32]); 4],
        }
    }

    #[test]
    fn the_table_of_what_is_doubted() {
        use MeasuredBoot::{Compare, Ignore, Required};
        let new = Ledger::default();
        let mut pinned = Ledger::default();
        pinned.saw_start(&measured(KEY, &[5]), true);
        let altered = Booted::Altered { what: "x".into() };
        let unmeasured = Booted::Unmeasured { reason: "x".into() };
        let other = Fingerprint::new([2; 32]);
        for (ledger, booted, wanted, is_believed) in [
            (&new, Some(measured(KEY, &[])), Compare, true),
            (&new, Some(unmeasured.clone()), Compare, true),
            (&new, None, Compare, true),
            (&new, Some(altered.clone()), Compare, false),
            (&new, Some(altered.clone()), Ignore, true),
            (&new, Some(unmeasured.clone()), Required, false),
            (&new, None, Required, false),
            (&new, Some(measured(KEY, &[])), Required, true),
            (&pinned, Some(measured(KEY, &[5])), Compare, true),
            (&pinned, Some(measured(KEY, &[])), Compare, true),
            (&pinned, Some(measured(KEY, &[5, 6])), Compare, false),
            (&pinned, Some(measured(KEY, &[5, 6])), Ignore, true),
            (&pinned, Some(measured(other, &[5])), Compare, false),
            (&pinned, Some(unmeasured.clone()), Compare, false),
            (&pinned, None, Compare, false),
            (&pinned, None, Ignore, true),
        ] {
            let doubt = ledger.doubts(booted.as_ref(), wanted);
            assert_eq!(doubt.is_none(), is_believed, "{booted:?} {wanted:?}");
        }
    }

    #[test]
    fn the_first_measured_start_of_a_taken_host_is_kept_and_the_last_word_of_its_tpm() {
        let mut ledger = Ledger::default();
        ledger.saw_start(&measured(KEY, &[]), false);
        assert_eq!(ledger, Ledger::default());
        ledger.saw_start(&measured(KEY, &[5]), true);
        let mut later = measured(KEY, &[]);
        if let Booted::Measured { quote: last, .. } = &mut later {
            **last = quote(2);
        }
        ledger.saw_start(&later, true);
        let kept = ledger.measured.unwrap();
        assert_eq!(kept.before, BTreeSet::from([Digest::new([5; 32])]));
        assert_eq!(kept.quote.as_deref(), Some(&quote(2)));
        let mut removed = Ledger::removed();
        removed.saw_start(&measured(KEY, &[]), true);
        assert_eq!(removed, Ledger::removed());
    }
}
