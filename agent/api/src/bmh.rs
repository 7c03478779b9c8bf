//! `BareMetalHost` of `metal3.io/v1alpha1`, as far as the agent reads and writes it: the names, spellings and enum values
//! are those of github.com/metal3-io/baremetal-operator/apis v0.12.0.
//!
//! Fields that are not here are left alone: the agent applies only what it owns (server-side apply).
//! To add a field: here with its published name, in `crd-baremetalhost.yaml`, and in the test that compares both.

mod hardware;
mod spec;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use hardware::{Bios, Cpu, Firmware, HardwareDetails, HardwareSystemVendor, Nic, Storage};
pub use spec::{
    BareMetalHostSpec, BmcDetails, BootMode, ChecksumType, Image, ObjectReference, RootDeviceHints,
    SecretReference,
};
pub use status::{
    BareMetalHostStatus, ErrorType, OperationHistory, OperationMetric, OperationalStatus,
    ProvisionStatus, ProvisioningState,
};

pub const GROUP: &str = "metal3.io";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "metal3.io/v1alpha1";
pub const KIND: &str = "BareMetalHost";
pub const PLURAL: &str = "baremetalhosts";

/// A person's word on one host, stronger than `site.yaml`: `blank`, `wipe` or `never`.
pub const INSTALL_ANNOTATION: &str = "firstlight.internal/install";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHost {
    pub api_version: String,
    pub kind: String,
    pub metadata: Metadata,
    #[serde(default)]
    pub spec: BareMetalHostSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<BareMetalHostStatus>,
}

/// The part of an object's metadata that we use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl BareMetalHost {
    pub fn new(name: &str, namespace: &str, spec: BareMetalHostSpec) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            metadata: Metadata {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                ..Metadata::default()
            },
            spec,
            status: None,
        }
    }
}
