#![allow(clippy::unwrap_used)]
use firstlight_api::upgrade::{ClusterUpgradeSpec, NodeUpgrade, Release};
use serde_json::json;

use super::{
    plan::{Known, NodeTold, RemovedApi, Told, kubeadm_versions, plan, removed_apis},
    *,
};
use crate::software::Server;

pub fn server(node: &str, control_plane: bool) -> Server {
    Server {
        name: format!("host-{node}"),
        mac: "52:54:00:00:00:01".parse().unwrap(),
        address: Some([172, 22, 0, 9].into()),
        cluster: "lab".to_owned(),
        node: node.to_owned(),
        control_plane,
        system: String::new(),
    }
}

fn spec(version: &str) -> ClusterUpgradeSpec {
    ClusterUpgradeSpec {
        cluster: "lab".to_owned(),
        version: version.to_owned(),
        ..ClusterUpgradeSpec::default()
    }
}

pub fn known() -> Known {
    let cluster = json!({"metadata": {"name": "lab"}, "spec": {}});
    Known {
        cluster: Some(serde_json::from_value(cluster).unwrap()),
        servers: vec![server("a", false), server("b", true), server("c", true)],
        packages: vec![
            "1.36.3-1.1+firstlight1".to_owned(),
            "1.37.2-1.1+firstlight1".to_owned(),
        ],
        ..Known::default()
    }
}

fn told(kubelets: [&str; 3]) -> Told {
    let names = ["a", "b", "c"].into_iter();
    let node = |(name, kubelet): (&str, &str)| NodeTold {
        name: name.to_owned(),
        kubelet: kubelet.to_owned(),
        is_ready: true,
        held_for: None,
        authorities: None,
    };
    Told {
        server: "v1.36.3".to_owned(),
        configured: "v1.36.3".to_owned(),
        nodes: names.zip(kubelets).map(node).collect(),
        removed: Vec::new(),
    }
}

const OLD: [&str; 3] = ["v1.36.3"; 3];

#[test]
fn control_planes_go_first_and_who_is_there_is_ready() {
    let plan = plan(
        &spec("v1.37.2"),
        &known(),
        &told(["v1.36.3", "v1.36.3", "v1.37.2"]),
    )
    .unwrap();
    assert_eq!(plan.package, "1.37.2-1.1+firstlight1");
    let order: Vec<(&str, NodeUpgradeState)> = plan
        .nodes
        .iter()
        .map(|(node, _)| (node.name.as_str(), node.state))
        .collect();
    assert_eq!(
        order,
        [
            ("b", NodeUpgradeState::Waiting),
            ("c", NodeUpgradeState::Ready),
            ("a", NodeUpgradeState::Waiting),
        ]
    );
}

#[test]
fn what_cannot_be_gone_is_refused_with_a_reason_and_a_way() {
    type Change = fn(&mut ClusterUpgradeSpec, &mut Known, &mut Told);
    let cases: [(Change, &str); 14] = [
        (
            |spec, _, _| spec.version = "v1.36.1".to_owned(),
            "no way back",
        ),
        (
            |spec, _, _| spec.version = "v1.38.0".to_owned(),
            "so v1.37 comes first",
        ),
        (
            |spec, _, _| spec.version = "v2.0.0".to_owned(),
            "one minor version after the other",
        ),
        (
            |spec, _, _| spec.version = "v1.37.9".to_owned(),
            "no packages of v1.37.9; it has v1.36.3, v1.37.2",
        ),
        (|_, known, _| known.cluster = None, "no cluster lab"),
        (
            |_, known, _| known.cluster.as_mut().unwrap().spec.paused = Some(true),
            "is paused",
        ),
        (
            |_, known, _| known.missing = vec!["kube-proxy:v1.37.2".to_owned()],
            "lacks images of v1.37.2: kube-proxy:v1.37.2",
        ),
        (
            |_, known, _| known.servers.truncate(2),
            "the node c is on no server",
        ),
        (
            |_, known, _| known.servers[0].address = None,
            "host-a: its address",
        ),
        (
            |_, known, _| {
                for one in &mut known.servers {
                    one.control_plane = false;
                }
            },
            "is a control plane",
        ),
        (
            |_, known, _| {
                let gone =
                    json!({"metadata": {"name": "m", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
                known.machines = vec![serde_json::from_value(gone).unwrap()];
            },
            "the machine m is being deleted",
        ),
        (
            |_, _, told| told.nodes[1].is_ready = false,
            "the node b is not Ready",
        ),
        (
            |_, _, told| told.nodes[1].kubelet = "v1.35.9".to_owned(),
            "the node b is at v1.35.9: bring it to v1.36 first",
        ),
        (
            |_, _, told| {
                told.removed = removed_apis(
                    "apiserver_requested_deprecated_apis{group=\"batch\",removed_release=\"1.37\",resource=\"jobs\",subresource=\"\",version=\"v1beta1\"} 1\n",
                );
            },
            "APIs that v1.37 no longer serves: batch/v1beta1 jobs",
        ),
    ];
    for (change, why) in cases {
        let (mut spec, mut known, mut told) = (spec("v1.37.2"), known(), told(OLD));
        assert!(plan(&spec, &known, &told).is_ok());
        change(&mut spec, &mut known, &mut told);
        let refused = plan(&spec, &known, &told).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_person_may_know_better_of_apis_and_other_minors_are_of_no_matter() {
    let mut told = told(OLD);
    let api = |minor: &str| RemovedApi {
        name: "v1 endpoints".to_owned(),
        minor: Release::parse(minor).unwrap(),
    };
    told.removed = vec![api("1.38")];
    assert!(plan(&spec("v1.37.2"), &known(), &told).is_ok());
    told.removed = vec![api("1.37")];
    assert!(plan(&spec("v1.37.2"), &known(), &told).is_err());
    told.configured = "v1.37.2".to_owned();
    assert!(plan(&spec("v1.37.2"), &known(), &told).is_ok(), "half-way");
    told.configured = "v1.36.3".to_owned();
    let allowed = ClusterUpgradeSpec {
        allow_removed_apis: true,
        ..spec("v1.37.2")
    };
    assert!(plan(&allowed, &known(), &told).is_ok());
    // Another patch of the same minor.
    assert!(plan(&spec("v1.36.3"), &known(), &self::told(OLD)).is_ok());
}

#[test]
fn metrics_and_indexes_are_read_line_by_line() {
    let metrics = "# HELP apiserver_requested_deprecated_apis x\n\
        apiserver_requested_deprecated_apis{group=\"\",removed_release=\"\",resource=\"endpoints\",subresource=\"\",version=\"v1\"} 1\n\
        apiserver_requested_deprecated_apis{group=\"a\",removed_release=\"1.40\",resource=\"b\",subresource=\"\",version=\"v1\"} 0\n\
        apiserver_requested_deprecated_apis{group=\"a\",removed_release=\"1.40\",resource=\"c\",subresource=\"\",version=\"v1\"} 1\n";
    let found = removed_apis(metrics);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, "a/v1 c");
    let index = "Package: kubeadm\nVersion: 1.37.2-1.1\nFilename: x\n\nPackage: kubelet\nVersion: 9\n\nPackage: kubeadm\nVersion: 1.36.3-1.1\n";
    assert_eq!(kubeadm_versions(index), ["1.37.2-1.1", "1.36.3-1.1"]);
}

#[test]
fn why_a_node_failed_is_told_until_it_is_tried_again() {
    let node = |state: NodeUpgradeState, message: &str| NodeUpgrade {
        name: "a".to_owned(),
        state,
        message: message.to_owned(),
        ..NodeUpgrade::default()
    };
    let mut status = ClusterUpgradeStatus::default();
    let planned = || News::Planned(vec![node(NodeUpgradeState::Waiting, "")]);
    let said = |state, message: &str| News::Node("a".to_owned(), state, message.to_owned());
    note(&mut status, "v1.37.2", 1, planned());
    for news in [
        said(NodeUpgradeState::Failed, "why"),
        News::Ended(UpgradeState::Stopped, "a: why".to_owned()),
        planned(),
    ] {
        note(&mut status, "v1.37.2", 1, news);
    }
    note(&mut status, "v1.37.2", 2, planned());
    assert_eq!(status.nodes, [node(NodeUpgradeState::Failed, "why")]);
    assert_eq!(
        (status.ready.as_str(), status.state),
        ("0/1", UpgradeState::Stopped)
    );
    assert_eq!(status.observed_generation, 1, "it stopped for the first");
    note(&mut status, "v1.37.2", 2, said(NodeUpgradeState::Ready, ""));
    assert_eq!(
        (status.ready.as_str(), status.nodes[0].version.as_str()),
        ("1/1", "v1.37.2")
    );
    assert_eq!(status.observed_generation, 2);
}

#[test]
fn a_node_that_is_open_again_counts_when_pods_may_come() {
    let ready = |spec: serde_json::Value| {
        let node = json!({
            "metadata": {"name": "a"}, "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        cluster::told(serde_json::from_value(node).unwrap()).is_ready
    };
    let taints = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    assert!(ready(json!({})));
    assert!(!ready(json!({"taints": taints})));
    // Somebody keeps it closed.
    assert!(ready(json!({"taints": taints, "unschedulable": true})));
}

proptest::proptest! {
    /// A cluster is its users'.
    #[test]
    fn whatever_a_cluster_says_is_planned_or_refused(
        server in ".{0,12}", configured in ".{0,12}", kubelet in "(v?1\\.3[5-9]\\.[0-9]|.{0,12})", name in "(a|.{0,8})", ready in proptest::prelude::any::<bool>(),
        metrics in "(apiserver_requested_deprecated_apis\\{)?[a-z=\",}. 0-9\n_]{0,120}", index in "[A-Za-z:\n .0-9-]{0,120}",
    ) {
        let told = Told {
            server,
            configured,
            nodes: vec![NodeTold { name, kubelet, is_ready: ready, held_for: None, authorities: None }],
            removed: removed_apis(&metrics),
        };
        let _ = (plan(&spec("v1.37.2"), &known(), &told), kubeadm_versions(&index));
    }

    #[test]
    fn whatever_a_cluster_says_of_nodes_is_read(
        word in ".{0,12}", status in "(True|False|.{0,8})",
    ) {
        let node = json!({
            "metadata": {"name": word},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        });
        let told = cluster::told(serde_json::from_value(node).unwrap());
        proptest::prop_assert_eq!(told.is_ready, status == "True");
    }
}
