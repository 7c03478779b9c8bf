//! Power, which for hosts without BMC is only recorded: `/v1/nodes/ID/states/power`.

use http::Method;
use serde::Serialize;
use serde_json::json;

use crate::{Client, ClientError};

/// What the recorded power is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PowerTarget {
    /// Also where it is on already: nothing happens then.
    #[serde(rename = "power on")]
    On,
    /// Makes Ironic forget the ramdisk's token: the way out when a ramdisk lost its own.
    #[serde(rename = "rebooting")]
    Reboot,
}

impl Client {
    /// Accepted means begun, and nothing happens to the machine.
    pub async fn set_power(&self, node: &str, target: PowerTarget) -> Result<(), ClientError> {
        self.order(
            Method::PUT,
            &format!("/v1/nodes/{node}/states/power"),
            Some(&json!({"target": target})),
        )
        .await
    }
}
