//! The wire format (RFC 1350 section 5, RFC 2347).

use crate::options::RequestedOptions;
use crate::path::{FilePath, PathError};

/// How a file's bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Unchanged: the only one that is served.
    Octet,
    /// With line ends of its own, which would spoil a boot file.
    NetAscii,
    /// To a user's mailbox, obsolete since RFC 1350.
    Mail,
}

/// A read request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Cleaned of what would lead out of the folder.
    pub path: FilePath,
    /// Parsed, though only octet is served, for the text of the refusal.
    pub mode: Mode,
    /// Those that are known; others are left out of the answer (RFC 2347).
    pub options: RequestedOptions,
}

/// What a client of a read-only server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientPacket {
    /// Opcode 1.
    Read(ReadRequest),
    /// Refused whatever is in it.
    Write,
    /// Opcode 4: all blocks up to the one with these low 16 bits are there.
    Ack(u16),
    /// Opcode 5, which is never answered.
    Error {
        /// Of [`ErrorCode`] or any other.
        code: u16,
        /// Whatever is no UTF-8 in it is shown as such.
        message: String,
    },
}

/// Error codes (RFC 1350 section 5, RFC 2347).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// See the message.
    NotDefined = 0,
    /// The provider has no such file.
    FileNotFound = 1,
    /// A file that may not be read, or a write.
    AccessViolation = 2,
    /// What a server that is only read from does not do.
    IllegalOperation = 4,
}

/// Why a datagram is no packet of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
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
    /// Of the UDP payload.
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

/// An ERROR packet (RFC 1350 section 5). NULs, which end the message, are left out of it.
pub fn encode_error(code: ErrorCode, message: &str) -> Vec<u8> {
    let mut packet = vec![0, 5, 0, code as u8];
    packet.extend(message.bytes().filter(|b| *b != 0));
    packet.push(0);
    packet
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
