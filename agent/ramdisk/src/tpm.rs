//! The TPM 2.0 commands that show which machine this is, and how it was started (TCG TPM 2.0 Library, part 3). `tpm2-protocol` writes and
//! reads their bytes; here is which ones, over anything that can be written to and read from.
//!
//! The keys are made of the TPM's endorsement seed and of a template: the same at each start, whatever is on the disks, and
//! also after the TPM's owner was cleared. Nothing is stored in the TPM, and their private halves never leave it.
//! Must not: choose a device, wait, or try again (`ipa::prover`).

use std::io::{self, Read, Write};

use firstlight_api::measured::{Attest, SELECTION};
use firstlight_api::tpm::{Bytes, Digest, Point};
use thiserror::Error;
use tpm2_protocol::basic::{TpmHandle, TpmUint32};
use tpm2_protocol::constant::TPM_MAX_COMMAND_SIZE;
use tpm2_protocol::data::{
    Tpm2bAuth, Tpm2bData, Tpm2bDigest, Tpm2bEccParameter, Tpm2bEccPoint, Tpm2bNonce, Tpm2bPublic,
    TpmAlgId, TpmEccCurve, TpmRc, TpmRcBase, TpmRh, TpmSt, TpmaObject, TpmaSession,
    TpmlDigestValues, TpmlPcrSelection, TpmsAuthCommand, TpmsEccParms, TpmsEccPoint, TpmsPcrSelect,
    TpmsPcrSelection, TpmsSchemeHash, TpmtEccScheme, TpmtHa, TpmtPublic, TpmtSigScheme,
    TpmuAsymScheme, TpmuHa, TpmuPublicId, TpmuPublicParms, TpmuSignature,
};
use tpm2_protocol::frame::{
    TpmCreatePrimaryCommand, TpmCreatePrimaryResponse, TpmEcdhZGenCommand, TpmEcdhZGenResponse,
    TpmFlushContextCommand, TpmFlushContextResponse, TpmFrame, TpmPcrExtendCommand,
    TpmPcrExtendResponse, TpmQuoteCommand, TpmQuoteResponse, TpmResponse, TpmUnmarshalBody,
    tpm_marshal_command,
};
use tpm2_protocol::{TpmError, TpmMarshal as _, TpmWriter};

/// Of a coordinate on P-256.
const COORDINATE: usize = 32;
const HEADER: usize = 10;

#[derive(Debug, Error)]
pub enum Refusal {
    #[error("it cannot be spoken to: {0}")]
    Io(#[from] io::Error),
    #[error("it refuses: {0}")]
    Code(TpmRc),
    #[error("its answer makes no sense: {0}")]
    Nonsense(TpmError),
    #[error("its answer is longer than {TPM_MAX_COMMAND_SIZE} bytes")]
    TooLong,
    #[error("its key is not on the curve P-256")]
    OtherKey,
}

impl From<TpmError> for Refusal {
    fn from(error: TpmError) -> Self {
        Self::Nonsense(error)
    }
}

/// The way to a TPM: one command is written, its answer is read.
pub trait Channel: Read + Write + Send {}
impl<T: Read + Write + Send> Channel for T {}

/// The public half of the machine's key.
pub fn public(tpm: &mut dyn Channel) -> Result<Point, Refusal> {
    let (key, point) = load(tpm, machine_key())?;
    unload(tpm, key)?;
    Ok(point)
}

/// The X coordinate that the machine's key and `theirs` have in common (ECDH).
pub fn agree(tpm: &mut dyn Channel, theirs: &Point) -> Result<[u8; COORDINATE], Refusal> {
    let (key, _) = load(tpm, machine_key())?;
    let agreed = multiply(tpm, key, theirs);
    unload(tpm, key)?;
    agreed
}

/// The TPM's word for what is in its registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote {
    /// Public half of the key that signs.
    pub key: Point,
    pub attest: Attest,
    /// r, s
    pub signature: Bytes<64>,
}

/// `qualifying` becomes a part of it.
pub fn quote(tpm: &mut dyn Channel, qualifying: &Digest) -> Result<Quote, Refusal> {
    let (handle, key) = load(tpm, quote_key())?;
    let signed = sign(tpm, handle, qualifying);
    unload(tpm, handle)?;
    let answer = signed?;
    let mut bytes = [0; TPM_MAX_COMMAND_SIZE];
    let mut writer = TpmWriter::new(&mut bytes);
    answer.quoted.inner.marshal(&mut writer)?;
    let TpmuSignature::Ecdsa(numbers) = &answer.signature.signature else {
        return Err(Refusal::OtherKey);
    };
    let mut signature = [0; 2 * COORDINATE];
    signature[..COORDINATE].copy_from_slice(&coordinate(&numbers.signature_r)?);
    signature[COORDINATE..].copy_from_slice(&coordinate(&numbers.signature_s)?);
    Ok(Quote {
        key,
        attest: Attest::new(writer.as_bytes()).ok_or(Refusal::TooLong)?,
        signature: Bytes::new(signature),
    })
}

fn sign(
    tpm: &mut dyn Channel,
    key: TpmHandle,
    qualifying: &Digest,
) -> Result<TpmQuoteResponse, Refusal> {
    let selection = TpmsPcrSelection {
        hash: TpmAlgId::Sha256,
        pcr_select: TpmsPcrSelect::try_from(&SELECTION[..])?,
    };
    let mut pcr_select = TpmlPcrSelection::new();
    pcr_select.try_push(selection)?;
    let command = TpmQuoteCommand {
        handles: [key],
        qualifying_data: Tpm2bData::try_from(&qualifying.as_bytes()[..])?,
        // The key's own.
        in_scheme: TpmtSigScheme::default(),
        pcr_select,
    };
    run(tpm, &command, &[no_password()])
}

/// What was quoted before is not true any more.
pub fn extend(tpm: &mut dyn Channel, pcr: u8, digest: [u8; 32]) -> Result<(), Refusal> {
    let mut digests = TpmlDigestValues::new();
    digests.try_push(TpmtHa {
        hash_alg: TpmAlgId::Sha256,
        digest: TpmuHa::Digest(digest[..].try_into()?),
    })?;
    let command = TpmPcrExtendCommand {
        handles: [TpmUint32::new(u32::from(pcr))],
        digests,
    };
    run::<TpmPcrExtendResponse>(tpm, &command, &[no_password()]).map(drop)
}

fn load(tpm: &mut dyn Channel, template: TpmtPublic) -> Result<(TpmHandle, Point), Refusal> {
    let command = TpmCreatePrimaryCommand {
        handles: [TpmUint32::new(TpmRh::Endorsement.value())],
        in_public: Tpm2bPublic { inner: template },
        ..TpmCreatePrimaryCommand::default()
    };
    let answer: TpmCreatePrimaryResponse = run(tpm, &command, &[no_password()])?;
    let TpmuPublicId::Ecc(point) = &answer.out_public.inner.unique else {
        return Err(Refusal::OtherKey);
    };
    let mut bytes = [4; 2 * COORDINATE + 1];
    bytes[1..=COORDINATE].copy_from_slice(&coordinate(&point.x)?);
    bytes[COORDINATE + 1..].copy_from_slice(&coordinate(&point.y)?);
    Ok((answer.handles[0], Point::new(bytes)))
}

fn multiply(
    tpm: &mut dyn Channel,
    key: TpmHandle,
    theirs: &Point,
) -> Result<[u8; COORDINATE], Refusal> {
    let (x, y) = theirs.as_bytes()[1..].split_at(COORDINATE);
    let point = TpmsEccPoint {
        x: Tpm2bEccParameter::try_from(x)?,
        y: Tpm2bEccParameter::try_from(y)?,
    };
    let command = TpmEcdhZGenCommand {
        handles: [key],
        in_point: Tpm2bEccPoint { inner: point },
    };
    let answer: TpmEcdhZGenResponse = run(tpm, &command, &[no_password()])?;
    coordinate(&answer.out_point.inner.x)
}

/// The kernel's resource manager would forget it by itself; a TPM without one has room for three keys.
fn unload(tpm: &mut dyn Channel, key: TpmHandle) -> Result<(), Refusal> {
    let command = TpmFlushContextCommand {
        handles: [],
        flush_handle: key,
    };
    run::<TpmFlushContextResponse>(tpm, &command, &[]).map(drop)
}

/// As the standard's endorsement key but not restricted, or it could not agree on secrets with strangers. Changing a bit
/// here makes another key on every machine.
fn machine_key() -> TpmtPublic {
    template(TpmaObject::DECRYPT, TpmtEccScheme::default())
}

/// Restricted: it signs what the TPM says of itself, and nothing that looks like it and was made elsewhere.
fn quote_key() -> TpmtPublic {
    let hash = TpmsSchemeHash {
        hash_alg: TpmAlgId::Sha256,
    };
    let scheme = TpmtEccScheme {
        scheme: TpmAlgId::Ecdsa,
        details: TpmuAsymScheme::Hash(hash),
    };
    template(TpmaObject::SIGN_ENCRYPT | TpmaObject::RESTRICTED, scheme)
}

fn template(purpose: TpmaObject, scheme: TpmtEccScheme) -> TpmtPublic {
    TpmtPublic {
        object_type: TpmAlgId::Ecc,
        name_alg: TpmAlgId::Sha256,
        object_attributes: TpmaObject::FIXED_TPM
            | TpmaObject::FIXED_PARENT
            | TpmaObject::SENSITIVE_DATA_ORIGIN
            | TpmaObject::USER_WITH_AUTH
            | TpmaObject::NO_DA
            | purpose,
        auth_policy: Tpm2bDigest::new(),
        parameters: TpmuPublicParms::Ecc(TpmsEccParms {
            curve_id: TpmEccCurve::NistP256,
            scheme,
            ..TpmsEccParms::default()
        }),
        unique: TpmuPublicId::Ecc(TpmsEccPoint::default()),
    }
}

fn no_password() -> TpmsAuthCommand {
    TpmsAuthCommand {
        session_handle: TpmUint32::new(TpmRh::Pw.value()),
        nonce: Tpm2bNonce::new(),
        session_attributes: TpmaSession::CONTINUE_SESSION,
        hmac: Tpm2bAuth::new(),
    }
}

/// Some TPMs leave zeros at the beginning away.
fn coordinate(bytes: &[u8]) -> Result<[u8; COORDINATE], Refusal> {
    let mut whole = [0; COORDINATE];
    let start = COORDINATE.checked_sub(bytes.len());
    whole[start.ok_or(Refusal::OtherKey)?..].copy_from_slice(bytes);
    Ok(whole)
}

fn run<A: TpmUnmarshalBody>(
    tpm: &mut dyn Channel,
    command: &impl TpmFrame,
    sessions: &[TpmsAuthCommand],
) -> Result<A, Refusal> {
    let tag = match sessions {
        [] => TpmSt::NoSessions,
        _ => TpmSt::Sessions,
    };
    let mut buffer = [0; TPM_MAX_COMMAND_SIZE];
    let mut writer = TpmWriter::new(&mut buffer);
    tpm_marshal_command(command, tag, sessions, &mut writer)?;
    // In one piece: the kernel takes what is written at once for a command.
    tpm.write_all(writer.as_bytes())?;
    read(&receive(tpm)?)
}

fn read<A: TpmUnmarshalBody>(answer: &[u8]) -> Result<A, Refusal> {
    let answer = TpmResponse::cast(answer)?;
    match answer.rc()? {
        TpmRc::Fmt0(TpmRcBase::Success) => Ok(answer.unmarshal()?),
        code => Err(Refusal::Code(code)),
    }
}

/// One answer. The kernel gives it whole, a socket may give it in pieces.
fn receive(tpm: &mut dyn Channel) -> Result<Vec<u8>, Refusal> {
    let mut answer = vec![0; TPM_MAX_COMMAND_SIZE];
    let mut have = 0;
    let mut length = HEADER;
    while have < length {
        have += match tpm.read(&mut answer[have..])? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            more => more,
        };
        if let Some(size) = answer[..have].get(2..6) {
            let size = u32::from_be_bytes([size[0], size[1], size[2], size[3]]);
            length = HEADER.max(usize::try_from(size).unwrap_or(usize::MAX));
        }
        if length > TPM_MAX_COMMAND_SIZE {
            return Err(Refusal::TooLong);
        }
    }
    answer.truncate(have);
    Ok(answer)
}

#[cfg(test)]
pub mod tests;
