//! Ironic as a ramdisk sees it: inspection, lookup, heartbeat.

use std::time::Duration;

use firstlight_api::bounded;
use firstlight_client::chain;
use firstlight_client::http::{Client, HttpError, Request};
use serde_json::{Value, json};

use super::event::{HeartbeatReply, Node, Registration};

const VERSION_HEADER: &str = "x-openstack-ironic-api-version";
/// The first whose answer to an inventory is that of a lookup, token included.
const INSPECTION_VERSION: &str = "1.84";
/// The first with `agent_verify_ca`.
const VERSION: &str = "1.68";
const ANSWER_LIMIT: u64 = 16 << 20;
/// What Ironic shows instead of a token that was handed out before.
const HIDDEN: &str = "******";
/// Characters of a UUID or a token.
const LONGEST_WORD: usize = 256;

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

    pub fn heartbeat(
        &self,
        uuid: &str,
        token: &str,
        callback: &str,
        certificate: &str,
    ) -> HeartbeatReply {
        let url = format!("{}/v1/heartbeat/{uuid}", self.base);
        let body = json!({
            "callback_url": callback, "agent_token": token, "agent_verify_ca": certificate,
            "agent_version": concat!("firstlight-", env!("CARGO_PKG_VERSION")),
        });
        let bytes = body.to_string().into_bytes();
        match self.send(Request::post_json(&url, &bytes).header(VERSION_HEADER, VERSION)) {
            Ok((status, body)) => read_heartbeat(status, &body),
            Err(reason) => HeartbeatReply::Failed(reason),
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
        Ok((reply.status(), body))
    }
}

/// The answer to an inventory.
pub fn read_inspection(status: u16, body: &[u8]) -> Registration {
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

/// The answer to a lookup.
pub fn read_lookup(status: u16, body: &[u8]) -> Registration {
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
    let (Some(uuid), Some(token)) = (word(&answer["node"]["uuid"]), word(&config["agent_token"]))
    else {
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

/// It goes into paths as it is: UUIDs, URL-safe base64, and the stars of a hidden token.
fn word(value: &Value) -> Option<&str> {
    let word = value.as_str()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~*+=:".contains(&byte);
    (word.len() <= LONGEST_WORD && word.bytes().all(is_plain)).then_some(word)
}

/// The answer to a heartbeat.
pub fn read_heartbeat(status: u16, body: &[u8]) -> HeartbeatReply {
    let reason = fault(body);
    match status {
        200..=299 => HeartbeatReply::Accepted,
        409 => HeartbeatReply::Locked,
        404 => HeartbeatReply::Forgotten(reason),
        400 | 401 | 403 if reason.to_ascii_lowercase().contains("token") => {
            HeartbeatReply::Forgotten(reason)
        }
        _ => HeartbeatReply::Failed(format!(
            "Ironic answered a heartbeat with status {status}: {reason}"
        )),
    }
}

fn parse(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok()
}

/// The text of an error: `error_message` is an object, or that object as text. People read it, and ramdisks write into it.
fn fault(body: &[u8]) -> String {
    let answer = parse(body).unwrap_or(Value::Null);
    let inner = match &answer["error_message"] {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::String(text.clone())),
        other => other.clone(),
    };
    [&inner["faultstring"], &inner, &answer["faultstring"]]
        .into_iter()
        .find_map(|v| v.as_str().map(bounded::sentence))
        .unwrap_or_else(|| bounded::text(&String::from_utf8_lossy(&body[..body.len().min(200)])))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let forgotten =
            HeartbeatReply::Forgotten("Invalid or missing agent token received.".into());
        assert_eq!(read_heartbeat(400, plain), forgotten);
        assert_eq!(read_heartbeat(400, nested), forgotten);
        assert_eq!(read_heartbeat(202, b""), HeartbeatReply::Accepted);
        assert_eq!(read_heartbeat(409, plain), HeartbeatReply::Locked);
        assert!(matches!(
            read_heartbeat(404, b"gone"),
            HeartbeatReply::Forgotten(_)
        ));
        let changed = br#"{"error_message": {"faultstring": "Detected change in ramdisk provided callback_url"}}"#;
        assert!(matches!(
            read_heartbeat(400, changed),
            HeartbeatReply::Failed(_)
        ));
        assert!(matches!(
            read_heartbeat(500, b""),
            HeartbeatReply::Failed(_)
        ));
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

    /// A valid answer with one of its values replaced, or any bytes.
    fn answers() -> impl Strategy<Value = Vec<u8>> {
        let value = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (".{0,8}", 0..400_usize).prop_map(|(word, times)| Value::from(word.repeat(times))),
            ".{0,20}".prop_map(|text| json!({"faultstring": text})),
            ".{0,20}".prop_map(|text| Value::from(json!({"faultstring": text}).to_string())),
        ];
        let fields = [
            "",
            "/node",
            "/node/uuid",
            "/config",
            "/config/agent_token",
            "/config/heartbeat_timeout",
            "/error_message",
        ];
        let changed = (prop::sample::select(fields.to_vec()), value).prop_map(|(field, value)| {
            let mut answer: Value = serde_json::from_str(&lookup("abc")).unwrap_or_default();
            answer["error_message"] = json!({"faultstring": "token"});
            if let Some(place) = answer.pointer_mut(field) {
                *place = value;
            }
            answer.to_string().into_bytes()
        });
        prop_oneof![
            4 => changed,
            1 => prop::collection::vec(any::<u8>(), 0..400),
        ]
    }

    fn is_for_people(sentence: &str) -> bool {
        sentence.chars().count() < 1100 && !sentence.contains(char::is_control)
    }

    proptest! {
        #[test]
        fn whatever_ironic_answers_is_a_node_or_a_short_line(
            body in answers(),
            status in prop_oneof![Just(200_u16), Just(202), Just(400), Just(404), Just(409), any::<u16>()],
        ) {
            for registration in [read_lookup(status, &body), read_inspection(status, &body)] {
                match registration {
                    Registration::Accepted(node) => {
                        let url = format!("http://box/v1/heartbeat/{}", node.uuid);
                        let parsed = firstlight_client::http::Url::parse(&url);
                        prop_assert_eq!(parsed.map(|url| url.to_string()).ok(), Some(url));
                        prop_assert!(node.token.len() <= LONGEST_WORD && node.token.is_ascii());
                        prop_assert!((5..=3600).contains(&node.heartbeat_timeout.as_secs()));
                    }
                    Registration::Failed(reason) => prop_assert!(is_for_people(&reason), "{reason}"),
                    Registration::TokenHidden | Registration::NotWanted => {}
                }
            }
            match read_heartbeat(status, &body) {
                HeartbeatReply::Forgotten(reason) | HeartbeatReply::Failed(reason) => prop_assert!(is_for_people(&reason), "{reason}"),
                HeartbeatReply::Accepted | HeartbeatReply::Locked => {}
            }
        }
    }
}
