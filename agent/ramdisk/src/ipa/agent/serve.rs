//! The command API's side of [`Agent`]: requests, the one running job, and how it ends.

use std::time::Duration;

use firstlight_api::report::Phase;
use firstlight_api::start::Start;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::commands::{Command, State};
use super::super::event::{Action, Departure, Failure, Request};
use super::super::job::{self, Plan, Refusal};
use super::{
    Agent, EAGER_FOR, EXECUTE_DEPLOY_STEP, LEAVE_AFTER, SECOND, Stage, registered::BEAT_SPACING,
};

impl Agent {
    pub(super) fn asked(&mut self, ask: u64, request: Request) -> Vec<Action> {
        let reply = |status, body| vec![Action::Answer { ask, status, body }];
        match request {
            Request::Status => reply(
                200,
                json!({"started_at": self.config.started_at, "version": env!("CARGO_PKG_VERSION")}),
            ),
            Request::Root => reply(
                200,
                json!({"name": "Firstlight deploy ramdisk", "versions": ["v1"]}),
            ),
            Request::Unknown(what) => {
                reply(404, fault("Client", &format!("There is no {what} here.")))
            }
            Request::Run { token, .. } | Request::List { token } | Request::One { token, .. }
                if !self.knows(token.as_deref()) =>
            {
                reply(401, fault("Client", "Invalid agent token."))
            }
            Request::List { .. } => reply(200, self.commands.to_json()),
            Request::One { id, .. } => match self.commands.get(&id) {
                Some(command) => reply(200, command.to_json()),
                None => reply(404, fault("Client", &format!("There is no command {id}."))),
            },
            Request::Run { wait, body, .. } => self.run(ask, wait, &body),
        }
    }

    /// What Ironic has to say, while it knows this machine.
    pub fn token(&self) -> Option<&str> {
        match &self.stage {
            Stage::Registered(session) => Some(&session.node.token),
            _ => None,
        }
    }

    fn knows(&self, token: Option<&str>) -> bool {
        token.is_some() && token == self.token()
    }

    fn run(&mut self, ask: u64, wait: bool, body: &[u8]) -> Vec<Action> {
        let refuse = |status, text: &str| {
            vec![Action::Answer {
                ask,
                status,
                body: fault("Client", text),
            }]
        };
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return refuse(400, "The body is not JSON.");
        };
        let (Some(name), Some(params)) = (
            body["name"].as_str(),
            body.get("params").filter(|p| p.is_object()),
        ) else {
            return refuse(400, "A command needs a name and an object of params.");
        };
        if let Some(running) = self.commands.running() {
            return refuse(
                409,
                &format!("Agent is busy: executing command {}", running.name),
            );
        }
        if self.job.is_some() || self.leaving.is_some() {
            return refuse(409, "Agent is busy: the work before this is ending");
        }
        if let Some(node) = params.get("node") {
            self.has_remote_power = job::has_remote_power(node);
        }
        let plan = match job::plan(name, params, self.md5_allowed()) {
            Ok(plan) => plan,
            Err(Refusal::UnknownExtension(extension)) => {
                return refuse(404, &format!("Invalid extension: {extension}"));
            }
            Err(Refusal::UnknownCommand(command)) => {
                return refuse(400, &format!("Invalid command: {command}"));
            }
            Err(Refusal::Malformed(reason)) => {
                return refuse(400, &format!("Invalid params of {name}: {reason}"));
            }
        };
        self.accept(ask, wait, name.to_owned(), plan)
    }

    fn md5_allowed(&self) -> bool {
        matches!(&self.stage, Stage::Registered(session) if session.node.md5_allowed)
    }

    fn accept(&mut self, ask: u64, wait: bool, name: String, plan: Plan) -> Vec<Action> {
        let id = self.random.id();
        let mut command = Command {
            id,
            name,
            state: State::Running,
            waiting: Vec::new(),
        };
        let said = self.say(format!("Ironic asks for {}.", command.name));
        let (job, waits) = match plan {
            Plan::Now(result) => {
                command.state = State::Succeeded(result);
                let body = command.to_json();
                self.commands.push(command);
                return said.into_iter().chain([answer(ask, body)]).collect();
            }
            Plan::Sync(job) => (job, true),
            Plan::Background(job) => (job, wait),
        };
        let mut actions = said;
        if waits {
            command.waiting.push(ask);
        } else {
            actions.push(answer(ask, command.to_json()));
        }
        self.commands.push(command);
        self.job = Some(id);
        actions.push(Action::Start { id, job });
        actions
    }

    /// Ironic has no word for "restart into the disk": it is what the end of a deploy means.
    fn to_disk(&self) -> Departure {
        match self.deployed {
            Some(Start::Kexec) => Departure::Kexec,
            Some(Start::Restart { .. }) => Departure::BootDisk,
            None => Departure::Reboot,
        }
    }

    /// How the system on the disk will be started, if there is one.
    fn starts_by(&self, departure: Departure) -> Option<Start> {
        let start = self.deployed.clone()?;
        // Somebody else switches it on again.
        if departure == Departure::PowerOff && start == Start::Kexec {
            return Some(Start::default());
        }
        Some(start)
    }

    pub(super) fn finished(
        &mut self,
        now: Duration,
        id: Uuid,
        result: Result<Value, Failure>,
    ) -> Vec<Action> {
        if self.job != Some(id) {
            return Vec::new();
        }
        self.job = None;
        if matches!(self.stage, Stage::Draining) {
            return self.rest(now, SECOND, String::new());
        }
        let failure = result.as_ref().err().cloned();
        let (start, wrote) = (
            said(&result, "start").unwrap_or_default(),
            said(&result, "wrote"),
        );
        let Some((command, waiting)) = self.commands.finish(id, result) else {
            return Vec::new();
        };
        let name = command.name.clone();
        let body = command.to_json();
        let answers = waiting.into_iter().map(|ask| answer(ask, body.clone()));
        if failure.is_none()
            && let Some(departure) = self.departure_of(&name)
        {
            self.leaving = Some((now + LEAVE_AFTER, departure));
            let start = self.starts_by(departure);
            let told = start.map(|start| Action::Tell(Phase::Rebooting { start }));
            // Ironic looks again as soon as it has the answer, and must find nobody then.
            return std::iter::once(Action::CloseServer)
                .chain(answers)
                .chain(told)
                .collect();
        }
        let mut actions: Vec<Action> = answers.collect();
        match failure {
            // Whatever fails from here on, the disk is not written again.
            None if name == EXECUTE_DEPLOY_STEP => {
                self.deployed = Some(start);
                actions.push(Action::Tell(Phase::Written { wrote }));
            }
            Some(Failure { reason }) => {
                actions.extend(self.say(format!("{name} failed: {reason}")));
                if name == EXECUTE_DEPLOY_STEP {
                    actions.push(Action::Tell(Phase::Failed { reason }));
                }
            }
            None => {}
        }
        if let Stage::Registered(session) = &mut self.stage {
            session.eager_until = now + EAGER_FOR;
            session.beat_due = Some(now.max(session.last_beat + BEAT_SPACING));
            session.report_due = session.report_due.map(|_| now);
        }
        actions.extend(self.registered_timers(now));
        actions
    }

    fn departure_of(&self, name: &str) -> Option<Departure> {
        match name {
            "standby.power_off" if self.has_remote_power => Some(Departure::PowerOff),
            "standby.power_off" | "system.lockdown" | "standby.run_image" => Some(self.to_disk()),
            _ => None,
        }
    }
}

/// As the job that wrote the image says.
fn said<T: for<'a> Deserialize<'a>>(result: &Result<Value, Failure>, what: &str) -> Option<T> {
    let said = &result.as_ref().ok()?["deploy_result"][what];
    T::deserialize(said).ok()
}

fn answer(ask: u64, body: Value) -> Action {
    Action::Answer {
        ask,
        status: 200,
        body,
    }
}

/// Ironic's client fails on an error without `faultstring`.
pub(super) fn fault(code: &str, text: &str) -> Value {
    json!({"faultcode": code, "faultstring": text})
}
