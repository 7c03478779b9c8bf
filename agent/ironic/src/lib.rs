//! A typed client for the calls of `OpenStack` Ironic's bare metal API that Firstlight makes (API reference:
//! docs.openstack.org/api-ref/baremetal; behaviour as observed on Ironic 39.0.0).
//!
//! One file a resource. Every call is one request with one answer; waiting, retrying and deciding belong to the caller.
//! Must not: know Kubernetes, hosts policy, or the ramdisk's protocol.
//! To add a call: a method in the file of its resource, the same behaviour in `fake`, and a step in `tests/contract.rs`,
//! which runs against the fake and, when told to, against a live Ironic.

#![warn(missing_docs)]

mod client;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod inventory;
mod node;
mod port;
mod power;
mod provision;
mod version;

pub use client::{Client, ClientConfig, Credentials};
pub use error::{ClientError, SetupError};
pub use inventory::Inventory;
pub use node::{InstanceInfo, NewNode, Node, NodePatch};
pub use port::Port;
pub use power::{BootDevice, Driver, PowerOff, PowerTarget};
pub use provision::{ConfigDrive, ProvisionState, ProvisionTarget, StartedBy};

/// The microversion of every request: `disable_power_off` needs 1.95; 1.109 is what the calls were verified with.
pub const MICROVERSION: &str = "1.109";
