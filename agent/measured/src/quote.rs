//! A TPM's signature over its registers.

use firstlight_api::{
    measured::{Evidence, SELECTION},
    tpm::Digest,
};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use tpm2_protocol::{
    TpmUnmarshal,
    data::{TpmAlgId, TpmsAttest, TpmuAttest},
};

/// The digest over the registers, if the key has signed it for `qualifying`.
pub fn verified(evidence: &Evidence, qualifying: &Digest) -> Option<[u8; 32]> {
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, evidence.key.as_bytes());
    let attest = evidence.attest.as_bytes();
    key.verify(attest, evidence.signature.as_bytes()).ok()?;
    // That it begins with the TPM's own magic number, which nothing from outside may that such a key signs, is part of the reading.
    let (attest, rest) = TpmsAttest::unmarshal(attest).ok()?;
    let TpmuAttest::Quote(quote) = &attest.attested else {
        return None;
    };
    let [selection] = &quote.pcr_select[..] else {
        return None;
    };
    let is_whole = rest.is_empty()
        && attest.extra_data[..] == qualifying.as_bytes()[..]
        && selection.hash == TpmAlgId::Sha256
        && selection.pcr_select[..] == SELECTION;
    quote.pcr_digest[..].try_into().ok().filter(|_| is_whole)
}
