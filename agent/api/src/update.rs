//! Updates of the box: what the agent orders of `firstlight-update`, the program with root's rights that writes the other system, and what
//! people and their programs are told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    backup::{AgeRecipient, BackupFile},
    boot_choice::SystemSlot,
    seal::RecoveryKey,
    slot::{BootFile, LayerContent, SystemContent},
    status::Problem,
};

/// Of one order or reply, a line of JSON. The content of layers follows the line of [`HelperOrder::Write`].
pub const LONGEST_LINE: usize = 64 * 1024;

/// What the agent asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "order", rename_all = "camelCase", deny_unknown_fields)]
pub enum HelperOrder {
    /// What is on the stick: [`HelperReply::Seen`].
    Look,
    /// Which of these layers it has to be sent: [`HelperReply::Send`].
    Plan {
        /// The new one.
        system: SystemContent,
    },
    /// Write a system beside the running one: [`HelperReply::Progress`] again and again, then [`HelperReply::Done`].
    Write {
        /// The new one.
        system: SystemContent,
        /// Names of those whose bytes follow, one after the other.
        sent: Vec<String>,
    },
    /// Start the other system once, now.
    Try,
    /// The running system, which was tried, stays.
    Keep,
    /// Make a backup onto the state partition: [`HelperReply::Backup`].
    Backup {
        /// Of the file ([`BackupFile::is_name`]).
        name: String,
        /// Who can read it.
        recipients: Vec<AgeRecipient>,
        /// How many stay there.
        count: u8,
    },
    /// Make another recovery key, and seal the state to the running system: [`HelperReply::RecoveryKey`].
    Seal,
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reply", rename_all = "camelCase")]
pub enum HelperReply {
    /// To [`HelperOrder::Look`].
    Seen(StickSystems),
    /// To [`HelperOrder::Plan`].
    Send {
        /// Names of layers that the stick does not have.
        layers: Vec<String>,
    },
    /// While it writes.
    Progress {
        /// Bytes, of writing and of reading back.
        done: u64,
        /// All of them.
        of: u64,
    },
    /// As ordered.
    Done,
    /// To [`HelperOrder::Backup`].
    Backup(BackupFile),
    /// To [`HelperOrder::Seal`].
    RecoveryKey(RecoveryKey),
    /// Not done, and why.
    Refused(Problem),
}

/// The systems of a stick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StickSystems {
    /// What the box runs.
    pub running: SystemSlot,
    /// It was not yet shown to work.
    pub trial: bool,
    /// Of the running system, top layer first.
    pub layers: Vec<LayerContent>,
    /// As in [`SystemContent`].
    #[serde(default)]
    pub boot: Vec<BootFile>,
    /// As in [`SystemContent`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Bytes for another system; 0 on a stick that is too small for one.
    pub room: u64,
    /// Layers of the other system, if one is there that could be started.
    pub other: Option<Vec<LayerContent>>,
    /// `versions.json` of the other system.
    pub versions: Option<serde_json::Value>,
    /// Whose systems the running one takes, as SSH shows keys; empty: anybody's.
    #[serde(default)]
    pub keys: Vec<String>,
}

impl StickSystems {
    /// The running one.
    pub fn system(&self) -> SystemContent {
        SystemContent {
            layers: self.layers.clone(),
            boot: self.boot.clone(),
            signature: self.signature.clone(),
        }
    }
}

/// What came of the last update, on the state partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateOutcome {
    /// It runs now; else the box went back.
    pub kept: bool,
    /// Version of Firstlight that it was about.
    pub version: String,
    /// Why the box went back.
    pub why: String,
}

/// `/api/v1/update`: the box's systems, as people and their programs are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateView {
    /// What is on the stick.
    pub systems: StickSystems,
    /// Of the last update, if there was one.
    pub last: Option<UpdateOutcome>,
}

/// The first line of `POST /api/v1/update/layers`, whose body goes on with the bytes of those that are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateHeader {
    /// The new one, as `POST /api/v1/update/plan` is told it.
    pub system: SystemContent,
    /// Names of those that follow.
    pub sent: Vec<String>,
}
