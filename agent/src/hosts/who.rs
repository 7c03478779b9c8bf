//! Who speaks for a host: one boot of one ramdisk, known by its key. Pure.
//!
//! A MAC can be said by anybody. The first that says it is bound, and while it is heard nobody else is believed. A key
//! that was followed by another is never believed again.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use firstlight_api::{signed::PublicKey, tpm::Fingerprint};
use firstlight_measured::Booted;

/// Keys of earlier boots that are remembered.
const RETIRED: usize = 16;
/// How long it is told that two machines say they are one host.
const TELL: Duration = Duration::from_mins(5);

/// When silence means that a ramdisk is gone, so that the next one is believed.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// If its firmware has asked for an address since: a ramdisk reports every 30 s.
    pub restarted: Duration,
    pub silent: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            restarted: Duration::from_secs(35),
            silent: Duration::from_secs(100),
        }
    }
}

/// What a signed report says of its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    pub key: PublicKey,
    pub boot_id: &'a str,
    pub address: Ipv4Addr,
    pub sequence: u64,
    /// The TPM that it has shown.
    pub tpm: Option<Fingerprint>,
    pub boot: Option<&'a Booted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was heard before, or belongs to an earlier boot.
    Old,
    /// Another machine speaks for this host.
    Taken,
    /// Nobody speaks for this host yet.
    Unbound,
    /// Its TPM has not answered yet, and this host has one.
    Unproven,
    /// It has not the TPM that this host has.
    Stranger,
    /// It was not started by what this box serves.
    Misled,
}

#[derive(Clone, Debug, Default)]
pub struct Who {
    bound: Option<Bound>,
    retired: VecDeque<PublicKey>,
    rival: Option<Rival>,
    /// When firmware asked for an address the last time.
    firmware: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Bound {
    key: PublicKey,
    boot_id: String,
    address: Ipv4Addr,
    tpm: Option<Fingerprint>,
    heard: Duration,
    /// Sequences of the last report and the last progress.
    report: u64,
    progress: u64,
    /// It said, or was told, that it goes.
    leaves: bool,
}

/// A machine that says the same MAC.
#[derive(Clone, Copy, Debug)]
struct Rival {
    last: Duration,
    /// The bound one was heard after it: both are there.
    both: bool,
}

impl Who {
    pub fn report(
        &mut self,
        claim: &Claim,
        now: Duration,
        patience: Patience,
    ) -> Result<(), Refused> {
        if self.retired.contains(&claim.key) {
            return Err(Refused::Old);
        }
        if let Some(bound) = self.bound.as_mut().filter(|bound| bound.key == claim.key) {
            if bound.boot_id != claim.boot_id || claim.sequence <= bound.report {
                return Err(Refused::Old);
            }
            (bound.address, bound.report) = (claim.address, claim.sequence);
            bound.tpm = claim.tpm.or(bound.tpm);
            self.heard(now);
            return Ok(());
        }
        if self.speaks(now, patience) && !self.is_same_machine(claim) {
            let both = self.rival.is_some_and(|rival| rival.both);
            self.rival = Some(Rival { last: now, both });
            return Err(Refused::Taken);
        }
        self.dismiss();
        self.bound = Some(Bound {
            key: claim.key,
            boot_id: claim.boot_id.to_owned(),
            address: claim.address,
            tpm: claim.tpm,
            heard: now,
            report: claim.sequence,
            progress: 0,
            leaves: false,
        });
        Ok(())
    }

    /// Nobody speaks for this host any more, until somebody reports.
    pub fn dismiss(&mut self) {
        if let Some(before) = self.bound.take() {
            self.retired.push_back(before.key);
            if self.retired.len() > RETIRED {
                self.retired.pop_front();
            }
        }
        self.rival = None;
    }

    pub fn progress(
        &mut self,
        key: PublicKey,
        boot_id: &str,
        sequence: u64,
        now: Duration,
    ) -> Result<(), Refused> {
        let bound = self.bound.as_mut().ok_or(Refused::Unbound)?;
        if bound.key != key || bound.boot_id != boot_id {
            return Err(Refused::Taken);
        }
        if sequence <= bound.progress {
            return Err(Refused::Old);
        }
        bound.progress = sequence;
        self.heard(now);
        Ok(())
    }

    /// Is it the ramdisk that speaks for this host, at the address that it has?
    pub fn is(&self, key: PublicKey, boot_id: &str, peer: IpAddr) -> bool {
        self.bound.as_ref().is_some_and(|bound| {
            bound.key == key && bound.boot_id == boot_id && peer == bound.address
        })
    }

    fn heard(&mut self, now: Duration) {
        if let Some(bound) = &mut self.bound {
            (bound.heard, bound.leaves) = (now, false);
        }
        if let Some(rival) = &mut self.rival {
            rival.both = true;
        }
    }

    /// Is the bound ramdisk there, as far as can be known?
    pub fn speaks(&self, now: Duration, patience: Patience) -> bool {
        let Some(bound) = &self.bound else {
            return false;
        };
        let restarted = self.firmware.is_some_and(|at| at > bound.heard);
        let limit = if restarted {
            patience.restarted
        } else {
            patience.silent
        };
        !bound.leaves && now.saturating_sub(bound.heard) < limit
    }

    /// The bound ramdisk is about to restart its machine.
    pub fn leaves(&mut self) {
        if let Some(bound) = &mut self.bound {
            bound.leaves = true;
        }
    }

    /// Firmware asked for an address in this host's name.
    pub fn firmware_asked(&mut self, now: Duration) {
        self.firmware = Some(now);
    }

    /// A machine has one TPM and runs one ramdisk: the one before has ended.
    fn is_same_machine(&self, claim: &Claim<'_>) -> bool {
        claim.tpm.is_some() && claim.tpm == self.tpm()
    }

    /// The TPM that the bound machine has shown.
    pub fn tpm(&self) -> Option<Fingerprint> {
        self.bound.as_ref().and_then(|bound| bound.tpm)
    }

    pub fn key(&self) -> Option<PublicKey> {
        self.bound.as_ref().map(|bound| bound.key)
    }

    pub fn address(&self) -> Option<Ipv4Addr> {
        self.bound.as_ref().map(|bound| bound.address)
    }

    /// Two machines say that they are this host.
    pub fn is_disputed(&self, now: Duration) -> bool {
        self.rival
            .is_some_and(|rival| rival.both && now.saturating_sub(rival.last) < TELL)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn claim(key: u8, sequence: u64) -> Claim<'static> {
        Claim {
            key: PublicKey::new([key; 32]),
            boot_id: "boot",
            address: [172, 22, 0, 9].into(),
            sequence,
            tpm: None,
            boot: None,
        }
    }

    /// A host and a virtual clock.
    #[derive(Default)]
    struct Story(Who);

    impl Story {
        fn report(&mut self, at: u64, key: u8, sequence: u64) -> Result<(), Refused> {
            let now = Duration::from_secs(at);
            self.0
                .report(&claim(key, sequence), now, Patience::default())
        }

        fn progress(&mut self, at: u64, key: u8, sequence: u64) -> Result<(), Refused> {
            let (key, now) = (PublicKey::new([key; 32]), Duration::from_secs(at));
            self.0.progress(key, "boot", sequence, now)
        }

        fn disputed(&self, at: u64) -> bool {
            self.0.is_disputed(Duration::from_secs(at))
        }
    }

    #[test]
    fn a_second_machine_with_the_same_mac_is_refused_and_told_while_the_first_is_heard() {
        let mut story = Story::default();
        story.report(0, 1, 1).unwrap();
        assert_eq!(story.report(10, 2, 1), Err(Refused::Taken));
        assert!(!story.disputed(10), "the first may have been switched off");
        story.report(30, 1, 2).unwrap();
        assert!(story.disputed(30), "both are there");
        assert_eq!(story.report(40, 2, 2), Err(Refused::Taken));
        assert!(story.disputed(300) && !story.disputed(341));
        assert_eq!(story.progress(41, 2, 1), Err(Refused::Taken));
    }

    #[test]
    fn a_machine_that_restarts_is_believed_soon_and_at_once_when_it_said_goodbye() {
        let mut story = Story::default();
        story.report(0, 1, 1).unwrap();
        story.0.firmware_asked(Duration::from_secs(20));
        assert_eq!(story.report(30, 2, 1), Err(Refused::Taken));
        story.report(35, 2, 2).unwrap();
        assert!(!story.disputed(35));
        story.0.leaves();
        story.report(36, 3, 1).unwrap();
    }

    #[test]
    fn a_firmware_that_asks_in_the_name_of_a_living_ramdisk_changes_nothing() {
        let mut story = Story::default();
        story.report(0, 1, 1).unwrap();
        story.0.firmware_asked(Duration::from_secs(1));
        story.report(30, 1, 2).unwrap();
        assert_eq!(story.report(66, 2, 1), Err(Refused::Taken));
        story.report(130, 2, 2).unwrap();
    }

    #[test]
    fn what_was_overheard_is_nothing() {
        let mut story = Story::default();
        story.report(0, 1, 5).unwrap();
        assert_eq!(story.report(1, 1, 5), Err(Refused::Old));
        assert_eq!(story.report(1, 1, 4), Err(Refused::Old));
        story.progress(2, 1, 1).unwrap();
        assert_eq!(story.progress(3, 1, 1), Err(Refused::Old));
        story.report(200, 2, 1).unwrap();
        // Long after the second has gone, too.
        assert_eq!(story.report(1000, 1, 6), Err(Refused::Old));
    }

    #[test]
    fn the_same_tpm_is_the_same_machine_and_takes_over_at_once() {
        let shown = |key, tpm: Option<u8>| Claim {
            tpm: tpm.map(|byte| Fingerprint::new([byte; 32])),
            boot: None,
            ..claim(key, 1)
        };
        let mut who = Who::default();
        let (now, patience) = (Duration::ZERO, Patience::default());
        let mut report = |key, tpm| who.report(&shown(key, tpm), now, patience);
        report(1, None).unwrap();
        assert_eq!(report(2, None), Err(Refused::Taken), "none is no TPM");
        assert_eq!(report(2, Some(1)), Err(Refused::Taken));
        // It took its time to answer.
        let late = Claim {
            sequence: 2,
            ..shown(1, Some(1))
        };
        who.report(&late, now, patience).unwrap();
        let mut report = |key, tpm| who.report(&shown(key, tpm), now, patience);
        assert_eq!(report(2, Some(2)), Err(Refused::Taken));
        report(3, Some(1)).unwrap();
        assert_eq!(
            report(1, Some(1)),
            Err(Refused::Old),
            "its key is of an earlier boot"
        );
        assert_eq!(
            (who.key(), who.is_disputed(now)),
            (Some(PublicKey::new([3; 32])), false)
        );
    }

    #[test]
    fn progress_of_nobody_is_not_believed() {
        let mut story = Story::default();
        assert_eq!(story.progress(0, 1, 1), Err(Refused::Unbound));
        story.report(0, 1, 1).unwrap();
        let now = Duration::from_secs(1);
        let other = story.0.progress(PublicKey::new([1; 32]), "other", 1, now);
        assert_eq!(other, Err(Refused::Taken));
    }
}
