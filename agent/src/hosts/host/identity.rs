//! Which machine a host is: what its TPM shows, and a person's word.

use std::time::Duration;

use firstlight_api::{bmh::APPROVE_ANNOTATION, signed::PublicKey, site::JoinPolicy, tpm::Tpm};

use super::Host;
use crate::hosts::{
    tpm::{self, Pretender},
    who::{Claim, Refused},
};

impl Host {
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
        now: Duration,
    ) -> Result<(), Refused> {
        let first = tpm::recognise(self.ledger(), claim, said);
        if first != Err(Refused::Stranger) {
            return first;
        }
        self.pretender = Some(Pretender::new(claim, said, now));
        let object = self.object.as_ref();
        let word = object.and_then(|object| object.metadata.annotations.get(APPROVE_ANNOTATION));
        self.approve(word.cloned().as_deref());
        tpm::recognise(self.ledger(), claim, said)
    }

    /// Binds the host to the TPM that was shown.
    pub fn saw_tpm(&mut self, join: JoinPolicy) {
        let taken = self.candidate().barred(join).is_none();
        if let (Some(key), Some(tpm)) = (self.who.key(), self.who.tpm()) {
            self.memory.note(|ledger| ledger.saw_tpm(key, tpm, taken));
        }
    }
}
