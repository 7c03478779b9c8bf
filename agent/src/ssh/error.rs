//! Why nothing came of an order, each in one sentence.

use std::{net::Ipv4Addr, path::PathBuf, time::Duration};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    #[error("the box has no key for it, because another box or an older version installed it")]
    NoKey,
    /// Also when the connection was lost in the middle.
    #[error("it cannot be reached over SSH: {0}")]
    Unreachable(String),
    /// Nothing was sent.
    #[error(
        "the machine at {address} shows the SSH host key {shown}, and the box knows {known} for it, so it was told nothing; \
         install it again, or, if its key was changed on purpose, run `sudo rm {0}/known_hosts` on the \
         box, which then takes the key that it sees next",
        dir.display()
    )]
    HostKeyMismatch {
        address: Ipv4Addr,
        /// Fingerprints, `SHA256:…`, or what stands for one.
        shown: String,
        known: String,
        /// What the box has about this node.
        dir: PathBuf,
    },
    /// The login, or by sudo the command.
    #[error("it refuses the box: {0}")]
    Refused(String),
    #[error("the command ended with {code}: {text}")]
    Failed { code: i32, text: String },
    /// It was stopped.
    #[error("it sent more than an answer to an order can be, and was cut off")]
    TooMuch,
    #[error("its answer makes no sense: {0}")]
    Nonsense(String),
    /// Of the box itself; nothing was sent.
    #[error("{} cannot be read, so nothing was sent: {error}; check the state partition with fsck", path.display())]
    KeyFile { path: PathBuf, error: String },
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
}
