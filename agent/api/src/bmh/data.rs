//! `HardwareData`: what inspection found, kept beside the host under the same name.

use serde::{Deserialize, Serialize};

use super::{API_VERSION, HardwareDetails};
use crate::object::Meta;

pub const KIND: &str = "HardwareData";
pub const PLURAL: &str = "hardwaredata";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareData {
    pub api_version: String,
    pub kind: String,
    pub metadata: Meta,
    #[serde(default)]
    pub spec: HardwareDataSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HardwareDataSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareDetails>,
}

impl HardwareData {
    pub const KIND: &str = KIND;
    pub const PLURAL: &str = PLURAL;

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
