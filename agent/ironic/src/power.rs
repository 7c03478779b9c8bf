//! Power: `/v1/nodes/ID/states/power`. Of a host without BMC it is only recorded.

use http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Client, ClientError, Node, NodePatch};

/// What the power is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PowerTarget {
    /// Also where it is on already: nothing happens then.
    #[serde(rename = "power on")]
    On,
    /// At once, whatever the machine does.
    #[serde(rename = "power off")]
    Off,
    /// Its operating system is asked to end; it may not.
    #[serde(rename = "soft power off")]
    SoftOff,
    /// Makes Ironic forget the ramdisk's token, too: the way out when a ramdisk lost its own.
    #[serde(rename = "rebooting")]
    Reboot,
}

/// From where a machine is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BootDevice {
    /// What its firmware loads over the wire.
    #[serde(rename = "pxe")]
    Network,
    /// The CD in the BMC's virtual drive.
    #[serde(rename = "cdrom")]
    Cd,
}

/// Whether a machine may be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOff {
    /// It is switched as it is told.
    Allowed,
    /// Ironic refuses it, and restarts a machine with one order instead of two.
    Disabled,
}

/// Who switches a machine on and off.
#[derive(Clone, PartialEq, Eq)]
pub enum Driver {
    /// Nobody: `manual-management`.
    Manual,
    /// Its BMC.
    Bmc {
        /// `redfish` or `ipmi`
        name: &'static str,
        /// `driver_info`, password and all.
        info: Value,
        /// `disable_power_off`
        power_off: PowerOff,
    },
}

impl Driver {
    /// As [`Node::speaks_redfish`] of a node that was told so.
    pub fn speaks_redfish(&self) -> bool {
        matches!(self, Self::Bmc { name, .. } if *name == "redfish")
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Manual => f.write_str("Manual"),
            Self::Bmc { name, .. } => f.debug_tuple("Bmc").field(name).finish_non_exhaustive(),
        }
    }
}

impl Client {
    /// Accepted means begun.
    pub async fn set_power(&self, node: &str, target: PowerTarget) -> Result<(), ClientError> {
        self.order(
            Method::PUT,
            &format!("/v1/nodes/{node}/states/power"),
            Some(&json!({"target": target})),
        )
        .await
    }

    /// All that depends on the driver becomes what it is by default. Nobody speaks to the BMC for it. Ironic changes the driver of a
    /// node that is `active` in maintenance only, so that lasts for as long; who is told of a failure asks for the same again.
    pub async fn set_driver(
        &self,
        node: &str,
        driver: &Driver,
        mark: Option<NodePatch>,
    ) -> Result<Node, ClientError> {
        let (name, info, power, off) = match driver {
            Driver::Manual => ("manual-management", &json!({}), "fake", PowerOff::Disabled),
            Driver::Bmc {
                name,
                info,
                power_off,
            } => (*name, info, name_of_power(name), *power_off),
        };
        let add = |path: &str, value: &Value| json!({"op": "add", "path": path, "value": value});
        let operations = [
            add("/maintenance", &json!(true)),
            add("/driver", &json!(name)),
            add("/driver_info", info),
            add("/power_interface", &json!(power)),
            add("/disable_power_off", &json!(off == PowerOff::Disabled)),
        ];
        let path = format!("/v1/nodes/{node}?reset_interfaces=true");
        self.call::<Node, _>(Method::PATCH, &path, Some(&operations))
            .await?;
        let mut end = vec![add("/maintenance", &json!(false))];
        end.extend(mark.iter().map(NodePatch::operation));
        self.call(Method::PATCH, &format!("/v1/nodes/{node}"), Some(&end))
            .await
    }

    /// Asks the BMC something that changes nothing, and waits for the answer.
    pub async fn ask_bmc(&self, node: &str) -> Result<(), ClientError> {
        let path = format!("/v1/nodes/{node}/management/boot_device");
        self.order(Method::GET, &path, None::<&()>).await
    }

    /// The BMC makes the machine boot from there the next time, and only then.
    pub async fn boot_once(&self, node: &str, from: BootDevice) -> Result<(), ClientError> {
        let path = format!("/v1/nodes/{node}/management/boot_device");
        let body = json!({"boot_device": from, "persistent": false});
        self.order(Method::PUT, &path, Some(&body)).await
    }

    /// The BMC is told to put the CD at `url` into its virtual drive, from where it fetches it itself; it takes out what is there. Accepted
    /// means begun: the node is locked until that has ended, and its `last_error` says then whether it ended well.
    pub async fn attach_cd(&self, node: &str, url: &str) -> Result<(), ClientError> {
        let body =
            json!({"device_type": "cdrom", "image_url": url, "image_download_source": "http"});
        let path = format!("/v1/nodes/{node}/vmedia");
        self.order(Method::POST, &path, Some(&body)).await
    }

    /// The virtual drive is emptied, as [`Client::attach_cd`] fills it; one that is empty is no error.
    pub async fn detach_cd(&self, node: &str) -> Result<(), ClientError> {
        let path = format!("/v1/nodes/{node}/vmedia?device_types=cdrom");
        self.order(Method::DELETE, &path, None::<&()>).await
    }
}

fn name_of_power(driver: &'static str) -> &'static str {
    match driver {
        "ipmi" => "ipmitool",
        same => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_bmc_is_not_printed() {
        let driver = Driver::Bmc {
            name: "ipmi",
            info: json!({"ipmi_password": "hunter2"}),
            power_off: PowerOff::Allowed,
        };
        assert_eq!(format!("{driver:?}"), "Bmc(\"ipmi\", ..)");
    }
}
