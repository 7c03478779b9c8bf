//! The wire format (RFC 1350 section 5, RFC 2347).

use crate::options::RequestedOptions;
use crate::path::{FilePath, PathError};

/// How a file's bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Octet,
    NetAscii,
    Mail,
}

/// A read request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub path: FilePath,
    pub mode: Mode,
    pub options: RequestedOptions,
}

/// What a client of a read-only server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientPacket {
    Read(ReadRequest),
    /// Refused whatever is in it.
    Write,
    Ack(u16),
    Error {
        code: u16,
        message: String,
    },
}

/// Error codes (RFC 1350 section 5, RFC 2347).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    NotDefined = 0,
    FileNotFound = 1,
    AccessViolation = 2,
    IllegalOperation = 4,
}

/// Why a datagram is no packet of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    #[error("the packet ends too early")]
    Truncated,
    #[error("operation {0} is not one of a client that reads")]
    Operation(u16),
    #[error("the transfer mode is not octet, netascii or mail")]
    Mode,
    #[error(transparent)]
    Path(#[from] PathError),
}

impl ClientPacket {
    pub fn parse(datagram: &[u8]) -> Result<Self, PacketError> {
        let (operation, rest) = datagram
            .split_first_chunk::<2>()
            .ok_or(PacketError::Truncated)?;
        match u16::from_be_bytes(*operation) {
            1 => parse_request(rest).map(Self::Read),
            2 => Ok(Self::Write),
            4 => {
                let (block, _) = rest
                    .split_first_chunk::<2>()
                    .ok_or(PacketError::Truncated)?;
                Ok(Self::Ack(u16::from_be_bytes(*block)))
            }
            5 => {
                let (code, text) = rest
                    .split_first_chunk::<2>()
                    .ok_or(PacketError::Truncated)?;
                let text = text.split(|b| *b == 0).next().unwrap_or_default();
                Ok(Self::Error {
                    code: u16::from_be_bytes(*code),
                    message: String::from_utf8_lossy(text)
                        .chars()
                        .filter(|c| !c.is_control())
                        .collect(),
                })
            }
            other => Err(PacketError::Operation(other)),
        }
    }
}

fn parse_request(mut rest: &[u8]) -> Result<ReadRequest, PacketError> {
    let path = FilePath::parse(take_string(&mut rest)?)?;
    let mode = match take_string(&mut rest)?.to_ascii_lowercase().as_slice() {
        b"octet" => Mode::Octet,
        b"netascii" => Mode::NetAscii,
        b"mail" => Mode::Mail,
        _ => return Err(PacketError::Mode),
    };
    let mut options = RequestedOptions::default();
    // Some clients pad a request, so that what is no whole option at the end is no error.
    while let (Ok(name), Ok(value)) = (take_string(&mut rest), take_string(&mut rest)) {
        options.take(name, value);
    }
    Ok(ReadRequest {
        path,
        mode,
        options,
    })
}

fn take_string<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], PacketError> {
    let end = rest
        .iter()
        .position(|b| *b == 0)
        .ok_or(PacketError::Truncated)?;
    let (text, tail) = rest.split_at(end);
    *rest = &tail[1..];
    Ok(text)
}

/// What precedes the bytes of block `block` (counted from 1 without end; the wire has its low 16 bits).
#[expect(clippy::cast_possible_truncation, reason = "block numbers roll over")]
pub fn encode_data_header(block: u64) -> [u8; 4] {
    let [high, low] = (block as u16).to_be_bytes();
    [0, 3, high, low]
}

pub fn encode_error(code: ErrorCode, message: &str) -> Vec<u8> {
    let mut packet = vec![0, 5, 0, code as u8];
    packet.extend(message.bytes().filter(|b| *b != 0));
    packet.push(0);
    packet
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
