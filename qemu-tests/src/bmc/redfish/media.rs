//! The virtual drive, by DMTF's schemas `Manager` and `VirtualMedia`.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Order, Request, Seen, read};

pub const MANAGERS: &str = "/redfish/v1/Managers";
pub const MANAGER: &str = "/redfish/v1/Managers/1";
const DRIVES: &str = "/redfish/v1/Managers/1/VirtualMedia";
const DRIVE: &str = "/redfish/v1/Managers/1/VirtualMedia/Cd";
const INSERT: &str = "/redfish/v1/Managers/1/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia";
const EJECT: &str = "/redfish/v1/Managers/1/VirtualMedia/Cd/Actions/VirtualMedia.EjectMedia";

/// From where it has what is in it.
pub type Drive = Option<String>;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InsertRequest {
    image: String,
}

/// `None`: it is about something else.
pub fn answer(request: &Request<'_>, path: &str, seen: &Seen) -> Option<Answer> {
    let method = request.method.as_str();
    Some(match (method, path, &seen.drive) {
        ("GET", MANAGERS, _) => Answer::Shown(collection(MANAGERS, "Manager", MANAGER)),
        ("GET", MANAGER, drive) => Answer::Shown(manager(drive.is_some())),
        ("GET", DRIVES, Some(_)) => Answer::Shown(collection(DRIVES, "VirtualMedia", DRIVE)),
        ("GET", DRIVE, Some(drive)) => Answer::Shown(shown(drive)),
        ("POST", INSERT, Some(None)) => read(request.body, |insert: InsertRequest| {
            Answer::Order(Order::Insert(insert.image))
        }),
        ("POST", INSERT, Some(Some(_))) => {
            let why = "The drive is not empty.".to_owned();
            Answer::Refused(StatusCode::CONFLICT, why)
        }
        ("POST", EJECT, Some(_)) => Answer::Order(Order::Eject),
        _ => return None,
    })
}

fn collection(path: &str, kind: &str, only: &str) -> Value {
    json!({
        "@odata.id": path,
        "@odata.type": format!("#{kind}Collection.{kind}Collection"),
        "Name": kind,
        "Members@odata.count": 1,
        "Members": [{"@odata.id": only}],
    })
}

fn manager(has_drive: bool) -> Value {
    let mut manager = json!({
        "@odata.id": MANAGER,
        "@odata.type": "#Manager.v1_5_0.Manager",
        "Id": "1",
        "Name": "BMC of the lab",
        "ManagerType": "BMC",
        "Links": {"ManagerForServers": [{"@odata.id": super::SYSTEM}]},
    });
    if has_drive {
        manager["VirtualMedia"] = json!({"@odata.id": DRIVES});
    }
    manager
}

fn shown(drive: &Drive) -> Value {
    json!({
        "@odata.id": DRIVE,
        "@odata.type": "#VirtualMedia.v1_3_0.VirtualMedia",
        "Id": "Cd",
        "Name": "Virtual CD",
        "MediaTypes": ["CD"],
        "Image": drive,
        "Inserted": drive.is_some(),
        "WriteProtected": true,
        "ConnectedVia": if drive.is_some() { "URI" } else { "NotConnected" },
        "Actions": {
            "#VirtualMedia.InsertMedia": {"target": INSERT},
            "#VirtualMedia.EjectMedia": {"target": EJECT},
        },
    })
}

#[cfg(test)]
mod tests {
    use hyper::Method;
    use lab::Firmware;

    use super::*;
    use crate::bmc::redfish::Boot;

    fn ask(method: &Method, path: &str, drive: Option<Drive>) -> Option<Answer> {
        let body = json!({"Image": "http://172.22.0.1/x.iso", "Inserted": true}).to_string();
        let request = Request {
            method,
            path,
            authorization: None,
            body: body.as_bytes(),
        };
        let seen = Seen {
            is_on: true,
            boot: Boot::default(),
            firmware: Firmware::Uefi,
            drive,
        };
        answer(&request, path, &seen)
    }

    #[test]
    fn a_drive_takes_one_cd_and_lets_go_of_it() {
        let url = "http://172.22.0.1/x.iso".to_owned();
        let full = || Some(Some(url.clone()));
        let insert = Answer::Order(Order::Insert(url.clone()));
        assert_eq!(ask(&Method::POST, INSERT, Some(None)), Some(insert));
        let again = ask(&Method::POST, INSERT, full());
        assert!(matches!(again, Some(Answer::Refused(status, _)) if status == 409));
        let eject = Some(Answer::Order(Order::Eject));
        assert_eq!(ask(&Method::POST, EJECT, full()), eject);
        let Some(Answer::Shown(seen)) = ask(&Method::GET, DRIVE, full()) else {
            panic!("the drive is not shown");
        };
        assert_eq!(
            (&seen["Inserted"], &seen["Image"]),
            (&json!(true), &json!(url))
        );
    }

    #[test]
    fn who_has_no_drive_names_none() {
        let Some(Answer::Shown(seen)) = ask(&Method::GET, MANAGER, None) else {
            panic!("the manager is not shown");
        };
        assert_eq!(seen.get("VirtualMedia"), None);
        assert_eq!(ask(&Method::GET, DRIVE, None), None);
    }
}
