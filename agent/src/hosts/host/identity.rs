//! Which machine a host is: what its TPM shows, and a person's word.

use std::time::Duration;

use firstlight_api::{
    bmh::{APPROVE_ANNOTATION, BareMetalHost},
    capm3::{CONTROL_PLANE_ANNOTATION, ROLE_LABEL},
    signed::PublicKey,
    site::{HostRole, InstallPolicy, JoinPolicy, MeasuredBoot},
    status::Problem,
    tpm::Tpm,
};

use firstlight_measured::Booted;

use super::{Host, Part, PolicyOf};
use crate::hosts::{
    admission::Candidate,
    tpm::{self, Pretender},
    who::{Claim, Refused},
};

impl Host {
    /// Whose signature is this host's: of its ramdisk that is there, and of the system that it has.
    pub fn keys(&self) -> Vec<PublicKey> {
        let system = self.ledger().deployment.as_ref();
        let system = system.and_then(|deployment| PublicKey::parse(deployment.key.as_deref()?));
        let ramdisk = self.who.key();
        let others = system.filter(|key| ramdisk != Some(*key));
        ramdisk.into_iter().chain(others).collect()
    }

    /// What a person wrote into the object's annotation.
    pub fn approve(&mut self, code: Option<&str>) {
        let bound = self.who.key().map(|key| (key, self.who.tpm()));
        let pretender = self.pretender.as_ref().map(|other| (other.key, other.tpm));
        let fits = |code| move |(key, _): &(PublicKey, _)| key.has_code(code);
        let meant = code.and_then(|code| bound.into_iter().chain(pretender).find(fits(code)));
        self.rules.wrong_code = code.is_some() && bound.is_some() && meant.is_none();
        let Some((key, tpm)) = meant else { return };
        self.memory.note(|ledger| ledger.approve(key, tpm));
        let ledger = self.memory.known();
        let is_host = |other: &mut Pretender| other.key == key && ledger.takes(other.tpm);
        if self.pretender.take_if(is_host).is_some() {
            self.who.dismiss();
        }
    }

    /// Is it the machine that had this host's TPM? Who is not is told of, and may have a person's word already.
    pub fn recognise(
        &mut self,
        claim: &Claim<'_>,
        said: &Tpm,
        wanted: MeasuredBoot,
        now: Duration,
    ) -> Result<(), Refused> {
        let first = self.tell_if_refused(claim, said, wanted, now);
        if matches!(first, Ok(()) | Err(Refused::Unproven)) {
            return first;
        }
        let object = self.object.as_ref();
        let word = object.and_then(|object| object.metadata.annotations.get(APPROVE_ANNOTATION));
        self.approve(word.cloned().as_deref());
        self.tell_if_refused(claim, said, wanted, now)
    }

    fn tell_if_refused(
        &mut self,
        claim: &Claim<'_>,
        said: &Tpm,
        wanted: MeasuredBoot,
        now: Duration,
    ) -> Result<(), Refused> {
        let start = match self.believes(claim, said, wanted) {
            Err(Refused::Stranger) => None,
            Err(Refused::Misled) => self.ledger().doubts(claim.boot, wanted),
            other => return other,
        };
        let why = if start.is_some() {
            Refused::Misled
        } else {
            Refused::Stranger
        };
        self.pretender = Some(Pretender::new(claim, said, start, now));
        Err(why)
    }

    fn believes(&self, claim: &Claim<'_>, said: &Tpm, wanted: MeasuredBoot) -> Result<(), Refused> {
        tpm::recognise(self.ledger(), claim, said)?;
        match self.ledger().doubts(claim.boot, wanted) {
            None => Ok(()),
            Some(_) => Err(Refused::Misled),
        }
    }

    /// Binds the host to the TPM that was shown, and to how it was started.
    pub fn saw_tpm(&mut self, join: JoinPolicy, booted: Option<Booted>) {
        let taken = self.candidate().barred(join).is_none();
        if let (Some(key), Some(tpm)) = (self.who.key(), self.who.tpm()) {
            self.memory.note(|ledger| ledger.saw_tpm(key, tpm, taken));
        }
        if let Some(booted) = &booted {
            self.memory.note(|ledger| ledger.saw_start(booted, taken));
        }
        self.booted = booted;
    }

    /// Whether it is the server that it seems to be, whatever `join` says.
    pub(super) fn doubt(&self) -> Option<Problem> {
        if self.rules.twin {
            return Some(Problem {
                what: "another BareMetalHost object is about this server, too".to_owned(),
                next: "delete the one that is wrong".to_owned(),
            });
        }
        let part = self.ramdisk.part_of_other()?;
        let is_given_up =
            self.rules.policy_of == PolicyOf::ThisHost && self.rules.policy == InstallPolicy::Wipe;
        let (name, called) = (&self.name, &self.called);
        match part {
            _ if self.ledger().deployment.is_some() => None,
            Part::Card { of } => Some(Problem {
                what: format!(
                    "this machine is the server {of}, which has a system of this box, started from another network card"
                ),
                next: format!(
                    "start it from the card of {of}; if that card is gone for good, delete {of} (`kubectl delete bmh {of}`) when nothing on its disks matters"
                ),
            }),
            Part::Disk { .. } if is_given_up => None,
            Part::Disk { of, disk } => Some(Problem {
                what: format!("its disk {disk} holds the system that this box installed on {of}"),
                next: format!(
                    "put the disk back into {of}; if nothing on the disks of {name} matters, run `kubectl annotate bmh {called} \
                     firstlight.internal/install=wipe`"
                ),
            }),
        }
    }

    /// A control plane was given to this host, and it is not, or not any more, one that is trusted with the keys.
    pub(super) fn untrusted(&self) -> Option<Problem> {
        let annotations = &self.object.as_ref()?.metadata.annotations;
        annotations.get(CONTROL_PLANE_ANNOTATION)?;
        let candidate = self.candidate();
        let lack = candidate.trust().lack()?;
        Some(Problem {
            what: format!(
                "it is to become a control plane and gets no keys of the cluster: {lack}"
            ),
            next: candidate.how_to_approve(),
        })
    }

    /// While no ramdisk speaks: the key of the system on its disk.
    fn system_key(&self) -> Option<&str> {
        let held = self.ledger().deployment.as_ref();
        let held = held.filter(|_| self.ramdisk.current().is_none());
        held?.key.as_deref()
    }

    pub fn candidate(&self) -> Candidate<'_> {
        Candidate {
            name: &self.name,
            called: &self.called,
            named: self.rules.named,
            ledger: self.memory.known(),
            key: self.who.key(),
            system: self.system_key(),
            tpm: self.who.tpm(),
            wrong_code: self.rules.wrong_code,
            is_chosen: self.object.as_deref().is_some_and(is_chosen),
        }
    }
}

/// A person gave it the role of a control plane.
fn is_chosen(object: &BareMetalHost) -> bool {
    let role = object.metadata.labels.get(ROLE_LABEL);
    role.and_then(|role| role.parse().ok()) == Some(HostRole::ControlPlane)
}
