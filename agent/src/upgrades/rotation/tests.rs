#![allow(clippy::unwrap_used)]

use firstlight_api::{authorities::AuthoritiesStep as Step, upgrade::ClusterUpgradeSpec};
use serde_json::json;

use super::{plan::*, secrets::authority, waits_for};
use crate::upgrades::{
    plan::{Known, NodeTold},
    tests::known,
};

const ROTATION: &str = "0123456789abcdef";

fn spec() -> ClusterUpgradeSpec {
    ClusterUpgradeSpec {
        cluster: "lab".to_owned(),
        rotate_authorities: true,
        ..ClusterUpgradeSpec::default()
    }
}

/// `a` is a worker, `b` and `c` are control planes.
fn told(marks: [Option<Step>; 3]) -> Vec<NodeTold> {
    let names = ["a", "b", "c"].into_iter();
    let node = |(name, mark): (&str, Option<Step>)| NodeTold {
        name: name.to_owned(),
        kubelet: "v1.36.3".to_owned(),
        is_ready: true,
        held_for: None,
        authorities: mark.map(|step| step.mark(ROTATION)),
    };
    names.zip(marks).map(node).collect()
}

fn stage(marks: [Option<Step>; 3]) -> (Option<(Step, String)>, bool) {
    let nodes = plan(&spec(), &known(), &told(marks), Some(ROTATION)).unwrap();
    match Stage::of(&nodes) {
        Stage::Done => (None, false),
        Stage::Next(step, place, is_first) => {
            (Some((step, nodes[place].node.name.clone())), is_first)
        }
    }
}

#[test]
fn each_step_is_taken_by_all_before_the_next_one_begins() {
    use Step::{Forget, Issue, Kubelet, Trust};
    for (marks, next, is_first) in [
        ([None, None, None], Some((Trust, "b")), true),
        ([None, Some(Trust), None], Some((Trust, "c")), false),
        ([None, Some(Trust), Some(Trust)], Some((Trust, "a")), false),
        ([Some(Trust); 3], Some((Issue, "b")), true),
        (
            [Some(Trust), Some(Issue), Some(Trust)],
            Some((Issue, "c")),
            false,
        ),
        // Workers sign nothing.
        (
            [Some(Trust), Some(Issue), Some(Issue)],
            Some((Kubelet, "b")),
            true,
        ),
        (
            [Some(Trust), Some(Kubelet), Some(Kubelet)],
            Some((Kubelet, "a")),
            false,
        ),
        ([Some(Kubelet); 3], Some((Forget, "b")), true),
        (
            [Some(Kubelet), Some(Forget), Some(Forget)],
            Some((Forget, "a")),
            false,
        ),
        ([Some(Forget); 3], None, false),
        // A worker that says that it has gone ahead.
        ([Some(Forget), None, None], Some((Trust, "b")), true),
        (
            [Some(Forget), Some(Trust), Some(Trust)],
            Some((Issue, "b")),
            true,
        ),
        (
            [Some(Forget), Some(Kubelet), Some(Kubelet)],
            Some((Forget, "b")),
            true,
        ),
    ] {
        let next = next.map(|(step, name)| (step, name.to_owned()));
        assert_eq!(stage(marks), (next, is_first), "{marks:?}");
    }
}

#[test]
fn what_another_rotation_has_done_counts_for_nothing() {
    let nodes = told([Some(Step::Forget); 3]);
    let nodes = plan(&spec(), &known(), &nodes, Some("fedcba9876543210")).unwrap();
    assert_eq!(Stage::of(&nodes), Stage::Next(Step::Trust, 0, true));
}

#[test]
fn it_begins_only_where_everything_is_well_and_goes_on_with_a_node_that_is_not() {
    let mut nodes = told([None; 3]);
    nodes[2].is_ready = false;
    let why = plan(&spec(), &known(), &nodes, None).unwrap_err();
    assert!(why.contains("the node c is not Ready"), "{why}");
    assert!(plan(&spec(), &known(), &nodes, Some(ROTATION)).is_ok());
    let machine = |status| {
        let machine =
            json!({"metadata": {"name": "m"}, "spec": {"clusterName": "lab"}, "status": status});
        Known {
            machines: vec![serde_json::from_value(machine).unwrap()],
            ..known()
        }
    };
    let why = plan(&spec(), &machine(json!({})), &told([None; 3]), None).unwrap_err();
    assert!(why.contains("the machine m has not joined yet"), "{why}");
    let joined = machine(json!({"nodeRef": {"name": "a"}}));
    assert!(plan(&spec(), &joined, &told([None; 3]), None).is_ok());
}

#[test]
fn a_certificate_that_is_both_is_there_once() {
    let pem =
        |name: &str| format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n");
    let of =
        |first: &str, then: &str| authority(first, Some(then), None).map(|one| one.certificates);
    assert_eq!(of(&pem("A"), &pem("B")).unwrap(), pem("A") + &pem("B"));
    assert_eq!(
        of(&pem("A"), &(pem("A") + &pem("B"))).unwrap(),
        pem("A") + &pem("B")
    );
    assert!(of("nothing", &pem("A")).is_err());
}

#[test]
fn pods_that_are_waited_for_are_named_and_counted() {
    assert_eq!(waits_for(&[]), None);
    let pods: Vec<String> = (1..=5).map(|number| format!("team/pod-{number}")).collect();
    let told = waits_for(&pods).unwrap();
    assert!(told.contains("team/pod-3 and 2 more. Delete"), "{told}");
}
