//! `BareMetalHost` and `HardwareData` of `metal3.io/v1alpha1`: the names, spellings and enum values are those of
//! github.com/metal3-io/baremetal-operator/apis v0.13.1. `scripts/test` decodes what these types write with those Go
//! types, strictly.
//!
//! Must not: decide. `annotations` reads what people say with annotations; what follows from it is the agent's affair.
//! To add a field: here with its published name, in `crd-baremetalhost.yaml` or `crd-hardwaredata.yaml`, and in
//! `examples.rs`, from which the tests of both sides are fed.

pub mod annotations;
mod conditions;
mod data;
pub mod examples;
mod hardware;
mod spec;
mod status;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::object::Meta;

pub use conditions::{Condition, ConditionStatus};
pub use data::{HardwareData, HardwareDataSpec};
pub use hardware::{
    Bios, Cpu, Firmware, HardwareDetails, HardwareSystemVendor, Lldp, Nic, Storage, Vlan,
};
pub use spec::{
    AutomatedCleaningMode, BareMetalHostSpec, BmcDetails, BootMode, ChecksumType, CustomDeploy,
    FirmwareConfig, HardwareRaidVolume, Image, InspectionMode, ObjectReference, RaidConfig,
    RootDeviceHints, SecretReference, SoftwareRaidVolume, Taint,
};
pub use status::{
    BareMetalHostStatus, CredentialsStatus, ErrorType, OperationHistory, OperationMetric,
    OperationalStatus, ProvisionStatus, ProvisioningState,
};

/// Of both kinds.
pub const GROUP: &str = "metal3.io";
/// The only one that is published.
pub const VERSION: &str = "v1alpha1";
/// [`GROUP`] and [`VERSION`], as in a manifest.
pub const API_VERSION: &str = "metal3.io/v1alpha1";
/// Of a host, as in a manifest.
pub const KIND: &str = "BareMetalHost";
/// Of hosts, as in the API's URLs.
pub const PLURAL: &str = "baremetalhosts";
/// Holds a deleted host back until it is cleaned and Ironic has forgotten it.
pub const FINALIZER: &str = "baremetalhost.metal3.io";

/// A person's word on one host, stronger than `site.yaml`: `blank`, `wipe` or `never`.
pub const INSTALL_ANNOTATION: &str = "firstlight.internal/install";
/// The code that the server's screen shows: a person says that this machine is the one that they mean.
pub const APPROVE_ANNOTATION: &str = "firstlight.internal/approve";
/// Condition of a host: is everything that its spec and its annotations say acted on?
pub const SPEC_HONOURED: &str = "SpecHonoured";
/// Condition of a host: which disk gets the image, or got it, and why; or why none does.
pub const ROOT_DISK: &str = "RootDisk";
/// Condition of a host whose system is on two disks that hold the same: do both?
pub const MIRROR: &str = "Mirror";
/// Condition of a host: may it get the private keys of a cluster?
pub const TRUSTED: &str = "Trusted";

/// A server. The hosts controller makes one for each that is taken, and writes its status; people and `machines` write its spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHost {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`KIND`].
    pub kind: String,
    /// Its name is that of the host.
    pub metadata: Meta,
    /// What is wanted of the host.
    #[serde(default)]
    pub spec: BareMetalHostSpec,
    /// What is known of the host; absent until the agent has looked at the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<BareMetalHostStatus>,
}

impl BareMetalHost {
    /// An object that is to be made, without a status.
    pub fn new(name: &str, namespace: &str, spec: BareMetalHostSpec) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            metadata: Meta {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                ..Meta::default()
            },
            spec,
            status: None,
        }
    }

    /// Somebody deleted it, and it waits for [`FINALIZER`].
    pub fn is_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}
