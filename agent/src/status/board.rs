//! Updates to the status value: pure, so that tests compare it whole.

use std::{collections::BTreeMap, time::Duration};

use firstlight_api::status::{Problem, SiteStatus, Step, StepState};

use super::{StepChange, StepName, Update};

/// The status value with what is needed to keep it right.
#[derive(Clone, Debug)]
pub struct Board {
    status: SiteStatus,
    notes: BTreeMap<StepName, String>,
    problems: BTreeMap<&'static str, Vec<Problem>>,
}

impl Board {
    pub fn new(version: &str) -> Self {
        let bring_up = StepName::ALL.iter().map(|step| Step {
            name: step.name().to_owned(),
            title: step.title().to_owned(),
            state: StepState::Waiting,
        });
        let status = SiteStatus {
            version: version.to_owned(),
            bring_up: bring_up.collect(),
            ..SiteStatus::default()
        };
        Self {
            status,
            notes: BTreeMap::new(),
            problems: BTreeMap::new(),
        }
    }

    pub fn status(&self, now: Duration) -> SiteStatus {
        let mut status = self.status.clone();
        status.uptime = now.as_secs_f64();
        status.ready = status
            .bring_up
            .iter()
            .all(|step| matches!(step.state, StepState::Done { .. }));
        status.problems = self.problems.values().flatten().cloned().collect();
        for (step, note) in &self.notes {
            let step = &mut status.bring_up[*step as usize];
            step.title = format!("{}: {note}", step.title);
        }
        status
    }

    /// Returns the step that is done with this update and was not before.
    pub fn apply(&mut self, update: Update, now: Duration) -> Option<StepName> {
        match update {
            Update::Site(name) => self.status.site = name,
            Update::Step(step, change) => {
                return self.step(step, change, now.as_secs_f64()).then_some(step);
            }
            Update::Interface { name, mac, address } => {
                let network = &mut self.status.network;
                (network.interface, network.mac, network.address) = (name, mac, address);
            }
            Update::Dhcp(mode) => self.status.network.dhcp = mode,
            Update::Leases(leases) => self.status.network.leases = leases,
            Update::Refused { what, count } => {
                if count > 0 {
                    self.status.network.refused.insert(what.to_owned(), count);
                }
            }
            Update::Hosts(hosts) => self.status.hosts = hosts,
            Update::Clusters(clusters) => self.status.clusters = clusters,
            Update::Addons(addons) => self.status.addons = addons,
            Update::Software(software) => self.status.software = software,
            Update::Artifacts(artifacts) => self.status.artifacts = artifacts,
            Update::Certificates(ends) => self.status.certificates = ends,
            Update::Round(round) => {
                let controllers = &mut self.status.controllers;
                controllers.retain(|other| other.name != round.name);
                controllers.push(round);
                controllers.sort_by(|a, b| a.name.cmp(&b.name));
            }
            Update::BeforeStart(lines) => self.status.before_start = lines,
            Update::Problems(source, problems) => {
                self.problems.insert(source, problems);
            }
        }
        None
    }

    /// A retry keeps the time of the first start, so that the page shows how long a step takes in all.
    fn step(&mut self, step: StepName, change: StepChange, now: f64) -> bool {
        self.notes.remove(&step);
        let state = &mut self.status.bring_up[step as usize].state;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn change(board: &mut Board, seconds: u64, step: StepName, change: StepChange) -> StepState {
        board.apply(Update::Step(step, change), at(seconds));
        board.status(at(seconds)).bring_up[step as usize]
            .state
            .clone()
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
        let mut board = Board::new("1");
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
        let mut board = Board::new("1");
        for step in StepName::ALL {
            assert!(!board.status(at(1)).ready);
            change(&mut board, 1, step, StepChange::Done);
        }
        assert!(board.status(at(1)).ready);
        change(&mut board, 2, StepName::Ironic, failed());
        assert!(!board.status(at(2)).ready);
    }

    #[test]
    fn a_note_is_shown_until_the_step_moves_on() {
        let mut board = Board::new("1");
        change(
            &mut board,
            1,
            StepName::Network,
            StepChange::Running {
                note: Some("waiting for a cable".into()),
            },
        );
        let title = |board: &Board| {
            board.status(at(1)).bring_up[StepName::Network as usize]
                .title
                .clone()
        };
        assert_eq!(title(&board), "Provisioning network: waiting for a cable");
        change(&mut board, 2, StepName::Network, StepChange::Done);
        assert_eq!(title(&board), "Provisioning network");
    }

    #[test]
    fn a_source_replaces_only_its_own_problems() {
        let mut board = Board::new("1");
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
        assert_eq!(board.status(at(2)).problems, [problem("c")]);
    }
}
