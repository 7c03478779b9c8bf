//! Stories of pools and claims, with an API server in memory.
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "stories read better without references"
)]

mod schedules;
mod sim;

use std::time::Instant;

use serde_json::{Value, json};

use crate::pools::Kind;
use sim::{ADDRESS, CONTRACT, CONTRACT_ADDRESS, METAL3, NOW, Sim};

/// A pool of three addresses.
fn three() -> Sim {
    let mut sim = Sim::default();
    let range = json!({"start": "192.168.0.10", "end": "192.168.0.12", "gateway": "192.168.0.1"});
    sim.pool(
        "p",
        json!({"pools": [range], "prefix": 24, "dnsServers": ["8.8.8.8"]}),
    );
    sim
}

fn ready(sim: &Sim) -> (String, String) {
    let ready = &sim.get(Kind::Pool, "p")["status"]["conditions"][0];
    let text = |name: &str| ready[name].as_str().unwrap().to_owned();
    (text("reason"), text("message"))
}

fn lacks(sim: &Sim, kind: Kind, claim: &str, why: &str) {
    let told = sim.told(kind, claim).unwrap_err();
    assert!(told.contains(why), "{told}");
}

#[test]
fn a_claim_gets_the_lowest_address_as_upstream_writes_it() {
    let mut sim = three();
    sim.claim(METAL3, "a", "p");
    sim.change(METAL3, "a", &json!({"metadata": {"labels": {"x": "y"}}}));
    sim.claim(METAL3, "b", "p");
    sim.settle();
    assert_eq!(sim.told(METAL3, "a").unwrap(), "192.168.0.10");
    assert_eq!(sim.told(METAL3, "b").unwrap(), "192.168.0.11");
    let claim = sim.get(METAL3, "a");
    assert_eq!(
        claim["metadata"]["finalizers"],
        json!(["ipclaim.ipam.metal3.io"])
    );
    assert_eq!(
        claim["status"],
        json!({"address": {"name": "p-192-168-0-10", "namespace": "default"}})
    );
    let address = sim.get(ADDRESS, "p-192-168-0-10");
    let meta = &address["metadata"];
    assert_eq!(meta["finalizers"], json!(["ipaddress.ipam.metal3.io"]));
    assert_eq!(meta["labels"], json!({"x": "y"}));
    assert_eq!(
        meta["ownerReferences"],
        json!([
            {"apiVersion": "ipam.metal3.io/v1alpha1", "kind": "IPPool", "name": "p", "uid": "uid-1"},
            {"apiVersion": "ipam.metal3.io/v1alpha1", "kind": "IPClaim", "name": "a", "uid": "uid-2"},
        ])
    );
    assert_eq!(
        address["spec"],
        json!({
            "address": "192.168.0.10", "prefix": 24, "gateway": "192.168.0.1", "dnsServers": ["8.8.8.8"],
            "pool": {"name": "p", "namespace": "default"}, "claim": {"name": "a", "namespace": "default"},
        })
    );
    let pool = sim.get(Kind::Pool, "p");
    assert_eq!(
        pool["metadata"]["finalizers"],
        json!(["ippool.ipam.metal3.io"])
    );
    assert_eq!(
        pool["status"]["indexes"],
        json!({"a": "192.168.0.10", "b": "192.168.0.11"})
    );
    assert_eq!(pool["status"]["lastUpdated"], NOW);
    assert_eq!(ready(&sim), ("Ready".to_owned(), String::new()));
}

#[test]
fn an_address_comes_back_when_its_claim_goes_and_a_pool_stays_until_all_are_back() {
    let mut sim = three();
    for name in ["a", "b", "c", "d"] {
        sim.claim(METAL3, name, "p");
    }
    sim.settle();
    lacks(
        &sim,
        METAL3,
        "d",
        "Exhausted IP Pools: the IPPool p has no free",
    );
    assert_eq!(ready(&sim).0, "ClaimsWait");
    // Who uses a claim holds it.
    sim.change(
        METAL3,
        "b",
        &json!({"metadata": {"finalizers": ["ipclaim.ipam.metal3.io", "mine"]}}),
    );
    sim.delete(METAL3, "b");
    sim.delete(Kind::Pool, "p");
    sim.claim(METAL3, "e", "p");
    sim.settle();
    assert_eq!(sim.told(METAL3, "b").unwrap(), "192.168.0.11");
    lacks(&sim, METAL3, "e", "the IPPool p is being deleted");
    sim.change(
        METAL3,
        "b",
        &json!({"metadata": {"finalizers": ["ipclaim.ipam.metal3.io"]}}),
    );
    for name in ["a", "c", "d", "e"] {
        sim.delete(METAL3, name);
    }
    sim.settle();
    assert!(sim.objects.is_empty(), "{:?}", sim.objects.keys());
}

#[test]
fn a_claim_that_is_deleted_in_the_foreground_goes() {
    for collector in ["foregroundDeletion", "orphan"] {
        let mut sim = three();
        sim.claim(METAL3, "a", "p");
        sim.settle();
        let held = json!([collector, "ipclaim.ipam.metal3.io"]);
        sim.change(METAL3, "a", &json!({"metadata": {"finalizers": held}}));
        sim.delete(METAL3, "a");
        sim.settle();
        // The collector takes its own off when the address is gone.
        assert_eq!(sim.all(ADDRESS).count(), 0, "{collector}");
        let left = &sim.get(METAL3, "a")["metadata"]["finalizers"];
        assert_eq!(left, &json!([collector]));
    }
}

#[test]
fn a_free_address_goes_to_who_waits() {
    let mut sim = three();
    for name in ["a", "b", "c", "d"] {
        sim.claim(METAL3, name, "p");
    }
    sim.settle();
    sim.delete(METAL3, "b");
    sim.settle();
    assert_eq!(sim.told(METAL3, "d").unwrap(), "192.168.0.11");
    assert_eq!(sim.get(METAL3, "d")["status"]["errorMessage"], Value::Null);
    let indexes = &sim.get(Kind::Pool, "p")["status"]["indexes"];
    assert_eq!(
        indexes,
        &json!({"a": "192.168.0.10", "c": "192.168.0.12", "d": "192.168.0.11"})
    );
}

#[test]
fn both_apis_take_from_one_pool_also_by_one_name() {
    let mut sim = three();
    sim.claim(METAL3, "a", "p");
    sim.claim(CONTRACT, "a", "p");
    let elsewhere = json!({"spec": {"poolRef": {"apiGroup": "x", "kind": "Y", "name": "p"}}});
    sim.add(CONTRACT, "other", elsewhere);
    sim.settle();
    assert_eq!(sim.told(METAL3, "a").unwrap(), "192.168.0.10");
    assert_eq!(sim.told(CONTRACT, "a").unwrap(), "192.168.0.11");
    assert_eq!(sim.get(CONTRACT, "other")["status"], Value::Null);
    let claim = sim.get(CONTRACT, "a");
    assert_eq!(
        claim["metadata"]["finalizers"],
        json!(["ipam.metal3.io/ipaddressclaim"])
    );
    let condition = &claim["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("Ready"), &json!("True"))
    );
    let address = sim.get(CONTRACT_ADDRESS, "p-192-168-0-11");
    assert_eq!(
        address["metadata"]["finalizers"],
        json!(["ipam.metal3.io/ipaddress"])
    );
    assert_eq!(
        address["spec"],
        json!({
            "address": "192.168.0.11", "prefix": 24, "gateway": "192.168.0.1", "claimRef": {"name": "a"},
            "poolRef": {"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "p"},
        })
    );
    for name in ["b", "c"] {
        sim.claim(CONTRACT, name, "p");
    }
    sim.settle();
    let condition = &sim.get(CONTRACT, "c")["status"]["conditions"][0];
    assert_eq!(condition["reason"], "PoolExhausted");
    for name in ["a", "b", "c"] {
        sim.delete(CONTRACT, name);
    }
    sim.settle();
    assert_eq!(sim.all(CONTRACT_ADDRESS).count(), 0);
    assert_eq!(sim.all(CONTRACT).count(), 1, "of another provider");
}

#[test]
fn addresses_are_kept_for_names_and_given_on_request() {
    let mut sim = three();
    let kept = json!({"preAllocations": {"kept": "192.168.0.10", "far": "10.0.0.1"}});
    sim.change(Kind::Pool, "p", &json!({"spec": kept}));
    let ask = |ip: &str| json!({"metadata": {"annotations": {"ipAddress": ip}}});
    sim.claim(METAL3, "a", "p");
    for (name, ip) in [
        ("b", "192.168.0.12"),
        ("c", "192.168.0.12"),
        ("d", "192.168.0.10"),
        ("e", "10.9.9.9"),
        ("f", "x"),
    ] {
        sim.claim(METAL3, name, "p");
        sim.change(METAL3, name, &ask(ip));
    }
    sim.claim(METAL3, "far", "p");
    sim.claim(METAL3, "kept", "p");
    sim.settle();
    assert_eq!(sim.told(METAL3, "a").unwrap(), "192.168.0.11");
    assert_eq!(sim.told(METAL3, "b").unwrap(), "192.168.0.12");
    lacks(&sim, METAL3, "c", "192.168.0.12 is that of the claim b");
    lacks(&sim, METAL3, "d", "192.168.0.10 is that of the claim kept");
    lacks(&sim, METAL3, "e", "10.9.9.9 is in no range of the pool");
    lacks(
        &sim,
        METAL3,
        "f",
        "`x` of its annotation ipAddress is no IP address",
    );
    lacks(&sim, METAL3, "far", "10.0.0.1 is in no range");
    assert_eq!(sim.told(METAL3, "kept").unwrap(), "192.168.0.10");
    let said = ready(&sim).1;
    assert!(
        said.contains("10.0.0.1, kept for the claim far, is in no range"),
        "{said}"
    );
    sim.change(METAL3, "kept", &ask("192.168.0.11"));
    sim.claim(METAL3, "g", "p");
    sim.change(METAL3, "g", &ask("192.168.0.11"));
    sim.change(
        Kind::Pool,
        "p",
        &json!({"spec": {"preAllocations": {"g": "192.168.0.12"}}}),
    );
    sim.settle();
    assert_eq!(
        sim.told(METAL3, "kept").unwrap(),
        "192.168.0.10",
        "it has one already"
    );
    lacks(
        &sim,
        METAL3,
        "g",
        "it asks for 192.168.0.11, and preAllocations of the pool say 192.168.0.12",
    );
}

#[test]
fn what_other_machines_of_the_site_have_is_given_to_nobody_and_told() {
    let mut sim = Sim {
        site: "provisioning: {address: 172.22.0.1/24, range: 172.22.0.3-172.22.0.5}\ncluster: manual\n\
               hosts: [{mac: '52:54:00:00:00:01', address: 172.22.0.7}]\n"
            .to_owned(),
        ..Sim::default()
    };
    let endpoint = json!({"host": "172.22.0.8", "port": 6443});
    let cluster = json!({"metadata": {"name": "lab", "namespace": "default"}, "spec": {"controlPlaneEndpoint": endpoint}});
    sim.clusters.insert("lab".to_owned(), cluster);
    sim.pool(
        "p",
        json!({"pools": [{"subnet": "172.22.0.0/28", "end": "172.22.0.9"}]}),
    );
    for name in ["a", "b", "c", "d"] {
        sim.claim(METAL3, name, "p");
    }
    sim.settle();
    let told = ["a", "b", "c"].map(|name| sim.told(METAL3, name).unwrap());
    assert_eq!(told, ["172.22.0.2", "172.22.0.6", "172.22.0.9"]);
    lacks(&sim, METAL3, "d", "no free address");
    let said = ready(&sim).1;
    for part in [
        "172.22.0.1 is the box's own",
        "172.22.0.3-172.22.0.5 is what the box leases",
        "and 1 more",
    ] {
        assert!(said.contains(part), "{said}");
    }
    sim.change(
        METAL3,
        "d",
        &json!({"metadata": {"annotations": {"ipAddress": "172.22.0.8"}}}),
    );
    sim.settle();
    lacks(
        &sim,
        METAL3,
        "d",
        "172.22.0.8 is the endpoint of the Cluster default/lab",
    );
}

#[test]
fn what_services_of_clusters_have_is_given_to_nobody() {
    let mut sim = Sim {
        site: "cluster: {loadBalancer: 172.22.0.64-172.22.0.65}\nclusters: {edge: {loadBalancer: 172.22.0.66-172.22.0.67}}\n".to_owned(),
        ..Sim::default()
    };
    let range = json!({"start": "172.22.0.64", "end": "172.22.0.68", "subnet": "172.22.0.0/24"});
    sim.pool("p", json!({"pools": [range]}));
    sim.claim(METAL3, "a", "p");
    sim.settle();
    assert_eq!(sim.told(METAL3, "a").unwrap(), "172.22.0.68");
    let said = ready(&sim).1;
    for part in [
        "172.22.0.64-172.22.0.65 is what services",
        "of the Cluster edge",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn who_edits_the_pool_takes_nothing_away_and_hears_of_what_is_outside() {
    let mut sim = three();
    sim.claim(METAL3, "a", "p");
    sim.settle();
    let ranges = json!([
        {"start": "192.168.0.9", "end": "192.168.0.8"}, {"end": "192.168.0.20"}, {"start": "10.0.0.1", "subnet": "fd00::/64"},
        {"start": "10.0.0.1", "subnet": "10.1.0.0/16"}, {"start": "192.168.1.1", "prefix": 16, "dnsServers": ["1.1.1.1"]},
    ]);
    sim.change(Kind::Pool, "p", &json!({"spec": {"pools": ranges}}));
    sim.claim(METAL3, "b", "p");
    sim.settle();
    assert_eq!(sim.told(METAL3, "a").unwrap(), "192.168.0.10");
    assert_eq!(sim.told(METAL3, "b").unwrap(), "192.168.1.1");
    let spec = &sim.get(ADDRESS, "p-192-168-1-1")["spec"];
    assert_eq!(
        (&spec["prefix"], &spec["dnsServers"]),
        (&json!(16), &json!(["1.1.1.1"]))
    );
    let (reason, said) = ready(&sim);
    assert_eq!(reason, "RangesWrong");
    for part in [
        "spec.pools[0] ends before it starts",
        "spec.pools[1] has neither start nor subnet",
        "spec.pools[2] has addresses of IPv4 and of IPv6",
        "and 2 more",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn all_of_ipv6_costs_nothing() {
    let since = Instant::now();
    let mut sim = Sim::default();
    sim.pool(
        "p",
        json!({"pools": [{"start": "fd00::", "end": "fd00::"}, {"subnet": "::/0"}], "prefix": 64}),
    );
    sim.pool(
        "r",
        json!({"pools": [{"subnet": "::/0"}], "allocationStrategy": "random"}),
    );
    sim.pool(
        "end",
        json!({"pools": [{"start": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}]}),
    );
    for (name, pool) in [
        ("a", "p"),
        ("b", "p"),
        ("r1", "r"),
        ("r2", "r"),
        ("x", "end"),
        ("y", "end"),
    ] {
        sim.claim(METAL3, name, pool);
    }
    sim.settle();
    assert_eq!(sim.told(METAL3, "a").unwrap(), "fd00::");
    assert_eq!(sim.get(METAL3, "a")["status"]["address"]["name"], "p-fd00");
    assert_eq!(sim.told(METAL3, "b").unwrap(), "::1");
    let random = ["r1", "r2"].map(|name| sim.told(METAL3, name).unwrap());
    assert_ne!(random[0], random[1]);
    assert_ne!(random[0], "::1");
    assert!(sim.told(METAL3, "x").is_ok());
    lacks(&sim, METAL3, "y", "no free address");
    assert!(since.elapsed().as_secs() < 5);
}

#[test]
fn a_random_pool_gives_every_address_once() {
    let mut sim = Sim::default();
    sim.pool(
        "p",
        json!({"pools": [{"subnet": "10.0.0.0/29"}], "allocationStrategy": "random"}),
    );
    for name in 0..8 {
        sim.claim(METAL3, &format!("c{name}"), "p");
    }
    sim.settle();
    let mut told: Vec<String> = (0..7)
        .map(|name| sim.told(METAL3, &format!("c{name}")).unwrap())
        .collect();
    assert!(!told.is_sorted(), "{told:?}");
    told.sort();
    assert_eq!(
        told,
        (1..8)
            .map(|last| format!("10.0.0.{last}"))
            .collect::<Vec<_>>()
    );
    lacks(&sim, METAL3, "c7", "no free address");
}

#[test]
fn what_a_person_wrote_down_is_kept_to() {
    let mut sim = three();
    let by_hand = |ip: &str, claim: &str| json!({"spec": {"address": ip, "pool": {"name": "p"}, "claim": {"name": claim}}});
    sim.add(ADDRESS, "reserved", by_hand("192.168.0.10", "nobody"));
    sim.add(ADDRESS, "moved", by_hand("192.168.0.12", "a"));
    sim.claim(METAL3, "a", "p");
    sim.claim(METAL3, "b", "p");
    sim.settle();
    assert_eq!(sim.told(METAL3, "a").unwrap(), "192.168.0.12");
    assert_eq!(sim.told(METAL3, "b").unwrap(), "192.168.0.11");
    // One address, written down twice: it stays that of who was told of it.
    sim.add(ADDRESS, "a-second", by_hand("192.168.0.11", "c"));
    sim.claim(METAL3, "c", "p");
    sim.settle();
    assert_eq!(sim.told(METAL3, "b").unwrap(), "192.168.0.11");
    lacks(
        &sim,
        METAL3,
        "c",
        "the IPAddress a-second says that it has 192.168.0.11, which is that of the IPClaim b by the IPAddress p-192-168-0-11",
    );
    sim.delete(METAL3, "a");
    sim.settle();
    assert_eq!(sim.get(ADDRESS, "moved"), &Value::Null);
    assert_ne!(sim.get(ADDRESS, "reserved"), &Value::Null);
}

#[test]
fn an_object_that_was_lost_is_made_again_with_the_same_address() {
    let mut sim = three();
    sim.claim(METAL3, "a", "p");
    sim.claim(METAL3, "b", "p");
    sim.settle();
    let by_force = json!({"metadata": {"finalizers": null}});
    sim.delete(METAL3, "a");
    sim.settle();
    sim.change(ADDRESS, "p-192-168-0-11", &by_force);
    sim.delete(ADDRESS, "p-192-168-0-11");
    sim.claim(METAL3, "aa", "p");
    sim.settle();
    assert_eq!(sim.told(METAL3, "b").unwrap(), "192.168.0.11");
    assert_eq!(sim.told(METAL3, "aa").unwrap(), "192.168.0.10");
    // Its claim, by force.
    sim.change(METAL3, "b", &by_force);
    sim.delete(METAL3, "b");
    sim.settle();
    assert_eq!(sim.all(ADDRESS).count(), 1);
}

#[test]
fn pools_wait_for_their_cluster_and_rest_with_it() {
    let mut sim = three();
    sim.change(Kind::Pool, "p", &json!({"spec": {"clusterName": "lab"}}));
    sim.claim(METAL3, "a", "p");
    sim.settle();
    lacks(&sim, METAL3, "a", "waits for its Cluster lab");
    let cluster = json!({"metadata": {"name": "lab", "namespace": "default", "uid": "u"}});
    sim.clusters.insert("lab".to_owned(), cluster);
    sim.settle();
    assert_eq!(sim.told(METAL3, "a").unwrap(), "192.168.0.10");
    let meta = &sim.get(Kind::Pool, "p")["metadata"];
    assert_eq!(
        meta["labels"],
        json!({"cluster.x-k8s.io/cluster-name": "lab", "cluster.x-k8s.io/provider": "ipam-metal3"})
    );
    assert_eq!(
        meta["ownerReferences"],
        json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "lab", "uid": "u", "controller": false}])
    );
    sim.clusters.get_mut("lab").unwrap()["spec"]["paused"] = json!(true);
    sim.delete(METAL3, "a");
    sim.claim(METAL3, "b", "p");
    assert_eq!(sim.plan(), Vec::<Vec<_>>::new());
    sim.clusters.get_mut("lab").unwrap()["spec"]["paused"] = json!(false);
    sim.settle();
    assert_eq!(sim.told(METAL3, "b").unwrap(), "192.168.0.11");
}

#[test]
fn a_claim_without_a_pool_is_told_and_two_pools_never_share_a_name() {
    let mut sim = three();
    sim.claim(METAL3, "a", "none");
    sim.claim(METAL3, "far", "p");
    sim.change(
        METAL3,
        "far",
        &json!({"spec": {"pool": {"namespace": "other"}}}),
    );
    let range = json!([{"start": "192.168.0.10", "end": "192.168.0.13"}]);
    sim.pool("twin", json!({"namePrefix": "p", "pools": range}));
    sim.pool("odd", json!({"namePrefix": "Odd", "pools": range}));
    sim.claim(METAL3, "b", "p");
    sim.settle();
    sim.claim(METAL3, "c", "twin");
    sim.claim(METAL3, "d", "odd");
    sim.settle();
    lacks(
        &sim,
        METAL3,
        "a",
        "there is no IPPool none in the namespace default",
    );
    lacks(
        &sim,
        METAL3,
        "far",
        "a claim takes from pools of its own namespace, default, and this one names other",
    );
    assert_eq!(sim.told(METAL3, "b").unwrap(), "192.168.0.10");
    assert_eq!(sim.told(METAL3, "c").unwrap(), "192.168.0.11");
    lacks(
        &sim,
        METAL3,
        "d",
        "no name of an object can begin with `Odd`",
    );
    let wide = json!({"spec": {"prefix": 64}});
    sim.change(Kind::Pool, "twin", &wide);
    sim.claim(METAL3, "e", "twin");
    sim.settle();
    lacks(
        &sim,
        METAL3,
        "e",
        "the prefix 64 of the pool is none of IPv4",
    );
    sim.delete(METAL3, "a");
    sim.settle();
    assert_eq!(sim.get(METAL3, "a"), &Value::Null);
}

#[test]
fn while_one_address_is_unknown_none_is_given() {
    let mut sim = three();
    sim.claim(METAL3, "a", "p");
    let mut seen = sim.seen();
    seen.addresses.hidden = vec!["the IPAddress x cannot be read".to_owned()];
    let plan = super::plan(&seen, NOW);
    let creates = |it: &super::Action| matches!(it, super::Action::Create(..));
    assert!(!plan.iter().flatten().any(creates), "{plan:?}");
}

#[test]
fn of_two_objects_for_one_address_one_gives_way_before_the_other_is_told() {
    let mut sim = three();
    sim.settle();
    sim.claim(METAL3, "x", "p");
    sim.claim(CONTRACT, "y", "p");
    let held = json!({"metadata": {"finalizers": ["ipclaim.ipam.metal3.io"]}});
    sim.change(METAL3, "x", &held);
    // The first one's was late.
    let made = |finalizer: &str, owner: Value, spec: Value| json!({"metadata": {"finalizers": [finalizer], "ownerReferences": [owner]}, "spec": spec});
    let owner = json!({"apiVersion": "ipam.metal3.io/v1alpha1", "kind": "IPClaim", "name": "x", "uid": "uid-2"});
    let spec = json!({"address": "192.168.0.10", "pool": {"name": "p"}, "claim": {"name": "x"}});
    sim.add(
        ADDRESS,
        "p-192-168-0-10",
        made("ipaddress.ipam.metal3.io", owner, spec),
    );
    let owner = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "name": "y", "uid": "uid-3"});
    let pool = json!({"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "p"});
    let spec = json!({"address": "192.168.0.10", "poolRef": pool, "claimRef": {"name": "y"}});
    sim.add(
        CONTRACT_ADDRESS,
        "p-192-168-0-10",
        made("ipam.metal3.io/ipaddress", owner, spec),
    );
    for steps in sim.plan() {
        steps.iter().all(|action| sim.apply(action));
    }
    assert_eq!(sim.told(METAL3, "x").unwrap_err(), "nothing");
    lacks(&sim, CONTRACT, "y", "which is that of the IPClaim x");
    sim.settle();
    assert_eq!(sim.told(METAL3, "x").unwrap(), "192.168.0.10");
    assert_eq!(sim.told(CONTRACT, "y").unwrap(), "192.168.0.11");
}
