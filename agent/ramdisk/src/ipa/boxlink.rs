//! The agent on the box: reports and directives, progress, and its CA.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use firstlight_api::report::{
    Directive, Fresh, PROGRESS_PATH, Phase, Progress, REPORT_PATH, Reply, Report,
};
use firstlight_api::signed;
use firstlight_api::tpm::{Claim, Tpm};
use firstlight_client::chain;
use firstlight_client::http::{Client, Request};
use firstlight_client::key::Key;
use firstlight_client::tls::BoxClock;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::prover::Prover;

const ANSWER_LIMIT: u64 = 1 << 20;
const CONFLICT: u16 = 409;
/// Between two lines of progress.
const SPACING: Duration = Duration::from_secs(1);
/// For one report. A second one is asked for by a box that has restarted meanwhile.
const MOST_PROOFS: usize = 3;

#[derive(Clone, Debug)]
pub struct BoxLink {
    client: Client,
    /// `http://BOX`
    base: String,
    clock: Arc<BoxClock>,
    key: Key,
    /// As the box said last.
    session: Arc<Mutex<String>>,
    sequence: Arc<AtomicU64>,
}

impl BoxLink {
    pub fn new(base: &str, clock: Arc<BoxClock>, key: Key) -> Self {
        Self {
            client: Client::new(None, Duration::from_secs(10)),
            base: base.trim_end_matches('/').to_owned(),
            clock,
            key,
            session: Arc::default(),
            sequence: Arc::new(AtomicU64::new(1)),
        }
    }

    /// `prover` tells what the report says of the TPM. A box that asks for a proof, and is content with none, gets a report
    /// without: what becomes of this machine then is the box's to say.
    pub fn report(&self, mut report: Report<Value>, prover: &Prover) -> Result<Directive, String> {
        for _ in 0..MOST_PROOFS {
            report.tpm = prover.said();
            let challenge = match self.post_report(report.clone())? {
                Directive::Prove(challenge) => challenge,
                other => {
                    prover.heard();
                    return Ok(other);
                }
            };
            let session = self.session().clone();
            prover.prove(challenge, |tpm| Claim {
                session: &session,
                boot_mac: &report.boot_mac,
                boot_id: &report.boot_id,
                key: self.key.public(),
                tpm,
            });
        }
        report.tpm = Tpm::Silent {
            reason: "the box does not take its proofs".to_owned(),
        };
        self.post_report(report)
    }

    fn post_report(&self, report: Report<Value>) -> Result<Directive, String> {
        let body = self
            .post(REPORT_PATH, report, |report| &mut report.fresh)
            .map_err(|unheard| unheard.reason)?;
        let reply = Reply::parse(&body).map_err(|e| {
            format!(
                "The box at {} answers a report with nonsense ({e}); if it is of another version than this ramdisk, start this machine from the network again",
                self.base
            )
        })?;
        match reply.directive {
            // It becomes part of a URL.
            Directive::Lookup { node } if Uuid::parse_str(&node).is_err() => Err(format!(
                "The box at {} names a node without a UUID",
                self.base
            )),
            directive => Ok(directive),
        }
    }

    pub fn ca(&self) -> Result<Vec<u8>, String> {
        self.send(&Request::get(&format!("{}/boot/ca.pem", self.base)))
            .map_err(|unheard| unheard.reason)
    }

    fn progress(&self, progress: Progress) -> Result<(), Unheard> {
        self.post(PROGRESS_PATH, progress, |progress| &mut progress.fresh)
            .map(|_| ())
    }

    /// Signed, in the box's session; once more where that has changed.
    fn post<T: Serialize>(
        &self,
        path: &str,
        mut post: T,
        fresh: fn(&mut T) -> &mut Fresh,
    ) -> Result<Vec<u8>, Unheard> {
        for _ in 0..2 {
            *fresh(&mut post) = Fresh {
                session: self.session().clone(),
                sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            };
            let bytes = serde_json::to_vec(&post).map_err(|e| Unheard::because(e.to_string()))?;
            let (public, signature) = self.key.sign(path, &bytes);
            let url = format!("{}{path}", self.base);
            let request = Request::post_json(&url, &bytes)
                .header(signed::KEY_HEADER, &public)
                .header(signed::SIGNATURE_HEADER, &signature);
            let body = self.send(&request)?;
            let reply = Reply::parse(&body).ok();
            let Some(reply) = reply.filter(|reply| reply.directive == Directive::Again) else {
                return Ok(body);
            };
            *self.session() = reply.session;
        }
        let reason = format!("The box at {} is restarting", self.base);
        Err(Unheard::because(reason))
    }

    fn session(&self) -> MutexGuard<'_, String> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, request: &Request) -> Result<Vec<u8>, Unheard> {
        let unasked = |why: &str| {
            Unheard::because(format!("The box at {} cannot be asked: {why}", self.base))
        };
        let mut reply = self.client.send(request).map_err(|e| unasked(&chain(&e)))?;
        if let Some(seconds) = reply.date() {
            self.clock.set(seconds);
        }
        let body = reply
            .read_body(ANSWER_LIMIT)
            .map_err(|e| unasked(&e.to_string()))?;
        let status = reply.status();
        if !(200..300).contains(&status) {
            return Err(Unheard {
                wants_report: status == CONFLICT,
                reason: format!("The box answered {} with status {status}", request.url),
            });
        }
        Ok(body)
    }
}

/// Why the box did not take what was sent.
struct Unheard {
    reason: String,
    /// It believes progress after a report only; one that was restarted has heard none.
    wants_report: bool,
}

impl Unheard {
    fn because(reason: String) -> Self {
        Self {
            reason,
            wants_report: false,
        }
    }
}

/// Sends the latest phase from a thread of its own, at most once a second, so that no job waits for the box.
pub struct ProgressLine {
    shared: Arc<(Mutex<Pending>, Condvar)>,
}

#[derive(Default)]
struct Pending {
    phase: Option<Phase>,
    sending: bool,
}

impl ProgressLine {
    /// `wants_report` is called where the box wants a report before it believes progress.
    pub fn start(
        link: BoxLink,
        boot_mac: String,
        boot_id: String,
        wants_report: impl Fn() + Send + 'static,
    ) -> Self {
        let shared: Arc<(Mutex<Pending>, Condvar)> = Arc::default();
        let sender = Sender {
            shared: Arc::clone(&shared),
            link,
            boot_mac,
            boot_id,
        };
        thread::spawn(move || sender.send_forever(&wants_report));
        Self { shared }
    }

    /// Replaces what was not sent yet.
    pub fn tell(&self, phase: Phase) {
        self.shared
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .phase = Some(phase);
        self.shared.1.notify_all();
    }

    /// Waits until everything is sent, for `most` at most.
    pub fn drain(&self, most: Duration) {
        let guard = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |p: &mut Pending| p.phase.is_some() || p.sending;
        drop(self.shared.1.wait_timeout_while(guard, most, busy));
    }
}

/// The sending end of a [`ProgressLine`].
struct Sender {
    shared: Arc<(Mutex<Pending>, Condvar)>,
    link: BoxLink,
    boot_mac: String,
    boot_id: String,
}

impl Sender {
    fn send_forever(&self, wants_report: &dyn Fn()) {
        loop {
            let phase = self.next_phase();
            let started = Instant::now();
            let progress = Progress {
                boot_mac: self.boot_mac.clone(),
                boot_id: self.boot_id.clone(),
                phase,
                fresh: Fresh::default(),
            };
            let result = self.link.progress(progress.clone());
            let mut pending = self.pending();
            pending.sending = false;
            if let Err(unheard) = result {
                tracing::debug!(unheard.reason, "the box did not hear of the progress");
                if unheard.wants_report {
                    wants_report();
                }
                // How many bytes there were is of no use later; how it ended is.
                if pending.phase.is_none() && !matches!(progress.phase, Phase::Writing { .. }) {
                    pending.phase = Some(progress.phase);
                }
            }
            drop(pending);
            self.shared.1.notify_all();
            thread::sleep(SPACING.saturating_sub(started.elapsed()));
        }
    }

    fn next_phase(&self) -> Phase {
        let mut pending = self.pending();
        loop {
            if let Some(phase) = pending.phase.take() {
                pending.sending = true;
                return phase;
            }
            pending = self
                .shared
                .1
                .wait(pending)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
