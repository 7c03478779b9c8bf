//! Seeded schedules: claims come and go, a person edits the pool, and the agent loses its power between any two writes; some writes are
//! lost, and some arrive when nobody waits for them any more. No address is ever that of two claims, no claim's address changes, and
//! in the end none is missing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    Kind,
    sim::{ADDRESS, CONTRACT, CONTRACT_ADDRESS, METAL3, Sim},
};
use crate::{objects::testing::Random, pools::Action};

const SCHEDULES: u64 = 400;

/// By UID, since a name may come again.
type Told = BTreeMap<String, String>;

fn check(seed: u64, sim: &Sim, before: &mut Told) {
    let mut told = Told::new();
    let mut taken = BTreeSet::new();
    let kinds = [
        (METAL3, "address", ADDRESS, "/spec/claim/name"),
        (
            CONTRACT,
            "addressRef",
            CONTRACT_ADDRESS,
            "/spec/claimRef/name",
        ),
    ];
    for (kind, field, object, whose) in kinds {
        for claim in sim
            .all(kind)
            .filter(|claim| !claim["status"][field].is_null())
        {
            let name = claim["metadata"]["name"].as_str().unwrap();
            let address = claim["status"][field]["name"].as_str().unwrap();
            let address = sim.get(object, address);
            if address.pointer(whose) != Some(&json!(name)) {
                // Given back, and by now another one's under the same name.
                let is_going = !claim["metadata"]["deletionTimestamp"].is_null();
                assert!(is_going, "seed {seed}: {name} has lost its address");
                continue;
            }
            let ip = address["spec"]["address"].as_str().unwrap().to_owned();
            assert!(taken.insert(ip.clone()), "seed {seed}: {ip} is given twice");
            told.insert(claim["metadata"]["uid"].as_str().unwrap().to_owned(), ip);
        }
    }
    for (uid, ip) in before.iter() {
        let now = told.get(uid).unwrap_or(ip);
        assert_eq!(now, ip, "seed {seed}: {uid} has another address");
    }
    before.extend(told);
}

/// One life of the agent: it plans and writes, until its power is cut after some writes.
fn live(seed: u64, sim: &mut Sim, random: &mut Random, late: &mut Vec<Action>, told: &mut Told) {
    let mut left = random.below(12);
    for _ in 0..4 {
        for steps in sim.plan() {
            for action in steps {
                if left == 0 {
                    return;
                }
                left -= 1;
                match random.below(12) {
                    // Lost; the list ends.
                    0 => break,
                    1 => {
                        late.push(action);
                        break;
                    }
                    _ if sim.apply(&action) => {}
                    _ => break,
                }
                check(seed, sim, told);
            }
        }
    }
}

fn happens(sim: &mut Sim, random: &mut Random, made: &mut u64) {
    let kind = if random.below(2) == 0 {
        METAL3
    } else {
        CONTRACT
    };
    match random.below(8) {
        0..=3 => {
            // Names come again.
            *made += 1;
            sim.claim(kind, &format!("c{}", *made % 7), "p");
        }
        4 | 5 => sim.delete(kind, &format!("c{}", random.below(7))),
        6 => {
            let end = 5 + random.below(6);
            let range = json!([{"start": "10.0.0.3", "end": format!("10.0.0.{end}")}]);
            sim.change(Kind::Pool, "p", &json!({"spec": {"pools": range}}));
        }
        _ => {
            let ip = format!("10.0.0.{}", 3 + random.below(6));
            let kept = json!({"c1": ip, "c2": null});
            sim.change(Kind::Pool, "p", &json!({"spec": {"preAllocations": kept}}));
        }
    }
}

#[test]
fn no_address_is_given_twice_or_lost_in_hundreds_of_schedules() {
    let mut given = 0;
    for seed in 1..=SCHEDULES {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (mut sim, mut late, mut told) = (Sim::default(), Vec::new(), Told::new());
        let range = json!([{"start": "10.0.0.3", "end": "10.0.0.8"}]);
        sim.pool("p", json!({"pools": range, "prefix": 24}));
        let mut made = 0;
        for _ in 0..30 {
            happens(&mut sim, &mut random, &mut made);
            live(seed, &mut sim, &mut random, &mut late, &mut told);
            if random.below(3) == 0 && !late.is_empty() {
                let at = random.below(late.len().try_into().unwrap());
                let action = late.remove(at.try_into().unwrap());
                sim.apply(&action);
                check(seed, &sim, &mut told);
            }
        }
        for action in late {
            sim.apply(&action);
        }
        let wide = json!([{"start": "10.0.0.3", "end": "10.0.0.250"}]);
        sim.change(
            Kind::Pool,
            "p",
            &json!({"spec": {"pools": wide, "preAllocations": null}}),
        );
        sim.settle();
        check(seed, &sim, &mut told);
        let names = |kind| {
            sim.all(kind)
                .map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        for kind in [METAL3, CONTRACT] {
            for name in names(kind) {
                sim.told(kind, &name)
                    .unwrap_or_else(|why| panic!("seed {seed}: {name}: {why}"));
                given += 1;
            }
        }
        let objects = names(ADDRESS).len() + names(CONTRACT_ADDRESS).len();
        let claims = names(METAL3).len() + names(CONTRACT).len();
        assert_eq!(objects, claims, "seed {seed}: an address is nobody's");
        let claims: Vec<_> = [METAL3, CONTRACT]
            .into_iter()
            .flat_map(|kind| names(kind).into_iter().map(move |name| (kind, name)))
            .collect();
        for (kind, name) in claims {
            sim.delete(kind, &name);
        }
        sim.delete(Kind::Pool, "p");
        sim.settle();
        let left: Vec<&Value> = sim.objects.values().collect();
        assert!(left.is_empty(), "seed {seed}: {left:?}");
    }
    assert!(given > SCHEDULES, "{given}");
}
