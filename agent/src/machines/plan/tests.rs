//! Stories of machines and hosts, with an API server in memory. Whatever is planned is cut off after every single write
//! once, too: the end is the same.
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "stories read better without references"
)]

mod addresses;
mod sim;

use firstlight_api::{
    bmh::annotations,
    capi, capm3,
    object::{Condition, ConditionStatus},
};
use serde_json::{Value, json};

use super::*;
use crate::capi::{Action, Kind};
use sim::{Sim, key};

const NOW: &str = "2026-11-21T20:00:00Z";
const LATER: &str = "2026-11-21T20:00:05Z";

/// A cluster with its infrastructure provisioned, one machine of it that has its data, and two free hosts.
fn ready_site() -> Sim {
    let mut sim = Sim::default();
    sim.add(
        "cluster",
        json!({
            "metadata": {"name": "lab"},
            "status": {"initialization": {"infrastructureProvisioned": true}},
        }),
    );
    sim.machine("cp", true, json!({}));
    sim.host("n1", "available");
    sim.host("n2", "available");
    sim
}

fn condition<'a>(conditions: &'a [Condition], kind: &str) -> &'a Condition {
    conditions
        .iter()
        .find(|condition| condition.kind == kind)
        .unwrap_or_else(|| panic!("{kind}: {conditions:?}"))
}

fn said(sim: &Sim, machine: &str, kind: &str) -> (ConditionStatus, String, String) {
    let found = condition(
        &sim.world.metal3_machines[&key(machine)].status.conditions,
        kind,
    )
    .clone();
    (found.status, found.reason, found.message)
}

#[test]
fn a_machine_gets_a_host_and_the_host_is_told_everything() {
    let mut sim = ready_site();
    sim.settle();
    let host = &sim.world.hosts[&key("n1")];
    assert_eq!(
        serde_json::to_value(&host.spec.consumer_ref).unwrap(),
        json!({"apiVersion": capm3::API_VERSION, "kind": "Metal3Machine", "name": "cp", "namespace": "default"})
    );
    let image = host.spec.image.as_ref().unwrap();
    assert_eq!(
        (
            image.url.as_str(),
            image.checksum.as_str(),
            image.format.as_deref()
        ),
        ("http://box/node.raw.zst", "abcd", Some("raw"))
    );
    assert_eq!(host.spec.user_data.as_ref().unwrap().name, "cp-data");
    assert_eq!(host.spec.meta_data.as_ref().unwrap().name, "cp-metadata");
    assert_eq!(host.spec.network_data, None);
    assert_eq!(host.metadata.label(capi::CLUSTER_LABEL), Some("lab"));
    let raw = &sim.raw_hosts[&key("n1")];
    assert_eq!(
        (
            &raw["spec"]["online"],
            &raw["spec"]["automatedCleaningMode"]
        ),
        (&json!(true), &json!("metadata"))
    );

    let metadata: Value =
        serde_json::from_str(&sim.world.data[&key("cp-metadata")]["metaData"]).unwrap();
    assert_eq!(
        metadata,
        json!({
            "uuid": "uid-n1", "metal3-namespace": "default", "metal3-name": "n1", "local-hostname": "n1",
            "local_hostname": "n1", "name": "n1", "providerid": "default/n1/cp", "local_ipv4": "172.22.0.101",
        })
    );
    let machine = &sim.world.metal3_machines[&key("cp")];
    assert_eq!(
        machine.spec.provider_id.as_deref(),
        Some("metal3://default/n1/cp")
    );
    assert_eq!(
        machine.metadata.annotation(capm3::HOST_ANNOTATION),
        Some("default/n1")
    );
    assert!(machine.metadata.has_finalizer(capm3::MACHINE_FINALIZER));
    assert!(!machine.status.initialization.is_done());
    let addresses: Vec<_> = machine
        .status
        .addresses
        .iter()
        .map(|one| (one.kind.as_str(), one.address.as_str()))
        .collect();
    assert_eq!(
        addresses,
        [
            ("InternalIP", "172.22.0.101"),
            ("Hostname", "n1"),
            ("InternalDNS", "n1")
        ]
    );
    assert_eq!(
        said(&sim, "cp", "Ready"),
        (
            ConditionStatus::False,
            "NotReady".into(),
            "host n1 is available".into()
        )
    );
    assert!(sim.world.hosts[&key("n2")].spec.consumer_ref.is_none());
}

#[test]
fn it_is_provisioned_when_its_host_is_and_says_what_the_host_says_until_then() {
    let mut sim = ready_site();
    sim.settle();
    sim.set_host("n1", json!({"status": {"provisioning": {"state": "provisioning"}, "errorMessage": "the disk is too small; replace it"}}));
    sim.settle();
    assert_eq!(
        said(&sim, "cp", "Ready").2,
        "host n1: the disk is too small; replace it"
    );
    sim.set_host(
        "n1",
        json!({"status": {"provisioning": {"state": "provisioned"}, "errorMessage": ""}}),
    );
    sim.settle();
    assert!(
        sim.world.metal3_machines[&key("cp")]
            .status
            .initialization
            .is_done()
    );
    assert_eq!(said(&sim, "cp", "Ready").0, ConditionStatus::True);
    // It never turns back.
    sim.set_host(
        "n1",
        json!({"status": {"errorMessage": "it does not answer"}}),
    );
    sim.settle();
    assert!(
        sim.world.metal3_machines[&key("cp")]
            .status
            .initialization
            .is_done()
    );
    assert_eq!(said(&sim, "cp", "Ready").0, ConditionStatus::False);
}

#[test]
fn a_machine_waits_with_the_reason() {
    let image = |image: Value| json!({"spec": {"image": image}});
    for (change, reason, part) in [
        (
            json!({"metadata": {"ownerReferences": null}}),
            "WaitingForMetal3MachineOwnerRef",
            "no Machine refers",
        ),
        (image(Value::Null), "InvalidSpec", "spec.image is missing"),
        (
            image(json!({"url": "http://a/b", "checksum": null})),
            "InvalidSpec",
            "no image is written without a digest",
        ),
        (
            json!({"spec": {"hostSelector": {"matchLabels": {"rack": "9"}}}}),
            "AssociateBareMetalHostFailed",
            "(rack=9) matches none of the 2 hosts",
        ),
        (
            json!({"spec": {"dataTemplate": {"name": "none"}}}),
            "WaitingForMetal3Data",
            "the Metal3DataTemplate none is not there",
        ),
        (
            json!({"spec": {"dataTemplate": {"name": "bridges"}}}),
            "Metal3DataNotSupported",
            "asks for bridges",
        ),
    ] {
        let mut sim = ready_site();
        sim.add("data", json!({"metadata": {"name": "bridges"}, "spec": {"clusterName": "lab", "networkData": {"links": {"bridges": [{"id": "b"}]}}}}));
        sim.change("metal3_machine", "cp", change.clone());
        sim.settle();
        let (status, found, message) = said(&sim, "cp", "AssociateBareMetalHost");
        assert_eq!(
            (status, found.as_str()),
            (ConditionStatus::False, reason),
            "{change}: {message}"
        );
        assert!(message.contains(part), "{change}: {message}");
        assert!(
            sim.world
                .hosts
                .values()
                .all(|host| host.spec.consumer_ref.is_none()),
            "{change}"
        );
    }
}

#[test]
fn no_host_is_held_before_the_machine_can_use_it() {
    for (object, name, change, part) in [
        (
            "machine",
            "cp",
            json!({"spec": {"bootstrap": {"dataSecretName": null}}}),
            "bootstrap data is not made yet",
        ),
        (
            "cluster",
            "lab",
            json!({"status": {"initialization": {"infrastructureProvisioned": false}}}),
            "infrastructure of the cluster lab is not ready",
        ),
    ] {
        let mut sim = ready_site();
        sim.change(object, name, change);
        sim.settle();
        assert!(said(&sim, "cp", "Ready").2.contains(part));
        assert!(
            sim.world
                .hosts
                .values()
                .all(|host| host.spec.consumer_ref.is_none())
        );
    }
}

#[test]
fn the_control_plane_comes_before_workers_and_who_comes_late_waits_without_harm() {
    let mut sim = ready_site();
    for worker in ["a-worker", "b-worker"] {
        sim.machine(worker, false, json!({}));
    }
    sim.settle();
    let of = |sim: &Sim, host: &str| {
        sim.world.hosts[&key(host)]
            .spec
            .consumer_ref
            .clone()
            .map(|consumer| consumer.name)
    };
    assert_eq!(
        (of(&sim, "n1"), of(&sim, "n2")),
        (Some("cp".into()), Some("a-worker".into()))
    );
    let (_, _, message) = said(&sim, "b-worker", "Ready");
    assert_eq!(
        message,
        "no matching free host among 2: 2 in use; add a server, or free one"
    );
    sim.host("n3", "available");
    sim.settle();
    assert_eq!(of(&sim, "n3"), Some("b-worker".into()));
}

#[test]
fn a_deleted_machine_holds_on_until_its_host_is_clean() {
    let mut sim = ready_site();
    sim.settle();
    sim.set_host(
        "n1",
        json!({"status": {"provisioning": {"state": "provisioned"}}}),
    );
    sim.settle();
    sim.delete("metal3_machine", "cp");
    sim.settle();
    let host = &sim.world.hosts[&key("n1")];
    assert!(
        !host.spec.wants_system()
            && host.spec.user_data.is_none()
            && host.spec.consumer_ref.is_some()
    );
    assert_eq!(
        sim.raw_hosts[&key("n1")]["spec"]["online"],
        true,
        "it has no remote power"
    );
    assert_eq!(said(&sim, "cp", "Ready").1, "Deleting");
    sim.set_host(
        "n1",
        json!({"status": {"provisioning": {"state": "deprovisioning"}}}),
    );
    sim.settle();
    assert_eq!(
        said(&sim, "cp", "Ready").2,
        "waiting until it is clean: host n1 is deprovisioning"
    );
    sim.set_host(
        "n1",
        json!({"status": {"provisioning": {"state": "available"}}}),
    );
    sim.settle();
    assert!(!sim.world.metal3_machines.contains_key(&key("cp")), "gone");
    let host = &sim.world.hosts[&key("n1")];
    assert!(host.spec.consumer_ref.is_none() && host.metadata.label(capi::CLUSTER_LABEL).is_none());
    assert_eq!(
        host.metadata.label(capm3::NODE_REUSE_LABEL),
        None,
        "nothing takes its place"
    );
}

#[test]
fn a_workers_drain_waits_until_another_node_answers_for_services() {
    let mut sim = ready_site();
    sim.machine("w", false, json!({}));
    sim.settle();
    let waits = |sim: &Sim, name: &str| {
        let meta = &sim.world.machines[&key(name)].metadata;
        meta.annotation(capi::BALANCER_HOOK).is_some()
    };
    assert!(waits(&sim, "w") && !waits(&sim, "cp"));
    // Whoever gets it knows nothing of the hook.
    sim.change("cluster", "lab", json!({"spec": {"paused": true}}));
    sim.settle();
    assert!(!waits(&sim, "w"));
    sim.change("cluster", "lab", json!({"spec": {"paused": null}}));
    sim.settle();
    assert!(waits(&sim, "w"));

    let alone =
        |paused: Value| json!({"metadata": {"annotations": {capi::PAUSED_ANNOTATION: paused}}});
    sim.change("metal3_machine", "w", alone(json!("")));
    sim.settle();
    assert!(!waits(&sim, "w"));
    sim.change("metal3_machine", "w", alone(Value::Null));
    sim.settle();
    assert!(waits(&sim, "w"));

    let leaving = |sim: &Sim| -> Vec<String> {
        let leaving = departure::leaving(&sim.world);
        leaving.map(|(_, node)| node.to_owned()).collect()
    };
    let joined =
        json!({"metadata": {"finalizers": ["capi"]}, "status": {"nodeRef": {"name": "n2"}}});
    sim.change("machine", "w", joined);
    assert!(leaving(&sim).is_empty());
    sim.delete("machine", "w");
    sim.settle();
    assert!(waits(&sim, "w"));
    assert_eq!(leaving(&sim), ["n2"]);
    for at_once in [
        (
            "machine",
            "w",
            json!({"metadata": {"annotations": {capi::NO_DRAIN_ANNOTATION: ""}}}),
        ),
        ("machine", "w", json!({"status": {"nodeRef": null}})),
        (
            "cluster",
            "lab",
            json!({"metadata": {"deletionTimestamp": NOW, "finalizers": ["capi"]}}),
        ),
    ] {
        let mut sim = sim.clone();
        let (kind, name, change) = at_once;
        sim.change(kind, name, change);
        sim.settle();
        assert!(!waits(&sim, "w"), "{kind}");
        assert!(leaving(&sim).is_empty());
    }
}

#[test]
fn a_host_that_a_person_wants_off_stays_so_at_its_release() {
    let mut sim = ready_site();
    sim.settle();
    sim.raw_hosts.get_mut(&key("n1")).unwrap()["spec"]["online"] = json!(false);
    sim.delete("metal3_machine", "cp");
    sim.settle();
    assert!(!sim.world.hosts[&key("n1")].spec.wants_system());
    assert_eq!(sim.raw_hosts[&key("n1")]["spec"]["online"], false);
}

#[test]
fn a_host_with_remote_power_is_switched_off_at_its_release() {
    let mut sim = ready_site();
    sim.set_host(
        "n1",
        json!({"spec": {"bmc": {"address": "redfish://b", "credentialsName": "c"}}}),
    );
    sim.settle();
    sim.delete("metal3_machine", "cp");
    sim.settle();
    assert_eq!(sim.raw_hosts[&key("n1")]["spec"]["online"], false);
}

#[test]
fn with_node_reuse_the_next_machine_of_the_owner_gets_the_same_host() {
    let mut sim = ready_site();
    sim.host("n0", "inspecting");
    sim.add(
        "template",
        json!({"metadata": {"name": "t"}, "spec": {"nodeReuse": true}}),
    );
    sim.add(
        "deployment",
        json!({"metadata": {"name": "md"}, "spec": {"replicas": 1}}),
    );
    let of_owner = json!({
        "metadata": {
            "labels": {capi::DEPLOYMENT_LABEL: "md"},
            "annotations": {capi::TEMPLATE_NAME_ANNOTATION: "t"},
        },
    });
    sim.machine("w1", false, of_owner.clone());
    sim.settle();
    assert_eq!(
        sim.world
            .host_of(&sim.world.metal3_machines[&key("w1")])
            .unwrap()
            .metadata
            .name,
        "n2"
    );
    sim.set_host(
        "n0",
        json!({"status": {"provisioning": {"state": "available"}}}),
    );
    sim.delete("metal3_machine", "w1");
    sim.settle();
    assert_eq!(
        sim.world.hosts[&key("n2")]
            .metadata
            .label(capm3::NODE_REUSE_LABEL),
        Some("md")
    );
    // n0 would be the first by name.
    sim.machine("w2", false, of_owner);
    sim.settle();
    let host = sim
        .world
        .host_of(&sim.world.metal3_machines[&key("w2")])
        .unwrap();
    assert_eq!(host.metadata.name, "n2");
    assert_eq!(host.metadata.label(capm3::NODE_REUSE_LABEL), None);
}

#[test]
fn a_dead_host_is_forgotten_on_a_persons_word_and_not_chosen_again() {
    let mut sim = ready_site();
    sim.settle();
    sim.set_host(
        "n1",
        json!({"status": {"provisioning": {"state": "provisioned"}}}),
    );
    sim.change(
        "machine",
        "cp",
        json!({"metadata": {"annotations": {capm3::FORGET_HOST_ANNOTATION: ""}}}),
    );
    sim.delete("metal3_machine", "cp");
    sim.settle();
    assert!(!sim.world.metal3_machines.contains_key(&key("cp")));
    let host = &sim.world.hosts[&key("n1")];
    assert!(!host.spec.wants_system() && host.spec.consumer_ref.is_none());
    assert!(
        host.metadata
            .annotation("capm3.metal3.io/unhealthy")
            .is_some()
    );
}

#[test]
fn a_server_that_restarts_did_not_bring_back_is_not_waited_for_once_its_system_cannot_run() {
    let given_up = json!({"metadata": {"annotations": {capm3::UNHEALTHY_ANNOTATIONS[0]: capm3::UNHEALTHY_NODE}}});
    let provisioned = json!({"status": {"provisioning": {"state": "provisioned"}}});
    for has_bmc in [false, true] {
        let mut sim = ready_site();
        sim.settle();
        sim.set_host("n1", provisioned.clone());
        sim.set_host("n1", given_up.clone());
        if has_bmc {
            let bmc = json!({"address": "redfish://b", "credentialsName": "c"});
            sim.set_host(
                "n1",
                json!({"spec": {"bmc": bmc}, "status": {"poweredOn": true}}),
            );
        }
        sim.delete("metal3_machine", "cp");
        sim.settle();
        let waits = sim.world.metal3_machines.contains_key(&key("cp"));
        assert_eq!(waits, has_bmc, "its BMC can say that it is off");
        assert!(!sim.world.hosts[&key("n1")].spec.wants_system());
        sim.set_host("n1", json!({"status": {"poweredOn": false}}));
        sim.settle();
        assert!(!sim.world.metal3_machines.contains_key(&key("cp")));
        let host = &sim.world.hosts[&key("n1")];
        assert!(host.spec.consumer_ref.is_none());
        assert!(
            host.metadata
                .annotations
                .contains_key(capm3::UNHEALTHY_ANNOTATIONS[0])
        );
    }
}

#[test]
fn a_deleted_host_releases_its_machine_and_a_lost_one_is_named() {
    let mut sim = ready_site();
    sim.settle();
    sim.set_host(
        "n1",
        json!({"status": {"provisioning": {"state": "provisioned"}}}),
    );
    sim.settle();
    sim.world.hosts.remove(&key("n1"));
    sim.settle();
    let (_, _, message) = said(&sim, "cp", "Ready");
    assert_eq!(
        message,
        "its host default/n1 is gone or has another consumer; delete the Machine cp to replace it"
    );
    sim.delete("metal3_machine", "cp");
    sim.settle();
    assert!(!sim.world.metal3_machines.contains_key(&key("cp")));
}

/// The agent dies while its claim is on its way: the API server has it, and carries it out when it has time.
#[test]
fn a_claim_that_comes_late_is_refused_before_its_machine_goes_or_takes_another_host() {
    let claimed = || {
        let mut sim = ready_site();
        let steps = plan(&sim.world, NOW).concat();
        let claim = steps
            .iter()
            .position(|step| matches!(step, Action::Patch { kind, .. } if *kind == Kind::Host));
        let claim = claim.unwrap();
        for step in &steps[..claim] {
            sim.apply(step).unwrap();
        }
        (sim, steps[claim].clone())
    };
    let (mut sim, late) = claimed();
    sim.delete("metal3_machine", "cp");
    sim.settle();
    assert!(!sim.world.metal3_machines.contains_key(&key("cp")));
    assert_eq!(sim.apply(&late), Err(()));
    assert!(sim.world.hosts[&key("n1")].spec.consumer_ref.is_none());

    let (mut sim, late) = claimed();
    sim.world.hosts.remove(&key("n2"));
    sim.host("n0", "available");
    sim.settle();
    assert!(sim.world.hosts[&key("n0")].spec.consumer_ref.is_some());
    assert_eq!(sim.apply(&late), Err(()), "two hosts for one machine");

    // Its machine went although it had a finalizer.
    let (mut sim, late) = claimed();
    sim.world.metal3_machines.remove(&key("cp"));
    sim.settle();
    sim.apply(&late).unwrap();
    sim.settle();
    assert!(sim.world.hosts[&key("n1")].spec.consumer_ref.is_none());

    // It came before anything else was decided.
    let (mut sim, late) = claimed();
    sim.apply(&late).unwrap();
    sim.delete("metal3_machine", "cp");
    sim.settle();
    assert!(!sim.world.metal3_machines.contains_key(&key("cp")));
    assert!(sim.world.hosts[&key("n1")].spec.consumer_ref.is_none());
}

#[test]
fn what_was_installed_for_a_machine_that_went_is_left_to_a_person() {
    let mut sim = ready_site();
    sim.settle();
    sim.set_host(
        "n1",
        json!({"status": {"provisioning": {"state": "provisioned"}}}),
    );
    sim.settle();
    assert_eq!(left_behind(&sim.world), Vec::<String>::new());
    sim.world.metal3_machines.remove(&key("cp"));
    sim.settle();
    assert!(sim.world.hosts[&key("n1")].spec.wants_system());
    let told = left_behind(&sim.world);
    assert!(
        told[0].contains("host n1 is kept for the Metal3Machine cp")
            && told[0].ends_with(r#"'{"spec":{"image":null,"consumerRef":null}}'"#),
        "{told:?}"
    );
    // Its objects are on their way from another API server.
    sim.change("cluster", "lab", json!({"spec": {"paused": true}}));
    sim.settle();
    assert_eq!(left_behind(&sim.world), Vec::<String>::new());
}

#[test]
fn a_paused_cluster_changes_nothing_and_its_hosts_are_left_alone() {
    let mut sim = ready_site();
    sim.settle();
    sim.change("cluster", "lab", json!({"spec": {"paused": true}}));
    sim.machine("w", false, json!({}));
    sim.settle();
    assert_eq!(said(&sim, "cp", "Paused").0, ConditionStatus::True);
    let says = |sim: &Sim, name: &str| {
        let meta = &sim.world.hosts[&key("n1")].metadata;
        meta.annotation(name).map(str::to_owned)
    };
    let paused = says(&sim, capm3::HOST_PAUSED_ANNOTATION);
    assert_eq!(paused.as_deref(), Some("metal3.io/capm3"));
    // It may be moved, with what it is.
    assert_eq!(says(&sim, capm3::BLOCK_MOVE_ANNOTATION), None);
    let status = says(&sim, annotations::STATUS).unwrap();
    assert!(status.contains("172.22.0.101"), "{status}");
    assert!(sim.world.hosts[&key("n2")].spec.consumer_ref.is_none());
    sim.change("cluster", "lab", json!({"spec": {"paused": null}}));
    sim.settle();
    assert_eq!(said(&sim, "cp", "Paused").0, ConditionStatus::False);
    assert_eq!(says(&sim, capm3::HOST_PAUSED_ANNOTATION), None);
    assert_eq!(
        says(&sim, capm3::BLOCK_MOVE_ANNOTATION).as_deref(),
        Some("")
    );
    assert!(sim.world.hosts[&key("n2")].spec.consumer_ref.is_some());
}

#[test]
fn a_persons_pause_of_a_host_stays() {
    let mut sim = ready_site();
    sim.settle();
    sim.set_host(
        "n1",
        json!({"metadata": {"annotations": {capm3::HOST_PAUSED_ANNOTATION: "ann"}}}),
    );
    sim.settle();
    assert_eq!(
        sim.world.hosts[&key("n1")]
            .metadata
            .annotation(capm3::HOST_PAUSED_ANNOTATION),
        Some("ann")
    );
}

#[test]
fn what_somebody_else_manages_is_not_touched() {
    let mut sim = ready_site();
    sim.change(
        "metal3_machine",
        "cp",
        json!({"metadata": {"annotations": {capi::MANAGED_BY: "x"}}}),
    );
    assert_eq!(plan(&sim.world, NOW), Vec::<Steps>::new());
}

#[test]
fn data_templates_give_each_machine_its_own_data() {
    let mut sim = ready_site();
    sim.add("data", json!({
        "metadata": {"name": "d"},
        "spec": {
            "clusterName": "lab",
            "metaData": {
                "strings": [{"key": "rack", "value": "7"}],
                "objectNames": [{"key": "m", "object": "machine"}, {"key": "h", "object": "baremetalhost"}],
                "indexes": [{"key": "i", "offset": 10, "step": 2, "prefix": "n-", "suffix": "-z"}],
                "namespaces": [{"key": "ns"}],
                "fromLabels": [{"key": "zone", "object": "baremetalhost", "label": "zone"}],
                "fromAnnotations": [{"key": "none", "object": "metal3machine", "annotation": "x"}],
                "fromHostInterfaces": [{"key": "boot", "fromBootMAC": true}, {"key": "eth0", "interface": "eth0"}],
            },
            "networkData": {
                "links": {
                    "ethernets": [{"id": "e0", "name": "eno1", "type": "phy", "mtu": 1500, "macAddress": {"fromHostInterface": "eth0"}}],
                    "bonds": [{
                        "id": "b0", "bondMode": "802.3ad", "bondLinks": ["e0"], "macAddress": {"string": "02:00:00:00:00:06"},
                        "parameters": [{"name": "miimon", "value": 100}, {"name": "lacp_rate", "value": "fast"}],
                    }],
                    "vlans": [{"id": "v5", "vlanID": 5, "vlanLink": "e0", "macAddress": {"string": "02:00:00:00:00:05"}}],
                },
                "networks": {
                    "ipv4DHCP": [{"id": "net", "link": "e0", "routes": [
                        {"network": "10.0.0.0", "prefix": 8, "gateway": {"string": "172.22.0.254"}, "services": {"dns": ["10.0.0.53"]}},
                        {"network": "0.0.0.0", "gateway": {"string": "172.22.0.253"}},
                    ]}],
                    "ipv6SLAAC": [{"id": "six", "link": "e0", "routes": [{"network": "2001:db8::", "prefix": 33, "gateway": {"string": "fe80::1"}}]}],
                },
                "services": {"dns": ["172.22.0.1"]},
            },
        },
    }));
    sim.machine("w", false, json!({}));
    for machine in ["cp", "w"] {
        sim.change(
            "metal3_machine",
            machine,
            json!({"spec": {"dataTemplate": {"name": "d"}}}),
        );
    }
    sim.set_host("n1", json!({"metadata": {"labels": {"zone": "z1"}}}));
    sim.settle();
    let data = |name: &str, kind: &str| -> Value {
        serde_json::from_str(&sim.world.data[&key(name)][kind]).unwrap()
    };
    let meta = data("cp-metadata", "metaData");
    for (name, value) in [
        ("rack", "7"),
        ("m", "cp"),
        ("h", "n1"),
        ("i", "n-10-z"),
        ("ns", "default"),
        ("zone", "z1"),
        ("none", ""),
        ("boot", "52:54:00:00:00:01"),
        ("eth0", "52:54:00:00:00:01"),
        ("providerid", "default/n1/cp"),
    ] {
        assert_eq!(meta[name], value, "{name}");
    }
    assert_eq!(data("w-metadata", "metaData")["i"], "n-12-z");
    assert_eq!(
        data("cp-networkdata", "networkData"),
        json!({
            "links": [
                {
                    "id": "b0", "type": "bond", "bond_mode": "802.3ad", "bond_links": ["e0"], "ethernet_mac_address": "02:00:00:00:00:06",
                    "bond_miimon": 100, "bond_lacp_rate": "fast",
                },
                {"id": "e0", "name": "eno1", "type": "phy", "mtu": 1500, "ethernet_mac_address": "52:54:00:00:00:01"},
                {"id": "v5", "type": "vlan", "vlan_id": 5, "vlan_link": "e0", "vlan_mac_address": "02:00:00:00:00:05"},
            ],
            "networks": [
                {"id": "net", "link": "e0", "type": "ipv4_dhcp", "routes": [
                    {
                        "network": "10.0.0.0", "netmask": "255.0.0.0", "gateway": "172.22.0.254",
                        "services": [{"type": "dns", "address": "10.0.0.53"}],
                    },
                    {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "172.22.0.253", "services": []},
                ]},
                {"id": "six", "link": "e0", "type": "ipv6_slaac", "routes": [
                    {"network": "2001:db8::", "netmask": "ffff:ffff:8000::", "gateway": "fe80::1", "services": []},
                ]},
            ],
            "services": [{"type": "dns", "address": "172.22.0.1"}],
        })
    );
    assert_eq!(
        sim.world.hosts[&key("n1")]
            .spec
            .network_data
            .as_ref()
            .unwrap()
            .name,
        "cp-networkdata"
    );
}

#[test]
fn a_cluster_is_provisioned_once_its_endpoint_is_known() {
    for (what, object, cluster, provisioned, part) in [
        (
            "its own",
            json!({"spec": {"controlPlaneEndpoint": {"host": "172.22.0.254", "port": 6443}}}),
            json!({}),
            true,
            "",
        ),
        (
            "of the Cluster",
            json!({}),
            json!({"spec": {"controlPlaneEndpoint": {"host": "172.22.0.254", "port": 6443}}}),
            true,
            "",
        ),
        (
            "none",
            json!({}),
            json!({}),
            false,
            "spec.controlPlaneEndpoint needs a host and a port",
        ),
        (
            "half",
            json!({"spec": {"controlPlaneEndpoint": {"host": "172.22.0.254"}}}),
            json!({}),
            false,
            "spec.controlPlaneEndpoint needs",
        ),
        (
            "no owner",
            json!({"metadata": {"ownerReferences": null}}),
            json!({}),
            false,
            "no Cluster refers",
        ),
    ] {
        let mut sim = Sim::default();
        sim.add("cluster", json!({"metadata": {"name": "lab"}}));
        sim.change("cluster", "lab", cluster);
        sim.add("metal3_cluster", json!({
            "metadata": {
                "name": "lab", "labels": {capi::CLUSTER_LABEL: "lab"},
                "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "lab", "uid": "1"}],
            },
            "spec": {"failureDomains": [{"name": "rack-1"}]},
        }));
        sim.change("metal3_cluster", "lab", object);
        sim.settle();
        let found = &sim.world.metal3_clusters[&key("lab")];
        assert_eq!(found.status.initialization.is_done(), provisioned, "{what}");
        let ready = condition(&found.status.conditions, "Ready");
        assert!(ready.message.contains(part), "{what}: {}", ready.message);
        assert_eq!(
            found.status.failure_domains.len(),
            usize::from(provisioned),
            "{what}"
        );
    }
}

#[test]
fn a_cluster_outlives_its_last_machine() {
    let mut sim = ready_site();
    sim.add("metal3_cluster", json!({
        "metadata": {
            "name": "lab", "labels": {capi::CLUSTER_LABEL: "lab"}, "finalizers": [capm3::CLUSTER_FINALIZER],
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "lab", "uid": "1"}],
        },
        "spec": {"controlPlaneEndpoint": {"host": "172.22.0.254", "port": 6443}},
    }));
    sim.settle();
    sim.delete("metal3_cluster", "lab");
    sim.settle();
    let found = &sim.world.metal3_clusters[&key("lab")];
    assert_eq!(
        condition(&found.status.conditions, "Ready").message,
        "1 machines of the cluster are still there"
    );
    sim.delete("metal3_machine", "cp");
    sim.settle();
    assert!(sim.world.metal3_clusters.is_empty());
}

#[test]
fn a_cut_after_any_write_ends_in_the_same_state() {
    let story = |cut: Option<usize>| {
        let mut sim = ready_site();
        sim.machine("w", false, json!({}));
        sim.cut_after = cut;
        sim.settle();
        for host in ["n1", "n2"] {
            sim.set_host(
                host,
                json!({"status": {"provisioning": {"state": "provisioned"}}}),
            );
        }
        sim.settle();
        sim.delete("metal3_machine", "w");
        sim.settle();
        sim.set_host(
            "n2",
            json!({"status": {"provisioning": {"state": "available"}}}),
        );
        sim.settle();
        (sim.without_versions(), sim.writes)
    };
    let (end, writes) = story(None);
    assert!(writes > 10, "{writes}");
    for cut in 0..writes {
        assert_eq!(story(Some(cut)).0, end, "cut after write {cut}");
    }
}
