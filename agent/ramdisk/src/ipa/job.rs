//! Commands of Ironic parsed once into values that cannot be wrong. Names and parameters: `ironic-python-agent`'s
//! extensions `deploy`, `clean`, `standby`, `image`, `system`, `log` and `poll`.
//!
//! Must not: do anything. To add a command: an arm in [`plan`], and a variant of [`Job`] if it takes time.

use firstlight_api::disk::hints::Hints;
use firstlight_api::order::DiskOrder;
use firstlight_api::start::StartOrder;
use serde_json::{Value, json};

use crate::deploy::image::{Digest, ImageRequest};

/// Ironic gives this back as `deploy_version` and `clean_version`; a constant never mismatches.
const MANAGER: &str = "FirstlightHardwareManager";

/// Work that runs beside the command API.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    WriteImage(Box<WriteImage>),
    Erase(Box<Erase>),
    InstallBootEntry,
    /// Write back everything.
    Sync,
    CollectLogs,
    HardwareInfo,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WriteImage {
    pub image: ImageRequest,
    /// base64(gzip(ISO)) or a URL.
    pub config_drive: Option<String>,
    pub target: Target,
    pub order: Option<DiskOrder>,
    pub start: StartOrder,
    /// Echoed in the result.
    pub step: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Erase {
    pub scope: EraseScope,
    pub target: Target,
    pub order: Option<DiskOrder>,
    /// Echoed in the result.
    pub step: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraseScope {
    /// Partition tables and signatures.
    Metadata,
    /// Every byte.
    Everything,
    /// Whatever the disk can do at once (discard), and its metadata.
    Express,
}

/// Which disks a step means.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// For the root disk.
    pub hints: Option<Hints>,
    /// `properties.skip_block_devices`: disks never to be touched.
    pub skip: Vec<Hints>,
}

/// What to do with a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// The result is known at once.
    Now(Value),
    /// The caller waits for the result, whatever it asked for.
    Sync(Job),
    /// The caller gets `RUNNING` and looks again.
    Background(Job),
}

/// Why a command is refused before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    UnknownExtension(String),
    UnknownCommand(String),
    Malformed(String),
}

/// Parses one command.
pub fn plan(name: &str, params: &Value, md5_allowed: bool) -> Result<Plan, Refusal> {
    let (extension, command) = name
        .split_once('.')
        .ok_or_else(|| Refusal::UnknownCommand(name.to_owned()))?;
    let unknown = || Refusal::UnknownCommand(name.to_owned());
    match (extension, command) {
        ("deploy", "get_deploy_steps") => Ok(Plan::Now(deploy_steps())),
        ("deploy", "execute_deploy_step") => deploy_step(params, md5_allowed),
        ("clean", "get_clean_steps") => Ok(Plan::Now(clean_steps())),
        ("clean", "execute_clean_step") => clean_step(params),
        ("standby", "get_partition_uuids") => Ok(Plan::Now(json!({}))),
        ("standby", "sync") | ("system", "lockdown") => Ok(Plan::Sync(Job::Sync)),
        ("standby", "run_image" | "power_off") => Ok(Plan::Background(Job::Sync)),
        ("image", "install_bootloader") => Ok(Plan::Background(Job::InstallBootEntry)),
        ("log", "collect_system_logs") => Ok(Plan::Sync(Job::CollectLogs)),
        ("poll", "get_hardware_info") => Ok(Plan::Sync(Job::HardwareInfo)),
        ("deploy" | "clean" | "standby" | "system" | "image" | "log" | "poll", _) => Err(unknown()),
        _ => Err(Refusal::UnknownExtension(extension.to_owned())),
    }
}

/// Whether Ironic can switch this node off and on by itself, as far as its dump says.
pub fn has_remote_power(node: &Value) -> bool {
    let text = |key: &str| node.get(key).and_then(Value::as_str).unwrap_or_default();
    !(text("driver") == "manual-management"
        || matches!(text("power_interface"), "fake" | "agent" | "noop"))
}

fn deploy_steps() -> Value {
    let steps = json!([{
        "step": "write_image", "priority": 0, "interface": "deploy",
        "reboot_requested": false, "abortable": false,
    }]);
    json!({"deploy_steps": {MANAGER: steps}, "hardware_manager_version": {MANAGER: "1"}})
}

fn clean_steps() -> Value {
    let step = |name: &str, priority: u32| {
        json!({
            "step": name, "priority": priority, "interface": "deploy",
            "reboot_requested": false, "abortable": true,
        })
    };
    let steps = json!([
        step("erase_devices", 10),
        step("erase_devices_metadata", 99),
        step("erase_devices_express", 0),
    ]);
    json!({"clean_steps": {MANAGER: steps}, "hardware_manager_version": {MANAGER: "1"}})
}

fn deploy_step(params: &Value, md5_allowed: bool) -> Result<Plan, Refusal> {
    let (step, name) = step_of(params)?;
    if name != "write_image" {
        return Err(Refusal::Malformed(format!(
            "this ramdisk has no deploy step {name}; it has write_image"
        )));
    }
    let args = &step["args"];
    let info = &args["image_info"];
    let image = image_request(info, md5_allowed).map_err(Refusal::Malformed)?;
    let config_drive = [&args["configdrive"], &info["configdrive"]]
        .into_iter()
        .find_map(|v| v.as_str().filter(|s| !s.is_empty()))
        .map(str::to_owned);
    Ok(Plan::Background(Job::WriteImage(Box::new(WriteImage {
        image,
        config_drive,
        target: target(params)?,
        order: order(params)?,
        start: StartOrder::of_node(&params["node"]).map_err(Refusal::Malformed)?,
        step: step.clone(),
    }))))
}

fn clean_step(params: &Value) -> Result<Plan, Refusal> {
    let (step, name) = step_of(params)?;
    let scope = match name {
        "erase_devices_metadata" => EraseScope::Metadata,
        "erase_devices" => EraseScope::Everything,
        "erase_devices_express" => EraseScope::Express,
        other => {
            return Err(Refusal::Malformed(format!(
                "this ramdisk has no clean step {other}; it has erase_devices_metadata, erase_devices and \
                 erase_devices_express"
            )));
        }
    };
    Ok(Plan::Background(Job::Erase(Box::new(Erase {
        scope,
        target: target(params)?,
        order: order(params)?,
        step: step.clone(),
    }))))
}

fn step_of(params: &Value) -> Result<(&Value, &str), Refusal> {
    let step = &params["step"];
    let name = step["step"]
        .as_str()
        .ok_or_else(|| Refusal::Malformed("params.step.step must be a name".to_owned()))?;
    Ok((step, name))
}

fn target(params: &Value) -> Result<Target, Refusal> {
    let node = &params["node"];
    let parse =
        |v: &Value| Hints::parse(v).map_err(|e| Refusal::Malformed(format!("root_device: {e}")));
    let hints = [
        &node["instance_info"]["root_device"],
        &node["properties"]["root_device"],
    ]
    .into_iter()
    .find(|v| v.as_object().is_some_and(|o| !o.is_empty()))
    .map(parse)
    .transpose()?;
    let skip = node["properties"]["skip_block_devices"]
        .as_array()
        .map_or(Ok(Vec::new()), |list| list.iter().map(parse).collect())?;
    Ok(Target { hints, skip })
}

/// What the box has said about this machine's disks.
fn order(params: &Value) -> Result<Option<DiskOrder>, Refusal> {
    DiskOrder::of_node(&params["node"]).map_err(Refusal::Malformed)
}

fn image_request(info: &Value, md5_allowed: bool) -> Result<ImageRequest, String> {
    let text = |key: &str| info[key].as_str().filter(|s| !s.is_empty());
    let urls: Vec<String> = info["urls"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect();
    if urls.is_empty() {
        return Err("image_info.urls names no URL".to_owned());
    }
    let digest = match (text("os_hash_algo"), text("os_hash_value"), text("checksum")) {
        (Some(algorithm), Some(value), _) => Digest::parse(algorithm, value, md5_allowed)?,
        (_, _, Some(checksum)) => Digest::guess(checksum, md5_allowed)?,
        _ => return Err(
            "image_info has neither os_hash_algo with os_hash_value nor checksum: an image is never written unchecked"
                .to_owned(),
        ),
    };
    let authorization = match (
        text("image_request_authorization"),
        text("image_server_user"),
    ) {
        (Some(header), _) => Some(header.to_owned()),
        (None, Some(user)) => Some(basic(
            user,
            text("image_server_password").unwrap_or_default(),
        )),
        (None, None) => None,
    };
    Ok(ImageRequest {
        urls,
        format: text("disk_format").map(str::to_owned),
        digest,
        authorization,
    })
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Basic {pair}")
}
