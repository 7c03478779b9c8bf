#![allow(clippy::unwrap_used)]

use firstlight_api::software::{NONE, SoftwareState};
use serde_json::{Value, json};

use super::*;

/// A Software and its servers, on which jobs end at once as the servers' own words say.
struct Story {
    software: Software,
    servers: Vec<Server>,
    status: SoftwareStatus,
    /// By server: what is installed, and what installing ends in.
    have: BTreeMap<String, String>,
    ends: BTreeMap<String, End>,
    /// Everything that was begun, in its order.
    begun: Vec<(String, Job)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Installed,
    Broken,
    /// Does not answer at all.
    Gone,
    /// Answers until it is worked on.
    Vanishes,
    OtherKey,
    WantsRestart,
}

fn server(name: &str) -> Server {
    Server {
        name: name.to_owned(),
        mac: "52:54:00:00:00:01".parse().unwrap(),
        address: Some([172, 22, 0, 9].into()),
        cluster: String::new(),
        node: String::new(),
        control_plane: false,
        system: "first".to_owned(),
    }
}

impl Story {
    fn of(count: usize, spec: &Value) -> Self {
        let mut software: Software = serde_json::from_value(json!({
            "metadata": {"name": "tools", "namespace": "default", "generation": 1}, "spec": spec,
        }))
        .unwrap();
        if software.spec.packages.is_empty() {
            software.spec.packages =
                serde_json::from_value(json!([{"name": "htop", "version": "1"}])).unwrap();
        }
        Self {
            software,
            servers: (0..count)
                .map(|number| server(&format!("n{number}")))
                .collect(),
            status: SoftwareStatus::default(),
            have: BTreeMap::new(),
            ends: BTreeMap::new(),
            begun: Vec::new(),
        }
    }

    fn with(mut self, ends: &[(&str, End)]) -> Self {
        self.ends = ends
            .iter()
            .map(|(name, end)| ((*name).to_owned(), *end))
            .collect();
        self
    }

    fn wants(&mut self, version: &str) {
        version.clone_into(&mut self.software.spec.packages[0].version);
        self.software.metadata.generation += 1;
    }

    /// One look; what it begins has not ended yet. `is_due`: everybody's pause is over.
    fn look(&mut self, is_due: bool) -> Vec<(String, Job)> {
        let (peace, idle) = (BTreeMap::new(), BTreeSet::new());
        let mut nodes = refresh(
            &self.software,
            &self.servers,
            &peace,
            &idle,
            &self.status,
            "10:00",
        );
        let due = |node: &NodeStatus| is_due && node.state != NodeState::Ready;
        let jobs = jobs(&self.software, &self.servers, &nodes, &idle, due);
        for (name, job) in &jobs {
            let node = nodes.iter_mut().find(|node| node.name == *name).unwrap();
            if *job == Job::Apply {
                note(
                    &self.software,
                    node,
                    &News::Doing(NodeState::Installing, String::new()),
                    "10:01",
                );
            }
        }
        self.status = status(&self.software, nodes, "10:00");
        self.begun.extend(jobs.clone());
        jobs
    }

    fn end(&mut self, name: &str, job: Job) {
        let end = self.ends.get(name).copied().unwrap_or(End::Installed);
        let wanted = self
            .software
            .spec
            .state
            .of(&self.software.spec.packages[0])
            .to_owned();
        let trouble = |reason| {
            Err(JobError {
                reason,
                message: "it is not there".to_owned(),
            })
        };
        let have = self
            .have
            .entry(name.to_owned())
            .or_insert_with(|| NONE.to_owned());
        let mut state = PackageState::Pending;
        if job == Job::Apply {
            state = if end == End::Broken {
                PackageState::Failed
            } else {
                PackageState::Ready
            };
            have.clone_from(&wanted);
        } else if *have == wanted && end != End::Broken {
            state = PackageState::Ready;
        }
        let report = Report {
            packages: vec![PackageReport {
                name: "htop".to_owned(),
                wanted,
                have: have.clone(),
                state,
                reason: if state == PackageState::Failed {
                    "exit status 1"
                } else {
                    ""
                }
                .to_owned(),
            }],
            reboot_needed: end == End::WantsRestart,
            ..Report::default()
        };
        let result = match (end, job) {
            (End::Gone, _) | (End::Vanishes, Job::Apply) => trouble(UNREACHABLE),
            (End::OtherKey, _) => trouble(HOST_KEY_MISMATCH),
            _ => Ok(report),
        };
        let news = if job == Job::Apply {
            News::Applied(result)
        } else {
            News::Looked(result)
        };
        let node = self
            .status
            .nodes
            .iter_mut()
            .find(|node| node.name == name)
            .unwrap();
        note(&self.software, node, &news, "10:02");
    }

    /// Until nothing is left to begin.
    fn play(&mut self) -> &SoftwareStatus {
        for _ in 0..100 {
            let jobs = self.look(false);
            if jobs.is_empty() {
                return &self.status;
            }
            for (name, job) in jobs {
                self.end(&name, job);
            }
        }
        panic!("it never comes to rest: {:?}", self.begun);
    }

    fn states(&self) -> Vec<(&str, &str)> {
        let nodes = self.status.nodes.iter();
        nodes
            .map(|node| (node.state.as_str(), node.reason.as_str()))
            .collect()
    }

    fn applied(&self) -> usize {
        self.begun
            .iter()
            .filter(|(_, job)| *job == Job::Apply)
            .count()
    }
}

const READY: (&str, &str) = ("Ready", "");

#[test]
fn all_are_looked_at_at_once_and_worked_on_as_many_at_a_time_as_may_be_unavailable() {
    for (most, at_once) in [
        (json!(1), 1),
        (json!(2), 2),
        (json!("50%"), 2),
        (json!("100%"), 5),
    ] {
        let mut story = Story::of(5, &json!({"maxUnavailable": most}));
        let looks = story.look(false);
        assert_eq!((looks.len(), looks[0].1), (5, Job::Look));
        for (name, job) in looks {
            story.end(&name, job);
        }
        let works = story.look(false);
        assert_eq!(works.len(), at_once, "{most}");
        assert!(works.iter().all(|(_, job)| *job == Job::Apply));
        for (name, job) in works {
            story.end(&name, job);
        }
        assert_eq!(story.play().state, SoftwareState::Ready);
        assert_eq!((story.status.ready.as_str(), story.applied()), ("5/5", 5));
    }
}

#[test]
fn a_second_time_changes_nothing() {
    let mut story = Story::of(3, &json!({}));
    story.play();
    let status = story.status.clone();
    story.begun.clear();
    assert_eq!(*story.play(), status);
    assert!(story.begun.is_empty());
    // Another object with the same wish finds all done.
    story.status = SoftwareStatus::default();
    assert_eq!(story.play().state, SoftwareState::Ready);
    assert_eq!(story.applied(), 0);
}

#[test]
fn failures_stop_the_rest_when_as_many_failed_as_may_be_unavailable() {
    for (most, broken, state, ready, waiting) in [
        (1, 1, SoftwareState::Stopped, "0/4", 3),
        (2, 1, SoftwareState::Failed, "3/4", 0),
        (2, 2, SoftwareState::Stopped, "0/4", 2),
    ] {
        let names = ["n0", "n1"].map(|name| (name, End::Broken));
        let mut story = Story::of(4, &json!({"maxUnavailable": most})).with(&names[..broken]);
        let status = story.play().clone();
        assert_eq!(
            (status.state, status.ready.as_str()),
            (state, ready),
            "{most} {broken}"
        );
        let stopped = status
            .nodes
            .iter()
            .filter(|node| node.reason == STOPPED)
            .count();
        assert_eq!(stopped, waiting);
        for part in ["n0", "htop 1: exit status 1", "mend the package"] {
            assert!(status.message.contains(part), "{}", status.message);
        }
        assert_eq!(status.conditions.len(), 2);
        let said = status
            .conditions
            .iter()
            .find(|one| one.kind == "PackagesReady")
            .unwrap();
        assert_eq!(
            (said.reason.as_str(), &said.message),
            (state.as_str(), &status.message)
        );
    }
}

#[test]
fn a_mended_package_lets_the_roll_out_go_on() {
    let mut story = Story::of(3, &json!({})).with(&[("n0", End::Broken)]);
    story.play();
    // The same again, after its pause.
    assert_eq!(story.look(true), [("n0".to_owned(), Job::Apply)]);
    story.end("n0", Job::Apply);
    assert_eq!(story.play().state, SoftwareState::Stopped);
    // Another version.
    story.wants("2");
    story.ends.clear();
    assert_eq!(story.play().state, SoftwareState::Ready);
}

#[test]
fn a_server_that_is_not_there_is_named_and_the_others_go_on() {
    for (end, reason) in [(End::Gone, UNREACHABLE), (End::OtherKey, HOST_KEY_MISMATCH)] {
        let mut story = Story::of(3, &json!({})).with(&[("n0", end)]);
        let state = story.play().state;
        assert_eq!(state, SoftwareState::Failed);
        assert_eq!(story.states(), [("Failed", reason), READY, READY]);
        assert!(
            story.status.message.starts_with("n0: "),
            "{}",
            story.status.message
        );
        assert_eq!(
            story
                .begun
                .iter()
                .filter(|(name, job)| name == "n0" && *job == Job::Apply)
                .count(),
            0
        );
        // And when it is back.
        story.ends.clear();
        assert_eq!(story.look(true), [("n0".to_owned(), Job::Look)]);
        story.end("n0", Job::Look);
        assert_eq!(story.play().state, SoftwareState::Ready);
    }
}

#[test]
fn a_server_that_vanishes_under_our_hands_counts_as_failed_until_it_is_back() {
    let mut story = Story::of(3, &json!({})).with(&[("n0", End::Vanishes)]);
    assert_eq!(story.play().state, SoftwareState::Stopped);
    assert_eq!(story.states()[0], ("Failed", LOST));
    story.ends.clear();
    assert_eq!(story.look(true), [("n0".to_owned(), Job::Apply)]);
    story.end("n0", Job::Apply);
    assert_eq!(story.play().state, SoftwareState::Ready);
}

#[test]
fn another_selection_drops_servers_and_takes_in_new_ones() {
    let mut story = Story::of(2, &json!({}));
    story.play();
    story.begun.clear();
    story.servers = vec![server("n1"), server("n2")];
    assert_eq!(story.play().state, SoftwareState::Ready);
    assert!(
        story.begun.iter().all(|(name, _)| name == "n2"),
        "{:?}",
        story.begun
    );
    assert_eq!(story.status.nodes.len(), 2);
    story.servers.clear();
    let status = story.play();
    assert_eq!(
        (status.state, status.nodes.len()),
        (SoftwareState::Pending, 0)
    );
    assert!(
        status
            .message
            .contains("no server that carries a system is selected")
    );
}

#[test]
fn a_server_that_was_installed_again_is_begun_anew() {
    let mut story = Story::of(1, &json!({}));
    story.play();
    story.begun.clear();
    story.have.clear();
    "second".clone_into(&mut story.servers[0].system);
    assert_eq!(story.play().state, SoftwareState::Ready);
    assert_eq!(story.applied(), 1);
}

#[test]
fn what_the_agent_left_in_the_middle_goes_on_first_and_keeps_its_place() {
    for state in [
        NodeState::Installing,
        NodeState::Draining,
        NodeState::Restarting,
    ] {
        let mut story = Story::of(3, &json!({}));
        let looks = story.look(false);
        for (name, job) in looks {
            story.end(&name, job);
        }
        story.look(false);
        story.status.nodes[0].state = state;
        assert_eq!(
            story.look(false),
            [("n0".to_owned(), Job::Apply)],
            "{state:?}"
        );
    }
}

#[test]
fn a_node_that_is_held_for_a_restart_is_let_go_when_it_is_taken_from_the_software() {
    let mut story = Story::of(2, &json!({"reboot": "ifNeeded"}));
    story.play();
    story.status.nodes[0].state = NodeState::Draining;
    story.software.metadata.deletion_timestamp = Some("now".to_owned());
    assert_eq!(story.look(false), [("n0".to_owned(), Job::Release)]);
    let node = &mut story.status.nodes[0];
    note(&story.software, node, &News::Released, "10:02");
    assert!(story.look(false).is_empty());
    assert!(story.status.nodes.is_empty());
}

#[test]
fn control_planes_of_one_cluster_restart_one_at_a_time() {
    let mut story = Story::of(4, &json!({"reboot": "ifNeeded", "maxUnavailable": "100%"}));
    for server in &mut story.servers {
        join(server, "node");
    }
    story.servers[0].control_plane = true;
    story.servers[1].control_plane = true;
    for (name, job) in story.look(false) {
        story.end(&name, job);
    }
    let names: Vec<String> = story
        .look(false)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["n0", "n2", "n3"]);
}

fn join(server: &mut Server, node: &str) {
    "lab".clone_into(&mut server.cluster);
    node.clone_into(&mut server.node);
}

#[test]
fn a_restart_is_made_once_or_left_to_the_person() {
    for (reboot, applied, reason) in [
        ("never", 1, RESTART_NEEDED),
        ("ifNeeded", 2, RESTART_NEEDED),
    ] {
        let mut story = Story::of(1, &json!({"reboot": reboot})).with(&[("n0", End::WantsRestart)]);
        for _ in 0..2 {
            for (name, job) in story.look(false) {
                story.end(&name, job);
            }
        }
        if reboot == "ifNeeded" {
            // The job restarts it, and it still says so.
            for (name, job) in story.look(false) {
                let restarts = News::Doing(NodeState::Restarting, String::new());
                note(
                    &story.software,
                    &mut story.status.nodes[0],
                    &restarts,
                    "10:02",
                );
                story.end(&name, job);
            }
        }
        assert_eq!(story.play().state, SoftwareState::Ready, "{reboot}");
        assert_eq!(
            (story.applied(), story.states()),
            (applied, vec![("Ready", reason)]),
            "{reboot}"
        );
        // The look of half an hour later.
        story.end("n0", Job::Look);
        assert_eq!(story.states(), [("Ready", reason)], "{reboot}");
    }
}

#[test]
fn what_cannot_be_yet_waits_with_its_reason() {
    let mut story = Story::of(2, &json!({}));
    join(&mut story.servers[0], "");
    story.servers[1].address = None;
    assert!(story.look(false).is_empty());
    assert_eq!(
        story.states(),
        [("Waiting", "NotJoined"), ("Waiting", "NoAddress")]
    );
    assert_eq!(story.status.state, SoftwareState::Pending);
    join(&mut story.servers[0], "a");
    assert_eq!(story.look(false), [("n0".to_owned(), Job::Look)]);
}

#[test]
fn a_conflict_holds_both_and_goes_when_it_is_solved() {
    let mut story = Story::of(1, &json!({}));
    story.play();
    let conflicts = BTreeMap::from([("n0".to_owned(), "Software b wants htop 2".to_owned())]);
    let nodes = refresh(
        &story.software,
        &story.servers,
        &conflicts,
        &BTreeSet::new(),
        &story.status,
        "10:00",
    );
    assert_eq!(nodes[0].reason, CONFLICT);
    assert!(
        jobs(
            &story.software,
            &story.servers,
            &nodes,
            &BTreeSet::new(),
            |_| true
        )
        .is_empty()
    );
    story.status = status(&story.software, nodes, "10:00");
    assert_eq!(story.status.state, SoftwareState::Failed);
    assert_eq!(story.play().state, SoftwareState::Ready);
}

#[test]
fn a_server_with_a_job_of_anybody_is_left_alone() {
    let mut story = Story::of(2, &json!({}));
    story.look(false);
    let busy = BTreeSet::from(["n0".to_owned()]);
    let jobs = jobs(
        &story.software,
        &story.servers,
        &story.status.nodes,
        &busy,
        |_| true,
    );
    assert_eq!(jobs, [("n1".to_owned(), Job::Look)]);
}

#[test]
fn a_person_approves_one_generation() {
    let approved = |gate: &str, annotation: Option<&str>, generation: i64| {
        let mut story = Story::of(1, &json!({"gate": gate}));
        story.software.metadata.generation = generation;
        let annotations = &mut story.software.metadata.annotations;
        annotations.extend(annotation.map(|text| {
            (
                firstlight_api::software::APPROVED_ANNOTATION.to_owned(),
                text.to_owned(),
            )
        }));
        let status = story.play().clone();
        let said = status
            .conditions
            .iter()
            .find(|one| one.kind == "Approved")
            .unwrap();
        (said.reason.clone(), status.message)
    };
    assert_eq!(approved("auto", None, 1).0, "Auto");
    assert_eq!(approved("manual", Some("3"), 3).0, "ByPerson");
    for annotation in [None, Some("2"), Some("yes")] {
        let (reason, message) = approved("manual", annotation, 3);
        assert_eq!(reason, "WaitsForPerson");
        assert!(message.contains("kubectl annotate -n default software tools --overwrite firstlight.internal/approved=3"), "{message}");
    }
}

#[test]
fn a_state_keeps_its_time() {
    let mut story = Story::of(1, &json!({})).with(&[("n0", End::Broken)]);
    story.play();
    assert_eq!(story.status.nodes[0].since, "10:02");
    let before = story.status.nodes[0].clone();
    note(
        &story.software,
        &mut story.status.nodes[0],
        &News::Looked(Err(JobError {
            reason: UNREACHABLE,
            message: "gone".to_owned(),
        })),
        "11:00",
    );
    assert_eq!(story.status.nodes[0].since, before.since);
    assert_eq!(
        story.status.nodes[0].packages[0].since,
        before.packages[0].since
    );
}
