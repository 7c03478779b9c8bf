//! Whether a site is well: what needs a person, and what is on its way. Pure, and the one place for it: commands and scripts read it.

use serde::{Deserialize, Serialize};

use crate::{
    addon::AddonState,
    software::SoftwareState,
    status::{ClusterStatus, HostState, HostStatus, Problem, RootDiskState, SiteStatus, StepState},
    upgrade::UpgradeState,
};

/// Of a whole site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// What a person should look at, the box's first.
    pub problems: Vec<Finding>,
    /// What the box's metrics say that a person should know of. The site is ready all the same: they speak of what comes.
    #[serde(default)]
    pub alarms: Vec<Finding>,
    /// What is not done yet, and needs nobody.
    pub work: Vec<Work>,
    /// Nodes of all clusters that are Ready.
    pub nodes_ready: u32,
}

/// Something that does not go by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// `server n3`, `cluster lab`, `addon storage`, `step ironic`, `software tools`, `alarm StickFull`, or `site`.
    pub about: String,
    /// What it is, and what to do.
    #[serde(flatten)]
    pub problem: Problem,
}

/// Something that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    /// As a [`Finding`] has it.
    pub about: String,
    /// What happens, or what it waits for; a sentence, or empty where nobody said.
    pub what: String,
}

impl Health {
    /// Nothing needs anybody now, and nothing is on its way.
    pub fn is_well(&self) -> bool {
        self.problems.is_empty() && self.work.is_empty()
    }
}

/// Of everything that the status has.
pub fn health(site: &SiteStatus) -> Health {
    let mut health = box_health(site);
    for host in &site.hosts {
        health.add_host(host);
    }
    for cluster in &site.clusters {
        health.add_cluster(cluster);
    }
    for addon in &site.addons {
        let about = format!("addon {}", addon.name);
        match addon.state {
            AddonState::Ready => {}
            AddonState::Failed => health.fails(about, &addon.message, "it is tried again"),
            AddonState::Pending | AddonState::Installing | AddonState::Removing => {
                health.works(about, &addon.message);
            }
        }
    }
    for upgrade in &site.upgrades {
        let about = format!("cluster {}", upgrade.cluster);
        let what = format!(
            "to {}, {} nodes: {}",
            upgrade.to, upgrade.ready, upgrade.message
        );
        match upgrade.state {
            UpgradeState::Done => {}
            UpgradeState::Stopped | UpgradeState::Refused => {
                let next = format!(
                    "`kubectl describe clusterupgrade {}` says more",
                    upgrade.name
                );
                health.fails(about, &what, &next);
            }
            UpgradeState::Pending | UpgradeState::Paused | UpgradeState::Upgrading => {
                health.works(about, &what);
            }
        }
    }
    for software in &site.software {
        let about = format!("software {}", software.name);
        match software.state {
            SoftwareState::Ready => {}
            SoftwareState::Failed | SoftwareState::Stopped => {
                health.fails(about, &software.message, "mend it on the server");
            }
            SoftwareState::Pending | SoftwareState::Installing => {
                health.works(about, &software.message);
            }
        }
    }
    health
}

/// Of the box alone: its steps, and what belongs to nothing else.
pub fn box_health(site: &SiteStatus) -> Health {
    let mut health = Health::default();
    for problem in &site.problems {
        health.finds("site".to_owned(), problem.clone());
    }
    for alarm in &site.alarms {
        let about = format!("alarm {}", alarm.name);
        let problem = alarm.problem.clone();
        health.alarms.push(Finding { about, problem });
    }
    if let Some(stage) = &site.update {
        health.works("update".to_owned(), &stage.sentence());
    }
    for step in &site.bring_up {
        let about = format!("step {}", step.name);
        match &step.state {
            StepState::Done { .. } => {}
            StepState::Failed { problem, .. } => health.finds(about, problem.clone()),
            StepState::Waiting | StepState::Running { .. } => health.works(about, &step.title),
        }
    }
    health
}

impl Health {
    fn finds(&mut self, about: String, problem: Problem) {
        self.problems.push(Finding { about, problem });
    }

    fn fails(&mut self, about: String, what: &str, next: &str) {
        let problem = Problem {
            what: what.to_owned(),
            next: next.to_owned(),
        };
        self.finds(about, problem);
    }

    fn works(&mut self, about: String, what: &str) {
        let what = what.to_owned();
        self.work.push(Work { about, what });
    }

    fn add_host(&mut self, host: &HostStatus) {
        use HostState as S;
        let about = format!("server {}", host.name);
        let is_left_alone = matches!(host.state, S::Discovered | S::External | S::Detached);
        // Why it is left alone is no fault.
        let problem = host.problem.as_ref().filter(|_| !is_left_alone);
        // Of the disks that its system is on.
        let root = host.root_disk.as_ref();
        let root = root.filter(|root| root.state == RootDiskState::Wrote);
        let problem = problem.or_else(|| root.and_then(|root| root.problem.as_ref()));
        match (host.state, problem) {
            (_, Some(problem)) => self.finds(about, problem.clone()),
            (S::Failed, None) => self.fails(about, &host.step, "look at its screen"),
            (
                S::Discovered | S::External | S::Detached | S::Available | S::Staged | S::Running,
                None,
            ) => {}
            (
                S::Registering
                | S::Inspecting
                | S::Provisioning
                | S::Provisioned
                | S::Deprovisioning
                | S::Deleting,
                None,
            ) => self.works(about, &host.step),
        }
    }

    fn add_cluster(&mut self, cluster: &ClusterStatus) {
        self.nodes_ready += cluster.control_planes_ready + cluster.workers_ready;
        let about = format!("cluster {}", cluster.name);
        let is_whole = cluster.control_planes_wanted > 0
            && cluster.control_planes_ready >= cluster.control_planes_wanted
            && cluster.workers_ready >= cluster.workers_wanted
            && cluster.message.is_empty();
        match cluster.phase.as_str() {
            "Failed" => self.fails(
                about,
                &cluster.message,
                "`kubectl describe cluster` says more",
            ),
            "Provisioned" if is_whole => {}
            _ => self.works(about, &cluster.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{AddonLine, Alarm, Step};

    fn host(name: &str, state: HostState, problem: Option<&str>) -> HostStatus {
        HostStatus {
            name: name.to_owned(),
            state,
            step: "it does something".to_owned(),
            problem: problem.map(|what| Problem {
                what: what.to_owned(),
                next: String::new(),
            }),
            ..HostStatus::default()
        }
    }

    fn cluster(ready: [u32; 2], wanted: [u32; 2]) -> ClusterStatus {
        ClusterStatus {
            name: "lab".to_owned(),
            phase: "Provisioned".to_owned(),
            control_planes_ready: ready[0],
            workers_ready: ready[1],
            control_planes_wanted: wanted[0],
            workers_wanted: wanted[1],
            ..ClusterStatus::default()
        }
    }

    fn abouts(health: &Health) -> (Vec<&str>, Vec<&str>) {
        let problems = health.problems.iter().map(|one| one.about.as_str());
        let work = health.work.iter().map(|one| one.about.as_str());
        (problems.collect(), work.collect())
    }

    #[test]
    fn a_site_is_well_when_nothing_needs_anybody_and_nothing_is_on_its_way() {
        let mut site = SiteStatus {
            hosts: vec![
                host("n1", HostState::Running, None),
                host("n2", HostState::Staged, None),
                host("n3", HostState::Discovered, Some("it has data")),
            ],
            clusters: vec![cluster([1, 1], [1, 1])],
            ..SiteStatus::default()
        };
        let well = health(&site);
        assert!(well.is_well(), "{well:?}");
        // An alarm speaks of what comes.
        site.alarms = vec![Alarm::default()];
        let found = health(&site);
        assert!(found.is_well() && found.alarms.len() == 1, "{found:?}");
        assert_eq!(well.nodes_ready, 2);
        site.hosts = vec![
            host("n1", HostState::Provisioning, None),
            host("n2", HostState::Failed, Some("no disk")),
            // A system runs, and half of its mirror is gone.
            host("n3", HostState::Running, Some("a disk is lost")),
            host("n4", HostState::Failed, None),
        ];
        site.clusters = vec![cluster([1, 0], [1, 1]), cluster([0, 0], [0, 0])];
        site.addons = vec![AddonLine {
            name: "storage".to_owned(),
            state: AddonState::Failed,
            ..AddonLine::default()
        }];
        site.bring_up = vec![Step {
            name: "ironic".to_owned(),
            title: "Ironic".to_owned(),
            state: StepState::Running { started: 1.0 },
        }];
        site.problems = vec![Problem::default()];
        let found = health(&site);
        assert_eq!(
            abouts(&found),
            (
                vec![
                    "site",
                    "server n2",
                    "server n3",
                    "server n4",
                    "addon storage"
                ],
                vec!["step ironic", "server n1", "cluster lab", "cluster lab"]
            )
        );
        assert_eq!(
            abouts(&box_health(&site)),
            (vec!["site"], vec!["step ironic"])
        );
    }

    #[test]
    fn no_state_of_a_server_is_forgotten() {
        for state in HostState::ALL {
            let site = |problem| SiteStatus {
                hosts: vec![host("n1", state, problem)],
                ..SiteStatus::default()
            };
            let left_alone = [
                HostState::Discovered,
                HostState::External,
                HostState::Detached,
            ];
            let told = !health(&site(Some("why"))).problems.is_empty();
            assert_eq!(told, !left_alone.contains(&state), "{state:?}");
        }
    }
}
