//! Talking to the box: its CA only, at its own time, with the token.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use firstlight_api::signed;
use firstlight_client::chain;
use firstlight_client::http::{Client, HttpError, Reply, Request, Url};
use firstlight_client::key::Key;
use firstlight_client::tls::{BoxClock, trust_only};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::answer::{Answer, Receipt, parse_answer, parse_receipt};
use crate::invitation::Invitation;

/// How long the box may say nothing.
const SILENCE: Duration = Duration::from_secs(30);
/// User data, metadata and network data together.
const LIMIT: u64 = 4 << 20;

pub struct Link {
    invitation: Invitation,
    key: Option<Key>,
    /// Of the invitation's URL.
    path: String,
    client: Client,
    clock: Arc<BoxClock>,
    told_time: Option<u64>,
}

impl Link {
    pub fn new(invitation: &Invitation) -> Result<Self> {
        let ca = CertificateDer::from_pem_slice(invitation.ca.as_bytes())
            .context("the invitation's CA is not a certificate")?;
        let clock = Arc::new(BoxClock::default());
        let tls = trust_only(ca, Arc::clone(&clock))?;
        let key = invitation.key.as_deref().map(Key::parse).transpose();
        let key = key.context("the invitation's key")?;
        if let Some(key) = &key {
            let code = key.public().code();
            tracing::info!("This machine's code is {code}; the box shows the same one.");
        }
        let path = Url::parse(&invitation.url)
            .context("the invitation's address")?
            .target;
        Ok(Self {
            invitation: invitation.clone(),
            key,
            path,
            client: Client::new(Some(tls), SILENCE),
            clock,
            told_time: None,
        })
    }

    /// Seconds since 1970 as the box told them in its last answer.
    pub fn told_time(&self) -> Option<u64> {
        self.told_time
    }

    pub fn ask(&mut self) -> Answer {
        let url = self.invitation.url.clone();
        match self.send(Request::get(&url), b"") {
            Ok((status, body)) => parse_answer(status, &body),
            Err(why) => Answer::Unclear(why),
        }
    }

    /// Tells the box that the user data with this digest is safe here.
    pub fn confirm(&mut self, digest: &str) -> Receipt {
        let url = self.invitation.url.clone();
        let body = serde_json::json!({ "received": digest }).to_string();
        match self.send(Request::post_json(&url, body.as_bytes()), body.as_bytes()) {
            Ok((status, body)) => parse_receipt(status, &body),
            Err(why) => Receipt::Unclear(why),
        }
    }

    fn send(&mut self, request: Request<'_>, body: &[u8]) -> Result<(u16, Vec<u8>), String> {
        let token = format!("Bearer {}", self.invitation.token);
        let mut request = request.header("authorization", token);
        if let Some(key) = &self.key {
            let (public, signature) = key.sign(&self.path, body);
            request = request
                .header(signed::KEY_HEADER, public)
                .header(signed::SIGNATURE_HEADER, signature);
        }
        let exchange = |client: &Client| -> Result<_, HttpError> {
            let mut reply = client.send(&request)?;
            let told = reply.date();
            let body = reply
                .read_body(LIMIT)
                .map_err(|source| HttpError::Exchange {
                    host: self.invitation.host.clone(),
                    source,
                })?;
            Ok((reply.status(), body, told))
        };
        match exchange(&self.client) {
            Ok((status, body, told)) => {
                self.told_time = told.or(self.told_time);
                Ok((status, body))
            }
            Err(error) => {
                // A machine whose clock is off by years takes the box's certificate for invalid.
                self.learn_time();
                Err(format!(
                    "The box at {} cannot be asked: {}.",
                    self.invitation.host,
                    chain(&error)
                ))
            }
        }
    }

    /// The box's time over plain HTTP. It decides only whether the certificate is taken for valid by now.
    fn learn_time(&self) {
        let host = &self.invitation.host;
        let url = format!("http://{host}/boot/ca.pem");
        let reply = Client::new(None, SILENCE / 3).send(&Request::get(&url));
        if let Some(seconds) = reply.ok().as_ref().and_then(Reply::date) {
            self.clock.set(seconds);
        }
    }
}
