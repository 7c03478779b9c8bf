//! A server's own way to its BMC (IPMI 2.0, over what the kernel calls `/dev/ipmi0`): where the BMC is on the network, and an account
//! in it for the box ([`account`]).
//!
//! [`command`] has the bytes of the few commands that it takes, [`Channel`] the way to a BMC, [`device`] that of the kernel. What a BMC
//! answers is read within bounds: it may be broken, or say anything.
//! Must not: speak over a network, or keep a password.

#![warn(missing_docs)]

pub mod account;
pub mod command;
pub mod device;
#[cfg(any(test, feature = "fake"))]
pub mod fake;

use std::io;

use thiserror::Error;

pub use command::{Command, Lan};

/// Bytes of an answer's data. The longest that is asked for has 16; a kernel passes on 272.
pub const LONGEST: usize = 272;

/// The way to a BMC: a command is sent, its answer comes back.
pub trait Channel: Send {
    /// The completion code and what follows it, at most [`LONGEST`] bytes in all.
    fn ask(&mut self, command: &Command) -> io::Result<Vec<u8>>;
}

/// Why a BMC did not do what it was told.
#[derive(Debug, Error)]
pub enum Refusal {
    /// There is no speaking to it.
    #[error("it cannot be spoken to: {0}")]
    Io(#[from] io::Error),
    /// Table 5-2 of the specification.
    #[error("it refuses {what} (completion code {code:#04x})")]
    Code {
        /// As a noun.
        what: &'static str,
        /// As it says.
        code: u8,
    },
    /// It is shorter than the specification says, or of another command.
    #[error("its answer to {0} makes no sense")]
    Nonsense(&'static str),
    /// None of its channels is a LAN.
    #[error("it has no channel to a network")]
    NoLan,
    /// Every place for a user is somebody's.
    #[error("it has no free place for a user; {0} are taken")]
    Full(u8),
    /// It took the password and does not know it afterwards.
    #[error("it does not know the password that it has just taken")]
    Forgetful,
    /// The kernel gives no random bytes.
    #[error("no password can be made: the kernel gives no random bytes")]
    NoRandom,
}
