//! The fake's nodes and their state machine, without any I/O.

mod bmc;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::ProvisionState as S;
use bmc::Bmc;

/// A refusal: HTTP status and Ironic's sentence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub u16, pub String);

type Answer = Result<Value, Refusal>;

#[derive(Clone, Debug)]
struct FakeNode {
    uuid: String,
    name: String,
    state: S,
    /// What a busy state becomes once it was read.
    next: Option<S>,
    power: Option<&'static str>,
    last_error: Option<String>,
    properties: Value,
    extra: Value,
    instance_info: Map<String, Value>,
    macs: BTreeSet<String>,
    inventory: Option<Value>,
    inspected: bool,
    token: Option<String>,
    agent_url: Option<String>,
    config_drive: Option<Value>,
    deploys: usize,
    /// Times that a cleaning ended well.
    cleans: usize,
    automated_clean: bool,
    maintenance: bool,
    maintenance_reason: Option<String>,
    fault: Option<&'static str>,
    driver: String,
    bmc: Bmc,
}

#[derive(Debug, Default)]
pub(super) struct Machine {
    nodes: BTreeMap<String, FakeNode>,
    /// The change after so many more is lost.
    pub loses: Option<usize>,
}

fn refuse<T>(status: u16, text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(status, text.into()))
}

impl FakeNode {
    /// A busy state lasts until it has been seen once.
    fn read(&mut self) -> Value {
        let shown = self.show();
        self.bmc.read();
        if let Some(next) = self.next.take() {
            self.state = next;
        }
        shown
    }

    fn show(&self) -> Value {
        let mut internal = Map::new();
        if let Some(url) = &self.agent_url {
            internal.insert("agent_url".into(), json!(url));
        }
        json!({
            "uuid": self.uuid, "name": self.name, "provision_state": self.state.as_str(), "target_provision_state": null,
            "driver": self.driver, "power_state": self.power, "target_power_state": null, "last_error": self.last_error, "maintenance": self.maintenance,
            "maintenance_reason": self.maintenance_reason, "fault": self.fault, "automated_clean": self.automated_clean, "disable_power_off": self.bmc.stays_on,
            "reservation": self.is_busy().then_some("box"), "instance_info": self.instance_info,
            "properties": self.properties, "extra": self.extra, "driver_internal_info": internal,
            "inspection_finished_at": self.inspected.then_some("2026-11-21T00:00:00+00:00"),
        })
    }

    fn is_busy(&self) -> bool {
        self.next.is_some() || self.bmc.is_busy()
    }

    fn forget_agent(&mut self) {
        self.token = None;
        self.agent_url = None;
    }

    fn wants_ramdisk(&self) -> bool {
        // With fast_track: 404 in active and in the failed states.
        matches!(
            self.state,
            S::Enroll
                | S::Manageable
                | S::Available
                | S::Inspecting
                | S::InspectWait
                | S::Cleaning
                | S::CleanWait
                | S::Deploying
                | S::DeployWait
        )
    }

    fn after_tear_down(&self) -> S {
        if self.automated_clean {
            S::CleanWait
        } else {
            S::Available
        }
    }

    fn provision(&mut self, target: &str, body: &Value) -> Result<(), Refusal> {
        let busy = |state, next| (state, Some(next));
        let (state, next) = match (&self.state, target) {
            (S::Enroll, "manage") => {
                if self.ask_bmc().is_err() {
                    (self.state, self.next) = (S::Verifying, Some(S::Enroll));
                    self.last_error.clone_from(&self.bmc.error);
                    return Ok(());
                }
                self.power = self.power.or(self.has_bmc().then_some("power off"));
                busy(S::Verifying, S::Manageable)
            }
            (S::Available | S::InspectFailed | S::CleanFailed | S::AdoptFailed, "manage") => {
                (S::Manageable, None)
            }
            (S::Manageable | S::AdoptFailed, "adopt") => {
                if self.instance_info.contains_key("image_source") {
                    busy(S::Adopting, S::Active)
                } else {
                    busy(S::Adopting, S::AdoptFailed)
                }
            }
            (S::Manageable | S::InspectFailed, "inspect") => {
                self.bmc.boots_once("pxe");
                self.switch("rebooting");
                self.forget_agent();
                busy(S::Inspecting, S::InspectWait)
            }
            (S::InspectWait, "abort") => (S::InspectFailed, None),
            (S::CleanWait, "abort") => (S::CleanFailed, None),
            (S::Manageable, "provide") => busy(S::Cleaning, self.after_tear_down()),
            (S::Available | S::DeployFailed, "active") => {
                if !self.instance_info.contains_key("image_source") {
                    return refuse(
                        400,
                        "Failed to validate deploy or power info: missing ['instance_info.image_source']",
                    );
                }
                self.deploys += 1;
                self.config_drive = body.get("configdrive").cloned();
                self.bmc.deploys_by(&body["deploy_steps"]);
                busy(S::Deploying, S::DeployWait)
            }
            (S::Active | S::DeployFailed | S::DeployWait | S::Error, "deleted") => {
                self.instance_info.clear();
                self.forget_agent();
                if self.has_bmc() {
                    self.switch("power off");
                    if self.automated_clean {
                        self.switch("power on");
                    }
                }
                busy(S::Deleting, self.after_tear_down())
            }
            (state, _) => {
                let text = format!(
                    "The requested action \"{target}\" can not be performed on node \"{}\" while it is in state \"{state}\".",
                    self.uuid
                );
                return refuse(400, text);
            }
        };
        (self.state, self.next, self.last_error) = (state, next, None);
        Ok(())
    }
}

impl Machine {
    fn find(&mut self, id: &str) -> Result<&mut FakeNode, Refusal> {
        let found = self
            .nodes
            .values_mut()
            .find(|node| node.uuid == id || node.name == id);
        found.ok_or_else(|| Refusal(404, format!("Node {id} could not be found.")))
    }

    fn free(&mut self, id: &str) -> Result<&mut FakeNode, Refusal> {
        let node = self.find(id)?;
        if node.is_busy() {
            return refuse(
                409,
                format!(
                    "Node {} is locked by host box, please retry after the current operation is completed.",
                    node.uuid
                ),
            );
        }
        Ok(node)
    }

    pub fn list(&mut self) -> Value {
        json!({"nodes": self.nodes.values_mut().map(FakeNode::read).collect::<Vec<_>>()})
    }

    pub fn get(&mut self, id: &str) -> Answer {
        Ok(self.find(id)?.read())
    }

    pub fn create(&mut self, body: &Value) -> Answer {
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        let uuid = text("uuid").unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let Some(name) = text("name") else {
            return refuse(400, "name is missing");
        };
        if self.find(&name).is_ok() {
            return refuse(409, format!("A node with name {name} already exists."));
        }
        if self.nodes.contains_key(&uuid) {
            return refuse(409, format!("A node with UUID {uuid} already exists."));
        }
        let node = FakeNode {
            uuid: uuid.clone(),
            name,
            state: S::Enroll,
            next: None,
            power: None,
            last_error: None,
            properties: body["properties"].clone(),
            extra: body["extra"].clone(),
            instance_info: Map::new(),
            macs: BTreeSet::new(),
            inventory: None,
            inspected: false,
            token: None,
            agent_url: None,
            config_drive: None,
            deploys: 0,
            cleans: 0,
            automated_clean: false,
            maintenance: false,
            maintenance_reason: None,
            fault: None,
            driver: text("driver").unwrap_or_default(),
            bmc: Bmc::new(body["disable_power_off"] == json!(true)),
        };
        let shown = node.show();
        self.nodes.insert(uuid, node);
        Ok(shown)
    }

    pub fn delete(&mut self, id: &str) -> Answer {
        let node = self.free(id)?;
        let free = matches!(
            node.state,
            S::Enroll | S::Manageable | S::Available | S::AdoptFailed
        );
        if !free && !node.maintenance {
            return refuse(
                409,
                format!(
                    "Can not delete node \"{}\" while it is in provision state \"{}\".",
                    node.uuid, node.state
                ),
            );
        }
        let uuid = node.uuid.clone();
        self.nodes.remove(&uuid);
        Ok(Value::Null)
    }

    pub fn patch(&mut self, id: &str, operations: &Value) -> Answer {
        let node = self.free(id)?;
        for operation in operations.as_array().into_iter().flatten() {
            let (path, value) = (
                operation["path"].as_str().unwrap_or_default(),
                operation["value"].clone(),
            );
            match path.trim_start_matches('/').split_once('/') {
                None if path == "/instance_info" => {
                    node.instance_info = value.as_object().cloned().unwrap_or_default();
                }
                None if path == "/name" => {
                    value
                        .as_str()
                        .unwrap_or_default()
                        .clone_into(&mut node.name);
                }
                None if path == "/automated_clean" => {
                    node.automated_clean = value.as_bool().unwrap_or(false);
                }
                None if path == "/driver" => {
                    let is_held =
                        matches!(node.state, S::Active | S::CleanFailed | S::DeployFailed);
                    let driver = value.as_str().unwrap_or_default();
                    if is_held && !node.maintenance && driver != node.driver {
                        return refuse(
                            409,
                            "It can not have power_interface updated unless it is in maintenance mode",
                        );
                    }
                    driver.clone_into(&mut node.driver);
                }
                None if path == "/driver_info" => node.bmc.info = value,
                None if path == "/disable_power_off" => {
                    node.bmc.stays_on = value == json!(true);
                }
                // Which driver it has says so.
                None if path == "/power_interface" => {}
                Some(("extra", key)) => node.extra[key] = value,
                _ => return refuse(400, format!("Attribute {path} cannot be changed here")),
            }
        }
        Ok(node.show())
    }

    /// `reason`: as it begins with one; without one it ends.
    pub fn set_maintenance(&mut self, id: &str, reason: Option<&str>) -> Answer {
        let node = self.free(id)?;
        node.maintenance = reason.is_some();
        node.maintenance_reason = reason.map(str::to_owned);
        node.fault = node.fault.filter(|_| node.maintenance);
        Ok(Value::Null)
    }

    pub fn create_port(&mut self, body: &Value) -> Answer {
        let mac = body["address"].as_str().unwrap_or_default().to_lowercase();
        if self.nodes.values().any(|node| node.macs.contains(&mac)) {
            return refuse(
                409,
                format!("A port with MAC address {mac} already exists."),
            );
        }
        let node = self.find(body["node_uuid"].as_str().unwrap_or_default())?;
        node.macs.insert(mac.clone());
        Ok(json!({"uuid": uuid::Uuid::new_v4().to_string(), "address": mac}))
    }

    pub fn ports(&mut self, id: &str) -> Answer {
        let node = self.find(id)?;
        Ok(
            json!({"ports": node.macs.iter().map(|mac| json!({"uuid": mac, "address": mac})).collect::<Vec<_>>()}),
        )
    }

    pub fn provision(&mut self, id: &str, body: &Value) -> Answer {
        self.free(id)?
            .provision(body["target"].as_str().unwrap_or_default(), body)?;
        Ok(Value::Null)
    }

    pub fn inventory(&mut self, id: &str) -> Answer {
        match &self.find(id)?.inventory {
            Some(inventory) => Ok(json!({"inventory": inventory, "plugin_data": {}})),
            None => refuse(404, "Introspection data not found for node"),
        }
    }

    pub fn lookup(&mut self, macs: &str) -> Answer {
        let asked: BTreeSet<String> = macs.split(',').map(str::to_lowercase).collect();
        let node = self
            .nodes
            .values_mut()
            .find(|node| !node.macs.is_disjoint(&asked) && node.wants_ramdisk());
        let Some(node) = node else {
            return refuse(404, "Resource could not be found.");
        };
        let token = if node.token.is_some() {
            "******".to_owned()
        } else {
            node.token.insert(uuid::Uuid::new_v4().to_string()).clone()
        };
        Ok(
            json!({"node": {"uuid": node.uuid}, "config": {"agent_token": token, "heartbeat_timeout": 30}}),
        )
    }

    pub fn heartbeat(&mut self, id: &str, body: &Value) -> Answer {
        let node = self.find(id)?;
        if node.token.is_none() || node.token.as_deref() != body["agent_token"].as_str() {
            return refuse(400, "Invalid or missing agent token received.");
        }
        node.agent_url = body["callback_url"].as_str().map(str::to_owned);
        Ok(Value::Null)
    }

    pub fn continue_inspection(&mut self, body: &Value) -> Answer {
        let inventory = &body["inventory"];
        let macs: BTreeSet<String> = inventory["interfaces"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|interface| interface["mac_address"].as_str().map(str::to_lowercase))
            .collect();
        let waits =
            |node: &&mut FakeNode| node.state == S::InspectWait && !node.macs.is_disjoint(&macs);
        let Some(node) = self.nodes.values_mut().find(waits) else {
            return refuse(404, "Resource could not be found.");
        };
        (node.state, node.next) = (S::Inspecting, Some(S::Manageable));
        node.inspected = !inventory["cpu"]["architecture"].is_null();
        if !node.inspected {
            node.next = Some(S::InspectFailed);
            node.last_error = Some("Failed to finish inspection: no CPU architecture".into());
        }
        node.inventory = Some(inventory.clone());
        let token = uuid::Uuid::new_v4().to_string();
        node.token = Some(token.clone());
        Ok(
            json!({"node": {"uuid": node.uuid}, "config": {"agent_token": token, "heartbeat_timeout": 30}}),
        )
    }

    pub fn finish_deploy(&mut self, id: &str) {
        let node = self.find(id).expect("a test names a node that it created");
        assert_eq!(
            node.state,
            S::DeployWait,
            "only a deployment that waits for the ramdisk can end"
        );
        (node.state, node.next) = (S::Deploying, Some(S::Active));
        node.forget_agent();
        node.leave_ramdisk();
    }

    pub fn fail_deploy(&mut self, id: &str, reason: &str) {
        let node = self.find(id).expect("a test names a node that it created");
        assert_eq!(
            node.state,
            S::DeployWait,
            "only a deployment that waits for the ramdisk can fail"
        );
        (node.state, node.last_error) = (S::DeployFailed, Some(reason.to_owned()));
        node.forget_agent();
    }

    pub fn finish_clean(&mut self, id: &str) {
        let node = self.find(id).expect("a test names a node that it created");
        assert_eq!(
            node.state,
            S::CleanWait,
            "only a cleaning that waits for the ramdisk can end"
        );
        (node.state, node.next) = (S::Cleaning, Some(S::Available));
        node.cleans += 1;
    }

    pub fn fail_clean(&mut self, id: &str, reason: &str) {
        let node = self.find(id).expect("a test names a node that it created");
        assert_eq!(
            node.state,
            S::CleanWait,
            "only a cleaning that waits for the ramdisk can fail"
        );
        (node.state, node.last_error) = (S::CleanFailed, Some(reason.to_owned()));
        (node.maintenance, node.fault) = (true, Some("clean failure"));
        node.forget_agent();
    }

    pub fn restart(&mut self) {
        for node in self.nodes.values_mut() {
            let failed = match node.state {
                S::Deploying => S::DeployFailed,
                S::Inspecting => S::InspectFailed,
                S::Cleaning => S::CleanFailed,
                S::Verifying => S::Enroll,
                S::Deleting => S::Error,
                S::Adopting => S::AdoptFailed,
                _ => continue,
            };
            node.last_error = Some(format!(
                "The {} state can't be resumed by conductor box. Moving to fail state.",
                node.state
            ));
            (node.state, node.next) = (failed, None);
            node.forget_agent();
        }
    }

    pub fn deploys(&mut self, id: &str) -> usize {
        self.find(id).map_or(0, |node| node.deploys)
    }

    pub fn cleans(&mut self, id: &str) -> usize {
        self.find(id).map_or(0, |node| node.cleans)
    }

    pub fn has_agent(&mut self, id: &str) -> bool {
        self.find(id).is_ok_and(|node| node.agent_url.is_some())
    }

    pub fn state(&mut self, id: &str) -> Option<S> {
        self.find(id).ok().map(|node| node.state.clone())
    }

    pub fn config_drive(&mut self, id: &str) -> Option<Value> {
        self.find(id).ok()?.config_drive.clone()
    }
}
