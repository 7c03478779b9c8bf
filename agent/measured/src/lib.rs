//! Measured boot: is what a server's TPM says it has started what this box serves? Pure.
//!
//! Firmware measures each program before it starts it, GRUB each command and each file, and the kernel its initramfs and its command line,
//! whoever loaded it. So a list of what may have been started is enough, and which firmware it is does not matter.
//! To allow another file or command of ours: [`Served`].

mod log;
mod program;
mod quote;
mod served;

pub use log::{Log, LogError, register};
pub use program::{NoProgram, program_digest};
pub use quote::is_whole;
pub use served::{Files, Served};

use std::collections::BTreeSet;

use firstlight_api::{
    measured::{Evidence, Quote},
    tpm::{Digest, Fingerprint},
};

/// How a server was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Booted {
    /// By what this box serves and nothing else, its TPM says.
    Measured {
        /// Of the TPM's key for quotes.
        key: Fingerprint,
        /// What its firmware has started before the first program of ours.
        before: BTreeSet<Digest>,
        secure_boot: bool,
        /// The TPM's word.
        quote: Box<Quote>,
    },
    /// Nobody knows; the reason is a half sentence for people.
    Unmeasured { reason: String },
    /// By something else; what, as a half sentence for people.
    Altered { what: String },
}

/// `qualifying`: what the quote has to be about.
pub fn judge(evidence: &Evidence, qualifying: &Digest, served: &Served<'_>) -> Booted {
    let unmeasured = |reason: &str| Booted::Unmeasured {
        reason: reason.to_owned(),
    };
    let Some(sum) = quote::verified(evidence, qualifying) else {
        return unmeasured("its TPM's word is not about this start");
    };
    let Some(steps) = log::steps(evidence) else {
        return unmeasured("the log of its start makes no sense");
    };
    let registers = log::registers(&steps);
    if log::sum(&registers) != sum {
        return unmeasured(
            "the log of its start is not what its TPM was told: its firmware has no room for a longer one, or it was not its firmware that started it",
        );
    }
    match served.compare(&steps) {
        Ok(found) => Booted::Measured {
            key: evidence.key.fingerprint(),
            before: found.before,
            secure_boot: found.secure_boot,
            quote: Box::new(Quote {
                key: evidence.key,
                attest: evidence.attest.clone(),
                signature: evidence.signature,
                registers,
            }),
        },
        Err(what) => Booted::Altered { what },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
