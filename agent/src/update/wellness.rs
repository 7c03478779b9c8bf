//! Whether a site is as well as it was: what an update may not have made worse.

use std::collections::{BTreeMap, BTreeSet};

use firstlight_api::status::{HostState, SiteStatus, StepState};
use serde::{Deserialize, Serialize};

/// What worked at some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wellness {
    /// Names of the box's steps that were done.
    steps: BTreeSet<String>,
    /// Names of servers whose own system answered.
    running: BTreeSet<String>,
    /// Nodes that were Ready, by namespace and name of the cluster.
    clusters: BTreeMap<String, u32>,
}

impl Wellness {
    pub fn of(site: &SiteStatus) -> Self {
        let done = site
            .bring_up
            .iter()
            .filter(|step| matches!(step.state, StepState::Done { .. }));
        let running = site
            .hosts
            .iter()
            .filter(|host| host.state == HostState::Running);
        let clusters = site.clusters.iter().map(|cluster| {
            let name = format!("{}/{}", cluster.namespace, cluster.name);
            (name, cluster.control_planes_ready + cluster.workers_ready)
        });
        Self {
            steps: done.map(|step| step.name.clone()).collect(),
            running: running.map(|host| host.name.clone()).collect(),
            clusters: clusters.collect(),
        }
    }

    /// Every step of the box.
    pub fn whole_box(site: &SiteStatus) -> Self {
        Self {
            steps: site.bring_up.iter().map(|step| step.name.clone()).collect(),
            ..Self::default()
        }
    }

    /// What worked then and does not now, as sentences. A step that another version does not have is no step.
    pub fn missing(&self, site: &SiteStatus) -> Vec<String> {
        let now = Self::of(site);
        let mut missing = Vec::new();
        for step in site
            .bring_up
            .iter()
            .filter(|step| self.steps.contains(&step.name))
        {
            match &step.state {
                StepState::Done { .. } => {}
                StepState::Failed { problem, .. } => {
                    missing.push(format!("{}: {}", step.title, problem.what));
                }
                StepState::Waiting | StepState::Running { .. } => {
                    missing.push(format!("{} was done before, and is not", step.title));
                }
            }
        }
        let gone = self.running.difference(&now.running);
        missing.extend(gone.map(|host| format!("server {host} ran before, and does not answer")));
        for (name, ready) in &self.clusters {
            let found = now.clusters.get(name).copied().unwrap_or_default();
            if found < *ready {
                missing.push(format!(
                    "cluster {name} has {found} nodes that are ready, and had {ready}"
                ));
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use firstlight_api::status::{ClusterStatus, HostStatus, Step};

    use super::*;

    fn site(step: StepState, host: HostState, workers: u32) -> SiteStatus {
        SiteStatus {
            bring_up: vec![Step {
                name: "ironic".to_owned(),
                title: "Ironic".to_owned(),
                state: step,
            }],
            hosts: vec![HostStatus {
                name: "n1".to_owned(),
                state: host,
                ..HostStatus::default()
            }],
            clusters: vec![ClusterStatus {
                name: "c".to_owned(),
                namespace: "default".to_owned(),
                control_planes_ready: 1,
                workers_ready: workers,
                ..ClusterStatus::default()
            }],
            ..SiteStatus::default()
        }
    }

    const DONE: StepState = StepState::Done {
        started: 1.0,
        ended: 2.0,
    };

    #[test]
    fn what_worked_before_has_to_work_and_nothing_else() {
        let before = Wellness::of(&site(DONE, HostState::Running, 2));
        assert!(
            before
                .missing(&site(DONE, HostState::Running, 3))
                .is_empty()
        );
        assert_eq!(
            before.missing(&site(StepState::Waiting, HostState::Failed, 1)),
            [
                "Ironic was done before, and is not",
                "server n1 ran before, and does not answer",
                "cluster default/c has 2 nodes that are ready, and had 3",
            ]
        );
        assert_eq!(
            before.missing(&SiteStatus::default()).len(),
            2,
            "steps of another version"
        );
        // Without a cable it was not ready, and need not be.
        let poor = Wellness::of(&site(StepState::Waiting, HostState::Failed, 0));
        assert!(
            poor.missing(&site(StepState::Waiting, HostState::Failed, 0))
                .is_empty()
        );
    }
}
