//! The provision state machine: `/v1/nodes/ID/states/provision`.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Client, ClientError};

macro_rules! states {
    ($($variant:ident = $name:literal,)*) => {
        /// Where a node is in Ironic's state machine; states that we never ask for are `Other`.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum ProvisionState {
            $(#[doc = $name] $variant,)*
            /// By the name that Ironic has for it.
            Other(String),
        }

        impl From<String> for ProvisionState {
            fn from(name: String) -> Self {
                match name.as_str() {
                    $($name => Self::$variant,)*
                    _ => Self::Other(name),
                }
            }
        }

        impl ProvisionState {
            /// Ironic's own name of it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(name) => name,
                }
            }
        }
    };
}

states! {
    Enroll = "enroll",
    Verifying = "verifying",
    Manageable = "manageable",
    Inspecting = "inspecting",
    InspectWait = "inspect wait",
    InspectFailed = "inspect failed",
    Cleaning = "cleaning",
    CleanWait = "clean wait",
    CleanFailed = "clean failed",
    Available = "available",
    Deploying = "deploying",
    DeployWait = "wait call-back",
    DeployFailed = "deploy failed",
    Active = "active",
    Deleting = "deleting",
    Error = "error",
    Adopting = "adopting",
    AdoptFailed = "adopt failed",
}

impl ProvisionState {
    /// Ironic is at work, and takes no orders until it has ended.
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Verifying
                | Self::Inspecting
                | Self::Cleaning
                | Self::Deploying
                | Self::Deleting
                | Self::Adopting
        )
    }
}

impl From<ProvisionState> for String {
    fn from(state: ProvisionState) -> Self {
        state.as_str().to_owned()
    }
}

impl std::fmt::Display for ProvisionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a node may be asked to become.
#[derive(Clone, Debug, PartialEq)]
pub enum ProvisionTarget {
    /// From `enroll`, or back from `available`.
    Manage,
    /// From `manageable`: the ramdisk posts what the machine has.
    Inspect,
    /// From `manageable` to `available`.
    Provide,
    /// Write the image that `instance_info` names.
    Active(ConfigDrive, StartedBy),
    /// Take over what is on the disk already: `active` without a write. From `manageable`.
    Adopt,
    /// Back to `available`; ends a deployment that waits, too. By way of cleaning if the node's `automated_clean` says so.
    Deleted,
    /// Ends what waits for a ramdisk: an inspection or cleaning.
    Abort,
}

impl ProvisionTarget {
    /// Ironic's own name of it, a verb.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Manage => "manage",
            Self::Inspect => "inspect",
            Self::Provide => "provide",
            Self::Active(..) => "active",
            Self::Adopt => "adopt",
            Self::Deleted => "deleted",
            Self::Abort => "abort",
        }
    }
}

/// Of a deployment: who brings the machine into its system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedBy {
    /// Ironic, by the power that it has.
    Power,
    /// The ramdisk, once Ironic has let go of it; on a node whose `disable_power_off` is set, or Ironic would switch it off before.
    Ramdisk,
}

/// What Ironic packs into the config drive; it adds `uuid` to the meta data.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConfigDrive {
    /// Cloud-init's `meta_data.json` (`OpenStack` config drive, version 2).
    pub meta_data: Value,
    /// Cloud-init's `user_data`, any of its formats.
    pub user_data: String,
    /// `network_data.json`; null for DHCP on every NIC.
    pub network_data: Value,
}

impl Client {
    /// Accepted means begun: watch the node for the end.
    pub async fn provision(&self, node: &str, target: &ProvisionTarget) -> Result<(), ClientError> {
        let mut body = json!({"target": target.as_str()});
        if let ProvisionTarget::Active(drive, started_by) = target {
            body["configdrive"] = json!(drive);
            if *started_by == StartedBy::Ramdisk {
                let step = json!({"interface": "deploy", "step": "boot_instance", "args": {}, "priority": 0});
                body["deploy_steps"] = json!([step]);
            }
        }
        self.order(
            Method::PUT,
            &format!("/v1/nodes/{node}/states/provision"),
            Some(&body),
        )
        .await
    }
}
