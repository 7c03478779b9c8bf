//! While Ironic knows this machine: heartbeats, reports and offers of the inventory as they are due, and the end of it.

use std::time::Duration;

use super::{Agent, SECOND, Stage, serve};
use crate::ipa::event::{Action, HeartbeatReply};
use firstlight_api::report::LookupState;

/// Between two heartbeats at least.
pub(super) const BEAT_SPACING: Duration = Duration::from_secs(2);
/// Between heartbeats while something new is likely: Ironic may skip one silently when the node is busy.
pub(super) const BEAT_EAGER: Duration = Duration::from_secs(4);
/// While a job runs, whose end has a beat of its own; a node that was taken away meanwhile is told by the next one.
pub(super) const BEAT_WORKING: Duration = Duration::from_secs(15);
pub(super) const BEAT_RETRY: Duration = Duration::from_secs(5);
/// Of the time that Ironic takes for a heartbeat, until the next: it has others to hear, and more to do than to listen.
pub(super) const BEAT_SHARE: u32 = 20;
/// While something new is likely: a step of an installation waits for each.
pub(super) const BEAT_SHARE_EAGER: u32 = 5;
/// Twice within the two minutes after which Ironic takes a ramdisk for gone (`fast_track_timeout`).
pub(super) const BEAT_LONGEST: Duration = Duration::from_secs(50);

impl Agent {
    pub(super) fn registered_timers(&mut self, now: Duration) -> Vec<Action> {
        let lookup = self.lookup;
        let has_box = self.config.has_box;
        let offers = self.offers().then(|| self.inspect());
        let Stage::Registered(session) = &mut self.stage else {
            return Vec::new();
        };
        let mut actions = Vec::new();
        if session.beat_due.is_some_and(|at| now >= at) {
            session.beat_due = None;
            session.last_beat = now;
            actions.push(Action::Beat {
                uuid: session.node.uuid.clone(),
                token: session.node.token.clone(),
            });
        }
        if has_box && session.report_due.is_some_and(|at| now >= at) {
            session.report_due = None;
            actions.push(Action::Report { lookup });
        }
        if let Some(inspect) = offers.filter(|_| session.offer_due.is_some_and(|at| now >= at)) {
            session.offer_due = None;
            actions.push(inspect);
        }
        actions
    }

    pub(super) fn beaten(&mut self, now: Duration, answer: HeartbeatReply) -> Vec<Action> {
        let interval = self.random.spread(30, 60);
        let eager = match self.job {
            Some(_) => BEAT_WORKING,
            None => BEAT_EAGER,
        };
        let Stage::Registered(session) = &mut self.stage else {
            return Vec::new();
        };
        let steady = session.node.heartbeat_timeout * interval / 100;
        let is_eager = now < session.eager_until;
        let share = if is_eager {
            BEAT_SHARE_EAGER
        } else {
            BEAT_SHARE
        };
        let took = now.saturating_sub(session.last_beat);
        let at_least = (took * share).min(BEAT_LONGEST);
        let pause = match &answer {
            HeartbeatReply::Accepted if is_eager => eager.min(steady).max(at_least),
            HeartbeatReply::Accepted => steady.max(at_least),
            HeartbeatReply::Failed(_) => BEAT_RETRY.min(steady).max(at_least),
            // Ironic took as long because somebody else had the node, not because it has much to do. The next step may wait for this beat.
            HeartbeatReply::Locked => took.min(BEAT_RETRY),
            HeartbeatReply::Forgotten(_) => return self.reset(now, answer),
        };
        // A beat that a finished job forced meanwhile comes first.
        let due = now + pause.max(BEAT_SPACING);
        session.beat_due = Some(session.beat_due.map_or(due, |forced| forced.min(due)));
        match answer {
            HeartbeatReply::Failed(reason) => {
                self.say(format!("{reason}; the heartbeat is sent again"))
            }
            _ => Vec::new(),
        }
    }

    /// Ironic wiped the token: whatever belonged to it is void, the command list above all.
    fn reset(&mut self, now: Duration, answer: HeartbeatReply) -> Vec<Action> {
        let HeartbeatReply::Forgotten(reason) = answer else {
            return Vec::new();
        };
        if self.leaving.is_some() {
            return Vec::new();
        }
        let mut actions = self.say(format!(
            "Ironic has let go of this registration ({reason}); starting over."
        ));
        actions.extend(self.commands.clear().into_iter().map(|ask| Action::Answer {
            ask,
            status: 401,
            body: serve::fault("Client", "Invalid agent token."),
        }));
        self.lookup = LookupState::NotAsked;
        self.deployed = None;
        self.stage = Stage::Draining;
        if self.job.is_some() {
            actions.push(Action::Abort);
        } else {
            actions.extend(self.rest(now, SECOND, String::new()));
        }
        actions
    }
}
