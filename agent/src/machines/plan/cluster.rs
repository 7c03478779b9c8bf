//! `Metal3Cluster`: tells Cluster API where the API of the cluster is.

use firstlight_api::{
    capi,
    capm3::{CLUSTER_FINALIZER, Initialization, Metal3Cluster, Metal3ClusterStatus},
    object::{ConditionStatus, ConditionUpdate, merge_conditions},
};
use serde_json::json;

use crate::capi::{
    Action, Kind, Steps,
    world::{Key, World, is_managed, is_paused},
};

pub const READY: &str = "Ready";
pub const PAUSED: &str = "Paused";
const INFRASTRUCTURE_READY: &str = "BaremetalInfrastructureReady";

pub fn plan(world: &World, object: &Metal3Cluster, now: &str) -> Steps {
    let meta = &object.metadata;
    if is_managed(meta) {
        return Vec::new();
    }
    let key = Key::of(meta);
    let owner = meta.owner(capi::GROUP, "Cluster");
    let cluster =
        owner.and_then(|owner| world.clusters.get(&Key::new(&meta.namespace, &owner.name)));
    let mut steps = Vec::new();
    let mut status = object.status.clone();
    if is_paused(cluster, meta) {
        say(&mut status, object, &[paused(true)], now);
    } else if meta.is_deleting() {
        return delete(world, object, now);
    } else if owner.is_none() {
        let waiting = "no Cluster refers to this Metal3Cluster yet (spec.infrastructureRef)";
        say(
            &mut status,
            object,
            &not_ready("WaitingForClusterOwner", waiting),
            now,
        );
    } else {
        steps.extend(add_finalizer(object));
        let own = &object.spec.control_plane_endpoint;
        let of_cluster = cluster
            .map(|cluster| cluster.spec.control_plane_endpoint.clone())
            .unwrap_or_default();
        if own.is_whole() {
            status
                .failure_domains
                .clone_from(&object.spec.failure_domains);
            status.initialization = Initialization {
                provisioned: Some(true),
            };
            let sayings = [
                ConditionUpdate::yes(READY, "Ready"),
                ConditionUpdate::yes(INFRASTRUCTURE_READY, "Ready"),
                paused(false),
            ];
            say(&mut status, object, &sayings, now);
        } else if of_cluster.is_whole() {
            // The endpoint must be there before `provisioned` is: nothing wakes the control plane later.
            steps.push(Action::Patch {
                kind: Kind::Metal3Cluster,
                key: key.clone(),
                version: Some(meta.resource_version.clone()),
                patch: json!({"spec": {"controlPlaneEndpoint": of_cluster}}),
            });
        } else {
            let missing = "spec.controlPlaneEndpoint needs a host and a port: the address at which the API of the cluster \
                           will be, for example a free one of the provisioning network with port 6443";
            say(
                &mut status,
                object,
                &not_ready("ControlPlaneEndpointFailed", missing),
                now,
            );
        }
    }
    steps.extend(write_status(object, status, now));
    steps
}

fn paused(yes: bool) -> ConditionUpdate {
    if yes {
        ConditionUpdate::yes(PAUSED, "Paused")
    } else {
        ConditionUpdate::no(PAUSED, "NotPaused", "")
    }
}

fn not_ready(reason: &'static str, message: &str) -> [ConditionUpdate; 3] {
    [
        ConditionUpdate::no(READY, reason, message),
        ConditionUpdate::no(INFRASTRUCTURE_READY, reason, message),
        paused(false),
    ]
}

fn add_finalizer(object: &Metal3Cluster) -> Option<Action> {
    let meta = &object.metadata;
    if meta.has_finalizer(CLUSTER_FINALIZER) {
        return None;
    }
    let mut finalizers = meta.finalizers.clone();
    finalizers.push(CLUSTER_FINALIZER.to_owned());
    Some(finalizers_patch(object, &finalizers))
}

fn finalizers_patch(object: &Metal3Cluster, finalizers: &[String]) -> Action {
    Action::Patch {
        kind: Kind::Metal3Cluster,
        key: Key::of(&object.metadata),
        version: Some(object.metadata.resource_version.clone()),
        patch: json!({"metadata": {"finalizers": finalizers}}),
    }
}

/// Gone once its last machine is.
fn delete(world: &World, object: &Metal3Cluster, now: &str) -> Steps {
    let meta = &object.metadata;
    if !meta.has_finalizer(CLUSTER_FINALIZER) {
        return Vec::new();
    }
    let name = meta.label(capi::CLUSTER_LABEL);
    let left = world
        .metal3_machines
        .values()
        .filter(|machine| {
            name.is_some()
                && machine.metadata.namespace == meta.namespace
                && machine.metadata.label(capi::CLUSTER_LABEL) == name
        })
        .count();
    if left > 0 {
        let mut status = object.status.clone();
        let message = format!("{left} machines of the cluster are still there");
        say(&mut status, object, &not_ready("Deleting", &message), now);
        return write_status(object, status, now).into_iter().collect();
    }
    let mut finalizers = meta.finalizers.clone();
    finalizers.retain(|finalizer| finalizer != CLUSTER_FINALIZER);
    vec![finalizers_patch(object, &finalizers)]
}

fn say(
    status: &mut Metal3ClusterStatus,
    object: &Metal3Cluster,
    sayings: &[ConditionUpdate],
    now: &str,
) {
    let generation = object.metadata.generation;
    status.conditions = merge_conditions(&status.conditions, sayings, generation, now);
    // Nothing may be said of readiness while it is not looked at.
    debug_assert!(
        sayings
            .iter()
            .all(|one| one.status != ConditionStatus::Unknown)
    );
}

fn write_status(
    object: &Metal3Cluster,
    mut status: Metal3ClusterStatus,
    now: &str,
) -> Option<Action> {
    status.last_updated.clone_from(&object.status.last_updated);
    if status == object.status {
        return None;
    }
    status.last_updated = Some(now.to_owned());
    Some(Action::PatchStatus {
        kind: Kind::Metal3Cluster,
        key: Key::of(&object.metadata),
        patch: json!({"status": status}),
    })
}
