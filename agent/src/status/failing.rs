//! A loop that fails, on the page: one lost answer is no news, half a minute of errors is.

use std::time::Duration;

use anyhow::anyhow;
use firstlight_api::{bounded, status::Problem};

use super::{StatusSender, counters::ODD_OBJECTS};

/// Errors for this long are told.
const PATIENCE: Duration = Duration::from_secs(30);

/// Kept by one loop, and told how each of its rounds went.
#[derive(Debug)]
pub struct Failing {
    status: StatusSender,
    /// Under which the problem is published; one a loop.
    source: &'static str,
    /// What does not happen meanwhile, e.g. `servers are not written to Kubernetes`.
    what: &'static str,
    since: Option<Duration>,
    told: Option<String>,
}

impl Failing {
    pub fn new(status: StatusSender, source: &'static str, what: &'static str) -> Self {
        Self {
            status,
            source,
            what,
            since: None,
            told: None,
        }
    }

    /// Another one of the same loop.
    #[must_use]
    pub fn beside(&self, source: &'static str) -> Self {
        Self::new(self.status.clone(), source, self.what)
    }

    pub fn status(&self) -> &StatusSender {
        &self.status
    }

    /// A round that met objects of Kubernetes which could not be read or written, a sentence each: they held up no other,
    /// all are counted, and the first is told.
    pub fn met(&mut self, odd: &[String], now: Duration) {
        for _ in odd {
            ODD_OBJECTS.count(self.source);
        }
        self.went(&one_error(odd), now);
    }

    /// `now` is uptime.
    pub fn went<T>(&mut self, round: &anyhow::Result<T>, now: Duration) {
        let Err(error) = round else {
            self.since = None;
            if self.told.take().is_some() {
                self.status.problems(self.source, Vec::new());
            }
            return;
        };
        let since = *self.since.get_or_insert(now);
        let error = bounded::sentence(&format!("{error:#}"));
        if now.saturating_sub(since) < PATIENCE || self.told.as_ref() == Some(&error) {
            return;
        }
        tracing::warn!(source = self.source, error, "{}", self.what);
        let problem = Problem {
            what: format!("{}: {error}", self.what),
            next: "the box keeps trying; if it stays, log in as admin and read `journalctl -u firstlight-agent`".to_owned(),
        };
        self.status.problems(self.source, vec![problem]);
        self.told = Some(error);
    }
}

/// The first of them, and how many there are.
fn one_error(sentences: &[String]) -> anyhow::Result<()> {
    match sentences {
        [] => Ok(()),
        [one] => Err(anyhow!("{one}")),
        [first, others @ ..] => Err(anyhow!("{first} (and {} more)", others.len())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::status;

    #[tokio::test]
    async fn errors_are_told_after_half_a_minute_and_taken_back_by_the_first_good_round() {
        let (sender, mut reader, owner) = status::channel("1");
        let task = tokio::spawn(status::own(owner, CancellationToken::new()));
        let mut failing = Failing::new(sender.clone(), "loop", "nothing is counted");
        let mut at = |seconds: u64, round: anyhow::Result<()>| {
            failing.went(&round, Duration::from_secs(seconds));
            // Everything sent before has been applied once this one has.
            sender.send(status::Update::Site(seconds.to_string()));
            seconds.to_string()
        };
        for (seconds, error, told) in [
            (100, Some("refused"), None),
            (129, Some("refused"), None),
            (130, Some("refused"), Some("nothing is counted: refused")),
            (140, Some("timeout"), Some("nothing is counted: timeout")),
            (141, None, None),
            (150, Some("refused"), None),
        ] {
            let mark = at(seconds, error.map_or(Ok(()), |error| Err(anyhow!(error))));
            let seen = reader.wait_for(|status| status.site == mark).await.unwrap();
            let seen: Vec<_> = seen.problems.iter().map(|p| p.what.as_str()).collect();
            assert_eq!(seen, Vec::from_iter(told), "{seconds} s");
        }
        task.abort();
    }

    #[test]
    fn an_error_that_quotes_a_whole_object_is_cut() {
        let mut failing = Failing::new(status::channel("1").0, "loop", "nothing is counted");
        let error = format!("unknown variant \u{1b}[2J{}", "x".repeat(1 << 20));
        for at in [Duration::ZERO, PATIENCE] {
            failing.met(std::slice::from_ref(&error), at);
        }
        let told = failing.told.unwrap();
        assert_eq!(told.chars().count(), 1000);
        assert!(told.starts_with("unknown variant \u{fffd}[2Jx"));
    }

    #[test]
    fn the_first_odd_object_is_told_with_the_number_of_the_others_and_all_are_counted() {
        let mut failing = Failing::new(status::channel("1").0, "odd-test", "one is left out");
        let odd = ["a: too large".to_owned(), "b cannot be read".to_owned()];
        failing.met(&odd, Duration::ZERO);
        failing.met(&odd, PATIENCE);
        assert_eq!(failing.told.as_deref(), Some("a: too large (and 1 more)"));
        failing.met(&[], PATIENCE * 2);
        assert_eq!(failing.told, None);
        assert_eq!(ODD_OBJECTS.all()["odd-test"], 4);
    }
}
