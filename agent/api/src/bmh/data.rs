//! `HardwareData`: what inspection found, kept beside the host under the same name.

use serde::{Deserialize, Serialize};

use super::{API_VERSION, HardwareDetails};
use crate::object::Meta;

pub const KIND: &str = "HardwareData";
pub const PLURAL: &str = "hardwaredata";

/// What is known of one host's hardware. It has no status, and nobody wants anything by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareData {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`HardwareData::KIND`].
    pub kind: String,
    /// Its name and namespace are those of the host.
    pub metadata: Meta,
    /// Upstream calls it so, though it says what is.
    #[serde(default)]
    pub spec: HardwareDataSpec,
}

/// Upstream's `HardwareDataSpec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HardwareDataSpec {
    /// As in the host's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareDetails>,
}

impl HardwareData {
    /// As in a manifest.
    pub const KIND: &str = KIND;
    /// As in the API's URLs.
    pub const PLURAL: &str = PLURAL;

    /// An object that is to be made, for the host of this name.
    pub fn new(name: &str, namespace: &str, hardware: HardwareDetails) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            metadata: Meta {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                ..Meta::default()
            },
            spec: HardwareDataSpec {
                hardware: Some(hardware),
            },
        }
    }
}
