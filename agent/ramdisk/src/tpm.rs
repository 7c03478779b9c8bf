//! The three TPM 2.0 commands that show which machine this is (TCG TPM 2.0 Library, part 3). `tpm2-protocol` writes and reads
//! their bytes; here is which ones, over anything that can be written to and read from.
//!
//! The key is made of the TPM's endorsement seed and of [`template`]: the same at each start, whatever is on the disks, and
//! also after the TPM's owner was cleared. Nothing is stored in the TPM, and its private half never leaves it.
//! Must not: choose a device, wait, or try again (`ipa::prover`).

use std::io::{self, Read, Write};

use firstlight_api::tpm::Point;
use thiserror::Error;
use tpm2_protocol::basic::{TpmHandle, TpmUint32};
use tpm2_protocol::constant::TPM_MAX_COMMAND_SIZE;
use tpm2_protocol::data::{
    Tpm2bAuth, Tpm2bDigest, Tpm2bEccParameter, Tpm2bEccPoint, Tpm2bNonce, Tpm2bPublic, TpmAlgId,
    TpmEccCurve, TpmRc, TpmRcBase, TpmRh, TpmSt, TpmaObject, TpmaSession, TpmsAuthCommand,
    TpmsEccParms, TpmsEccPoint, TpmtPublic, TpmuPublicId, TpmuPublicParms,
};
use tpm2_protocol::frame::{
    TpmCreatePrimaryCommand, TpmCreatePrimaryResponse, TpmEcdhZGenCommand, TpmEcdhZGenResponse,
    TpmFlushContextCommand, TpmFlushContextResponse, TpmFrame, TpmResponse, TpmUnmarshalBody,
    tpm_marshal_command,
};
use tpm2_protocol::{TpmError, TpmWriter};

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

/// The public half of the key.
pub fn public(tpm: &mut dyn Channel) -> Result<Point, Refusal> {
    let (key, point) = load(tpm)?;
    unload(tpm, key)?;
    Ok(point)
}

/// The X coordinate that the key and `theirs` have in common (ECDH).
pub fn agree(tpm: &mut dyn Channel, theirs: &Point) -> Result<[u8; COORDINATE], Refusal> {
    let (key, _) = load(tpm)?;
    let agreed = multiply(tpm, key, theirs);
    unload(tpm, key)?;
    agreed
}

fn load(tpm: &mut dyn Channel) -> Result<(TpmHandle, Point), Refusal> {
    let command = TpmCreatePrimaryCommand {
        handles: [TpmUint32::new(TpmRh::Endorsement.value())],
        in_public: Tpm2bPublic { inner: template() },
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
fn template() -> TpmtPublic {
    TpmtPublic {
        object_type: TpmAlgId::Ecc,
        name_alg: TpmAlgId::Sha256,
        object_attributes: TpmaObject::FIXED_TPM
            | TpmaObject::FIXED_PARENT
            | TpmaObject::SENSITIVE_DATA_ORIGIN
            | TpmaObject::USER_WITH_AUTH
            | TpmaObject::NO_DA
            | TpmaObject::DECRYPT,
        auth_policy: Tpm2bDigest::new(),
        parameters: TpmuPublicParms::Ecc(TpmsEccParms {
            curve_id: TpmEccCurve::NistP256,
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
