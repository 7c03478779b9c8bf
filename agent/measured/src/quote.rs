//! A TPM's signature over its registers.

use firstlight_api::{
    measured::{Attest, Evidence, Quote, SELECTION},
    tpm::{Bytes, Digest, Point},
};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use tpm2_protocol::{
    TpmUnmarshal,
    data::{TpmAlgId, TpmsAttest, TpmuAttest},
};

use crate::log;

/// The digest over the registers, if the key has signed it for `qualifying`.
pub fn verified(evidence: &Evidence, qualifying: &Digest) -> Option<[u8; 32]> {
    let attest = signed(&evidence.key, &evidence.attest, &evidence.signature)?;
    (attest.about == qualifying.as_bytes()[..]).then_some(attest.sum)
}

/// Has its key signed these registers? Whose key that is, and what it was asked about, is not in it.
pub fn is_whole(quote: &Quote) -> bool {
    let attest = signed(&quote.key, &quote.attest, &quote.signature);
    attest.is_some_and(|attest| attest.sum == log::sum(&quote.registers))
}

/// What a TPM has signed.
struct Signed {
    /// What it was asked about.
    about: Vec<u8>,
    /// Over the registers.
    sum: [u8; 32],
}

fn signed(key: &Point, attest: &Attest, signature: &Bytes<64>) -> Option<Signed> {
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.as_bytes());
    let attest = attest.as_bytes();
    key.verify(attest, signature.as_bytes()).ok()?;
    // That it begins with the TPM's own magic number, which nothing from outside may that such a key signs, is part of the reading.
    let (attest, rest) = TpmsAttest::unmarshal(attest).ok()?;
    let TpmuAttest::Quote(quote) = &attest.attested else {
        return None;
    };
    let [selection] = &quote.pcr_select[..] else {
        return None;
    };
    let is_ours = rest.is_empty()
        && selection.hash == TpmAlgId::Sha256
        && selection.pcr_select[..] == SELECTION;
    let sum = quote.pcr_digest[..].try_into().ok().filter(|_| is_ours)?;
    let about = attest.extra_data[..].to_vec();
    Some(Signed { about, sum })
}
