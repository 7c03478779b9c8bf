#![allow(clippy::unwrap_used)]
use kube::Config;
use proptest::prelude::*;
use serde_json::Value;
use tokio::net::TcpListener;

use super::*;

fn order(name: &str, taint: TaintOrder) -> NodeOrder {
    NodeOrder {
        cluster: Key::new("default", name),
        node: name.to_owned(),
        taint,
    }
}

const THERE: NodeView = NodeView::There {
    is_ready: false,
    is_tainted: true,
};

/// Connections are taken by the kernel; nobody ever answers.
async fn silent_api() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::try_from(Config::new(address.parse().unwrap())).unwrap();
    (listener, client)
}

#[tokio::test]
async fn clusters_that_do_not_answer_delay_nobody_and_each_has_its_turn() {
    let (_listener, api) = silent_api().await;
    let names = (0..2 * MOST_AT_ONCE).map(|number| format!("m{number}"));
    let orders: BTreeMap<_, _> = names
        .map(|name| (name.clone(), order(&name, TaintOrder::On)))
        .collect();
    let (mut nodes, now) = (Nodes::default(), Instant::now());
    for _ in 0..3 {
        nodes.visit(&api, orders.clone(), now);
        assert_eq!(nodes.visits.len(), MOST_AT_ONCE);
    }
    let first: Vec<_> = nodes
        .visited
        .iter()
        .filter(|(_, it)| it.is_under_way)
        .collect();
    let first: Vec<String> = first.into_iter().map(|(uid, _)| uid.clone()).collect();
    nodes.visits.shutdown().await;
    for uid in &first {
        nodes.ended(uid, None, now);
    }
    nodes.visit(&api, orders, now + PAUSE);
    let second = nodes.visited.iter().filter(|(_, it)| it.is_under_way);
    assert!(
        second.count() == MOST_AT_ONCE && first.iter().all(|uid| !nodes.visited[uid].is_under_way)
    );
    let views = nodes.views(now + PAUSE);
    assert_eq!(views.len(), MOST_AT_ONCE);
    assert!(views.values().all(|view| *view == NodeView::Silent(PAUSE)));
}

/// What a late visit writes is seen by the next one.
#[tokio::test]
async fn a_visit_for_another_order_begins_when_the_last_one_has_ended_and_knows_nothing_of_it() {
    let (_listener, api) = silent_api().await;
    let one = |taint| BTreeMap::from([("u".to_owned(), order("m", taint))]);
    let (mut nodes, now) = (Nodes::default(), Instant::now());
    nodes.visit(&api, one(TaintOrder::On), now);
    nodes.visit(&api, BTreeMap::new(), now);
    nodes.visit(&api, one(TaintOrder::Off), now);
    assert_eq!(nodes.visits.len(), 1);
    assert!(nodes.ended("u", Some(THERE), now), "there is more to do");
    assert_eq!(nodes.views(now), BTreeMap::new());
    nodes.visit(&api, one(TaintOrder::Off), now);
    assert_eq!(nodes.visits.len(), 2);
    assert!(nodes.ended("u", Some(THERE), now));
    assert!(!nodes.ended("u", Some(THERE), now), "nothing new");
    assert_eq!(nodes.views(now), BTreeMap::from([("u".to_owned(), THERE)]));
    nodes.visit(&api, BTreeMap::new(), now);
    assert!(nodes.visited.is_empty());
    assert!(!nodes.ended("u", Some(THERE), now));
}

fn said() -> impl Strategy<Value = Value> {
    let taint = prop_oneof![
        Just(
            json!({"key": OUT_OF_SERVICE.0, "value": OUT_OF_SERVICE.1, "effect": OUT_OF_SERVICE.2})
        ),
        Just(json!({"key": OUT_OF_SERVICE.0, "value": "", "effect": OUT_OF_SERVICE.2})),
        Just(json!({"key": "a", "effect": "NoSchedule", "timeAdded": "2026-11-26T00:00:00Z"})),
        ".{0,4}".prop_map(|text| json!({"key": text, "effect": text})),
        Just(json!(3)),
    ];
    prop_oneof![
        Just(Value::Null),
        prop::collection::vec(taint, 0..5).prop_map(Value::from),
    ]
}

proptest! {
    #[test]
    fn whatever_a_cluster_says_of_a_node_only_our_taint_comes_and_goes(
        taints_ in said(), conditions in prop_oneof![Just(json!([{"type": "Ready", "status": "True"}])), said()], with_ours in any::<bool>(),
    ) {
        let node = json!({"metadata": {}, "spec": {"taints": taints_}, "status": {"conditions": conditions}});
        let Ok(mut node) = serde_json::from_value::<Node>(node) else {
            return Ok(());
        };
        is_ready(&node);
        let others = |node: &Node| {
            let all = node.spec.clone().unwrap().taints.unwrap_or_default();
            all.into_iter().filter(|taint| !is_ours(taint)).collect::<Vec<_>>()
        };
        let before = others(&node);
        let made = taints(node.clone(), with_ours);
        node.spec.as_mut().unwrap().taints = Some(made);
        prop_assert_eq!(is_tainted(&node), with_ours);
        prop_assert_eq!(others(&node), before);
    }
}
