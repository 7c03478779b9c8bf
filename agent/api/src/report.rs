//! What the ramdisk tells the agent, and what it is told to do. Ironic's own protocol goes on beside this.

use serde::{Deserialize, Serialize};

/// On a request for an image: the port at which the asking ramdisk passes it on. The box may answer with a redirect to
/// another server that does.
pub const RELAY_HEADER: &str = "firstlight-relay";

/// `POST /api/v1/ramdisk/report`, sent at start and again (every few seconds) while the ramdisk waits for Ironic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The NIC that it booted from, lower case with colons.
    pub boot_mac: String,
    /// Random, new at each boot of the ramdisk: tells a reboot from a repeated report.
    pub boot_id: String,
    /// The address it has on the provisioning network.
    pub address: String,
    /// The same value that goes to Ironic's `continue_inspection` (`inventory`), in ironic-python-agent's field names.
    pub inventory: serde_json::Value,
    pub disks: Vec<DiskSignatures>,
    /// The last answer of Ironic's lookup.
    pub lookup: LookupState,
}

/// What is on one disk, read without changing it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskSignatures {
    /// `/dev/vda`
    pub name: String,
    pub size_bytes: u64,
    /// Kinds found, e.g. `gpt`, `dos`, `ext4`, `lvm2`; empty = blank.
    pub signatures: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LookupState {
    NotAsked,
    /// 404: unregistered, or in a state that wants no ramdisk.
    NotWanted,
    /// Ironic holds a token that we do not have.
    TokenLost,
    Registered,
}

/// The answer to a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase")]
pub enum Directive {
    /// Ask Ironic now (and keep asking), then report again.
    Lookup,
    /// Stay, report again after `seconds`; `reason` goes to the console.
    Wait { seconds: u32, reason: String },
    /// This host has its operating system: boot it from disk.
    BootDisk,
}

/// `POST /api/v1/ramdisk/progress`, at most one a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    pub boot_mac: String,
    pub boot_id: String,
    pub phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "camelCase")]
pub enum Phase {
    /// `bytes` of `total` bytes of the image as served.
    Writing {
        bytes: u64,
        total: u64,
    },
    /// The download broke and starts again.
    Retrying {
        reason: String,
    },
    ConfigDrive,
    BootEntry,
    /// The image is on disk and verified; the next boot must be from disk.
    Rebooting,
    Failed {
        reason: String,
    },
}
