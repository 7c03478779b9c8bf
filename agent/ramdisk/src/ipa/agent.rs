//! The agent's state machine: registration with Ironic, heartbeats, and the command API.
//!
//! Pure: no sockets, clock, threads or randomness. Time is a [`Duration`] since the start, randomness a seed. Each
//! [`Event`] is answered by the [`Action`]s to carry out; [`Agent::next_wake`] says when to come back without one.

use std::time::Duration;

use firstlight_api::report::{Directive, LookupState};
use firstlight_api::start::Start;
use uuid::Uuid;

use self::random::Random;
use super::commands::Commands;
use super::event::{Action, Departure, Event, Node, Registration};

const SECOND: Duration = Duration::from_secs(1);
/// After registration and after each job.
const EAGER_FOR: Duration = Duration::from_mins(2);
/// From the answer to `lockdown` to the end, so that the answer arrives.
const LEAVE_AFTER: Duration = SECOND;
const EXECUTE_DEPLOY_STEP: &str = "deploy.execute_deploy_step";
/// Between reports of a registered ramdisk.
const REPORT_EVERY: Duration = Duration::from_secs(30);
/// Between two that a box asks for which does not know this machine.
const REPORT_SPACING: Duration = Duration::from_secs(3);
/// A lookup that came just before Ironic began to wait for an inventory succeeds, and nobody would send it then. Later it is offered
/// less and less often: an offer that is not wanted costs Ironic as much as one that is.
const OFFER_AFTER: Duration = Duration::from_secs(10);
const OFFER_LONGEST: Duration = Duration::from_mins(4);
/// Before that Ironic still works on the inventory and hears no heartbeat.
const INSPECTED_AFTER: Duration = SECOND;
const REST_SHORT: Duration = Duration::from_secs(2);
const REST_LONGEST: Duration = Duration::from_secs(12);

/// What does not change during one boot.
#[derive(Clone, Debug)]
pub struct Config {
    /// There is an agent on the box that wants reports.
    pub has_box: bool,
    /// Ask for inspection before lookup.
    pub inspects: bool,
    /// Random; ids and the spread of retries come from it.
    pub seed: u64,
    /// Seconds since the epoch, for `GET /v1/status`.
    pub started_at: u64,
}

#[derive(Debug)]
enum Stage {
    Reporting,
    Inspecting,
    LookingUp,
    Resting {
        until: Duration,
    },
    /// The token is gone, and a job of the old registration still ends.
    Draining,
    Registered(Session),
}

#[derive(Debug)]
struct Session {
    node: Node,
    /// `None`: one is under way.
    beat_due: Option<Duration>,
    last_beat: Duration,
    eager_until: Duration,
    /// `None`: one is under way.
    report_due: Option<Duration>,
    reported: Duration,
    /// The inventory is offered again while there are no commands; `None`: an offer is under way.
    offer_due: Option<Duration>,
    /// Before the offer that is due.
    offer_pause: Duration,
}

#[derive(Debug)]
pub struct Agent {
    config: Config,
    stage: Stage,
    lookup: LookupState,
    /// The node that this machine is, by the word of the box: a MAC address finds whoever claims it.
    named: Option<String>,
    commands: Commands,
    job: Option<Uuid>,
    failures: u32,
    said: String,
    leaving: Option<(Duration, Departure)>,
    /// An image was written and verified under this registration, and its system is to be started so.
    deployed: Option<Start>,
    /// Seen in the last step's parameters.
    has_remote_power: bool,
    random: Random,
}

impl Agent {
    /// The agent, and what to do first.
    pub fn start(config: Config) -> (Self, Vec<Action>) {
        let random = Random::new(config.seed);
        let mut agent = Self {
            config,
            stage: Stage::Reporting,
            lookup: LookupState::NotAsked,
            named: None,
            commands: Commands::default(),
            job: None,
            failures: 0,
            said: String::new(),
            leaving: None,
            deployed: None,
            has_remote_power: false,
            random,
        };
        let actions = agent.begin();
        (agent, actions)
    }

    /// When to send [`Event::Woken`] if nothing else happens before.
    pub fn next_wake(&self) -> Option<Duration> {
        if let Some((at, _)) = self.leaving {
            return Some(at);
        }
        match &self.stage {
            Stage::Resting { until } => Some(*until),
            Stage::Registered(session) => [
                session.beat_due,
                session.report_due.filter(|_| self.config.has_box),
                session.offer_due.filter(|_| self.offers()),
            ]
            .into_iter()
            .flatten()
            .min(),
            _ => None,
        }
    }

    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        match event {
            Event::Woken => self.woken(now),
            Event::Reported(answer) => self.reported(now, answer),
            Event::ReportWanted => self.report_wanted(),
            Event::Registration(answer) => self.registration(now, answer),
            Event::HeartbeatReply(answer) => self.beaten(now, answer),
            Event::Asked { ask, request } => self.asked(ask, request),
            Event::Finished { id, result } => self.finished(now, id, result),
        }
    }

    /// The start-up sequence: the box first, which knows what this machine is for.
    fn begin(&mut self) -> Vec<Action> {
        if self.config.has_box {
            self.stage = Stage::Reporting;
            vec![Action::Report {
                lookup: self.lookup,
            }]
        } else {
            self.ask_ironic()
        }
    }

    fn ask_ironic(&mut self) -> Vec<Action> {
        if self.config.inspects {
            self.stage = Stage::Inspecting;
            vec![self.inspect()]
        } else {
            self.look_up()
        }
    }

    fn inspect(&self) -> Action {
        Action::Inspect {
            node: self.named.clone(),
        }
    }

    fn look_up(&mut self) -> Vec<Action> {
        self.stage = Stage::LookingUp;
        vec![Action::LookUp {
            node: self.named.clone(),
        }]
    }

    fn woken(&mut self, now: Duration) -> Vec<Action> {
        if let Some((at, departure)) = self.leaving {
            if now < at {
                return Vec::new();
            }
            self.leaving = Some((Duration::MAX, departure));
            return vec![Action::Leave(departure)];
        }
        match &mut self.stage {
            Stage::Resting { until } if now >= *until => self.begin(),
            Stage::Registered(_) => self.registered_timers(now),
            _ => Vec::new(),
        }
    }

    fn offers(&self) -> bool {
        self.config.inspects && self.commands.is_empty()
    }

    fn reported(&mut self, now: Duration, answer: Result<Directive, String>) -> Vec<Action> {
        let busy = self.job.is_some() || self.leaving.is_some();
        if let Stage::Registered(session) = &mut self.stage {
            session.report_due = Some(now + REPORT_EVERY);
            session.reported = now;
        }
        match (&self.stage, answer) {
            (Stage::Reporting, Ok(Directive::Lookup { node })) => {
                self.named = Some(node);
                self.ask_ironic()
            }
            (Stage::Reporting, Ok(Directive::Wait { seconds, reason })) => {
                self.failures = 0;
                let pause = SECOND * seconds.clamp(1, 300);
                self.stage = Stage::Resting { until: now + pause };
                self.say(format!("Waiting: {reason}"))
            }
            // Whoever answers to one of this machine's MAC addresses is not its node.
            (Stage::Reporting, Err(reason)) if self.named.is_none() => self.fail(now, &reason),
            // The box may be down while Ironic is not, and Ironic alone can still want this machine.
            (Stage::Reporting, Err(reason)) => {
                let mut actions = self.say(format!("{reason}; asking Ironic directly"));
                actions.extend(self.ask_ironic());
                actions
            }
            (Stage::Reporting | Stage::Registered(_), Ok(Directive::BootDisk)) if !busy => {
                let mut actions =
                    self.say("This machine is installed; starting it from disk.".to_owned());
                self.leaving = Some((Duration::MAX, Departure::BootDisk));
                actions.extend([Action::CloseServer, Action::Leave(Departure::BootDisk)]);
                actions
            }
            _ => Vec::new(),
        }
    }

    /// A box that was restarted shows how an installation goes on as soon as it is told who this is.
    fn report_wanted(&mut self) -> Vec<Action> {
        if let Stage::Registered(session) = &mut self.stage {
            let soonest = session.reported + REPORT_SPACING;
            session.report_due = session.report_due.map(|at| at.min(soonest));
        }
        Vec::new()
    }

    fn registration(&mut self, now: Duration, answer: Registration) -> Vec<Action> {
        let answer = self.only_own(answer);
        if let Stage::Registered(session) = &mut self.stage {
            session.offer_pause = (session.offer_pause * 3).min(OFFER_LONGEST);
            session.offer_due = Some(now + session.offer_pause);
            if let Registration::Accepted(node) = answer {
                session.node = node;
            }
            return Vec::new();
        }
        let inspecting = matches!(self.stage, Stage::Inspecting);
        if !inspecting && !matches!(self.stage, Stage::LookingUp) {
            return Vec::new();
        }
        match answer {
            Registration::Accepted(node) if inspecting => {
                self.register(now, node, INSPECTED_AFTER, OFFER_LONGEST)
            }
            Registration::Accepted(node) => self.register(now, node, Duration::ZERO, OFFER_AFTER),
            // Inspection not wanted is the usual case: the node's own lookup may still be.
            Registration::NotWanted | Registration::TokenHidden if inspecting => self.look_up(),
            Registration::NotWanted => {
                self.lookup = LookupState::NotWanted;
                self.failures = 0;
                let said =
                    "Ironic does not want this machine yet (not registered, or already installed).";
                self.rest(now, REST_SHORT, said.to_owned())
            }
            Registration::TokenHidden => {
                self.lookup = LookupState::TokenLost;
                let said = "Ironic gave this machine's token to an earlier boot and waits for that one; the box, or \
                    an operator with `abort` or `deleted`, must reset the node.";
                self.rest(now, REST_SHORT, said.to_owned())
            }
            Registration::Failed(reason) => self.fail(now, &reason),
        }
    }

    /// Another node's token is not this machine's, whatever Ironic was told of MAC addresses.
    fn only_own(&self, answer: Registration) -> Registration {
        match (answer, &self.named) {
            (Registration::Accepted(node), Some(named)) if node.uuid != *named => {
                Registration::Failed(format!(
                    "Ironic takes this machine for node {}, and the box says it is {named}",
                    node.uuid
                ))
            }
            (answer, _) => answer,
        }
    }

    fn fail(&mut self, now: Duration, reason: &str) -> Vec<Action> {
        self.failures += 1;
        let pause = (REST_SHORT * 2_u32.saturating_pow(self.failures.min(8))).min(REST_LONGEST);
        self.rest(now, pause, format!("{reason}; trying again"))
    }

    fn register(
        &mut self,
        now: Duration,
        node: Node,
        beat_pause: Duration,
        offer_pause: Duration,
    ) -> Vec<Action> {
        self.lookup = LookupState::Registered;
        self.failures = 0;
        self.deployed = None;
        let actions = self.say(format!("Registered with Ironic as node {}.", node.uuid));
        self.stage = Stage::Registered(Session {
            node,
            beat_due: Some(now + beat_pause),
            last_beat: now,
            eager_until: now + EAGER_FOR,
            report_due: Some(now),
            reported: now,
            offer_due: Some(now + offer_pause),
            offer_pause,
        });
        actions
            .into_iter()
            .chain(self.registered_timers(now))
            .collect()
    }

    fn rest(&mut self, now: Duration, pause: Duration, said: String) -> Vec<Action> {
        let spread = self.random.spread(50, 150);
        self.stage = Stage::Resting {
            until: now + pause * spread / 100,
        };
        self.say(said)
    }

    /// Says a line once, not at each repetition.
    fn say(&mut self, text: String) -> Vec<Action> {
        if text.is_empty() || text == self.said {
            return Vec::new();
        }
        self.said.clone_from(&text);
        vec![Action::Say(text)]
    }
}

mod random;
mod registered;
mod serve;
#[cfg(test)]
mod tests;
