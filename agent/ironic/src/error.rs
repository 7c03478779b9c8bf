//! What can go wrong with a call.

use http::{Method, StatusCode};

/// The client cannot be made.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SetupError {
    #[error("`{url}` is not the address of an Ironic API, such as https://172.22.0.1:6385")]
    Url { url: String },
    #[error("the CA certificate for Ironic is not PEM with at least one certificate")]
    Ca,
    #[error("the TLS library refuses its own defaults")]
    Tls(#[source] rustls::Error),
    #[error("the Ironic user or password holds a character that HTTP cannot carry")]
    Credentials,
}

/// A call did not succeed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ClientError {
    #[error("Ironic cannot be reached ({method} {path})")]
    Unreachable {
        method: Method,
        path: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("Ironic did not answer {method} {path} within {seconds} s")]
    TimedOut {
        method: Method,
        path: String,
        seconds: u64,
    },
    /// An answer of 400 or more; `message` is Ironic's own sentence.
    #[error("Ironic refused {method} {path} with status {}: {message}", .status.as_u16())]
    Refused {
        method: Method,
        path: String,
        status: StatusCode,
        message: String,
    },
    #[error("Ironic's answer to {method} {path} is not what its API promises")]
    Malformed {
        method: Method,
        path: String,
        #[source]
        source: serde_json::Error,
    },
}

impl ClientError {
    fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether it is a 404: Ironic knows no such node, port or inventory.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Something of that name or MAC exists already, or the node is locked by a running operation.
    pub fn is_conflict(&self) -> bool {
        self.status() == Some(StatusCode::CONFLICT)
    }

    /// The same call may succeed later without anybody doing anything: not up yet, restarting, or busy.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::Refused { status, .. } => {
                status.is_server_error() || *status == StatusCode::CONFLICT
            }
            Self::Malformed { .. } => false,
        }
    }
}

/// Ramdisks write into Ironic's sentences, and people read them.
const LONGEST: usize = 1000;

/// A sentence of Ironic's, as long as anybody reads.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Ironic's sentence out of an error body. It comes in three shapes: `error_message` as an object, as JSON in a string,
/// and, from the authentication middleware, `error.message`.
pub(crate) fn message_of(body: &[u8]) -> String {
    let fallback = || {
        String::from_utf8_lossy(body)
            .chars()
            .take(300)
            .collect::<String>()
    };
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else {
        return fallback();
    };
    let fault = |value: &serde_json::Value| value["faultstring"].as_str().map(short);
    let wrapped = &value["error_message"];
    let inner = wrapped
        .as_str()
        .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    fault(wrapped)
        .or_else(|| inner.as_ref().and_then(fault))
        .or_else(|| value["error"]["message"].as_str().map(short))
        .unwrap_or_else(fallback)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LONGEST, message_of, short};

    #[test]
    fn ironics_sentence_is_found_in_each_shape_of_an_error_body() {
        let cases = [
            (
                r#"{"error_message":"{\"faultcode\":\"Client\",\"faultstring\":\"A node with name n2 already exists.\"}"}"#,
                "A node with name n2 already exists.",
            ),
            (r#"{"error_message":{"faultstring":"locked"}}"#, "locked"),
            (
                r#"{"error":{"message":"Authorization required","code":401}}"#,
                "Authorization required",
            ),
            ("<html>Bad gateway</html>", "<html>Bad gateway</html>"),
        ];
        for (body, message) in cases {
            assert_eq!(message_of(body.as_bytes()), message);
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_a_sentence_of_bounded_length(text in ".{0,40}", times in 0_usize..100, shape in 0..4) {
            let long = text.repeat(times);
            let body = match shape {
                0 => serde_json::json!({"error_message": {"faultstring": long}}).to_string(),
                1 => {
                    let inner = serde_json::json!({"faultstring": long}).to_string();
                    serde_json::json!({"error_message": inner}).to_string()
                }
                2 => serde_json::json!({"error": {"message": long}}).to_string(),
                _ => long.clone(),
            };
            let message = message_of(body.as_bytes());
            prop_assert!(message.chars().count() <= LONGEST + 1);
            prop_assert!(shape == 3 || message == short(&long));
        }
    }
}
