//! The loop that every controller of objects is: look, plan and apply, tell what came of it, and wait for a reason to do it again.
//!
//! Must not: know what a controller is about. To add one: a [`Reconciler`], its [`Teller`], and [`run`].

use std::{future::Future, time::Duration};

use anyhow::Result;
pub use firstlight_api::status::RoundReason as Reason;
use firstlight_api::{bounded, status::ControllerRound};
use tokio::time::Instant;

use crate::{
    clock,
    status::{Failing, StatusSender, Update},
};

/// After a round that failed.
pub const AGAIN: Duration = Duration::from_secs(3);
/// Sentences of one round that are published.
const MOST_FAILURES: usize = 5;

/// What came of a round.
#[derive(Debug)]
pub struct Applied {
    /// A sentence for each object that could not be read, and for each step that failed: they held up no other.
    pub failures: Vec<String>,
    /// Until the next round, if there is no reason before.
    pub rest: Duration,
}

/// A controller. It waits for nobody but the box's API server: what may take longer is a task of its own, and its end is news.
/// An error of a step means that nothing is looked after.
pub trait Reconciler: Send {
    type Seen: Send;

    /// Everything that a plan is made from.
    fn look(&mut self) -> impl Future<Output = Result<Self::Seen>> + Send;
    /// Plans, writes, and begins what takes longer.
    fn apply(&mut self, seen: Self::Seen) -> impl Future<Output = Result<Applied>> + Send;
    /// Returns when there is a reason for a round; it may be dropped at any await. An error ends the controller.
    fn reason(&mut self) -> impl Future<Output = Result<Reason>> + Send;
    /// The rest after an error.
    fn again(&self) -> Duration {
        AGAIN
    }
}

/// Publishes how the rounds of a controller go.
#[derive(Debug)]
pub struct Teller {
    pub name: &'static str,
    pub status: StatusSender,
    /// Errors of whole rounds.
    pub rounds: Failing,
    /// Objects that could not be read, steps that failed.
    pub objects: Failing,
}

impl Teller {
    /// `rounds` and `objects`: under which a problem is published, and what does not happen meanwhile.
    pub fn new(
        name: &'static str,
        status: &StatusSender,
        rounds: [&'static str; 2],
        objects: [&'static str; 2],
    ) -> Self {
        let failing = |[source, what]: [_; 2]| Failing::new(status.clone(), source, what);
        Self {
            name,
            status: status.clone(),
            rounds: failing(rounds),
            objects: failing(objects),
        }
    }

    fn tell(&mut self, started: Duration, took: Duration, reason: Reason, round: Result<Applied>) {
        let now = clock::uptime();
        self.rounds.went(&round, now);
        let failures = match round {
            Ok(applied) => {
                self.objects.met(&applied.failures, now);
                applied.failures
            }
            Err(error) => vec![format!("{error:#}")],
        };
        let first = failures.iter().take(MOST_FAILURES);
        self.status.send(Update::Round(ControllerRound {
            name: self.name.to_owned(),
            started: started.as_secs_f64(),
            took: took.as_secs_f64(),
            reason,
            failed: failures.len(),
            failures: first.map(|it| bounded::sentence(it)).collect(),
        }));
    }
}

/// For ever, unless the controller ends.
pub async fn run(mut controller: impl Reconciler, mut teller: Teller) -> Result<()> {
    let mut reason = Reason::Start;
    loop {
        let (started, began) = (clock::uptime(), Instant::now());
        let round = match controller.look().await {
            Ok(seen) => controller.apply(seen).await,
            Err(error) => Err(error),
        };
        let rest = round.as_ref().map_or(controller.again(), |it| it.rest);
        teller.tell(started, began.elapsed(), reason, round);
        reason = tokio::select! {
            reason = controller.reason() => reason?,
            () = tokio::time::sleep(rest) => Reason::Time,
        };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use anyhow::{anyhow, bail};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::status;

    /// Fails, leaves two of its objects, has a reason, and ends.
    struct Four(u32);

    impl Reconciler for Four {
        type Seen = u32;

        async fn look(&mut self) -> Result<u32> {
            self.0 += 1;
            if self.0 == 1 {
                bail!("nobody answers");
            }
            Ok(self.0)
        }

        async fn apply(&mut self, seen: u32) -> Result<Applied> {
            let failures = if seen == 2 { vec!["a", "b"] } else { vec![] };
            Ok(Applied {
                failures: failures.into_iter().map(str::to_owned).collect(),
                rest: Duration::from_hours(1),
            })
        }

        async fn reason(&mut self) -> Result<Reason> {
            match self.0 {
                1 => std::future::pending().await,
                2 | 3 => tokio::time::sleep(Duration::from_secs(10)).await,
                _ => return Err(anyhow!("a watch ended")),
            }
            Ok(if self.0 == 2 {
                Reason::Change
            } else {
                Reason::News
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_round_tells_why_it_was_and_what_failed_and_the_end_of_a_watch_ends_it() {
        let (sender, mut reader, owner) = status::channel("1");
        let owner = tokio::spawn(status::own(owner, CancellationToken::new()));
        let teller = Teller::new("four", &sender, ["four-loop", "x"], ["four-objects", "y"]);
        let began = Instant::now();
        let running = tokio::spawn(run(Four(0), teller));
        for (reason, failures, at) in [
            (Reason::Start, vec!["nobody answers"], 0),
            (Reason::Time, vec!["a", "b"], 3),
            (Reason::Change, vec![], 13),
            (Reason::News, vec![], 23),
        ] {
            let is_told = |status: &firstlight_api::status::SiteStatus| {
                let mut rounds = status.controllers.iter();
                rounds.any(|round| round.reason == reason && round.failures == failures)
            };
            reader.wait_for(is_told).await.unwrap();
            assert_eq!(began.elapsed().as_secs(), at, "{reason:?}");
        }
        let ended = running.await.unwrap().unwrap_err();
        assert_eq!(ended.to_string(), "a watch ended");
        owner.abort();
    }
}
