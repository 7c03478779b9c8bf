//! A read-only TFTP server for network boot: RFC 1350 with options (2347), block size (2348), timeout and transfer size
//! (2349) and window size (7440).
//!
//! The protocol is a state machine without sockets, clock or files ([`Transfer`]); [`Server`] is the tokio edge around it, and
//! a [`Provider`] says what there is to read. It knows nothing of what it serves. Writing is refused, and so is netascii, which
//! would change the bytes of a boot file.
//!
//! To add a case: an option goes into `options.rs`, a situation of the protocol into `transfer.rs` with a test in virtual
//! time in `transfer/tests.rs`.

#![warn(missing_docs)]

mod edge;
mod options;
mod packet;
mod path;
mod transfer;

pub use edge::{Limits, OpenFile, Provider, Server, Source, Stats, TransferReport};
pub use firstlight_admission::Shares;
pub use options::{Negotiated, NegotiationLimits, RequestedOptions};
pub use packet::{
    ClientPacket, ErrorCode, Mode, PacketError, ReadRequest, encode_data_header, encode_error,
};
pub use path::{FilePath, PathError};
pub use transfer::{Action, Blocks, Input, Outcome, Transfer};
