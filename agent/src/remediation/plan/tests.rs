//! Stories of unhealthy machines, with an API server in memory, and servers and nodes that do what they are told.
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "stories read better without references"
)]

mod schedules;
mod sim;

use serde_json::{Value, json};

use super::super::Kind;
use sim::{CLUSTER, OFF, Sim};

/// One machine with its node and a host with a BMC, found unhealthy.
fn unhealthy() -> Sim {
    let mut sim = Sim::new();
    sim.server(json!({"bmc": {"address": "redfish://1", "credentialsName": "c"}}));
    sim.remediate(json!({"retryLimit": 1, "timeoutSeconds": 100}));
    sim
}

fn reason(sim: &Sim) -> &str {
    let meta = &sim.get(Kind::Remediation)["metadata"];
    meta["annotations"]["firstlight.internal/reason"]
        .as_str()
        .unwrap_or_default()
}

fn phase(sim: &Sim) -> &str {
    sim.get(Kind::Remediation)["status"]["phase"]
        .as_str()
        .unwrap_or_default()
}

#[test]
fn a_server_that_hangs_is_switched_off_and_only_then_its_node_is_out_of_service_and_it_comes_back()
{
    let mut sim = unhealthy();
    sim.settle();
    assert_eq!(
        (phase(&sim), sim.annotation(OFF)),
        ("Running", "{\"mode\":\"hard\"}")
    );
    assert!(
        !sim.is_tainted && reason(&sim).contains("to switch it off"),
        "{}",
        reason(&sim)
    );
    sim.change(Kind::Host, json!({"status": {"poweredOn": false}}));
    sim.settle();
    assert!(sim.is_tainted);
    // Its cluster had noticed before.
    assert_eq!((phase(&sim), sim.annotation(OFF)), ("Waiting", ""));
    assert!(reason(&sim).contains("starts again"), "{}", reason(&sim));
    sim.change(Kind::Host, json!({"status": {"poweredOn": true}}));
    sim.settle();
    assert!(sim.is_tainted, "until its node says that it is there");
    sim.is_ready = true;
    sim.settle();
    assert!(
        !sim.is_tainted && reason(&sim).contains("Ready again"),
        "{}",
        reason(&sim)
    );
    sim.delete(Kind::Remediation);
    sim.settle();
    assert_eq!(sim.get(Kind::Remediation), &Value::Null);
    assert_eq!(sim.get(Kind::Host)["metadata"]["annotations"], json!({}));
    assert_eq!(sim.get(Kind::Machine)["status"]["conditions"], json!([]));
}

/// As after a move from another management cluster: a status does not travel.
#[test]
fn a_host_that_says_nothing_of_its_power_is_not_taken_for_off() {
    let mut sim = unhealthy();
    sim.change(Kind::Host, json!({"status": {"poweredOn": null}}));
    sim.settle();
    assert_eq!((phase(&sim), sim.is_tainted), ("Running", false));
}

#[test]
fn a_node_that_its_cluster_has_not_missed_yet_is_waited_for() {
    let mut sim = unhealthy();
    sim.is_ready = true;
    sim.settle();
    sim.change(Kind::Host, json!({"status": {"poweredOn": false}}));
    sim.settle();
    assert_eq!((phase(&sim), sim.is_tainted), ("Running", true));
    sim.is_ready = false;
    sim.settle();
    assert_eq!(phase(&sim), "Waiting");
}

#[test]
fn after_its_restarts_the_owner_may_replace_it_and_the_host_is_not_chosen_again() {
    let mut sim = unhealthy();
    for attempt in 0..2 {
        sim.settle();
        assert_eq!(phase(&sim), "Running", "{attempt}");
        sim.now += 1000;
        sim.settle();
        assert_eq!(phase(&sim), "Running", "its BMC has its time");
        sim.change(Kind::Host, json!({"status": {"poweredOn": false}}));
        sim.settle();
        sim.change(Kind::Host, json!({"status": {"poweredOn": true}}));
        sim.now += 99;
        sim.settle();
        assert_eq!(
            (phase(&sim), sim.is_tainted),
            ("Waiting", true),
            "{attempt}"
        );
        assert_eq!(sim.get(Kind::Machine)["status"]["conditions"], json!([]));
        sim.now += 1;
    }
    sim.settle();
    let status = &sim.get(Kind::Remediation)["status"];
    assert_eq!(
        (phase(&sim), &status["retryCount"]),
        ("Deleting machine", &json!(1))
    );
    let told = &sim.get(Kind::Machine)["status"]["conditions"][0];
    assert_eq!(
        (&told["type"], &told["status"], &told["reason"]),
        (
            &json!("OwnerRemediated"),
            &json!("False"),
            &json!("WaitingForRemediation")
        )
    );
    assert_eq!(
        sim.annotation("capm3.metal3.io/unhealthy"),
        "capm3/UnhealthyNode"
    );
    assert!(!sim.is_tainted && sim.annotation(OFF).is_empty());
    assert!(reason(&sim).contains("may replace it"), "{}", reason(&sim));
    assert!(
        sim.get(Kind::Remediation)["metadata"]["finalizers"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_machine_that_its_health_check_finds_well_is_not_restarted_again_however_long_its_object_stays()
{
    for (condition, is_ready, expected) in [
        (Some("True"), true, "Waiting"),
        // Of the last time.
        (Some("True"), false, "Running"),
        (Some("False"), true, "Running"),
        (None, true, "Waiting"),
        (None, false, "Running"),
    ] {
        let mut sim = unhealthy();
        sim.settle();
        sim.change(Kind::Host, json!({"status": {"poweredOn": false}}));
        sim.settle();
        sim.change(Kind::Host, json!({"status": {"poweredOn": true}}));
        let said = condition.map(|status| json!({
            "type": "HealthCheckSucceeded", "status": status, "reason": "x", "lastTransitionTime": "2026-11-26T00:00:00Z",
        }));
        let said: Vec<Value> = said.into_iter().collect();
        sim.change(Kind::Machine, json!({"status": {"conditions": said}}));
        sim.is_ready = is_ready;
        sim.settle();
        sim.now += 100_000;
        sim.settle();
        assert_eq!(phase(&sim), expected, "{condition:?} {is_ready}");
    }
}

/// Nobody knows that it is off, so nothing of it may run elsewhere.
#[test]
fn without_a_bmc_its_system_is_told_to_restart_once_an_attempt_and_its_node_keeps_its_pods() {
    let mut sim = Sim::new();
    sim.server(json!({}));
    sim.remediate(json!({}));
    for (count, at) in [
        (Value::Null, "Waiting"),
        (json!(1), "Waiting"),
        (json!(1), "Deleting machine"),
    ] {
        sim.settle();
        let status = &sim.get(Kind::Remediation)["status"];
        assert_eq!(
            (&status["phase"], &status["retryCount"]),
            (&json!(at), &count)
        );
        let asked = sim.annotation("reboot.metal3.io");
        assert_eq!(
            asked,
            if at == "Waiting" {
                "metal3-remediation-uid-Remediation"
            } else {
                ""
            }
        );
        assert!(!sim.is_tainted && sim.annotation(OFF).is_empty());
        if at == "Waiting" {
            assert!(
                reason(&sim).contains("switch the server off and on"),
                "{}",
                reason(&sim)
            );
            // It was seen to restart.
            sim.change(
                Kind::Host,
                json!({"metadata": {"annotations": {"reboot.metal3.io": null}}}),
            );
            sim.settle();
            assert!(sim.annotation("reboot.metal3.io").is_empty());
        }
        sim.now += 600;
    }
}

#[test]
fn what_a_person_asked_of_a_host_stays_when_ours_goes() {
    let mut sim = Sim::new();
    sim.server(json!({}));
    sim.remediate(json!({}));
    let theirs = json!({"reboot.metal3.io": "", "reboot.metal3.io/fence": ""});
    sim.change(Kind::Host, json!({"metadata": {"annotations": theirs}}));
    sim.settle();
    sim.delete(Kind::Remediation);
    sim.settle();
    assert_eq!(sim.get(Kind::Host)["metadata"]["annotations"], theirs);
}

#[test]
fn a_server_that_a_person_keeps_off_is_left_off_at_any_time() {
    for is_fenced in [false, true] {
        let mut sim = unhealthy();
        if is_fenced {
            sim.settle();
            sim.change(Kind::Host, json!({"status": {"poweredOn": false}}));
            sim.silent_for = Some(0);
            sim.settle();
            sim.silent_for = None;
        }
        sim.change(Kind::Host, json!({"spec": {"online": false}}));
        sim.settle();
        assert_eq!(phase(&sim), "Failed");
        assert!(reason(&sim).contains("online: false"), "{}", reason(&sim));
        assert!(!sim.is_tainted && sim.annotation(OFF).is_empty());
    }
}

#[test]
fn whoever_has_nothing_to_restart_says_why() {
    let told = |change: &dyn Fn(&mut Sim)| {
        let mut sim = unhealthy();
        change(&mut sim);
        sim.settle();
        assert_eq!((phase(&sim), sim.annotation(OFF)), ("", ""));
        reason(&sim).to_owned()
    };
    let owners = |owner: Value| json!({"metadata": {"ownerReferences": owner}});
    assert!(told(&|sim| sim.change(Kind::Remediation, owners(json!([])))).contains("no Machine"));
    let other = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": "of its predecessor"}]);
    assert!(
        told(&|sim| sim.change(Kind::Remediation, owners(other.clone()))).contains("no Machine")
    );
    assert!(
        told(&|sim| sim.change(Kind::Host, json!({"spec": {"consumerRef": null}})))
            .contains("has no host")
    );
    let paused = json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": ""}}});
    assert!(
        told(&|sim| sim.change(Kind::Host, paused.clone()))
            .contains("baremetalhost.metal3.io/paused")
    );
    assert!(
        told(&|sim| sim.rename(Kind::Remediation, "another"))
            .contains("with the name of its Machine, m")
    );
}

#[test]
fn what_is_paused_stays_as_it_is_and_goes_on_afterwards() {
    let mut sim = unhealthy();
    sim.settle();
    let pause = |is: bool| json!({"spec": {"paused": is}});
    sim.cluster(pause(true));
    let before = sim.objects.clone();
    sim.change(Kind::Host, json!({"status": {"poweredOn": false}}));
    sim.delete(Kind::Remediation);
    sim.settle();
    assert_eq!(sim.annotation(OFF), "{\"mode\":\"hard\"}");
    assert_eq!((sim.is_tainted, sim.objects.len()), (false, before.len()));
    sim.cluster(pause(false));
    sim.settle();
    assert!(sim.annotation(OFF).is_empty());
    assert_eq!(sim.get(Kind::Remediation), &Value::Null);
}

#[test]
fn a_machine_that_goes_takes_what_was_done_for_it_along() {
    let mut sim = unhealthy();
    sim.settle();
    sim.delete(Kind::Machine);
    sim.settle();
    assert!(sim.annotation(OFF).is_empty());
    let left = &sim.get(Kind::Remediation)["metadata"]["finalizers"];
    assert!(left.as_array().unwrap().is_empty());
}

/// By force, or by a move to another management cluster, where it has another UID.
#[test]
fn an_annotation_of_a_remediation_that_is_gone_keeps_no_server_off() {
    let mut sim = unhealthy();
    sim.settle();
    sim.objects.remove("Remediation");
    sim.is_partial = true;
    sim.settle();
    assert!(
        !sim.annotation(OFF).is_empty(),
        "it may be there, and cannot be read"
    );
    sim.is_partial = false;
    sim.settle();
    assert!(sim.annotation(OFF).is_empty());
}

#[test]
fn a_cluster_that_is_off_with_its_only_server_delays_its_start_by_two_minutes_and_a_clean_up_until_it_answers()
 {
    let mut sim = unhealthy();
    sim.settle();
    sim.change(Kind::Host, json!({"status": {"poweredOn": false}}));
    sim.silent_for = Some(0);
    sim.settle();
    assert!(reason(&sim).contains("out of service"), "{}", reason(&sim));
    sim.silent_for = Some(119);
    sim.settle();
    assert_eq!(phase(&sim), "Running");
    sim.silent_for = Some(120);
    sim.settle();
    assert_eq!((phase(&sim), sim.annotation(OFF)), ("Waiting", ""));
    sim.delete(Kind::Remediation);
    sim.settle();
    assert_ne!(sim.get(Kind::Remediation), &Value::Null);
    sim.silent_for = None;
    sim.settle();
    assert_eq!(sim.get(Kind::Remediation), &Value::Null);
}

#[test]
fn a_clean_up_waits_for_no_node_of_a_cluster_that_goes() {
    let mut sim = unhealthy();
    sim.settle();
    sim.silent_for = Some(0);
    sim.cluster(json!({"metadata": {"deletionTimestamp": "2026-11-26T00:00:00Z"}}));
    sim.delete(Kind::Remediation);
    sim.settle();
    assert_eq!(sim.get(Kind::Remediation), &Value::Null);
    assert!(sim.clusters.contains_key(CLUSTER));
}

/// An upgrade of the box, or a power cut of the whole site: its servers come up beside it.
#[test]
fn the_time_of_a_box_that_was_away_does_not_count() {
    let mut sim = unhealthy();
    sim.settle();
    sim.change(Kind::Host, json!({"status": {"poweredOn": false}}));
    sim.settle();
    sim.change(Kind::Host, json!({"status": {"poweredOn": true}}));
    sim.settle();
    sim.now += 1000;
    sim.restart();
    sim.settle();
    assert_eq!(phase(&sim), "Waiting");
    sim.now += 99;
    sim.settle();
    assert_eq!(phase(&sim), "Waiting");
    sim.now += 1;
    sim.settle();
    assert_eq!(phase(&sim), "Running");
}

/// As the box makes its own objects.
#[test]
fn a_server_that_must_never_be_off_is_restarted_by_its_bmc_and_its_node_keeps_its_pods() {
    let mut sim = Sim::new();
    sim.server(
        json!({"bmc": {"address": "redfish://1", "credentialsName": "c"}, "disablePowerOff": true}),
    );
    sim.remediate(json!({"retryLimit": 1, "timeoutSeconds": 100}));
    sim.settle();
    assert_eq!(phase(&sim), "Waiting");
    assert_eq!(
        sim.annotation("reboot.metal3.io"),
        "metal3-remediation-uid-Remediation"
    );
    assert!(!sim.is_tainted && sim.annotation(OFF).is_empty());
    assert!(reason(&sim).contains("n1 starts again"), "{}", reason(&sim));
}

#[test]
fn a_clock_that_is_set_back_begins_the_time_anew() {
    let mut sim = unhealthy();
    sim.settle();
    sim.change(Kind::Host, json!({"status": {"poweredOn": false}}));
    sim.settle();
    sim.change(Kind::Host, json!({"status": {"poweredOn": true}}));
    sim.now -= 1_000_000;
    sim.settle();
    sim.now += 99;
    sim.settle();
    assert_eq!(phase(&sim), "Waiting");
    sim.now += 1;
    sim.settle();
    assert_eq!(phase(&sim), "Running");
}
