//! What the ramdisk tells the agent, and what it is told to do. Ironic's own protocol goes on beside this.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bmh::HardwareDetails;
use crate::bounded::{self, Excess};
use crate::disk::Disk;
use crate::order::Mark;
use crate::receipt::Wrote;
use crate::signed::Succession;
use crate::start::Start;
use crate::tpm::{Challenge, Tpm};

/// On a request for an image: the port at which the asking ramdisk passes it on. The box may answer with a redirect to
/// another server that does.
pub const RELAY_HEADER: &str = "firstlight-relay";

/// Takes a [`Report`], answers with a [`Reply`].
pub const REPORT_PATH: &str = "/api/v1/ramdisk/report";
/// Takes a [`Progress`], answers with a [`Reply`].
pub const PROGRESS_PATH: &str = "/api/v1/ramdisk/progress";
/// Bytes of a report. A server with 60 disks needs half of it.
pub const LARGEST_REPORT: usize = 96 * 1024;
/// Bytes of a progress.
pub const LARGEST_PROGRESS: usize = 4 * 1024;
/// Bytes of a reply.
pub const LARGEST_REPLY: usize = 16 * 1024;
/// Disks of one server; a report of more is refused.
pub const MOST_DISKS: usize = 128;
/// Earlier ramdisks that one report names.
pub const MOST_SUCCESSIONS: usize = 4;
/// Kinds of signatures on one disk.
const MOST_SIGNATURES: usize = 32;

/// `POST /api/v1/ramdisk/report`, signed, sent at start and again (every few seconds) while the ramdisk waits for Ironic.
/// The ramdisk sends its whole inventory; what [`Report::parse`] keeps of it has limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report<I = Inventory> {
    /// The NIC that it booted from, lower case with colons.
    pub boot_mac: String,
    /// Random, new at each boot of the ramdisk: tells a reboot from a repeated report.
    pub boot_id: String,
    /// The address it has on the provisioning network.
    pub address: String,
    /// The same value that goes to Ironic's `continue_inspection` (`inventory`), in ironic-python-agent's field names.
    pub inventory: I,
    /// Each disk of the server once; at most [`MOST_DISKS`].
    pub disks: Vec<DiskSignatures>,
    /// The last answer of Ironic's lookup.
    pub lookup: LookupState,
    /// What the ramdisk knows of the machine's TPM so far.
    #[serde(default)]
    pub tpm: Tpm,
    /// Earlier ramdisks of this machine, as its disks tell; at most [`MOST_SUCCESSIONS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follows: Vec<Succession>,
    /// On the wire its keys are among those of the report.
    #[serde(flatten)]
    pub fresh: Fresh,
}

/// What makes a post different from one that was overheard before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fresh {
    /// As the box said in its last answer; empty at the first post.
    #[serde(default)]
    pub session: String,
    /// Grows with each post of this kind.
    #[serde(default)]
    pub sequence: u64,
}

/// What is kept of an inventory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// As it goes into the host's status.
    pub hardware: Arc<HardwareDetails>,
    /// `uefi` or `bios`.
    pub boot_mode: String,
    /// Of `disks`, as many as in [`HardwareDetails::storage`].
    pub disks: Vec<Disk>,
}

/// Why the bytes of a post are no report.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ReportError {
    #[error("not the JSON that is expected here: {0}")]
    Json(String),
    #[error(transparent)]
    Excess(#[from] Excess),
    #[error("{0} is not what it has to be")]
    Field(&'static str),
}

impl Report {
    /// Counts, lengths and numbers beyond their limits are refused, texts are cut and cleaned.
    pub fn parse(body: &[u8]) -> Result<Self, ReportError> {
        bounded::length("bytes in a report", body.len(), LARGEST_REPORT)?;
        let report: Report<Value> = parse_json(body)?;
        bounded::length("disks", report.disks.len(), MOST_DISKS)?;
        bounded::length("successions", report.follows.len(), MOST_SUCCESSIONS)?;
        let disks = report.disks.iter().map(DiskSignatures::bounded);
        Ok(Self {
            boot_mac: mac(&report.boot_mac)?,
            boot_id: boot_id(report.boot_id)?,
            address: address(report.address)?,
            inventory: Inventory::from_json(&report.inventory)?,
            disks: disks.collect::<Result<_, _>>()?,
            lookup: report.lookup,
            tpm: report.tpm.bounded()?,
            follows: report.follows,
            fresh: report.fresh.bounded()?,
        })
    }
}

impl Progress {
    /// As [`Report::parse`].
    pub fn parse(body: &[u8]) -> Result<Self, ReportError> {
        bounded::length("bytes in a progress", body.len(), LARGEST_PROGRESS)?;
        let progress: Self = parse_json(body)?;
        Ok(Self {
            boot_mac: mac(&progress.boot_mac)?,
            boot_id: boot_id(progress.boot_id)?,
            phase: match progress.phase {
                Phase::Retrying { reason } => Phase::Retrying {
                    reason: bounded::text(&reason),
                },
                Phase::Failed { reason } => Phase::Failed {
                    reason: bounded::text(&reason),
                },
                Phase::Rebooting { start } => Phase::Rebooting {
                    start: start.bounded(),
                },
                other => other,
            },
            fresh: progress.fresh.bounded()?,
        })
    }
}

impl Inventory {
    /// Of ironic-python-agent's inventory; the error names what there is too much of.
    pub fn from_json(inventory: &Value) -> Result<Self, Excess> {
        let disks = bounded::list("disks", &inventory["disks"], MOST_DISKS)?;
        Ok(Self {
            hardware: Arc::new(HardwareDetails::from_inventory(inventory)?),
            disks: disks.iter().map(Disk::from_inventory).collect(),
            boot_mode: bounded::string(&inventory["boot"]["current_boot_mode"]),
        })
    }
}

impl DiskSignatures {
    fn bounded(&self) -> Result<Self, ReportError> {
        bounded::length(
            "signatures on a disk",
            self.signatures.len(),
            MOST_SIGNATURES,
        )?;
        if i64::try_from(self.size_bytes).is_err() {
            return Err(ReportError::Field("sizeBytes"));
        }
        Ok(Self {
            name: bounded::text(&self.name),
            serial: self.serial.as_deref().map(bounded::text),
            wwn: self.wwn.as_deref().map(bounded::text),
            signatures: self
                .signatures
                .iter()
                .map(|kind| bounded::text(kind))
                .collect(),
            ..self.clone()
        })
    }
}

impl Fresh {
    pub(crate) fn bounded(self) -> Result<Self, ReportError> {
        session(&self.session)?;
        Ok(self)
    }
}

impl Reply {
    /// As a ramdisk keeps it: the session goes into its next posts, the reason onto its screen.
    pub fn parse(body: &[u8]) -> Result<Self, ReportError> {
        bounded::length("bytes in a reply", body.len(), LARGEST_REPLY)?;
        let mut reply: Self = parse_json(body)?;
        session(&reply.session)?;
        if let Directive::Wait { reason, .. } = &mut reply.directive {
            *reason = bounded::sentence(reason);
        }
        Ok(reply)
    }
}

/// The error may quote what it met.
fn parse_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ReportError> {
    serde_json::from_slice(body)
        .map_err(|error| ReportError::Json(bounded::sentence(&error.to_string())))
}

pub(crate) fn session(text: &str) -> Result<(), ReportError> {
    if text.len() > 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ReportError::Field("session"));
    }
    Ok(())
}

pub(crate) fn mac(text: &str) -> Result<String, ReportError> {
    let parsed: Result<crate::site::MacAddr, _> = text.parse();
    parsed
        .map(|mac| mac.to_string())
        .map_err(|_| ReportError::Field("bootMac"))
}

pub(crate) fn boot_id(id: String) -> Result<String, ReportError> {
    let plain = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if id.is_empty() || id.len() > 64 || !plain {
        return Err(ReportError::Field("bootId"));
    }
    Ok(id)
}

fn address(text: String) -> Result<String, ReportError> {
    match text.parse::<std::net::Ipv4Addr>() {
        Ok(_) => Ok(text),
        Err(_) => Err(ReportError::Field("address")),
    }
}

/// What is on one disk, read without changing it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskSignatures {
    /// `/dev/vda`
    pub name: String,
    /// Of the whole disk; what does not fit into 63 bits is refused.
    pub size_bytes: u64,
    /// As the disk says; absent if it says none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// All of it, not only the first 64 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// Kinds found, e.g. `gpt`, `dos`, `ext4`, `lvm2`; empty = blank.
    pub signatures: Vec<String>,
    /// What our ramdisk left there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
}

/// What Ironic's lookup (`/v1/lookup`) said of the machine last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LookupState {
    /// Nothing yet, or Ironic has let go of the registration since.
    NotAsked,
    /// 404: unregistered, or in a state that wants no ramdisk.
    NotWanted,
    /// Ironic holds a token that we do not have.
    TokenLost,
    /// It gave the ramdisk its node and a token.
    Registered,
}

/// The answer to a report, and to progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Random, new at each start of the agent: the posts after this one carry it.
    pub session: String,
    /// On the wire a key `action`, with the fields of its variant.
    #[serde(flatten)]
    pub directive: Directive,
}

/// What the ramdisk does next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase")]
pub enum Directive {
    /// The post was of another session and means nothing: send it again at once.
    Again,
    /// Show that you have the TPM that you speak of, and send the report again. Only to a report that names a TPM's key.
    Prove(Challenge),
    /// Ask Ironic now (and keep asking) for this node of it, by its UUID, then report again.
    Lookup {
        /// UUID; the ramdisk takes no other node for its own.
        node: String,
    },
    /// Stay, report again after `seconds`; `reason` goes to the console.
    Wait {
        /// Until the next report.
        seconds: u32,
        /// A sentence of at most 1000 characters.
        reason: String,
    },
    /// This host has its operating system: boot it from disk.
    BootDisk,
}

/// `POST /api/v1/ramdisk/progress`, at most one a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// As in [`Report::boot_mac`].
    pub boot_mac: String,
    /// As in [`Report::boot_id`].
    pub boot_id: String,
    /// On the wire a key `phase`, with the fields of its variant.
    pub phase: Phase,
    /// On the wire its keys are among those of the progress. Its sequence is not that of reports.
    #[serde(flatten)]
    pub fresh: Fresh,
}

/// Where the installation of a host is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "camelCase")]
pub enum Phase {
    /// `bytes` of `total` bytes of the image as served.
    Writing {
        /// That are written.
        bytes: u64,
        /// Of the file as served.
        total: u64,
    },
    /// The download broke and starts again.
    Retrying {
        /// What broke, at most 256 characters.
        reason: String,
    },
    /// The image is complete and its digest is right; its partition table and the config drive are being written.
    ConfigDrive,
    /// The firmware is being told to boot the disk.
    BootEntry,
    /// All of it is on the disk and verified; Ironic ends the deployment.
    Written {
        /// Absent from a ramdisk of an older version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wrote: Option<Wrote>,
    },
    /// The ramdisk ends for the system on the disk, or the server is switched off; the next boot must be from disk.
    Rebooting {
        /// How the system is started.
        #[serde(default)]
        start: Start,
    },
    /// The installation has ended without a system on the disk.
    Failed {
        /// Why, at most 256 characters.
        reason: String,
    },
}

impl Phase {
    /// For the firmware, as it is where nobody asked for anything else.
    pub const REBOOTING: Self = Self::Rebooting {
        start: Start::Restart {
            reason: String::new(),
        },
    };
}

#[cfg(test)]
mod tests;
