//! The box's bootstrap endpoint, for what a server says of itself: signed, and by TLS alone, for it is more than neighbours need to know.

use std::sync::Arc;
use std::time::Duration;

use firstlight_api::signed;
use rustls::ClientConfig;

use crate::chain;
use crate::http::{Client, Reply, Request};
use crate::key::Key;

/// After a box that does not answer, or does not say when it will.
const AGAIN: Duration = Duration::from_secs(10);
/// Longer than any box wants.
const LONGEST: Duration = Duration::from_mins(5);
/// Bytes of an answer.
const ANSWER: u64 = 4096;
const SILENCE: Duration = Duration::from_secs(30);

/// Why the box has not taken something, and when to send it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untaken {
    /// A sentence.
    pub reason: String,
    /// `None`: it will never take it.
    pub again: Option<Duration>,
}

/// As one server knows it.
#[derive(Clone, Debug)]
pub struct SignedClient {
    client: Client,
    base: String,
    key: Key,
}

impl SignedClient {
    /// Of the box at `base`, such as `https://172.22.0.1:8443`, if `tls` says that it is the one.
    pub fn new(base: &str, tls: Arc<ClientConfig>, key: Key) -> Self {
        Self {
            client: Client::new(Some(tls), SILENCE),
            base: base.to_owned(),
            key,
        }
    }

    /// Comes back when the box has it.
    pub fn post(&self, path: &str, body: &[u8]) -> Result<(), Untaken> {
        let (public, signature) = self.key.sign(path, body);
        let url = format!("{}{path}", self.base);
        let request = Request {
            method: "POST",
            url: &url,
            headers: Vec::new(),
            body,
        };
        let request = request
            .header(signed::KEY_HEADER, public)
            .header(signed::SIGNATURE_HEADER, signature);
        match self.client.send(&request) {
            Ok(mut reply) => judge(&mut reply),
            Err(error) => Err(Untaken::now(chain(&error), AGAIN)),
        }
    }
}

impl Untaken {
    fn never(reason: String) -> Self {
        Self {
            reason,
            again: None,
        }
    }

    fn now(reason: String, again: Duration) -> Self {
        Self {
            reason,
            again: Some(again),
        }
    }
}

fn judge(reply: &mut Reply) -> Result<(), Untaken> {
    let status = reply.status();
    let asked = reply
        .header("retry-after")
        .and_then(|text| text.parse().ok());
    let asked = asked.map(Duration::from_secs);
    let said = reply.read_body(ANSWER).unwrap_or_default();
    let reason = format!("status {status}: {}", String::from_utf8_lossy(&said));
    match status {
        200..300 => Ok(()),
        400 | 413 => Err(Untaken::never(reason)),
        // A box of before takes none.
        404 | 405 => Err(Untaken::now(reason, LONGEST)),
        _ => Err(Untaken::now(reason, asked.unwrap_or(AGAIN).min(LONGEST))),
    }
}
