//! A loop that fails, on the page: one lost answer is no news, half a minute of errors is.

use std::time::Duration;

use firstlight_api::status::Problem;

use super::StatusSender;

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
        let error = format!("{error:#}");
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use anyhow::anyhow;
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
}
