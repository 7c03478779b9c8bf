//! What the box runs on, as page and console tell it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The box's own machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Who made it and what it is called, as its firmware says; empty where that says nothing.
    pub product: String,
    /// As its firmware says.
    pub serial: String,
    /// All that are hardware, by their names.
    pub nics: Vec<BoxNic>,
    /// The state partition; absent while it is not mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Space>,
}

/// A network card of the box.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoxNic {
    /// Kernel name.
    pub name: String,
    /// Lower case with colons.
    pub mac: String,
    /// It has a cable with somebody at the other end.
    pub link: bool,
    /// Mbit/s; 0 where it has no link, or does not say.
    pub speed: u32,
}

/// Of a file system; in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Space {
    /// In all.
    pub size: u64,
    /// To be had, in whole hundredths of `size`.
    pub free: u64,
}
