//! What the BMC says, by DMTF's schemas `ServiceRoot`, `ComputerSystemCollection` and `ComputerSystem`: as much of it as Ironic's
//! library asks for; [`media`] has the virtual drive. Pure: a request and what the machine is like in, an answer or an order out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::{Method, StatusCode};
use lab::Firmware;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

mod media;

pub use media::Drive;

pub const USER: &str = "admin";
pub const PASSWORD: &str = "hunter2";

const ROOT: &str = "/redfish/v1";
const SYSTEMS: &str = "/redfish/v1/Systems";
/// The one system.
pub const SYSTEM: &str = "/redfish/v1/Systems/1";
pub const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";

pub struct Request<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub authorization: Option<&'a str>,
    pub body: &'a [u8],
}

/// What the machine is like.
pub struct Seen {
    pub is_on: bool,
    pub boot: Boot,
    pub firmware: Firmware,
    /// What is in its virtual drive, if it has one.
    pub drive: Option<Drive>,
}

#[derive(Debug, PartialEq)]
pub enum Answer {
    Shown(Value),
    Refused(StatusCode, String),
    Order(Order),
}

#[derive(Debug, PartialEq)]
pub enum Order {
    Reset(Reset),
    Boot(Boot),
    Insert(String),
    Eject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Reset {
    On,
    ForceOff,
    ForceRestart,
    GracefulShutdown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    #[default]
    None,
    Pxe,
    Cd,
    Hdd,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Enabled {
    #[default]
    Disabled,
    Once,
    Continuous,
}

/// `Boot` of a `ComputerSystem`: what is to be started instead of what its firmware would choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    pub target: Target,
    pub enabled: Enabled,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ResetRequest {
    reset_type: Reset,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct SystemPatch {
    boot: BootPatch,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BootPatch {
    #[serde(rename = "BootSourceOverrideTarget")]
    target: Option<Target>,
    #[serde(rename = "BootSourceOverrideEnabled")]
    enabled: Option<Enabled>,
    #[serde(rename = "BootSourceOverrideMode")]
    mode: Option<String>,
}

pub fn answer(request: &Request<'_>, seen: &Seen) -> Answer {
    let path = request.path.trim_end_matches('/');
    // DSP0266: the root is for everybody.
    if path != ROOT && !is_known(request.authorization) {
        let why = "The user or the password is wrong.".to_owned();
        return Answer::Refused(StatusCode::UNAUTHORIZED, why);
    }
    match (request.method.as_str(), path) {
        ("GET", ROOT) => Answer::Shown(root()),
        ("GET", SYSTEMS) => Answer::Shown(systems()),
        ("GET", SYSTEM) => Answer::Shown(system(seen)),
        ("PATCH", SYSTEM) => read(request.body, |patch| patched(patch, seen)),
        ("POST", RESET) => read(request.body, |reset: ResetRequest| {
            Answer::Order(Order::Reset(reset.reset_type))
        }),
        _ if let Some(answer) = media::answer(request, path, seen) => answer,
        (_, ROOT | SYSTEMS | SYSTEM | RESET) => Answer::Refused(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{} is not possible here.", request.method),
        ),
        _ => Answer::Refused(StatusCode::NOT_FOUND, format!("There is no {path}.")),
    }
}

fn is_known(authorization: Option<&str>) -> bool {
    let known = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    authorization.and_then(|said| said.strip_prefix("Basic ")) == Some(&known)
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8], then: impl FnOnce(T) -> Answer) -> Answer {
    match serde_json::from_slice(body) {
        Ok(read) => then(read),
        Err(error) => Answer::Refused(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

fn patched(patch: SystemPatch, seen: &Seen) -> Answer {
    let BootPatch {
        target,
        enabled,
        mode,
    } = patch.boot;
    if let Some(mode) = mode.filter(|wanted| wanted != self::mode(seen.firmware)) {
        let why = format!("This system cannot start as {mode}.");
        return Answer::Refused(StatusCode::BAD_REQUEST, why);
    }
    Answer::Order(Order::Boot(Boot {
        target: target.unwrap_or(seen.boot.target),
        enabled: enabled.unwrap_or(seen.boot.enabled),
    }))
}

fn mode(firmware: Firmware) -> &'static str {
    match firmware {
        Firmware::Bios => "Legacy",
        Firmware::Uefi | Firmware::SecureBoot => "UEFI",
    }
}

fn root() -> Value {
    json!({
        "@odata.id": ROOT,
        "@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot",
        "Id": "RootService",
        "Name": "BMC of the lab",
        "RedfishVersion": "1.5.0",
        "Systems": {"@odata.id": SYSTEMS},
        "Managers": {"@odata.id": media::MANAGERS},
    })
}

fn systems() -> Value {
    json!({
        "@odata.id": SYSTEMS,
        "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection",
        "Name": "Systems",
        "Members@odata.count": 1,
        "Members": [{"@odata.id": SYSTEM}],
    })
}

fn system(seen: &Seen) -> Value {
    json!({
        "@odata.id": SYSTEM,
        "@odata.type": "#ComputerSystem.v1_5_0.ComputerSystem",
        "Id": "1",
        "Name": "A virtual machine",
        "SystemType": "Virtual",
        "Links": {"ManagedBy": [{"@odata.id": media::MANAGER}]},
        "PowerState": if seen.is_on { "On" } else { "Off" },
        "Boot": {
            "BootSourceOverrideEnabled": seen.boot.enabled,
            "BootSourceOverrideTarget": seen.boot.target,
            "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Cd", "Hdd"],
            "BootSourceOverrideMode": mode(seen.firmware),
        },
        "Actions": {"#ComputerSystem.Reset": {
            "target": RESET,
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "ForceRestart", "GracefulShutdown"],
        }},
    })
}

/// As DSP0266 has it.
pub fn error(why: &str) -> Value {
    json!({"error": {"code": "Base.1.0.GeneralError", "message": why}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &Method, path: &str, password: &str, body: &Value) -> Answer {
        let word = STANDARD.encode(format!("{USER}:{password}"));
        let (authorization, body) = (format!("Basic {word}"), body.to_string());
        let request = Request {
            method,
            path,
            authorization: Some(&authorization),
            body: body.as_bytes(),
        };
        let seen = Seen {
            is_on: false,
            boot: Boot::default(),
            firmware: Firmware::Uefi,
            drive: Some(None),
        };
        answer(&request, &seen)
    }

    fn status(answer: &Answer) -> u16 {
        match answer {
            Answer::Refused(status, _) => status.as_u16(),
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn who_does_not_know_the_password_sees_the_root_alone() {
        let nothing = Value::Null;
        let root = ask(&Method::GET, "/redfish/v1/", "wrong", &nothing);
        assert!(matches!(root, Answer::Shown(_)), "{root:?}");
        for (method, path) in [(&Method::GET, SYSTEM), (&Method::POST, RESET)] {
            assert_eq!(status(&ask(method, path, "wrong", &nothing)), 401);
        }
    }

    #[test]
    fn a_machine_is_ordered_about_by_what_the_schema_knows() {
        let boot = |change: Value| ask(&Method::PATCH, SYSTEM, PASSWORD, &json!({"Boot": change}));
        assert_eq!(
            boot(
                json!({"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once",
                "BootSourceOverrideMode": "UEFI"})
            ),
            Answer::Order(Order::Boot(Boot {
                target: Target::Pxe,
                enabled: Enabled::Once
            }))
        );
        for change in [
            json!({"BootSourceOverrideTarget": "Floppy"}),
            json!({"BootSourceOverrideMode": "Legacy"}),
            json!({"Unknown": 1}),
        ] {
            assert_eq!(status(&boot(change)), 400);
        }
        let reset = |kind| ask(&Method::POST, RESET, PASSWORD, &json!({"ResetType": kind}));
        assert_eq!(reset("On"), Answer::Order(Order::Reset(Reset::On)));
        assert_eq!(status(&reset("Nmi")), 400);
        assert_eq!(
            status(&ask(&Method::DELETE, SYSTEM, PASSWORD, &Value::Null)),
            405
        );
    }
}
