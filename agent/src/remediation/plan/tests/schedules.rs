//! Seeded schedules: the BMC switches late, the server comes back or does not, `MachineHealthCheck` makes and deletes the object, people do
//! what they may, and the agent loses its power between any two writes; some writes are lost, and some arrive when nobody waits for
//! them any more. No node is out of service while its server is not off or on its way up, and in the end nothing is left of it.

use serde_json::{Value, json};

use super::{
    Kind,
    sim::{OFF, Sim},
};
use crate::{
    objects::testing::Random,
    remediation::{Action, nodes::TaintOrder},
};

const SCHEDULES: u64 = 600;

fn is_on(sim: &Sim) -> bool {
    sim.get(Kind::Host)["status"]["poweredOn"] == true
}

/// Some rounds of the agent, which may begin anew, until nothing that it writes arrives.
fn live(seed: u64, sim: &mut Sim, random: &mut Random, late: &mut Vec<Action>) {
    if random.below(3) == 0 {
        sim.restart();
    }
    let mut left = random.below(12);
    for _ in 0..4 {
        let plan = sim.plan();
        for steps in &plan.steps {
            for action in steps {
                if left == 0 {
                    return;
                }
                left -= 1;
                match random.below(12) {
                    // Lost; the list ends.
                    0 => break,
                    1 => {
                        late.push(action.clone());
                        break;
                    }
                    _ if sim.apply(action) => {}
                    _ => break,
                }
            }
        }
        let order = plan.nodes.get("uid-Remediation");
        if random.below(4) > 0 {
            let was_tainted = sim.is_tainted;
            let is_new = order.is_some_and(|order| order.taint == TaintOrder::On);
            sim.visit(order);
            let began = sim.is_tainted && !was_tainted;
            assert!(!began || is_new, "seed {seed}");
            assert!(
                !began || !is_on(sim),
                "seed {seed}: nobody has switched it off"
            );
        }
    }
}

/// The world, as the annotations and the status of the host ask it to go on.
fn happens(sim: &mut Sim, random: &mut Random) {
    let power = |is_on: bool| json!({"status": {"poweredOn": is_on}});
    match random.below(14) {
        0..=4 => {
            let is_kept_off = !sim.annotation(OFF).is_empty();
            sim.change(Kind::Host, power(!is_kept_off));
            sim.is_ready &= !is_kept_off;
        }
        5 | 6 => sim.is_ready = is_on(sim) && random.below(2) == 0,
        7 => sim.silent_for = None,
        8 => sim.now += i64::try_from(random.below(200)).unwrap(),
        9 => sim.silent_for = Some(random.below(300)),
        10 => {
            if sim.get(Kind::Remediation).is_null() {
                sim.remediate(json!({"retryLimit": 1 + random.below(3), "timeoutSeconds": 100}));
            }
        }
        11 => {
            if !sim.get(Kind::Remediation).is_null() && sim.is_ready {
                sim.delete(Kind::Remediation);
            }
        }
        12 => {
            let is_paused = random.below(2) == 0;
            sim.cluster(json!({"spec": {"paused": is_paused}}));
        }
        _ => {
            let online = random.below(8) > 0;
            sim.change(Kind::Host, json!({"spec": {"online": online}}));
        }
    }
}

#[test]
fn every_schedule_ends_without_a_trace_and_fences_before_it_taints() {
    let (mut tainted, mut given_up) = (0, 0);
    for seed in 1..=SCHEDULES {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (mut sim, mut late) = (super::unhealthy(), Vec::new());
        for _ in 0..40 {
            happens(&mut sim, &mut random);
            live(seed, &mut sim, &mut random, &mut late);
            if random.below(3) == 0 && !late.is_empty() {
                let at = random.below(late.len().try_into().unwrap());
                sim.apply(&late.remove(at.try_into().unwrap()));
            }
            tainted += u32::from(sim.is_tainted);
        }
        for action in late {
            sim.apply(&action);
        }
        given_up += u32::from(super::phase(&sim) == "Deleting machine");
        sim.silent_for = None;
        sim.cluster(json!({"spec": {"paused": false}}));
        sim.change(Kind::Host, json!({"spec": {"online": true}}));
        if !sim.get(Kind::Remediation).is_null() {
            sim.delete(Kind::Remediation);
        }
        sim.settle();
        assert_eq!(sim.get(Kind::Remediation), &Value::Null, "seed {seed}");
        assert!(!sim.is_tainted, "seed {seed}");
        let left = &sim.get(Kind::Host)["metadata"]["annotations"];
        let left: Vec<&String> = left.as_object().unwrap().keys().collect();
        assert!(
            left.iter().all(|name| *name == "capm3.metal3.io/unhealthy"),
            "seed {seed}: {left:?}"
        );
    }
    assert!(tainted > 100 && given_up > 10, "{tainted} {given_up}");
}
