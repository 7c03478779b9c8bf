//! Whether a site is as well as it was: what an update may not have made worse.

use std::collections::{BTreeMap, BTreeSet};

use firstlight_api::status::{HostState, SiteStatus, StepState};
use serde::{Deserialize, Serialize};

/// What worked at some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wellness {
    ready: bool,
    /// Names of servers whose own system answered.
    running: BTreeSet<String>,
    /// Nodes that were Ready, by namespace and name of the cluster.
    clusters: BTreeMap<String, u32>,
}

impl Wellness {
    pub fn of(site: &SiteStatus) -> Self {
        let running = site
            .hosts
            .iter()
            .filter(|host| host.state == HostState::Running);
        let clusters = site.clusters.iter().map(|cluster| {
            let name = format!("{}/{}", cluster.namespace, cluster.name);
            (name, cluster.control_planes_ready + cluster.workers_ready)
        });
        Self {
            ready: site.ready,
            running: running.map(|host| host.name.clone()).collect(),
            clusters: clusters.collect(),
        }
    }

    /// What worked then and does not now, as sentences.
    pub fn missing(&self, site: &SiteStatus) -> Vec<String> {
        let now = Self::of(site);
        let mut missing = Vec::new();
        if !now.ready {
            let step = site
                .bring_up
                .iter()
                .find(|step| !matches!(step.state, StepState::Done { .. }));
            missing.push(match step.map(|step| (&step.title, &step.state)) {
                Some((title, StepState::Failed { problem, .. })) => {
                    format!("the box is not ready: {title}: {}", problem.what)
                }
                Some((title, _)) => format!("the box is not ready: {title}"),
                None => "the box is not ready".to_owned(),
            });
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

    fn site(ready: bool, host: HostState, workers: u32) -> SiteStatus {
        SiteStatus {
            ready,
            bring_up: vec![Step {
                name: "ironic".to_owned(),
                title: "Ironic".to_owned(),
                state: StepState::Running { started: 1.0 },
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

    #[test]
    fn what_worked_before_has_to_work_and_nothing_else() {
        let before = Wellness::of(&site(true, HostState::Running, 2));
        assert!(
            before
                .missing(&site(true, HostState::Running, 3))
                .is_empty()
        );
        assert_eq!(
            before.missing(&site(false, HostState::Failed, 1)),
            [
                "the box is not ready: Ironic",
                "server n1 ran before, and does not answer",
                "cluster default/c has 2 nodes that are ready, and had 3",
            ]
        );
        assert_eq!(
            before
                .missing(&SiteStatus {
                    ready: true,
                    ..SiteStatus::default()
                })
                .len(),
            2
        );
        let poor = Wellness::of(&site(true, HostState::Failed, 0));
        assert!(poor.missing(&site(true, HostState::Failed, 0)).is_empty());
        // A box that was not ready has to become so all the same.
        assert_eq!(
            Wellness::default()
                .missing(&site(false, HostState::Running, 0))
                .len(),
            1
        );
    }
}
