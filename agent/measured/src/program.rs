//! The digest by which firmware measures a program (Authenticode, "Windows Authenticode Portable Executable Signature Format", 2008).

use sha2::{Digest as _, Sha256};
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is no program for 64-bit UEFI")]
pub struct NoProgram;

/// Everything but the checksum and the signature, which stands at the end. The format wants each section by itself, without what is
/// between them; that is the same in programs without holes, and other programs get a digest that nobody measures.
pub fn program_digest(file: &[u8]) -> Result<[u8; 32], NoProgram> {
    let number = |at: usize| -> Result<usize, NoProgram> {
        let bytes = file.get(at..).and_then(|it| it.first_chunk());
        let number = u32::from_le_bytes(*bytes.ok_or(NoProgram)?);
        usize::try_from(number).map_err(|_| NoProgram)
    };
    let header = number(0x3c)?;
    let optional = header.checked_add(24).ok_or(NoProgram)?;
    let is_program = file
        .get(header..)
        .is_some_and(|it| it.starts_with(b"PE\0\0"))
        && file
            .get(optional..)
            .is_some_and(|it| it.starts_with(&[0x0b, 2]));
    if !is_program {
        return Err(NoProgram);
    }
    let (checksum, place) = (optional + 64, optional + 144);
    let signature = match (number(place)?, number(place + 4)?) {
        (0, _) => file.len(),
        (at, length) if at.checked_add(length) == Some(file.len()) => at,
        _ => return Err(NoProgram),
    };
    let parts = [0..checksum, checksum + 4..place, place + 8..signature];
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(file.get(part).ok_or(NoProgram)?);
    }
    Ok(digest.finalize().into())
}
