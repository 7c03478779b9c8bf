//! What the box answers, as values.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

/// Answer to `GET url`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nobody has claimed this server yet.
    Wait(Duration),
    Data(Box<Data>),
    /// This server is to start from the network: it gets cleaned, or another image.
    Restart,
    /// The data was handed out, and its receipt confirmed.
    Spent,
    /// Not an answer; a sentence says why.
    Unclear(String),
}

/// Answer to the confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    Taken,
    Unclear(String),
}

/// Bootstrap data of this server.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Data {
    pub user_data: String,
    pub meta_data: Map<String, Value>,
    /// `network_data.json` as `OpenStack` defines it; `null` for what is on the config drive.
    #[serde(default)]
    pub network_data: Option<Value>,
    /// What this server shows as its own over SSH; without one it makes its own.
    #[serde(default)]
    pub host_key: Option<HostKey>,
}

/// An Ed25519 pair as `ssh-keygen` writes it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct HostKey {
    pub private: String,
    pub public: String,
}

/// User data holds keys of the cluster, and the host key is one.
impl fmt::Debug for Data {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Data")
            .field("user_data", &format_args!("{} bytes", self.user_data.len()))
            .field("meta_data", &self.meta_data)
            .finish_non_exhaustive()
    }
}

/// Between two questions when the box names no time, and at most.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

pub fn parse_answer(status: u16, body: &[u8]) -> Answer {
    match status {
        200..=299 => read_action(status, body),
        410 => Answer::Spent,
        _ => Answer::Unclear(describe(status, body)),
    }
}

pub fn parse_receipt(status: u16, body: &[u8]) -> Receipt {
    match status {
        // 410: it was confirmed before, and only this machine did not hear of it.
        200..=299 | 410 => Receipt::Taken,
        _ => Receipt::Unclear(describe(status, body)),
    }
}

fn read_action(status: u16, body: &[u8]) -> Answer {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return Answer::Unclear(describe(status, body));
    };
    match value["action"].as_str() {
        Some("wait") => {
            let named = value["seconds"].as_u64().map(Duration::from_secs);
            Answer::Wait(named.unwrap_or(PAUSE).clamp(PAUSE / 5, LONGEST_PAUSE))
        }
        Some("reboot") => Answer::Restart,
        Some("bootstrap") => match serde_json::from_value::<Data>(value) {
            Ok(data) => Answer::Data(Box::new(data)),
            Err(error) => Answer::Unclear(format!(
                "The box sent bootstrap data that cannot be used: {}",
                without_values(&error)
            )),
        },
        other => Answer::Unclear(format!(
            "The box asks for {}, which this image does not know; it may be older than the box.",
            other.map_or_else(|| "nothing".to_owned(), short)
        )),
    }
}

/// An error of serde quotes what it met, and bootstrap data holds keys of the cluster.
fn without_values(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("missing field") {
        text
    } else {
        "a part of it is not of its kind".to_owned()
    }
}

fn short(text: &str) -> String {
    let text: String = text.chars().take(200).collect();
    text.trim().replace('\n', " ")
}

fn describe(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    format!("The box answered with status {status}: {}", short(&text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_action_of_the_box_is_understood() {
        let meta_data = json!({"uuid": "u"});
        let data = Data {
            user_data: "#cloud-config\n".to_owned(),
            meta_data: meta_data.as_object().unwrap().clone(),
            network_data: None,
            host_key: Some(HostKey {
                private: "PRIVATE".to_owned(),
                public: "ssh-ed25519 A".to_owned(),
            }),
        };
        let sent = json!({"action": "bootstrap", "userData": "#cloud-config\n", "metaData": meta_data, "networkData": null,
            "hostKey": {"private": "PRIVATE", "public": "ssh-ed25519 A"}});
        let wait = |seconds| Answer::Wait(Duration::from_secs(seconds));
        let cases = [
            (202, json!({"action": "wait", "seconds": 7}), wait(7)),
            (202, json!({"action": "wait"}), wait(5)),
            (202, json!({"action": "wait", "seconds": 0}), wait(1)),
            (202, json!({"action": "wait", "seconds": 86400}), wait(300)),
            (200, sent, Answer::Data(Box::new(data))),
            (205, json!({"action": "reboot"}), Answer::Restart),
            (200, json!({"action": "reboot"}), Answer::Restart),
            (410, json!({}), Answer::Spent),
        ];
        for (status, body, expected) in cases {
            let body = body.to_string();
            assert_eq!(parse_answer(status, body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn what_is_no_answer_is_a_sentence() {
        let cases = [
            (401, "no such token", "401: no such token"),
            (200, "<html>", "200: <html>"),
            (200, r#"{"action":"dance"}"#, "asks for dance"),
            (
                200,
                r#"{"action":"bootstrap","metaData":{}}"#,
                "cannot be used: missing field",
            ),
        ];
        for (status, body, part) in cases {
            let Answer::Unclear(sentence) = parse_answer(status, body.as_bytes()) else {
                panic!("{body} was understood");
            };
            assert!(sentence.contains(part), "{sentence}");
        }
    }

    #[test]
    fn a_confirmation_counts_also_when_it_was_made_before() {
        assert_eq!(parse_receipt(204, b""), Receipt::Taken);
        assert_eq!(parse_receipt(410, b""), Receipt::Taken);
        assert!(
            matches!(parse_receipt(503, b"busy"), Receipt::Unclear(text) if text.contains("busy"))
        );
    }

    #[test]
    fn no_log_line_can_hold_user_data_or_the_host_key() {
        let data = Data {
            user_data: "PRIVATE KEY".to_owned(),
            meta_data: Map::new(),
            network_data: None,
            host_key: Some(HostKey {
                private: "PRIVATE KEY".to_owned(),
                public: String::new(),
            }),
        };
        assert!(!format!("{data:?}").contains("PRIVATE"));
    }

    proptest! {
        #[test]
        fn any_answer_is_understood_or_a_short_sentence(
            status in 100_u16..600,
            action in prop_oneof![Just("wait"), Just("reboot"), Just("bootstrap"), Just("else")],
            noise in "\\PC{0,400}",
            seconds: u64,
        ) {
            let bodies = [
                noise.clone().into_bytes(),
                json!({"action": action, "seconds": seconds, "userData": noise, "metaData": {}}).to_string().into_bytes(),
                json!({"action": action, "seconds": noise, "metaData": noise}).to_string().into_bytes(),
            ];
            for body in bodies {
                match parse_answer(status, &body) {
                    Answer::Wait(pause) => prop_assert!(pause <= LONGEST_PAUSE && !pause.is_zero()),
                    Answer::Unclear(why) => prop_assert!(why.chars().count() < 300 && !why.contains('\n'), "{why}"),
                    Answer::Data(_) | Answer::Restart => prop_assert!((200..300).contains(&status)),
                    Answer::Spent => prop_assert_eq!(status, 410),
                }
                parse_receipt(status, &body);
            }
        }
    }
}
