//! Which machine a host is, where it has a TPM: that outlives its disk and the keys of its ramdisks. Pure.
//!
//! The first TPM that a host shows once it is taken is pinned in its ledger. From then on nobody is believed in its name who
//! cannot show that one, until a person approves the code of another machine.

use std::{net::Ipv4Addr, time::Duration};

use firstlight_api::{
    signed::PublicKey,
    status::{Problem, TpmStatus},
    tpm::{Fingerprint, Tpm},
};
use firstlight_netboot::MacAddr;

use super::{
    ledger::Ledger,
    measured::Doubt,
    who::{Claim, Refused},
};

/// How long a machine that was not believed is told of.
const TELL: Duration = Duration::from_mins(5);

/// A machine that says it is a host, and cannot show the host's TPM or how it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pretender {
    pub key: PublicKey,
    /// What it has shown instead.
    pub tpm: Option<Fingerprint>,
    address: Ipv4Addr,
    said: Tpm,
    /// It has the host's TPM, but its start is not believed.
    start: Option<Doubt>,
    heard: Duration,
}

/// Is it the machine that the ledger knows?
pub fn recognise(ledger: &Ledger, claim: &Claim<'_>, said: &Tpm) -> Result<(), Refused> {
    match said {
        _ if ledger.takes(claim.tpm) => Ok(()),
        Tpm::Asked => Err(Refused::Unproven),
        _ => Err(Refused::Stranger),
    }
}

impl Ledger {
    /// Is it a machine that has shown `tpm`? Its ramdisk's key does not matter: installed systems have it on their disks.
    pub fn takes(&self, tpm: Option<Fingerprint>) -> bool {
        self.tpm.is_none() || self.tpm == tpm
    }

    /// `tpm` was shown by the machine that speaks for this host with `key`; `taken`: as `join` wants it.
    pub fn saw_tpm(&mut self, key: PublicKey, tpm: Fingerprint, taken: bool) {
        if taken && !self.removed {
            self.tpm.get_or_insert(tpm);
        }
        if self.approved.as_deref() == Some(key.to_string().as_str()) {
            self.approved_tpm = Some(tpm);
        }
    }

    /// A person has compared the code of `key`, whose machine has shown `tpm`. That machine is this host from now on.
    pub fn approve(&mut self, key: PublicKey, tpm: Option<Fingerprint>) {
        let key = Some(key.to_string());
        // The annotation stays there: seen again, it says no more than the first time, whoever has the key by now.
        if self.approved != key || tpm.is_some() {
            (self.tpm, self.approved_tpm) = (tpm, tpm);
        }
        if self.approved != key {
            self.measured = None;
        }
        self.approved = key;
    }
}

impl Pretender {
    pub fn new(claim: &Claim<'_>, said: &Tpm, start: Option<Doubt>, now: Duration) -> Self {
        Self {
            start,
            key: claim.key,
            tpm: claim.tpm,
            address: claim.address,
            said: said.clone(),
            heard: now,
        }
    }

    pub fn is_told(&self, now: Duration) -> bool {
        now.saturating_sub(self.heard) < TELL
    }

    pub fn problem(&self, host: &str, mac: MacAddr) -> Problem {
        let lack = match (&self.tpm, &self.said) {
            (Some(_), _) => "has another TPM".to_owned(),
            (None, Tpm::Absent) => "has no TPM, or firmware hides it".to_owned(),
            (None, Tpm::Silent { reason }) => format!("has a TPM that does not answer ({reason})"),
            (None, Tpm::Unsaid) => "runs a ramdisk that does not know of TPMs".to_owned(),
            (None, Tpm::Asked | Tpm::Key { .. }) => "has not shown its TPM".to_owned(),
        };
        let (lack, next) = match &self.start {
            Some(doubt) => (doubt.lack(), doubt.next(host)),
            None => (
                lack,
                format!(
                    "if the mainboard or the TPM of {host} was replaced, read the code on its own screen and run `firstlight hosts \
                     approve {host} --code CODE` with it; if its TPM was switched off, switch it on; otherwise find the machine: it \
                     has a copied MAC address, or somebody plays this server"
                ),
            ),
        };
        // Its code is not told: who means it reads it on the server's own screen.
        Problem {
            what: format!(
                "a machine at {} says that it is {host} ({mac}), but {lack}; it is not believed",
                self.address
            ),
            next,
        }
    }
}

/// What people read of the TPM of the machine that is believed.
pub fn status(ledger: &Ledger, shown: Option<Fingerprint>, said: &Tpm) -> TpmStatus {
    match (shown, said) {
        (Some(_), _) if ledger.tpm == shown => TpmStatus::Bound,
        (Some(_), _) => TpmStatus::Shown,
        (None, Tpm::Unsaid) => TpmStatus::Unknown,
        (None, Tpm::Absent) => TpmStatus::Absent,
        (None, Tpm::Asked | Tpm::Key { .. }) => TpmStatus::Asked,
        (None, Tpm::Silent { reason }) => TpmStatus::Silent {
            reason: reason.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ONE: Fingerprint = Fingerprint::new([1; 32]);
    const OTHER: Fingerprint = Fingerprint::new([2; 32]);
    const KEY: PublicKey = PublicKey::new([7; 32]);

    fn claim(tpm: Option<Fingerprint>) -> Claim<'static> {
        Claim {
            key: KEY,
            boot_id: "b",
            address: [172, 22, 0, 9].into(),
            sequence: 1,
            tpm,
            boot: None,
        }
    }

    fn silent() -> Tpm {
        Tpm::Silent {
            reason: "no answer for 20 s".into(),
        }
    }

    #[test]
    fn the_table_of_who_is_recognised() {
        let pinned = Ledger {
            tpm: Some(ONE),
            ..Ledger::default()
        };
        let mut replaced = pinned.clone();
        replaced.approve(KEY, None);
        let mut approved = pinned.clone();
        approved.approve(KEY, Some(ONE));
        let stranger = Err(Refused::Stranger);
        for (ledger, shown, said, verdict) in [
            (&Ledger::default(), None, Tpm::Absent, Ok(())),
            (&Ledger::default(), Some(OTHER), Tpm::Unsaid, Ok(())),
            (&pinned, Some(ONE), Tpm::Unsaid, Ok(())),
            (&pinned, Some(OTHER), Tpm::Unsaid, stranger),
            (&pinned, None, Tpm::Absent, stranger),
            (&pinned, None, Tpm::Unsaid, stranger),
            (&pinned, None, silent(), stranger),
            (&pinned, None, Tpm::Asked, Err(Refused::Unproven)),
            (&replaced, None, Tpm::Absent, Ok(())),
            (&approved, None, Tpm::Absent, stranger),
        ] {
            let found = recognise(ledger, &claim(shown), &said);
            assert_eq!(found, verdict, "{ledger:?} {shown:?} {said:?}");
        }
    }

    #[test]
    fn the_first_tpm_of_a_taken_host_is_pinned_and_no_other_takes_its_place() {
        let mut ledger = Ledger::default();
        ledger.saw_tpm(KEY, ONE, false);
        assert_eq!(
            ledger,
            Ledger::default(),
            "nothing is kept of who only waits"
        );
        ledger.saw_tpm(KEY, ONE, true);
        ledger.saw_tpm(KEY, OTHER, true);
        assert_eq!(ledger.tpm, Some(ONE));
        let mut removed = Ledger::removed();
        removed.saw_tpm(KEY, ONE, true);
        assert_eq!(removed, Ledger::removed());
    }

    #[test]
    fn an_approval_moves_to_the_tpm_of_the_machine_that_was_meant() {
        let (mut early, mut late) = (Ledger::default(), Ledger::default());
        early.approve(KEY, None);
        early.saw_tpm(KEY, ONE, true);
        late.saw_tpm(KEY, ONE, true);
        late.approve(KEY, Some(ONE));
        for ledger in [early, late] {
            assert_eq!((ledger.tpm, ledger.approved_tpm), (Some(ONE), Some(ONE)));
            // The same annotation, seen while the TPM is silent.
            let mut again = ledger.clone();
            again.approve(KEY, None);
            assert_eq!(again, ledger);
            // A person's word about another machine.
            again.approve(PublicKey::new([8; 32]), Some(OTHER));
            assert_eq!((again.tpm, again.approved_tpm), (Some(OTHER), Some(OTHER)));
        }
        // Of another machine than the one that was approved.
        let mut other = Ledger::default();
        other.approve(PublicKey::new([8; 32]), None);
        other.saw_tpm(KEY, ONE, true);
        assert_eq!(other.approved_tpm, None);
    }

    #[test]
    fn who_is_not_believed_is_told_with_the_way_out() {
        let mac = MacAddr::new([0x52, 0x54, 0, 0, 0, 1]).unwrap();
        let told = |tpm, said: Tpm| {
            let pretender = Pretender::new(&claim(tpm), &said, None, Duration::ZERO);
            assert!(pretender.is_told(Duration::from_mins(4)));
            assert!(!pretender.is_told(Duration::from_mins(5)));
            let problem = pretender.problem("n1", mac);
            assert!(problem.what.contains("at 172.22.0.9"), "{}", problem.what);
            assert!(!problem.what.contains(&KEY.code()), "it would be copied");
            assert!(problem.next.contains("hosts approve n1 --code CODE"));
            problem.what
        };
        assert!(told(Some(OTHER), Tpm::Unsaid).contains("another TPM"));
        assert!(told(None, Tpm::Absent).contains("has no TPM"));
        assert!(told(None, silent()).contains("no answer for 20 s"));
    }
}
