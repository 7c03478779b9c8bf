//! Nodes: `/v1/nodes`.

use std::net::SocketAddr;

use http::Method;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::{Client, ClientError, ProvisionState, error::short};

/// The fields of a node that we ask for; Ironic has many more.
const FIELDS: &str = "uuid,name,provision_state,target_provision_state,power_state,last_error,maintenance,fault,automated_clean,reservation,\
                      instance_info,properties,extra,driver_internal_info,inspection_finished_at";

/// A node as Ironic shows it, `Node` of the API reference, cut down to the fields that Firstlight asks for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Node {
    /// As in [`NewNode::uuid`].
    pub uuid: String,
    /// Unique if there is one.
    pub name: Option<String>,
    /// Where it is in the state machine.
    pub provision_state: ProvisionState,
    /// What the running change ends in, `active` for one.
    pub target_provision_state: Option<String>,
    /// `power on`, `power off`, or nothing while unknown.
    pub power_state: Option<String>,
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
    /// The conductor that holds the node's lock.
    pub reservation: Option<String>,
    /// Set once an inspection has ended well.
    #[serde(default)]
    pub inspection_finished_at: Option<String>,
    /// What is to be written, as in [`InstanceInfo`]; emptied when the node is deprovisioned.
    #[serde(default)]
    pub instance_info: Value,
    /// What scheduling goes by: `cpu_arch`, `capabilities`.
    #[serde(default)]
    pub properties: Value,
    /// The caller's own marks.
    #[serde(default)]
    pub extra: Value,
    /// What the driver and the ramdisk wrote: `agent_url`, `agent_last_heartbeat`.
    #[serde(default)]
    pub driver_internal_info: Value,
}

fn sentence<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.map(|text| short(&text)))
}

impl Node {
    /// Where its ramdisk listens, if one has announced itself since the last power action.
    pub fn agent(&self) -> Option<SocketAddr> {
        let url = self.driver_internal_info["agent_url"].as_str()?;
        url.strip_prefix("https://")?.parse().ok()
    }

    /// Whether it has been told what to write.
    pub fn has_image(&self) -> bool {
        self.instance_info["image_source"].is_string()
    }
}

/// A node as it is created; always `manual-management` with recorded power, because the host reboots itself.
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
}

impl NodePatch {
    fn operation(&self) -> Value {
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
        }
    }
}

impl Client {
    /// All nodes, by pages of 500.
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
                .get(&format!("/v1/nodes?limit=500&fields={FIELDS}{marker}"))
                .await?;
            let last = page.nodes.len() < 500;
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
