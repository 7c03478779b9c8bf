//! The states that a host has been through, for people.

use std::time::Duration;

use firstlight_api::status::{HostEvent, HostState};

/// So many finished states are kept: a server whose SSH comes and goes adds two each time, and all are in every status.
const MOST: usize = 50;

#[derive(Clone, Debug)]
pub struct History {
    since: Duration,
    ended: Vec<HostEvent>,
}

impl History {
    pub fn new(now: Duration) -> Self {
        Self {
            since: now,
            ended: Vec::new(),
        }
    }

    /// Since when it has been in its state.
    pub fn since(&self) -> Duration {
        self.since
    }

    pub fn ended(&self) -> &[HostEvent] {
        &self.ended
    }

    pub fn leaves(&mut self, state: HostState, now: Duration) {
        let surplus = (self.ended.len() + 1).saturating_sub(MOST);
        self.ended.drain(..surplus);
        self.ended.push(HostEvent {
            state,
            started: self.since.as_secs_f64(),
            ended: now.as_secs_f64(),
        });
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_server_that_goes_back_and_forth_the_last_states_are_kept() {
        let mut history = History::new(Duration::ZERO);
        for second in 1..=200 {
            history.leaves(HostState::Running, Duration::from_secs(second));
        }
        let ended = history.ended();
        assert_eq!(ended.len(), MOST);
        assert!((ended[MOST - 1].ended - 200.0).abs() < 0.1);
        assert!(
            ended.windows(2).all(|two| two[0].ended <= two[1].started),
            "oldest first, none missing in between: {ended:?}"
        );
    }
}
