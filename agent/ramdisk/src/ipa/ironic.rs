//! Ironic as a ramdisk sees it: inspection, lookup, heartbeat.

use std::time::Duration;

use serde_json::{Value, json};

use super::event::{Beaten, Node, Registration};
use crate::deploy::chain;
use crate::deploy::http::{Client, HttpError, Request};

const VERSION_HEADER: &str = "x-openstack-ironic-api-version";
/// The first whose answer to an inventory is that of a lookup, token included.
const INSPECTION_VERSION: &str = "1.84";
/// The first with `agent_verify_ca`.
const VERSION: &str = "1.68";
const ANSWER_LIMIT: u64 = 16 << 20;
/// What Ironic shows instead of a token that was handed out before.
const HIDDEN: &str = "******";

#[derive(Clone, Debug)]
pub struct Ironic {
    client: Client,
    /// `https://BOX:6385`
    base: String,
    /// Where inventories go.
    inspection: String,
}

impl Ironic {
    pub fn new(client: Client, base: &str, inspection: Option<&str>) -> Self {
        let base = base
            .trim_end_matches('/')
            .trim_end_matches("/v1")
            .to_owned();
        let inspection =
            inspection.map_or_else(|| format!("{base}/v1/continue_inspection"), str::to_owned);
        Self {
            client,
            base,
            inspection,
        }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Offers the inventory.
    pub fn inspect(&self, node: Option<&str>, body: &Value) -> Registration {
        let bytes = body.to_string().into_bytes();
        let url = node.map_or_else(
            || self.inspection.clone(),
            |node| format!("{}?node_uuid={node}", self.inspection),
        );
        let post = |version: bool| {
            let request = Request::post_json(&url, &bytes);
            self.send(if version {
                request.header(VERSION_HEADER, INSPECTION_VERSION)
            } else {
                request
            })
        };
        // An Ironic of before 2023 does not know the version, but inspection all the same.
        let reply = match post(true) {
            Ok((406, _)) => post(false),
            other => other,
        };
        match reply {
            Ok((status, body)) => read_inspection(status, &body),
            Err(reason) => Registration::Failed(reason),
        }
    }

    /// `by` is the query: `node_uuid=` or `addresses=`.
    pub fn look_up(&self, by: &str) -> Registration {
        let url = format!("{}/v1/lookup?{by}", self.base);
        match self.send(Request::get(&url).header(VERSION_HEADER, VERSION)) {
            Ok((status, body)) => read_lookup(status, &body),
            Err(reason) => Registration::Failed(reason),
        }
    }

    pub fn heartbeat(&self, uuid: &str, token: &str, callback: &str, certificate: &str) -> Beaten {
        let url = format!("{}/v1/heartbeat/{uuid}", self.base);
        let body = json!({
            "callback_url": callback, "agent_token": token, "agent_verify_ca": certificate,
            "agent_version": concat!("firstlight-", env!("CARGO_PKG_VERSION")),
        });
        let bytes = body.to_string().into_bytes();
        match self.send(Request::post_json(&url, &bytes).header(VERSION_HEADER, VERSION)) {
            Ok((status, body)) => read_heartbeat(status, &body),
            Err(reason) => Beaten::Failed(reason),
        }
    }

    fn send(&self, request: Request) -> Result<(u16, Vec<u8>), String> {
        let failed = |e: &dyn std::error::Error| {
            format!("Ironic at {} cannot be asked: {}", self.base, chain(e))
        };
        let request = request.header("accept", "application/json");
        let mut reply = self
            .client
            .send(&request)
            .map_err(|e: HttpError| failed(&e))?;
        let body = reply.read_body(ANSWER_LIMIT).map_err(|e| failed(&e))?;
        Ok((reply.status, body))
    }
}

fn read_inspection(status: u16, body: &[u8]) -> Registration {
    match status {
        200..=299 => match parse(body) {
            Some(answer) if answer["config"].is_object() => read_node(&answer),
            // The node's UUID alone: the token comes from a lookup.
            _ => Registration::NotWanted,
        },
        404 => Registration::NotWanted,
        400 => {
            tracing::warn!(reason = fault(body), "Ironic refuses the inventory");
            Registration::NotWanted
        }
        _ => Registration::Failed(format!(
            "Ironic answered an inventory with status {status}: {}",
            fault(body)
        )),
    }
}

fn read_lookup(status: u16, body: &[u8]) -> Registration {
    match status {
        200 => parse(body).map_or_else(
            || Registration::Failed("Ironic's answer to a lookup is not JSON".to_owned()),
            |answer| read_node(&answer),
        ),
        404 => Registration::NotWanted,
        _ => Registration::Failed(format!(
            "Ironic answered a lookup with status {status}: {}",
            fault(body)
        )),
    }
}

fn read_node(answer: &Value) -> Registration {
    let config = &answer["config"];
    let (Some(uuid), Some(token)) = (
        answer["node"]["uuid"].as_str(),
        config["agent_token"].as_str(),
    ) else {
        return Registration::Failed("Ironic's answer names no node or no token".to_owned());
    };
    if token == HIDDEN {
        return Registration::TokenHidden;
    }
    let timeout = config["heartbeat_timeout"]
        .as_u64()
        .unwrap_or(300)
        .clamp(5, 3600);
    Registration::Accepted(Node {
        uuid: uuid.to_owned(),
        token: token.to_owned(),
        heartbeat_timeout: Duration::from_secs(timeout),
        md5_allowed: config["agent_md5_checksum_enable"]
            .as_bool()
            .unwrap_or(false),
    })
}

fn read_heartbeat(status: u16, body: &[u8]) -> Beaten {
    let reason = fault(body);
    match status {
        200..=299 => Beaten::Accepted,
        409 => Beaten::Locked,
        404 => Beaten::Forgotten(reason),
        400 | 401 | 403 if reason.to_ascii_lowercase().contains("token") => {
            Beaten::Forgotten(reason)
        }
        _ => Beaten::Failed(format!(
            "Ironic answered a heartbeat with status {status}: {reason}"
        )),
    }
}

fn parse(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok()
}

/// The text of an error: `error_message` is an object, or that object as text.
fn fault(body: &[u8]) -> String {
    let answer = parse(body).unwrap_or(Value::Null);
    let inner = match &answer["error_message"] {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::String(text.clone())),
        other => other.clone(),
    };
    [&inner["faultstring"], &inner, &answer["faultstring"]]
        .into_iter()
        .find_map(|v| v.as_str().map(str::to_owned))
        .unwrap_or_else(|| String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(token: &str) -> String {
        json!({
            "node": {"uuid": "7f3e0b1c-0000-4000-8000-000000000001"},
            "config": {"agent_token": token, "heartbeat_timeout": 30, "agent_md5_checksum_enable": true},
        })
        .to_string()
    }

    #[test]
    fn every_answer_to_a_lookup_means_one_thing() {
        let node = Node {
            uuid: "7f3e0b1c-0000-4000-8000-000000000001".into(),
            token: "abc".into(),
            heartbeat_timeout: Duration::from_secs(30),
            md5_allowed: true,
        };
        assert_eq!(
            read_lookup(200, lookup("abc").as_bytes()),
            Registration::Accepted(node.clone())
        );
        assert_eq!(
            read_inspection(202, lookup("abc").as_bytes()),
            Registration::Accepted(node)
        );
        assert_eq!(
            read_lookup(200, lookup(HIDDEN).as_bytes()),
            Registration::TokenHidden
        );
        assert_eq!(read_lookup(404, b"{}"), Registration::NotWanted);
        assert_eq!(
            read_inspection(202, br#"{"uuid": "x"}"#),
            Registration::NotWanted
        );
        assert_eq!(read_inspection(404, b""), Registration::NotWanted);
        for (status, body) in [(409, "{}"), (503, "starting"), (200, "<html>"), (200, "{}")] {
            assert!(
                matches!(
                    read_lookup(status, body.as_bytes()),
                    Registration::Failed(_)
                ),
                "{status} {body}"
            );
        }
        assert!(matches!(
            read_inspection(409, b"{}"),
            Registration::Failed(_)
        ));
    }

    #[test]
    fn a_rejected_token_is_told_from_other_refusals_in_both_forms_of_the_error() {
        // As Ironic 39 sends it, and as older versions do: the object as text.
        let plain = br#"{"error_message": {"faultcode": "Client", "faultstring": "Invalid or missing agent token received."}}"#;
        let nested = br#"{"error_message": "{\"faultstring\": \"Invalid or missing agent token received.\"}"}"#;
        let forgotten = Beaten::Forgotten("Invalid or missing agent token received.".into());
        assert_eq!(read_heartbeat(400, plain), forgotten);
        assert_eq!(read_heartbeat(400, nested), forgotten);
        assert_eq!(read_heartbeat(202, b""), Beaten::Accepted);
        assert_eq!(read_heartbeat(409, plain), Beaten::Locked);
        assert!(matches!(read_heartbeat(404, b"gone"), Beaten::Forgotten(_)));
        let changed = br#"{"error_message": {"faultstring": "Detected change in ramdisk provided callback_url"}}"#;
        assert!(matches!(read_heartbeat(400, changed), Beaten::Failed(_)));
        assert!(matches!(read_heartbeat(500, b""), Beaten::Failed(_)));
    }

    #[test]
    fn the_api_url_may_end_in_the_version() {
        let ironic = Ironic::new(
            Client::new(None, Duration::from_secs(1)),
            "http://box:6385/v1/",
            None,
        );
        assert_eq!(ironic.inspection, "http://box:6385/v1/continue_inspection");
        assert_eq!(ironic.base, "http://box:6385");
    }
}
