//! Machines whose template takes addresses from pools.

use firstlight_api::object::ConditionStatus;
use serde_json::{Value, json};

use super::{
    super::plan,
    NOW, ready_site, said,
    sim::{Sim, key},
};
use crate::capi::{Steps, addresses::IpamApi};

/// As upstream's end-to-end tests have it (`test/e2e/data/infrastructure-metal3/main`), with our name of the NIC and more of pools.
fn template() -> Value {
    json!({
        "metadata": {"name": "lab-workers-template"},
        "spec": {
            "clusterName": "lab",
            "metaData": {
                "ipAddressesFromPool": [{"key": "provisioningIP", "name": "provisioning-pool", "apiGroup": "ipam.metal3.io", "kind": "IPPool"}],
                "prefixesFromPool": [{"key": "provisioningCIDR", "name": "provisioning-pool"}],
                "gatewaysFromPool": [{"key": "gateway", "name": "baremetalv4-pool"}],
                "dnsServersFromPool": [{"key": "dns", "name": "baremetalv4-pool"}],
                "objectNames": [{"key": "name", "object": "machine"}],
            },
            "networkData": {
                "links": {"ethernets": [{"id": "eth0", "macAddress": {"fromHostInterface": "eth0"}, "type": "phy"}]},
                "networks": {
                    "ipv4": [{
                        "id": "baremetalv4", "ipAddressFromIPPool": "baremetalv4-pool", "link": "eth0",
                        "routes": [{
                            "gateway": {"fromIPPool": "baremetalv4-pool"}, "network": "0.0.0.0", "prefix": 0,
                            "services": {"dns": ["9.9.9.9"], "dnsFromIPPool": "baremetalv4-pool"},
                        }],
                    }],
                    "ipv6": [{
                        "id": "six", "fromPoolRef": {"name": "ipv6-pool"}, "link": "eth0",
                        "routes": [{"gateway": {"string": "fd00::ff"}, "network": "2001:db8::", "prefix": 32}],
                    }],
                },
                "services": {"dns": ["8.8.8.8"], "dnsFromIPPool": "baremetalv4-pool"},
            },
        },
    })
}

const CLAIMS: [&str; 3] = [
    "lab-workers-template-0-baremetalv4-pool",
    "lab-workers-template-0-ipv6-pool",
    "lab-workers-template-0-provisioning-pool",
];

fn site(template: Value) -> Sim {
    let mut sim = ready_site();
    let name = template["metadata"]["name"].clone();
    sim.add("data", template);
    let change = json!({"spec": {"dataTemplate": {"name": name}}});
    sim.change("metal3_machine", "cp", change);
    sim.settle();
    sim
}

fn give_all(sim: &mut Sim) {
    let [v4, v6, provisioning] = CLAIMS;
    sim.give(v4, json!({"address": "192.168.111.100", "prefix": 24, "gateway": "192.168.111.1", "dnsServers": ["1.1.1.1", "1.0.0.1"]}));
    sim.give(v6, json!({"address": "fd00::5", "prefix": 64}));
    sim.give(
        provisioning,
        json!({"address": "172.22.0.20", "prefix": 24}),
    );
    sim.settle();
}

#[test]
fn a_machine_claims_an_address_of_each_pool_and_waits_for_all() {
    let mut sim = site(template());
    let claims: Vec<&str> = sim
        .world
        .addresses
        .claims
        .keys()
        .map(|(_, key)| key.name.as_str())
        .collect();
    assert_eq!(claims, CLAIMS);
    let claim = &sim.world.addresses.claims[&(IpamApi::Metal3, key(CLAIMS[0]))];
    assert_eq!(claim.pool.name, "baremetalv4-pool");
    assert_eq!(
        claim.meta.finalizers,
        ["metal3data.infrastructure.cluster.x-k8s.io"]
    );
    let owner = &claim.meta.owner_references[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str(), owner.controller),
        ("Metal3Machine", "uid-cp", Some(true))
    );
    assert_eq!(
        claim.meta.label("cluster.x-k8s.io/cluster-name"),
        Some("lab")
    );
    let (status, reason, message) = said(&sim, "cp", "Ready");
    assert_eq!(
        (status, reason.as_str()),
        (ConditionStatus::False, "WaitingForMetal3Data")
    );
    assert!(message.contains("the IPClaim lab-workers-template-0-ipv6-pool of the IPPool ipv6-pool has no address yet"), "{message}");
    // No host is held while it waits.
    assert!(
        sim.world
            .hosts
            .values()
            .all(|host| host.spec.consumer_ref.is_none())
    );
    let claims = &mut sim.world.addresses.claims;
    let refused = claims.get_mut(&(IpamApi::Metal3, key(CLAIMS[0]))).unwrap();
    refused.error = Some("Exhausted IP Pools".to_owned());
    sim.settle();
    let message = said(&sim, "cp", "Ready").2;
    assert!(
        message.contains("baremetalv4-pool has none: Exhausted IP Pools"),
        "{message}"
    );
    give_all(&mut sim);
    assert!(sim.world.hosts[&key("n1")].spec.image.is_some());
}

#[test]
fn its_data_are_what_upstream_renders() {
    let mut sim = site(template());
    give_all(&mut sim);
    let data = |name: &str, kind: &str| -> Value {
        serde_json::from_str(&sim.world.data[&key(name)][kind]).unwrap()
    };
    let meta = data("cp-metadata", "metaData");
    for (name, value) in [
        ("provisioningIP", "172.22.0.20"),
        ("provisioningCIDR", "24"),
        ("gateway", "192.168.111.1"),
        ("dns", "1.1.1.1,1.0.0.1"),
        ("name", "cp"),
        ("providerid", "default/n1/cp"),
    ] {
        assert_eq!(meta[name], value, "{name}");
    }
    let dns = |address: &str| json!({"type": "dns", "address": address});
    assert_eq!(
        data("cp-networkdata", "networkData"),
        json!({
            "links": [{"type": "phy", "id": "eth0", "ethernet_mac_address": "52:54:00:00:00:01"}],
            "networks": [
                {
                    "type": "ipv4", "id": "baremetalv4", "link": "eth0", "netmask": "255.255.255.0", "ip_address": "192.168.111.100",
                    "routes": [{
                        "network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.168.111.1",
                        "services": [dns("9.9.9.9"), dns("1.1.1.1"), dns("1.0.0.1")],
                    }],
                },
                {
                    "type": "ipv6", "id": "six", "link": "eth0", "netmask": "ffff:ffff:ffff:ffff::", "ip_address": "fd00::5",
                    "routes": [{"network": "2001:db8::", "netmask": "ffff:ffff::", "gateway": "fd00::ff", "services": []}],
                },
            ],
            "services": [dns("8.8.8.8"), dns("1.1.1.1"), dns("1.0.0.1")],
        })
    );
}

#[test]
fn its_claims_go_with_it_and_the_next_one_waits_for_that() {
    let mut sim = site(template());
    give_all(&mut sim);
    let held = |sim: &Sim, finalizers: &[&str]| {
        let claims = sim.world.addresses.claims.values();
        let held = claims.filter(|claim| claim.meta.finalizers == finalizers);
        held.filter(|claim| claim.meta.is_deleting()).count()
    };
    // Of the pool's controller.
    let own = "ipclaim.ipam.metal3.io";
    for claim in sim.world.addresses.claims.values_mut() {
        claim.meta.finalizers.push(own.to_owned());
    }
    let carries = json!({"status": {"provisioning": {"state": "provisioned"}}});
    sim.set_host("n1", carries);
    sim.delete("metal3_machine", "cp");
    sim.settle();
    assert_eq!(held(&sim, &[own]), 0, "its host has its data still");
    let free = json!({"status": {"provisioning": {"state": "available"}}});
    sim.set_host("n1", free);
    // One that cannot be read may be this one.
    let unreadable = vec!["the Metal3Machine cp cannot be read: x".to_owned()];
    let known = std::mem::replace(&mut sim.world.unreadable, unreadable);
    sim.settle();
    assert!(sim.world.metal3_machines.is_empty());
    assert_eq!(held(&sim, &[own]), 0);
    sim.world.unreadable = known;
    let name = "lab-workers-template";
    let change = json!({"spec": {"dataTemplate": {"name": name}}});
    sim.machine("next", true, change);
    sim.settle();
    assert_eq!(held(&sim, &[own]), 3);
    let message = said(&sim, "next", "Ready").2;
    let why = "is that of another machine (cp), and waited for";
    assert!(message.contains(why), "{message}");
    sim.world.addresses = crate::capi::addresses::Addresses::default();
    sim.settle();
    let claims = &sim.world.addresses.claims;
    assert_eq!(claims.len(), 3);
    let mut owners = claims.values().map(|it| &it.meta.owner_references[0].uid);
    assert!(owners.all(|uid| uid == "uid-next"));
}

#[test]
fn a_claim_is_made_once_the_number_in_its_name_is_written_down() {
    let mut sim = ready_site();
    sim.add("data", template());
    let change = json!({"spec": {"dataTemplate": {"name": "lab-workers-template"}}});
    sim.change("metal3_machine", "cp", change);
    let creates = |plan: Vec<Steps>| {
        plan.iter()
            .flatten()
            .filter(|it| matches!(it, crate::capi::Action::Create(_)))
            .count()
    };
    assert_eq!(creates(plan(&sim.world, NOW)), 0);
    sim.settle();
    assert_eq!(sim.world.addresses.claims.len(), 3);
}

#[test]
fn pools_of_other_providers_and_of_annotations_are_claimed_and_what_cannot_be_told_is_said() {
    let networks = |of: Value| {
        let mut network = json!({"id": "n", "link": "e"});
        crate::objects::testing::merge(&mut network, &of);
        json!({"metadata": {"name": "d"}, "spec": {"networkData": {"networks": {"ipv4": [network]}}}})
    };
    let foreign = json!({"fromPoolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}});
    let sim = site(networks(foreign.clone()));
    let (api, at) = sim.world.addresses.claims.keys().next().unwrap();
    assert_eq!((*api, at.name.as_str()), (IpamApi::Contract, "d-0-p"));
    let message = said(&sim, "cp", "Ready").2;
    assert!(
        message.contains("the IPAddressClaim d-0-p of the InClusterIPPool p has no address yet"),
        "{message}"
    );

    let annotated = json!({"fromPoolAnnotation": {"object": "baremetalhost", "annotation": "pool"}, "ipAddressFromIPPool": "other"});
    let mut sim = site(networks(annotated));
    let message = said(&sim, "cp", "Ready").2;
    assert!(
        message.contains("the annotation pool of n1, which is to say a pool, is not there"),
        "{message}"
    );
    sim.set_host(
        "n1",
        json!({"metadata": {"annotations": {"pool": "rack-7"}}}),
    );
    sim.settle();
    assert!(
        sim.world
            .addresses
            .claims
            .contains_key(&(IpamApi::Metal3, key("d-0-rack-7")))
    );
    // Of IPv6, for a network of IPv4.
    sim.give("d-0-rack-7", json!({"address": "fd00::1", "prefix": 64}));
    sim.settle();
    let message = said(&sim, "cp", "Ready").2;
    assert!(
        message.contains("the IPPool rack-7 gives fd00::1, which is of the other version of IP"),
        "{message}"
    );

    let mut twice = networks(foreign);
    twice["spec"]["metaData"] = json!({"ipAddressesFromPool": [{"key": "a", "name": "p"}]});
    let sim = site(twice);
    let message = said(&sim, "cp", "Ready").2;
    assert!(
        message.contains("pools of two kinds that are called p"),
        "{message}"
    );
}
