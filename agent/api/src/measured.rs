//! What a server's TPM says it has started (measured boot): what the ramdisk sends to the box.
//!
//! Firmware, GRUB and the kernel's own first instructions tell the TPM what they are about to run before they run it, and write the same
//! into a log. The log comes with a quote: the TPM's signature over the registers (PCR) that hold its sum.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::bounded::{self, Excess};
use crate::signed;
use crate::tpm::{Bytes, Digest, Point};

/// Registers that are quoted, of the SHA-256 bank: programs that firmware started, Secure Boot, GRUB's commands, files.
pub const PCRS: [u8; 4] = [4, 7, 8, 9];
/// [`PCRS`] as a TPM is asked for them: a bit for each.
pub const SELECTION: [u8; 3] = {
    let (mut bits, mut at) = ([0; 3], 0);
    while at < PCRS.len() {
        bits[(PCRS[at] / 8) as usize] |= 1 << (PCRS[at] % 8);
        at += 1;
    }
    bits
};
/// In front of what a quote is about.
const CONTEXT: &[u8] = b"firstlight boot 1\0";
/// Different events of one start. One from the network has about 50.
pub const MOST_EVENTS: usize = 128;
/// Events in all: a loader that waits for the box goes round.
pub const MOST_STEPS: usize = 4096;
/// Bytes of an event's text; longer ones are not told. A kernel's command line has 2048 at most.
pub const LONGEST_TEXT: usize = 4096;
/// Bytes; the structure has about 120.
const LONGEST_ATTEST: usize = 1024;

/// What a report says of how its machine was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Boot {
    /// Nothing yet, or by a ramdisk that does not know of it.
    #[default]
    Unsaid,
    /// An earlier report of this session has said it, and was answered.
    Told,
    /// There is nothing to tell.
    Unmeasured {
        /// In the ramdisk's words, at most 256 characters.
        reason: String,
    },
    /// The TPM vouches for it.
    Quoted(Box<Evidence>),
}

/// A quote and what it is the sum of. Nothing is verified yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// Public half of the TPM's key for quotes, which signs what the TPM itself has made and nothing else.
    pub key: Point,
    /// What is signed: a `TPMS_ATTEST` about [`qualifying`].
    pub attest: Attest,
    /// ECDSA with SHA-256 on P-256: r, s.
    pub signature: Bytes<64>,
    /// Of [`PCRS`], each different one once.
    pub events: Vec<Event>,
    /// Places in `events`, as it went.
    pub steps: Vec<u8>,
}

/// A TPM's signature over its registers, with what is needed to check it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quote {
    /// Public half of the TPM's key for quotes.
    pub key: Point,
    /// What is signed: a `TPMS_ATTEST`.
    pub attest: Attest,
    /// ECDSA with SHA-256 on P-256: r, s.
    pub signature: Bytes<64>,
    /// Of the SHA-256 bank, in the order of [`PCRS`].
    pub registers: [Digest; PCRS.len()],
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// One of [`PCRS`].
    pub pcr: u8,
    /// Which kind of event, by the TCG's numbers. Nothing vouches for it.
    pub kind: u32,
    /// What the register was extended with.
    pub digest: Digest,
    /// What it says of itself, where that is ASCII. Nothing vouches for it, unless `digest` is of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// At most 1024 bytes, in base64 where they travel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Attest(Vec<u8>);

impl Attest {
    /// `None`: too long for what it is.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= LONGEST_ATTEST).then(|| Self(bytes.to_vec()))
    }

    /// Raw: base64 is only how they travel.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<String> for Attest {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let bytes = signed::decode(&text, LONGEST_ATTEST);
        bytes
            .map(Self)
            .ok_or_else(|| format!("this is not the base64 of at most {LONGEST_ATTEST} bytes"))
    }
}

impl From<Attest> for String {
    fn from(attest: Attest) -> Self {
        signed::base64(&attest.0)
    }
}

/// ASCII that a terminal shows.
pub fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| (b' '..=b'~').contains(byte))
}

/// What a quote is asked about: this start of this ramdisk, as in [`crate::tpm::Claim::bytes`].
pub fn qualifying(claim: &[u8]) -> Digest {
    Digest::new(
        Sha256::new_with_prefix(CONTEXT)
            .chain_update(claim)
            .finalize()
            .into(),
    )
}

impl Boot {
    pub(crate) fn bounded(self) -> Result<Self, Excess> {
        match self {
            Self::Unmeasured { reason } => Ok(Self::Unmeasured {
                reason: bounded::text(&reason),
            }),
            Self::Quoted(mut evidence) => {
                bounded::length("events of a start", evidence.events.len(), MOST_EVENTS)?;
                bounded::length("steps of a start", evidence.steps.len(), MOST_STEPS)?;
                let longest = evidence.events.iter().map(|event| event.text.len()).max();
                let longest = longest.unwrap_or_default();
                bounded::length("bytes in an event's text", longest, LONGEST_TEXT)?;
                for event in &mut evidence.events {
                    if !is_plain(event.text.as_bytes()) {
                        event.text.clear();
                    }
                }
                Ok(Self::Quoted(evidence))
            }
            other => Ok(other),
        }
    }
}
