//! The machine's TPM as the box is told of it. A thread of its own asks it, which may take seconds, or for ever: a server
//! never waits for its TPM for long, and goes on without.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use firstlight_api::measured::{self, Boot, Evidence};
use firstlight_api::tpm::{Challenge, Claim, Digest, Point, Proof, SALT, Tpm};
use firstlight_measured::Log;
use ring::hkdf::{HKDF_SHA256, Salt};

use super::machine::Machine;
use crate::tpm::{self, Channel, Refusal};

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long the first report waits for a TPM that answers as fast as most do.
    pub first: Duration,
    /// After this a TPM counts as one that does not answer.
    pub longest: Duration,
    /// Before it is asked again after a failure; doubled each time, up to 32 times.
    pub again: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(3),
            longest: Duration::from_secs(20),
            again: Duration::from_secs(1),
        }
    }
}

pub struct Prover {
    shared: Arc<Shared>,
    patience: Patience,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    tpm: Tpm,
    /// Since when an answer is waited for.
    asked: Option<Instant>,
    question: Option<Question>,
}

#[derive(Clone)]
struct Question {
    challenge: Challenge,
    /// What is to be proved.
    claim: Vec<u8>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            tpm: Tpm::Asked,
            asked: Some(Instant::now()),
            question: None,
        }
    }
}

impl Prover {
    pub fn start(machine: Arc<dyn Machine>, patience: Patience) -> Self {
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        thread::spawn(move || ask_forever(&theirs, machine.as_ref(), patience.again));
        Self { shared, patience }
    }

    /// With the last proof, if there is one.
    pub fn said(&self) -> Tpm {
        let state = self.shared.state();
        let waited = |state: &State| state.asked.map_or(Duration::MAX, |since| since.elapsed());
        let most = self.patience.first.saturating_sub(waited(&state));
        let is_asked = |state: &mut State| state.tpm == Tpm::Asked;
        let changed = &self.shared.changed;
        let (state, _) = changed
            .wait_timeout_while(state, most, is_asked)
            .unwrap_or_else(PoisonError::into_inner);
        match state.asked {
            Some(since) if since.elapsed() >= self.patience.longest => Tpm::Silent {
                reason: format!("no answer for {} s", since.elapsed().as_secs()),
            },
            _ => state.tpm.clone(),
        }
    }

    /// The box has taken what was said last: how this machine was started need not be said again.
    pub fn heard(&self) {
        if let Tpm::Key { boot, .. } = &mut self.shared.state().tpm
            && *boot != Boot::Unsaid
        {
            *boot = Boot::Told;
        }
    }

    /// [`Prover::said`] has the proof after this, or why there is none.
    pub fn prove<'a>(&self, challenge: Challenge, claim: impl FnOnce(Point) -> Claim<'a>) {
        let mut state = self.shared.state();
        let Tpm::Key { point, .. } = state.tpm else {
            return;
        };
        state.asked = Some(Instant::now());
        state.question = Some(Question {
            challenge,
            claim: claim(point).bytes(&challenge.point),
        });
        self.shared.changed.notify_all();
        let is_open = |state: &mut State| state.question.is_some();
        let (changed, most) = (&self.shared.changed, self.patience.longest);
        drop(changed.wait_timeout_while(state, most, is_open));
    }
}

fn ask_forever(shared: &Shared, machine: &dyn Machine, again: Duration) {
    let mut pause = again;
    loop {
        match with_tpm(machine, |tpm| tpm::public(tpm)) {
            None => return shared.tell(Tpm::Absent),
            Some(Ok(point)) => {
                shared.tell(Tpm::Key {
                    point,
                    proof: None,
                    boot: Boot::Unsaid,
                });
                let reason = answer_questions(shared, machine, point);
                shared.tell(Tpm::Silent { reason });
            }
            Some(Err(error)) => {
                let reason = error.to_string();
                tracing::warn!(reason, "the TPM does not tell which machine this is");
                shared.tell(Tpm::Silent { reason });
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(again * 32);
    }
}

/// Until it fails.
fn answer_questions(shared: &Shared, machine: &dyn Machine, point: Point) -> String {
    loop {
        let Question { challenge, claim } = shared.question();
        let agreed = with_tpm(machine, |tpm| tpm::agree(tpm, &challenge.point));
        let answer = match agreed {
            Some(Ok(secret)) => answer(&secret, &claim),
            Some(Err(error)) => return error.to_string(),
            None => return "it has gone".to_owned(),
        };
        shared.tell(Tpm::Key {
            point,
            proof: Some(Proof { challenge, answer }),
            boot: match evidence(machine, &claim) {
                Ok(evidence) => Boot::Quoted(Box::new(evidence)),
                Err(reason) => Boot::Unmeasured { reason },
            },
        });
    }
}

/// How this machine was started; an error is half a sentence.
fn evidence(machine: &dyn Machine, claim: &[u8]) -> Result<Evidence, String> {
    let log = machine.start_log().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "its firmware keeps no log of what it starts".to_owned(),
        _ => format!("its firmware's log cannot be read ({error})"),
    })?;
    let Log { events, steps } = Log::parse(&log).map_err(|error| error.to_string())?;
    let quoted = with_tpm(machine, |tpm| tpm::quote(tpm, &measured::qualifying(claim)));
    let quoted = quoted.unwrap_or(Err(io::Error::from(io::ErrorKind::NotFound).into()));
    let quote = quoted.map_err(|error| format!("its TPM vouches for nothing: {error}"))?;
    Ok(Evidence {
        key: quote.key,
        attest: quote.attest,
        signature: quote.signature,
        events,
        steps,
    })
}

/// `None`: there is no TPM.
fn with_tpm<T>(
    machine: &dyn Machine,
    ask: impl FnOnce(&mut dyn Channel) -> Result<T, Refusal>,
) -> Option<Result<T, Refusal>> {
    match machine.tpm() {
        Ok(mut tpm) => Some(ask(tpm.as_mut())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.into())),
    }
}

fn answer(secret: &[u8; 32], claim: &[u8]) -> Digest {
    let mut answer = [0; 32];
    Salt::new(HKDF_SHA256, SALT)
        .extract(secret)
        .expand(&[claim], HKDF_SHA256)
        .and_then(|made| made.fill(&mut answer))
        .expect("HKDF gives as many bytes as its digest has");
    Digest::new(answer)
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, tpm: Tpm) {
        let mut state = self.state();
        *state = State {
            tpm,
            asked: None,
            question: None,
        };
        self.changed.notify_all();
    }

    /// The next one.
    fn question(&self) -> Question {
        let mut state = self.state();
        loop {
            if let Some(question) = state.question.clone() {
                return question;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
