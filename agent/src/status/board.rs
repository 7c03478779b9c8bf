//! Updates to the status value: pure, so that tests compare it whole.

use std::{collections::BTreeMap, time::Duration};

use firstlight_api::status::{HostState, HostStatus, Problem, SiteStatus, Step, StepState};

use super::{
    StepChange, StepName, Update,
    counters::{FAILURES, PHASES},
};

/// What is needed beside the status value to keep it right.
#[derive(Clone, Debug, Default)]
pub struct Board {
    notes: BTreeMap<StepName, String>,
    problems: BTreeMap<&'static str, Vec<Problem>>,
}

/// Nothing has happened yet.
pub fn empty(version: &str) -> SiteStatus {
    let bring_up = StepName::ALL.iter().map(|step| Step {
        name: step.name().to_owned(),
        title: step.title().to_owned(),
        state: StepState::Waiting,
    });
    SiteStatus {
        version: version.to_owned(),
        bring_up: bring_up.collect(),
        ..SiteStatus::default()
    }
}

impl Board {
    /// What follows from several parts of it.
    pub fn tell(&self, status: &mut SiteStatus, now: Duration) {
        status.uptime = now.as_secs_f64();
        status.ready = status
            .bring_up
            .iter()
            .all(|step| matches!(step.state, StepState::Done { .. }));
        status.problems = self.problems.values().flatten().cloned().collect();
        for (step, shown) in StepName::ALL.iter().zip(&mut status.bring_up) {
            shown.title = match self.notes.get(step) {
                Some(note) => format!("{}: {note}", step.title()),
                None => step.title().to_owned(),
            };
        }
    }

    /// Returns the step that is done with this update and was not before.
    pub fn apply(
        &mut self,
        status: &mut SiteStatus,
        update: Update,
        now: Duration,
    ) -> Option<StepName> {
        match update {
            Update::Site(name) => status.site = name,
            Update::Step(step, change) => {
                let state = &mut status.bring_up[step as usize].state;
                return self
                    .step(state, step, change, now.as_secs_f64())
                    .then_some(step);
            }
            Update::Interface { name, mac, address } => {
                let network = &mut status.network;
                (network.interface, network.mac, network.address) = (name, mac, address);
            }
            Update::Dhcp(mode) => status.network.dhcp = mode,
            Update::Leases(leases) => status.network.leases = leases,
            Update::Addresses(addresses) => status.network.addresses = addresses,
            Update::Alarms(alarms) => status.alarms = alarms,
            Update::Uplink(uplink) => status.network.uplink = Some(uplink),
            Update::Refused { what, count } => {
                if count > 0 {
                    status.network.refused.insert(what.to_owned(), count);
                }
            }
            Update::Host(mac, host) => {
                let before = status.hosts.iter().find(|host| host.mac == mac);
                if let (Some(before), Some(host)) = (before, &host) {
                    count_change(before, host);
                }
                replace(&mut status.hosts, &mac, host);
            }
            Update::Clusters(clusters) => status.clusters = clusters,
            Update::Addons(addons) => status.addons = addons,
            Update::Upgrades(upgrades) => status.upgrades = upgrades,
            Update::Stage(stage) => status.update = stage,
            Update::Software(software) => status.software = software,
            Update::Artifacts(artifacts) => status.artifacts = artifacts,
            Update::Certificates(ends) => status.certificates = ends,
            Update::Round(round) => {
                let controllers = &mut status.controllers;
                controllers.retain(|other| other.name != round.name);
                controllers.push(round);
                controllers.sort_by(|a, b| a.name.cmp(&b.name));
            }
            Update::Seal(seal) => status.seal = Some(seal),
            Update::Machine(machine) => status.machine = machine,
            Update::Backup(backup) => status.backup = backup,
            Update::BeforeStart(lines) => status.before_start = lines,
            Update::Problems(source, problems) => {
                self.problems.insert(source, problems);
            }
        }
        None
    }

    /// A retry keeps the time of the first start, so that the page shows how long a step takes in all.
    fn step(
        &mut self,
        state: &mut StepState,
        step: StepName,
        change: StepChange,
        now: f64,
    ) -> bool {
        self.notes.remove(&step);
        let was_done = matches!(state, StepState::Done { .. });
        let since = match *state {
            StepState::Running { started } | StepState::Failed { started, .. } => started,
            StepState::Waiting | StepState::Done { .. } => now,
        };
        *state = match change {
            StepChange::Running { note } => {
                self.notes.extend(note.map(|note| (step, note)));
                StepState::Running { started: since }
            }
            StepChange::Done => match *state {
                StepState::Done { started, ended } => StepState::Done { started, ended },
                _ => StepState::Done {
                    started: since,
                    ended: now,
                },
            },
            StepChange::Failed(problem) => StepState::Failed {
                started: since,
                ended: now,
                problem,
            },
        };
        !was_done && matches!(state, StepState::Done { .. })
    }
}

/// For `/metrics`: a state that was left, and a step that failed.
fn count_change(before: &HostStatus, now: &HostStatus) {
    if before.state == now.state {
        return;
    }
    if let Some(left) = now.history.last().filter(|left| left.state == before.state) {
        PHASES.took(left.state.as_str(), left.ended - left.started);
    }
    if let Some(step) = now
        .control
        .failed
        .filter(|_| now.state == HostState::Failed)
    {
        FAILURES.count(step.as_str());
    }
}

/// They stay in the order of their names.
fn replace(hosts: &mut Vec<HostStatus>, mac: &str, host: Option<Box<HostStatus>>) {
    let old = hosts.iter().position(|host| host.mac == mac);
    match (old, host) {
        (Some(at), Some(host)) if hosts[at].name == host.name => hosts[at] = *host,
        (old, host) => {
            if let Some(at) = old {
                hosts.remove(at);
            }
            if let Some(host) = host {
                let at = hosts.partition_point(|other| other.name < host.name);
                hosts.insert(at, *host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With its value, as it is told.
    struct Told(Board, SiteStatus);

    impl Told {
        fn new() -> Self {
            Self(Board::default(), empty("1"))
        }

        fn apply(&mut self, update: Update, now: Duration) {
            self.0.apply(&mut self.1, update, now);
            self.0.tell(&mut self.1, now);
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn change(board: &mut Told, seconds: u64, step: StepName, change: StepChange) -> StepState {
        board.apply(Update::Step(step, change), at(seconds));
        board.1.bring_up[step as usize].state.clone()
    }

    fn failed() -> StepChange {
        StepChange::Failed(Problem {
            what: "no cable".into(),
            next: "plug it in".into(),
        })
    }

    #[test]
    fn the_list_of_steps_is_in_the_order_of_the_enum() {
        for (index, step) in StepName::ALL.iter().enumerate() {
            assert_eq!(*step as usize, index);
        }
    }

    #[test]
    fn a_step_that_failed_and_is_retried_keeps_its_first_start() {
        let mut board = Told::new();
        let running = || StepChange::Running { note: None };
        assert_eq!(
            change(&mut board, 2, StepName::Network, running()),
            StepState::Running { started: 2.0 }
        );
        assert!(matches!(
            change(&mut board, 5, StepName::Network, failed()),
            StepState::Failed {
                started: 2.0,
                ended: 5.0,
                ..
            }
        ));
        assert_eq!(
            change(&mut board, 6, StepName::Network, running()),
            StepState::Running { started: 2.0 }
        );
        let done = StepState::Done {
            started: 2.0,
            ended: 9.0,
        };
        assert_eq!(
            change(&mut board, 9, StepName::Network, StepChange::Done),
            done
        );
        assert_eq!(
            change(&mut board, 12, StepName::Network, StepChange::Done),
            done,
            "told twice"
        );
        assert_eq!(
            change(&mut board, 20, StepName::Network, running()),
            StepState::Running { started: 20.0 },
            "lost and sought again"
        );
    }

    #[test]
    fn ready_means_that_every_step_is_done() {
        let mut board = Told::new();
        for step in StepName::ALL {
            assert!(!board.1.ready);
            change(&mut board, 1, step, StepChange::Done);
        }
        assert!(board.1.ready);
        change(&mut board, 2, StepName::Ironic, failed());
        assert!(!board.1.ready);
    }

    #[test]
    fn a_note_is_shown_until_the_step_moves_on() {
        let mut board = Told::new();
        change(
            &mut board,
            1,
            StepName::Network,
            StepChange::Running {
                note: Some("waiting for a cable".into()),
            },
        );
        let title = |board: &Told| board.1.bring_up[StepName::Network as usize].title.clone();
        assert_eq!(title(&board), "Provisioning network: waiting for a cable");
        change(&mut board, 2, StepName::Network, StepChange::Done);
        assert_eq!(title(&board), "Provisioning network");
    }

    #[test]
    fn a_source_replaces_only_its_own_problems() {
        let mut board = Told::new();
        let problem = |what: &str| Problem {
            what: what.into(),
            next: String::new(),
        };
        board.apply(
            Update::Problems("site", vec![problem("a"), problem("b")]),
            at(1),
        );
        board.apply(Update::Problems("disk", vec![problem("c")]), at(1));
        board.apply(Update::Problems("site", vec![]), at(2));
        assert_eq!(board.1.problems, [problem("c")]);
    }

    #[test]
    fn a_host_is_told_in_its_place_by_name_and_forgotten_by_its_mac() {
        let mut board = Told::new();
        let mut tell = |mac: &str, name: Option<&str>| {
            let host = name.map(|name| {
                Box::new(HostStatus {
                    name: name.into(),
                    mac: mac.into(),
                    ..HostStatus::default()
                })
            });
            board.apply(Update::Host(mac.into(), host), at(1));
            let hosts = board.1.hosts.iter();
            let called: Vec<String> = hosts
                .map(|host| format!("{} {}", host.mac, host.name))
                .collect();
            called.join(", ")
        };
        assert_eq!(tell("m1", Some("b")), "m1 b");
        assert_eq!(tell("m2", Some("a")), "m2 a, m1 b");
        assert_eq!(tell("m2", Some("a")), "m2 a, m1 b");
        assert_eq!(tell("m2", Some("c")), "m1 b, m2 c");
        assert_eq!(tell("m1", None), "m2 c");
        assert_eq!(tell("m1", None), "m2 c");
    }
}
