//! What the fake's nodes do by their BMCs.

use serde_json::{Value, json};

use super::{Answer, FakeNode, Machine, Refusal, S, refuse};
use crate::fake::Switch;

/// The BMC of a node that has one.
#[derive(Clone, Debug, Default)]
pub struct Bmc {
    pub info: Value,
    /// Why it does not answer.
    pub error: Option<String>,
    /// `disable_power_off`
    pub stays_on: bool,
    /// `boot_instance` is no step of the deployment.
    ramdisk_starts: bool,
    /// The next boot is from there.
    next: Option<Device>,
    cd: Cd,
    /// What happened to the machine, and nobody took note of.
    done: Vec<Switch>,
}

#[derive(Clone, Copy, Debug)]
enum Device {
    Network,
    Cd,
}

/// Its virtual drive.
#[derive(Clone, Debug, Default)]
struct Cd {
    /// From where its BMC has what is in it.
    url: Option<String>,
    /// Why nothing can be put in or taken out.
    error: Option<String>,
    /// Until somebody has looked.
    moves: bool,
}

impl Bmc {
    pub fn new(stays_on: bool) -> Self {
        Self {
            stays_on,
            ..Self::default()
        }
    }

    pub fn boots_once(&mut self, device: &str) {
        self.next = match device {
            "pxe" => Some(Device::Network),
            "cdrom" => Some(Device::Cd),
            _ => None,
        };
    }

    /// Of the request for `active`.
    pub fn deploys_by(&mut self, steps: &Value) {
        let left_out =
            json!({"interface": "deploy", "step": "boot_instance", "args": {}, "priority": 0});
        let steps = steps.as_array().map_or(&[][..], Vec::as_slice);
        self.ramdisk_starts = steps.contains(&left_out);
    }

    pub fn is_busy(&self) -> bool {
        self.cd.moves
    }

    pub fn read(&mut self) {
        self.cd.moves = false;
    }

    /// How it starts now.
    fn start(&mut self, at_once: bool) -> Switch {
        match self.next.take() {
            Some(Device::Network) => Switch::Network,
            Some(Device::Cd) if self.cd.url.is_some() => Switch::Cd,
            None if at_once => Switch::Restart,
            None | Some(Device::Cd) => Switch::Disk,
        }
    }
}

impl FakeNode {
    pub fn has_bmc(&self) -> bool {
        self.driver != "manual-management"
    }

    pub fn ask_bmc(&self) -> Result<(), Refusal> {
        match &self.bmc.error {
            Some(error) if self.has_bmc() => refuse(500, error),
            _ => Ok(()),
        }
    }

    pub fn switch(&mut self, target: &str) {
        let was_on = self.power == Some("power on");
        let on = matches!(target, "power on" | "rebooting");
        self.power = Some(if on { "power on" } else { "power off" });
        if !self.has_bmc() {
            return;
        }
        let at_once = was_on && on && self.bmc.stays_on;
        if was_on && target != "power on" && !at_once {
            self.bmc.done.push(Switch::Off);
        }
        if on && !(was_on && target == "power on") {
            let start = self.bmc.start(at_once);
            self.bmc.done.push(start);
        }
    }

    /// The ramdisk has done its part.
    pub fn leave_ramdisk(&mut self) {
        if !self.has_bmc() {
            return;
        }
        self.bmc.boots_once("disk");
        match (self.bmc.stays_on, self.bmc.ramdisk_starts) {
            // It is off before its system can be started.
            (false, true) => self.switch("power off"),
            (true, true) => {}
            (_, false) => self.switch("rebooting"),
        }
    }

    fn move_cd(&mut self, url: Option<&str>) -> Result<(), Refusal> {
        if self.driver != "redfish" {
            return refuse(400, format!("Driver {} does not support it.", self.driver));
        }
        self.bmc.cd.moves = true;
        self.last_error = self.bmc.error.clone().or(self.bmc.cd.error.clone());
        if self.last_error.is_none() {
            self.bmc.cd.url = url.map(str::to_owned);
        }
        Ok(())
    }
}

impl Machine {
    pub fn power(&mut self, id: &str, target: &str) -> Answer {
        let node = self.free(id)?;
        if matches!(node.state, S::CleanWait | S::DeployWait) {
            return refuse(
                400,
                format!(
                    "The requested action \"{target}\" can not be performed on node \"{}\" while it is in state \"{}\".",
                    node.uuid, node.state
                ),
            );
        }
        node.ask_bmc()?;
        if node.bmc.stays_on && target.ends_with("off") {
            return refuse(400, "The node has disable_power_off set");
        }
        node.switch(target);
        if target != "power on" {
            node.forget_agent();
        }
        Ok(Value::Null)
    }

    pub fn ask_bmc(&mut self, id: &str) -> Answer {
        let node = self.free(id)?;
        node.ask_bmc()?;
        Ok(json!({"boot_device": null, "persistent": null}))
    }

    pub fn boot_device(&mut self, id: &str, body: &Value) -> Answer {
        let node = self.free(id)?;
        node.ask_bmc()?;
        let device = body["boot_device"].as_str();
        node.bmc.boots_once(device.unwrap_or_default());
        Ok(Value::Null)
    }

    pub fn attach_cd(&mut self, id: &str, body: &Value) -> Answer {
        let url = body["image_url"].as_str();
        // By default Ironic would keep a copy of its own.
        let is_fetched_by_bmc = body["image_download_source"] == "http";
        let (Some(url), true) = (url, is_fetched_by_bmc && body["device_type"] == "cdrom") else {
            return refuse(400, "Schema error for vmedia");
        };
        self.free(id)?.move_cd(Some(url))?;
        Ok(Value::Null)
    }

    pub fn detach_cd(&mut self, id: &str, types: &str) -> Answer {
        if types != "cdrom" {
            return refuse(400, "Invalid device type(s)");
        }
        self.free(id)?.move_cd(None)?;
        Ok(Value::Null)
    }

    pub fn set_bmc(&mut self, id: &str, error: Option<&str>) {
        let node = self.find(id).expect("a test names a node that it created");
        node.bmc.error = error.map(str::to_owned);
        let fails = error.is_some() && node.state != S::Enroll;
        (node.maintenance, node.fault) = (fails, fails.then_some("power failure"));
    }

    pub fn set_cd_drive(&mut self, id: &str, error: Option<&str>) {
        let node = self.find(id).expect("a test names a node that it created");
        node.bmc.cd.error = error.map(str::to_owned);
    }

    pub fn cd(&mut self, id: &str) -> Option<String> {
        self.find(id).ok()?.bmc.cd.url.clone()
    }

    pub fn switched(&mut self, id: &str) -> Vec<Switch> {
        let found = self.find(id);
        found.map_or_else(|_| Vec::new(), |node| std::mem::take(&mut node.bmc.done))
    }

    pub fn driver(&mut self, id: &str) -> Option<(String, Value)> {
        let node = self.find(id).ok()?;
        Some((node.driver.clone(), node.bmc.info.clone()))
    }

    /// A person has pressed its button, and Ironic has seen it.
    pub fn press_button(&mut self, id: &str) {
        let node = self.find(id).expect("a test names a node that it created");
        node.power = Some(match node.power {
            Some("power on") => "power off",
            _ => "power on",
        });
    }
}
