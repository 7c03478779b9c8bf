//! Lines of a log on their way to the box, in posts that it takes.

use firstlight_api::logs::{Line, MOST_LINES, Post, System};
use nix::time::{ClockId, clock_gettime};

/// Bytes of messages that travel together. JSON makes six of one at most.
const FULL: usize = 80 << 10;
/// A line that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// When it was written: milliseconds since the machine has started, less than 0 before.
    pub at: i64,
    /// As in [`Line::unit`].
    pub unit: String,
    /// As in [`Line::priority`].
    pub priority: Option<u8>,
    /// As in [`Line::message`].
    pub message: String,
}

/// Lines of one start that travel together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    boot: String,
    lines: Vec<Waiting>,
    bytes: usize,
}

impl Batch {
    /// `boot` is of [`Post::boot`].
    pub fn new(boot: &str) -> Self {
        Self {
            boot: boot.to_owned(),
            lines: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds it also to a full one.
    pub fn push(&mut self, line: Waiting) {
        self.bytes += line.message.len() + line.unit.len();
        self.lines.push(line);
    }

    /// Another line has to wait for the next one.
    pub fn is_full(&self) -> bool {
        self.bytes >= FULL || self.lines.len() >= MOST_LINES
    }

    /// There is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// What is posted to [`PATH`](firstlight_api::logs::PATH), now.
    pub fn body(&self, system: System) -> Vec<u8> {
        let post = self.post(system, since_start());
        serde_json::to_vec(&post).expect("texts and numbers are JSON")
    }

    fn post(&self, system: System, now: i64) -> Post {
        let lines = self.lines.iter().map(|line| Line {
            ago: now.saturating_sub(line.at).try_into().unwrap_or(0),
            unit: line.unit.clone(),
            priority: line.priority,
            message: line.message.clone(),
        });
        Post {
            system,
            boot: self.boot.clone(),
            lines: lines.collect(),
        }
    }
}

/// Milliseconds, as the kernel stamps its lines.
pub fn since_start() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| now.tv_sec() * 1000 + now.tv_nsec() / 1_000_000)
}

#[cfg(test)]
mod tests {
    use firstlight_api::logs::LONGEST_LINE;

    use super::*;

    #[test]
    fn whatever_is_in_a_full_batch_the_box_takes_it() {
        for message in [
            "\u{1}".repeat(LONGEST_LINE),
            "\u{1f512}".repeat(LONGEST_LINE),
            String::new(),
        ] {
            let mut batch = Batch::new("0123456789abcdef0123456789abcdef");
            while !batch.is_full() {
                batch.push(Waiting {
                    at: -5,
                    unit: "systemd-networkd.service".to_owned(),
                    priority: Some(6),
                    message: message.clone(),
                });
            }
            let post = batch.post(System::Installed, 20);
            let body = serde_json::to_vec(&post).expect("lines are JSON");
            let taken = Post::parse(&body).expect("the box takes them");
            assert_eq!(
                (taken.lines.len(), taken.lines[0].ago),
                (post.lines.len(), 25)
            );
        }
    }
}
