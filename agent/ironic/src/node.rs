//! Nodes: `/v1/nodes`.

use std::net::SocketAddr;

use http::Method;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::{Client, ClientError, ProvisionState, error::short};

/// The fields of a node that we ask for; Ironic has many more.
const FIELDS: &str = "uuid,name,driver,provision_state,target_provision_state,power_state,target_power_state,last_error,maintenance,\
                      fault,automated_clean,disable_power_off,reservation,instance_info,extra,driver_internal_info,inspection_finished_at";

const PAGE: usize = 100;

/// A node as Ironic shows it, `Node` of the API reference, cut down to the fields that Firstlight asks for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Node {
    /// As in [`NewNode::uuid`].
    pub uuid: String,
    /// Unique if there is one.
    pub name: Option<String>,
    /// Who switches the machine: `manual-management`, `redfish`, `ipmi`.
    #[serde(default)]
    pub driver: String,
    /// Where it is in the state machine.
    pub provision_state: ProvisionState,
    /// What the running change ends in, `active` for one.
    pub target_provision_state: Option<String>,
    /// `power on`, `power off`, or nothing while unknown.
    pub power_state: Option<String>,
    /// What the power is on its way to.
    #[serde(default)]
    pub target_power_state: Option<String>,
    /// Ironic's sentence about the last step that failed; ramdisks can write into it.
    #[serde(default, deserialize_with = "sentence")]
    pub last_error: Option<String>,
    /// Somebody said hands off: nothing is done by itself.
    #[serde(default)]
    pub maintenance: bool,
    /// Why Ironic itself put the node into maintenance, e.g. `clean failure`.
    #[serde(default)]
    pub fault: Option<String>,
    /// Whether `deleted` and `provide` clean; `None` is the configuration's default.
    #[serde(default)]
    pub automated_clean: Option<bool>,
    /// Whether it is never switched off, only restarted.
    #[serde(default)]
    pub disable_power_off: Option<bool>,
    /// The conductor that holds the node's lock.
    pub reservation: Option<String>,
    /// Set once an inspection has ended well.
    #[serde(default)]
    pub inspection_finished_at: Option<String>,
    /// What is to be written, as in [`InstanceInfo`]; emptied when the node is deprovisioned.
    #[serde(default)]
    pub instance_info: Value,
    /// The caller's own marks.
    #[serde(default)]
    pub extra: Value,
    /// Of what the driver and the ramdisk wrote the `agent_url`. The rest is large, and new with each heartbeat.
    #[serde(default, deserialize_with = "agent_url")]
    pub driver_internal_info: Value,
}

fn sentence<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.map(|text| short(&text)))
}

fn agent_url<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    let mut info = Value::deserialize(from)?;
    let url = info.get_mut("agent_url").map(Value::take);
    Ok(json!({"agent_url": url}))
}

impl Node {
    /// Where its ramdisk listens, if one has announced itself since the last power action.
    pub fn agent(&self) -> Option<SocketAddr> {
        let url = self.driver_internal_info["agent_url"].as_str()?;
        url.strip_prefix("https://")?.parse().ok()
    }

    /// Whether its power is somebody's to switch; otherwise it is only recorded.
    pub fn has_bmc(&self) -> bool {
        !matches!(self.driver.as_str(), "" | "manual-management")
    }

    /// Whether it has a BMC that may have a virtual drive.
    pub fn speaks_redfish(&self) -> bool {
        self.driver == "redfish"
    }

    /// Whether its BMC says that it is off.
    pub fn is_off(&self) -> bool {
        self.has_bmc() && self.power_state.as_deref() == Some("power off")
    }

    /// Whether it has been told what to write.
    pub fn has_image(&self) -> bool {
        self.instance_info["image_source"].is_string()
    }
}

/// A node as it is created; always `manual-management` with recorded power, because the host reboots itself. Who knows its BMC says so
/// afterwards ([`Client::set_driver`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Chosen by the caller, so that a create that is repeated after a power cut is a conflict and no second node.
    pub uuid: String,
    /// Unique among nodes: a host name, or one made from the MAC.
    pub name: String,
    /// `x86_64`
    pub cpu_arch: String,
    /// `uefi` or `bios`
    pub boot_mode: String,
    /// The caller's own marks, as strings.
    pub extra: Vec<(String, String)>,
}

/// What is to be written, for [`NodePatch::instance_info`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceInfo {
    /// `http://BOX/images/node.raw.zst`
    pub image_source: String,
    /// `sha256`, `sha512` or `md5`
    pub image_os_hash_algo: String,
    /// Of the file as served.
    pub image_os_hash_value: String,
    /// `raw`
    pub image_disk_format: String,
    /// `whole-disk`
    pub image_type: String,
    /// Hints that choose the disk; without them Ironic's rule is the smallest disk of at least 4 GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_device: Option<Value>,
}

/// One change of a node (RFC 6902, `add`, which replaces what is there).
#[derive(Clone, Debug, PartialEq)]
pub enum NodePatch {
    /// All of it at once.
    InstanceInfo(InstanceInfo),
    /// Unique among nodes; a conflict otherwise.
    Name(String),
    /// One mark of the caller's, by its key, which has no `/` or `~`.
    Extra(String, Value),
    /// Whether `deleted` and `provide` clean.
    AutomatedClean(bool),
    /// Never off from now on, only restarted.
    DisablePowerOff,
}

impl NodePatch {
    pub(crate) fn operation(&self) -> Value {
        match self {
            Self::InstanceInfo(info) => {
                json!({"op": "add", "path": "/instance_info", "value": info})
            }
            Self::Name(name) => json!({"op": "add", "path": "/name", "value": name}),
            Self::Extra(key, value) => {
                json!({"op": "add", "path": format!("/extra/{key}"), "value": value})
            }
            Self::AutomatedClean(clean) => {
                json!({"op": "add", "path": "/automated_clean", "value": clean})
            }
            Self::DisablePowerOff => {
                json!({"op": "add", "path": "/disable_power_off", "value": true})
            }
        }
    }
}

impl Client {
    /// All nodes, by pages: in between, Ironic answers others.
    pub async fn nodes(&self) -> Result<Vec<Node>, ClientError> {
        #[derive(Deserialize)]
        struct Page {
            nodes: Vec<Node>,
        }
        let mut all: Vec<Node> = Vec::new();
        loop {
            let marker = all
                .last()
                .map(|node| format!("&marker={}", node.uuid))
                .unwrap_or_default();
            let page: Page = self
                .get(&format!("/v1/nodes?limit={PAGE}&fields={FIELDS}{marker}"))
                .await?;
            let last = page.nodes.len() < PAGE;
            all.extend(page.nodes);
            if last {
                return Ok(all);
            }
        }
    }

    /// By UUID or name.
    pub async fn node(&self, id: &str) -> Result<Node, ClientError> {
        self.get(&format!("/v1/nodes/{id}?fields={FIELDS}")).await
    }

    /// It is `enroll` then. A conflict when the UUID or the name is taken.
    pub async fn create_node(&self, new: &NewNode) -> Result<Node, ClientError> {
        let extra: serde_json::Map<String, Value> = new
            .extra
            .iter()
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect();
        let body = json!({
            "driver": "manual-management",
            "uuid": new.uuid,
            "name": new.name,
            "power_interface": "fake",
            "disable_power_off": true,
            "properties": {"cpu_arch": new.cpu_arch, "capabilities": format!("boot_mode:{}", new.boot_mode)},
            "extra": extra,
        });
        self.call(Method::POST, "/v1/nodes", Some(&body)).await
    }

    /// All of them or none; the node as it is then. A conflict while the node is locked.
    pub async fn patch_node(&self, id: &str, patches: &[NodePatch]) -> Result<Node, ClientError> {
        let operations: Vec<Value> = patches.iter().map(NodePatch::operation).collect();
        self.call(Method::PATCH, &format!("/v1/nodes/{id}"), Some(&operations))
            .await
    }

    /// In maintenance a node may be deleted in every state, and nothing is done by itself.
    pub async fn set_maintenance(&self, id: &str, maintenance: bool) -> Result<(), ClientError> {
        let path = format!("/v1/nodes/{id}/maintenance");
        if maintenance {
            let body = json!({"reason": "Firstlight lets it go"});
            self.order(Method::PUT, &path, Some(&body)).await
        } else {
            self.order(Method::DELETE, &path, None::<&()>).await
        }
    }

    /// Refused while the node is doing something, or is `active` and not in maintenance.
    pub async fn delete_node(&self, id: &str) -> Result<(), ClientError> {
        self.order(Method::DELETE, &format!("/v1/nodes/{id}"), None::<&()>)
            .await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn node() -> Value {
        json!({
            "uuid": "7f3e0b1c-0000-4000-8000-000000000001", "name": "n1", "provision_state": "active",
            "target_provision_state": null, "power_state": "power on", "last_error": "x", "maintenance": false,
            "fault": null, "automated_clean": null, "reservation": null, "inspection_finished_at": null,
            "instance_info": {"image_source": "http://172.22.0.1/n"}, "properties": {}, "extra": {},
            "driver_internal_info": {"agent_url": "https://172.22.0.9:9999"},
        })
    }

    proptest! {
        /// Ramdisks say `agent_url`, and write into `last_error`.
        #[test]
        fn whatever_a_ramdisk_told_ironic_the_node_is_read_or_refused(
            field in prop::sample::select(&[
                "/uuid", "/name", "/provision_state", "/power_state", "/last_error", "/maintenance", "/automated_clean",
                "/instance_info", "/instance_info/image_source", "/driver_internal_info", "/driver_internal_info/agent_url",
            ][..]),
            value in prop_oneof![
                Just(Value::Null), any::<bool>().prop_map(Value::from), any::<i64>().prop_map(Value::from),
                (".{0,8}", 0..1000_usize).prop_map(|(word, times)| Value::from(word.repeat(times))),
                "https://[0-9a-f.:\\[\\]]{0,30}(/.{0,4})?".prop_map(Value::from),
                prop::collection::vec(any::<u64>(), 0..4).prop_map(Value::from),
            ],
        ) {
            let mut said = node();
            *said.pointer_mut(field).unwrap() = value.clone();
            let Ok(node) = Node::deserialize(&said) else {
                return Ok(());
            };
            prop_assert!(node.last_error.as_ref().is_none_or(|text| text.chars().count() <= 1001));
            prop_assert_eq!(node.has_image(), said["instance_info"]["image_source"].is_string());
            let said_url = said["driver_internal_info"]["agent_url"].as_str();
            if let Some(agent) = node.agent() {
                // Nothing but an address and a port: what follows would be somebody else's path.
                prop_assert_eq!(said_url.unwrap().strip_prefix("https://").unwrap().parse(), Ok(agent));
            }
            if field == "/provision_state" && let Some(name) = value.as_str() {
                prop_assert_eq!(node.provision_state.as_str(), name);
                prop_assert_eq!(String::from(node.provision_state), name);
            }
        }

        #[test]
        fn a_heartbeat_makes_no_other_node(time in ".{0,20}") {
            let mut said = node();
            said["driver_internal_info"]["agent_last_heartbeat"] = json!(time);
            prop_assert_eq!(Node::deserialize(&said).unwrap(), Node::deserialize(node()).unwrap());
        }

        #[test]
        fn where_a_ramdisk_listens_is_read_as_it_was_said(address in any::<std::net::Ipv4Addr>(), port: u16) {
            let mut said = node();
            said["driver_internal_info"]["agent_url"] = json!(format!("https://{address}:{port}"));
            prop_assert_eq!(Node::deserialize(&said).unwrap().agent(), Some((address, port).into()));
        }
    }
}
