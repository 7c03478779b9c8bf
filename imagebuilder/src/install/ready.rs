//! Waits until a box is ready, as its page tells it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use firstlight_api::status::{SiteStatus, StepState};

use crate::page::{changes, get, read_status};

const LOOK: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(20);
/// A slow machine with one disk for everything takes a few minutes.
const PATIENCE: Duration = Duration::from_mins(20);
/// The agent is the first thing that runs.
const SILENCE: Duration = Duration::from_mins(3);

/// Tells each step, and returns the status of a box that is ready.
pub fn wait(say: impl Fn(&str)) -> Result<SiteStatus> {
    let page = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
    let began = Instant::now();
    let mut seen: Option<SiteStatus> = None;
    loop {
        if let Ok(now) = read_status(page) {
            for line in changes(&seen.unwrap_or_default(), &now) {
                say(&format!("{:<10} {}", line.who, line.what));
            }
            if now.ready && get(page, "/readyz", ANSWER).is_ok() {
                return Ok(now);
            }
            seen = Some(now);
        }
        match &seen {
            None if began.elapsed() > SILENCE => bail!(
                "the page does not answer: `journalctl -u firstlight-agent` and `systemctl --failed` say why; after that, give this command again"
            ),
            Some(status) if began.elapsed() > PATIENCE => bail!(
                "the box is not ready after {} minutes:{}\nIt goes on trying; `firstlight install` with the same image waits again",
                PATIENCE.as_secs() / 60,
                unfinished(status)
            ),
            _ => sleep(LOOK),
        }
    }
}

/// The steps that are not done, with reasons and what to do.
fn unfinished(status: &SiteStatus) -> String {
    let mut text = String::new();
    for step in &status.bring_up {
        let state = match &step.state {
            StepState::Done { .. } => continue,
            StepState::Waiting => "has not begun".to_owned(),
            StepState::Running { .. } => "is under way".to_owned(),
            StepState::Failed { problem, .. } => format!("{}; {}", problem.what, problem.next),
        };
        let _ = write!(text, "\n  - {}: {state}", step.title);
    }
    text
}

#[cfg(test)]
mod tests {
    use firstlight_api::status::{Problem, Step};

    use super::*;

    #[test]
    fn what_is_not_done_is_told_with_reason_and_next_action() {
        let step = |title: &str, state| Step {
            name: title.to_lowercase(),
            title: title.to_owned(),
            state,
        };
        let problem = Problem {
            what: "no database".to_owned(),
            next: "look at the log".to_owned(),
        };
        let status = SiteStatus {
            bring_up: vec![
                step(
                    "Certificates",
                    StepState::Done {
                        started: 0.0,
                        ended: 1.0,
                    },
                ),
                step(
                    "Ironic",
                    StepState::Failed {
                        started: 1.0,
                        ended: 2.0,
                        problem,
                    },
                ),
                step("Cluster API", StepState::Waiting),
            ],
            ..SiteStatus::default()
        };
        assert_eq!(
            unfinished(&status),
            "\n  - Ironic: no database; look at the log\n  - Cluster API: has not begun"
        );
    }
}
