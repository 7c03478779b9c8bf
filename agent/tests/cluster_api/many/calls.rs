//! What the agent asks of others, counted by those who are asked: the API server's audit log, and Ironic's own log.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

/// How many of each kind: `patch baremetalhosts/status`, `GET nodes`.
pub type Calls = BTreeMap<String, usize>;

/// `/readyz`, as for etcd.
pub const ALIVE: &str = "get (no object)";

/// Ended requests of the agent, since the API server began.
pub fn of_kubernetes(audit: &Path) -> Calls {
    let mut calls = Calls::new();
    for line in fs::read_to_string(audit).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let about = &event["objectRef"];
        let of = |field: &str| about[field].as_str();
        let mut what = of("resource").unwrap_or("(no object)").to_owned();
        if let Some(part) = of("subresource") {
            what = format!("{what}/{part}");
        }
        let verb = event["verb"].as_str().unwrap_or_default();
        *calls.entry(format!("{verb} {what}")).or_default() += 1;
    }
    calls
}

/// Requests that came to Ironic from `peer`, and the milliseconds that they took.
pub fn of_ironic(log: &Path, is_peer: impl Fn(&str) -> bool) -> (Calls, BTreeMap<String, f64>) {
    let (mut calls, mut times) = (Calls::new(), BTreeMap::new());
    for line in fs::read_to_string(log).unwrap().lines() {
        // … INFO ironic.api […] 172.22.0.1 - GET /v1/nodes - 200 (12.34ms)
        let Some((_, said)) = line.split_once(" INFO ironic.api [") else {
            continue;
        };
        let words: Vec<&str> = said.split_once("] ").unwrap().1.split(" - ").collect();
        let [peer, request, answer] = words[..] else {
            continue;
        };
        if !is_peer(peer) {
            continue;
        }
        let kind = kind_of(request);
        let (_, time) = answer.split_once('(').unwrap();
        let time: f64 = time.trim_end_matches("ms)").parse().unwrap();
        *times.entry(kind.clone()).or_default() += time;
        *calls.entry(kind).or_default() += 1;
    }
    (calls, times)
}

/// Without what differs from node to node.
fn kind_of(request: &str) -> String {
    let path = request.split('?').next().unwrap();
    let is_id = |part: &&str| part.len() == 36 && part.matches('-').count() == 4;
    let parts = path
        .split('/')
        .map(|part| if is_id(&part) { "ID" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// What came since `before`.
pub fn since(before: &Calls, now: &Calls) -> Calls {
    let new = now.iter().filter_map(|(kind, count)| {
        let more = count - before.get(kind).copied().unwrap_or_default();
        (more > 0).then(|| (kind.clone(), more))
    });
    new.collect()
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn count(calls: &Calls) -> f64 {
    calls.values().sum::<usize>() as f64
}
