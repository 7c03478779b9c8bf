#![allow(clippy::unwrap_used)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "cases read better without references"
)]

use std::sync::Arc;

use firstlight_api::verb::SPARE_ANNOTATION;
use serde_json::{Value, json};

use super::*;

/// A host in state `available`, changed by a merge patch.
fn host(name: &str, change: Value) -> (Key, Host) {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"online": true, "bootMACAddress": "52:54:00:00:00:01"},
        "status": {"provisioning": {"state": "available"}, "conditions": [trusted("True")]},
    });
    merge(&mut value, change);
    let host: Host = serde_json::from_value(value).unwrap();
    (Key::of(&host.metadata), host)
}

fn trusted(status: &str) -> Value {
    json!({
        "type": "Trusted", "status": status, "reason": "Any", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn merge(value: &mut Value, change: Value) {
    match (value, change) {
        (Value::Object(value), Value::Object(change)) => {
            for (key, change) in change {
                merge(value.entry(key).or_insert(Value::Null), change);
            }
        }
        (value, change) => *value = change,
    }
}

fn labels(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

fn annotated(name: &str) -> Value {
    json!({"metadata": {"annotations": {name: ""}}})
}

fn state(state: &str) -> Value {
    json!({"status": {"provisioning": {"state": state}}})
}

const REQUEST: HostRequest = HostRequest {
    namespace: "default",
    cluster: "lab",
    control_plane: false,
    selector: None,
    failure_domain: None,
    owner: Some("workers"),
    image: None,
    network: None,
};

fn world(hosts: Vec<(Key, Host)>) -> World {
    World {
        hosts: hosts.into_iter().collect(),
        ..World::default()
    }
}

fn chosen(world: &World, request: &HostRequest) -> Result<String, String> {
    choose(world, request, &BTreeSet::new()).map(|host| host.metadata.name.clone())
}

#[test]
fn only_a_free_host_is_chosen() {
    let claimed =
        json!({"spec": {"consumerRef": {"apiVersion": "v1", "kind": "Other", "name": "x"}}});
    let image = json!({"spec": {"image": {"url": "http://a/b"}}});
    let failed = json!({"status": {"errorMessage": "the disk is broken"}});
    let external = json!({"spec": {"externallyProvisioned": true}});
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for (change, free, why) in [
        (json!({}), true, ""),
        (state("ready"), true, ""),
        (json!({"spec": {"image": null}}), true, ""),
        (state("registering"), false, "1 not available yet"),
        (state("inspecting"), false, "1 not available yet"),
        (state("provisioned"), false, "1 not available yet"),
        (state("deprovisioning"), false, "1 not available yet"),
        (state("unmanaged"), false, "1 not available yet"),
        (state(""), false, "1 not available yet"),
        (claimed, false, "1 in use"),
        (image, false, "1 in use"),
        (external, false, "1 in use"),
        (failed, false, "1 failed"),
        (deleting, false, "1 set aside or being deleted"),
        (annotated(SPARE_ANNOTATION), false, "1 spare"),
        (annotated("capm3.metal3.io/unhealthy"), false, "1 set aside"),
        (annotated("capi.metal3.io/unhealthy"), false, "1 set aside"),
        (
            annotated("baremetalhost.metal3.io/paused"),
            false,
            "1 set aside",
        ),
        (
            annotated("baremetalhost.metal3.io/detached"),
            false,
            "1 set aside",
        ),
        (
            json!({"metadata": {"namespace": "other"}}),
            false,
            "default has none; 1 are in others, like n1 in other",
        ),
    ] {
        let world = world(vec![host("n1", change.clone())]);
        match chosen(&world, &REQUEST) {
            Ok(_) => assert!(free, "{change}"),
            Err(sentence) => assert!(!free && sentence.contains(why), "{change}: {sentence}"),
        }
    }
}

/// It is drained where its role changes; where it is set aside, it keeps what it has.
#[test]
fn a_host_that_a_machine_has_is_no_spare_before_it_is_given_back() {
    let claimed = json!({
        "metadata": {"annotations": {SPARE_ANNOTATION: "later"}, "labels": {"firstlight.internal/role": "worker"}},
        "spec": {"consumerRef": {"apiVersion": "v1", "kind": "Other", "name": "x"}},
    });
    let mut world = world(vec![host("n1", claimed)]);
    let key = Key::new("default", "n1");
    assert_eq!(world.role(&world.hosts[&key]), HostRole::Worker);
    world.hosts.get_mut(&key).unwrap().spec.consumer_ref = None;
    assert_eq!(world.role(&world.hosts[&key]), HostRole::Spare);
}

#[test]
fn a_rule_gives_a_role_and_no_trust() {
    let site = "rules:\n- {match: {cpus: 16+}, role: control-plane}\n- {match: any, role: spare}\n";
    let mut world = world(vec![
        host(
            "big",
            json!({"status": {"hardware": {"cpu": {"count": 16, "flags": ["sse"]}}}}),
        ),
        host(
            "small",
            json!({"status": {"hardware": {"cpu": {"count": 2}}}}),
        ),
        host("unknown", json!({})),
    ]);
    world.site = Arc::new(firstlight_api::site::parse_site(site).unwrap());
    let role = |name: &str| world.role(&world.hosts[&Key::new("default", name)]);
    assert_eq!(role("big"), HostRole::ControlPlane);
    assert_eq!(role("small"), HostRole::Spare);
    assert_eq!(role("unknown"), HostRole::Any, "nobody knows what it is");
    let big = Key::new("default", "big");
    world.hosts.get_mut(&big).unwrap().status.conditions.clear();
    assert!(!world.is_trusted(&world.hosts[&big]));
    let label = json!({"metadata": {"labels": {"firstlight.internal/role": "control-plane"}}});
    let (named, said) = host("named", label);
    world.hosts.insert(named.clone(), said);
    world
        .hosts
        .get_mut(&named)
        .unwrap()
        .status
        .conditions
        .clear();
    assert!(world.is_trusted(&world.hosts[&named]), "a person said so");
}

#[test]
fn the_table_of_roles() {
    for (role, control_plane, free) in [
        ("any", true, true),
        ("any", false, true),
        ("control-plane", true, true),
        ("control-plane", false, false),
        ("worker", true, false),
        ("worker", false, true),
        ("spare", true, false),
        ("spare", false, false),
        ("nonsense", false, true),
    ] {
        let world = world(vec![host("n1", labels(json!({capm3::ROLE_LABEL: role})))]);
        let request = HostRequest {
            control_plane,
            ..REQUEST
        };
        assert_eq!(
            chosen(&world, &request).is_ok(),
            free,
            "{role} {control_plane}"
        );
    }
}

#[test]
fn among_free_hosts_the_best_comes_first() {
    let image = MachineImage {
        url: "http://a/b".into(),
        checksum: "ab12".into(),
        ..MachineImage::default()
    };
    let staged = json!({"status": {"provisioning": {"image": {"url": "http://other/b", "checksum": "ab12"}}}});
    let in_rack = labels(json!({capm3::FAILURE_DOMAIN_LABEL: "rack-2"}));
    let made_for_it = labels(json!({capm3::ROLE_LABEL: "worker"}));
    let kept = labels(json!({capm3::NODE_REUSE_LABEL: "workers"}));
    let request = HostRequest {
        image: Some(&image),
        failure_domain: Some("rack-2"),
        ..REQUEST
    };
    // Each line beats all lines before it.
    let mut hosts = Vec::new();
    for (name, change) in [
        ("n9", json!({})),
        ("n8", json!({})),
        ("staged", staged),
        ("zone", in_rack),
        ("zz-role", made_for_it),
        ("zzz-kept", kept),
    ] {
        hosts.push(host(name, change));
        assert_eq!(chosen(&world(hosts.clone()), &request), Ok(name.to_owned()));
    }
}

#[test]
fn a_failure_domain_without_a_host_is_no_obstacle() {
    let request = HostRequest {
        failure_domain: Some("rack-9"),
        ..REQUEST
    };
    assert_eq!(
        chosen(&world(vec![host("n1", json!({}))]), &request),
        Ok("n1".into())
    );
}

#[test]
fn a_host_that_is_kept_for_this_owner_is_waited_for() {
    let mut kept = labels(json!({capm3::NODE_REUSE_LABEL: "workers"}));
    merge(&mut kept, state("preparing"));
    let world = world(vec![host("n1", json!({})), host("n2", kept)]);
    assert_eq!(
        chosen(&world, &REQUEST),
        Err("waiting for the host n2, which is kept for this machine, to become available".into())
    );
    let other = HostRequest {
        owner: Some("others"),
        ..REQUEST
    };
    assert_eq!(chosen(&world, &other), Ok("n1".into()));
}

#[test]
fn a_host_that_is_kept_for_another_is_free_once_that_one_has_enough() {
    let kept = labels(json!({capm3::NODE_REUSE_LABEL: "control-plane"}));
    let mut world = world(vec![host("n1", kept)]);
    assert_eq!(
        chosen(&world, &REQUEST),
        Ok("n1".into()),
        "its owner is gone"
    );
    let owner: firstlight_api::capi::Replicated = serde_json::from_value(
        json!({"metadata": {"name": "control-plane", "namespace": "default"}, "spec": {"replicas": 1}}),
    )
    .unwrap();
    world.control_planes.insert(Key::of(&owner.metadata), owner);
    let sentence = chosen(&world, &REQUEST).unwrap_err();
    assert!(
        sentence.contains("1 kept for a machine that is being replaced"),
        "{sentence}"
    );
}

#[test]
fn a_selector_that_matches_nothing_is_named() {
    let selector: HostSelector =
        serde_json::from_value(json!({"matchLabels": {"rack": "r9"}})).unwrap();
    let request = HostRequest {
        selector: Some(&selector),
        ..REQUEST
    };
    let world = world(vec![
        host("n1", json!({})),
        host("n2", labels(json!({"rack": "r1"}))),
    ]);
    assert_eq!(
        chosen(&world, &request),
        Err("no matching free host: hostSelector (rack=r9) matches none of the 2 hosts; label one, or change the selector".into())
    );
}

#[test]
fn two_machines_of_one_plan_get_two_hosts() {
    let world = world(vec![host("n1", json!({}))]);
    let taken = BTreeSet::from([Key::new("default", "n1")]);
    let sentence = choose(&world, &REQUEST, &taken).unwrap_err();
    assert_eq!(
        sentence,
        "no matching free host among 1: 1 in use; add a server, or free one"
    );
}

#[test]
fn a_newcomer_becomes_a_worker_and_no_control_plane_without_a_persons_word() {
    let newcomer = json!({"status": {"conditions": [trusted("False")]}});
    let control_plane = HostRequest {
        control_plane: true,
        ..REQUEST
    };
    let site = world(vec![host("n1", newcomer.clone())]);
    assert_eq!(chosen(&site, &REQUEST), Ok("n1".into()));
    let sentence = chosen(&site, &control_plane).unwrap_err();
    assert!(
        sentence.contains("firstlight.internal/approve=CODE"),
        "{sentence}"
    );
    let silent = world(vec![host("n1", json!({"status": {"conditions": []}}))]);
    assert!(chosen(&silent, &control_plane).is_err());
    // A person gave it the role.
    let mut wanted = newcomer;
    merge(
        &mut wanted,
        labels(json!({capm3::ROLE_LABEL: "control-plane"})),
    );
    let site = world(vec![host("n1", wanted)]);
    assert_eq!(chosen(&site, &control_plane), Ok("n1".into()));
    // The smallest name is no way in front of those who were there.
    let attacker = json!({"status": {"conditions": [trusted("False")]}});
    let site = world(vec![
        host("host-000000000002", attacker),
        host("n2", json!({})),
    ]);
    assert_eq!(chosen(&site, &control_plane), Ok("n2".into()));
}
