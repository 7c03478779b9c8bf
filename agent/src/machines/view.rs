//! Clusters and their machines for the page and the API.

use firstlight_api::{
    capi::{self, Replicated},
    object::{Condition, ConditionStatus},
    status::{ClusterMachine, ClusterStatus},
};

use crate::capi::world::{Key, World, is_control_plane};

pub fn clusters(world: &World) -> Vec<ClusterStatus> {
    world
        .clusters
        .iter()
        .map(|(key, cluster)| {
            let of = |object: &&Replicated| {
                object.metadata.namespace == key.namespace && belongs(object, &key.name)
            };
            let control_planes: Vec<_> = world.control_planes.values().filter(of).collect();
            let deployments: Vec<_> = world.deployments.values().filter(of).collect();
            let endpoint = &cluster.spec.control_plane_endpoint;
            ClusterStatus {
                name: key.name.clone(),
                namespace: key.namespace.clone(),
                phase: phase(cluster.metadata.is_deleting(), &cluster.status.phase),
                version: control_planes
                    .first()
                    .map(|found| found.spec.version.clone())
                    .unwrap_or_default(),
                endpoint: if endpoint.is_whole() {
                    format!("{}:{}", endpoint.host, endpoint.port)
                } else {
                    String::new()
                },
                control_planes_ready: ready(&control_planes),
                control_planes_wanted: wanted(&control_planes),
                workers_ready: ready(&deployments),
                workers_wanted: wanted(&deployments),
                message: why_not(&cluster.status.conditions, "Available"),
                machines: machines(world, key),
            }
        })
        .collect()
}

fn belongs(object: &Replicated, cluster: &str) -> bool {
    object.spec.cluster_name == cluster
        || object.metadata.label(capi::CLUSTER_LABEL) == Some(cluster)
}

fn wanted(objects: &[&Replicated]) -> u32 {
    objects
        .iter()
        .filter_map(|object| object.spec.replicas)
        .sum()
}

fn ready(objects: &[&Replicated]) -> u32 {
    objects
        .iter()
        .filter_map(|object| object.status.ready_replicas)
        .sum()
}

fn phase(deleting: bool, phase: &str) -> String {
    if deleting {
        "Deleting".to_owned()
    } else {
        phase.to_owned()
    }
}

/// The message of a condition that does not hold.
fn why_not(conditions: &[Condition], kind: &str) -> String {
    let found = conditions
        .iter()
        .find(|condition| condition.kind == kind && condition.status != ConditionStatus::True);
    found
        .map(|condition| condition.message.clone())
        .unwrap_or_default()
}

fn machines(world: &World, cluster: &Key) -> Vec<ClusterMachine> {
    let mut machines: Vec<ClusterMachine> = world
        .machines
        .values()
        .filter(|machine| {
            machine.metadata.namespace == cluster.namespace
                && machine.spec.cluster_name == cluster.name
        })
        .map(|machine| {
            let metal3 = world.metal3_machines.values().find(|candidate| {
                let owner = candidate.metadata.owner(capi::GROUP, "Machine");
                owner.is_some_and(|owner| owner.name == machine.metadata.name)
                    && candidate.metadata.namespace == machine.metadata.namespace
            });
            let host = metal3.and_then(|metal3| world.host_of(metal3));
            let own = metal3
                .map(|metal3| why_not(&metal3.status.conditions, "Ready"))
                .filter(|message| !message.is_empty());
            ClusterMachine {
                name: machine.metadata.name.clone(),
                control_plane: is_control_plane(&machine.metadata),
                host: host
                    .map(|host| host.metadata.name.clone())
                    .unwrap_or_default(),
                node: machine
                    .status
                    .node_ref
                    .as_ref()
                    .map(|node| node.name.clone())
                    .unwrap_or_default(),
                version: machine.spec.version.clone(),
                phase: phase(machine.metadata.is_deleting(), &machine.status.phase),
                message: own.unwrap_or_else(|| why_not(&machine.status.conditions, "Ready")),
            }
        })
        .collect();
    machines.sort_by(|a, b| {
        b.control_plane
            .cmp(&a.control_plane)
            .then(a.name.cmp(&b.name))
    });
    machines
}
