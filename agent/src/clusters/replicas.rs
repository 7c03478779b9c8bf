//! How many machines there should be. Pure.

use firstlight_api::{
    bmh::ProvisioningState,
    capi::{self, Replicated},
    site::{ClusterConfig, HostRole, Workers},
};
use serde_json::json;

use super::{NAMESPACE, render};
use crate::machines::{
    Action, Kind, Steps, is_left_alone,
    world::{Host, HostExt, Key, World, is_control_plane},
};

/// The count that the agent wrote last: a `spec.replicas` that differs from it is a person's.
pub const WRITTEN: &str = "firstlight.internal/replicas";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub control_planes: u32,
    pub workers: u32,
}

/// What the rules and the hosts allow.
pub fn wanted(world: &World, config: &ClusterConfig, cluster: &str) -> Counts {
    let control_planes = config.control_planes.count();
    let workers = match config.workers {
        Workers::Exactly(count) => count,
        Workers::All => all_workers(world, cluster, control_planes),
    };
    Counts {
        control_planes,
        workers,
    }
}

fn all_workers(world: &World, cluster: &str, control_planes: u32) -> u32 {
    let (mut have_control_planes, mut workers) = (0, 0);
    // Free hosts by what they may become.
    let (mut only_control, mut only_worker, mut any) = (0, 0, 0);
    let hosts = world
        .hosts
        .values()
        .filter(|host| host.metadata.namespace == NAMESPACE);
    for host in hosts {
        let role = world.role(host);
        match claimed_as(world, cluster, host) {
            Some(Claim::ControlPlane) => have_control_planes += 1,
            Some(Claim::Worker) => {
                workers += u32::from(matches!(role, HostRole::Any | HostRole::Worker));
            }
            None if !is_free(host) => {}
            None => match role {
                HostRole::ControlPlane => only_control += 1,
                HostRole::Worker => only_worker += 1,
                HostRole::Any => any += 1,
                HostRole::Spare => {}
            },
        }
    }
    let missing = control_planes.saturating_sub(have_control_planes + only_control);
    workers + only_worker + u32::saturating_sub(any, missing)
}

enum Claim {
    ControlPlane,
    Worker,
}

/// By a machine of this cluster.
fn claimed_as(world: &World, cluster: &str, host: &Host) -> Option<Claim> {
    let consumer = host.consumer()?;
    let machine = world
        .metal3_machines
        .get(&Key::new(&host.metadata.namespace, consumer))?;
    let meta = &machine.metadata;
    (meta.label(capi::CLUSTER_LABEL) == Some(cluster)).then(|| {
        if is_control_plane(meta) {
            Claim::ControlPlane
        } else {
            Claim::Worker
        }
    })
}

fn is_free(host: &Host) -> bool {
    host.spec.consumer_ref.is_none()
        && !host.spec.has_wish()
        && !host.spec.externally_provisioned
        && !host.metadata.is_deleting()
        && !is_left_alone(host)
        && host.status.error_message.is_empty()
        && matches!(
            host.state(),
            ProvisioningState::Available | ProvisioningState::Ready
        )
}

/// Could one more control plane start now?
pub fn has_spare_for_control_plane(world: &World, namespace: &str) -> bool {
    world.hosts.values().any(|host| {
        host.metadata.namespace == namespace
            && is_free(host)
            && matches!(world.role(host), HostRole::Any | HostRole::ControlPlane)
    })
}

/// Counts that changed, and the machines that go first when there are fewer.
pub fn plan(world: &World, config: &ClusterConfig, cluster: &str) -> Vec<Steps> {
    let counts = wanted(world, config, cluster);
    let control_plane = Key::new(NAMESPACE, &render::control_plane_name(cluster));
    let workers = Key::new(NAMESPACE, &render::workers_name(cluster));
    let mut plan: Vec<Steps> = leaving(world, cluster).collect();
    plan.extend(
        world
            .control_planes
            .get(&control_plane)
            .and_then(|found| set(Kind::ControlPlane, found, counts.control_planes)),
    );
    plan.extend(
        world
            .deployments
            .get(&workers)
            .and_then(|found| set(Kind::Deployment, found, counts.workers)),
    );
    plan
}

fn set(kind: Kind, object: &Replicated, wanted: u32) -> Option<Steps> {
    let text = wanted.to_string();
    if object.metadata.annotation(WRITTEN) == Some(&text) || object.metadata.is_deleting() {
        return None;
    }
    Some(vec![Action::Patch {
        kind,
        key: Key::of(&object.metadata),
        version: Some(object.metadata.resource_version.clone()),
        patch: json!({
            "metadata": {"annotations": {WRITTEN: text}},
            "spec": {"replicas": wanted},
        }),
    }])
}

/// Workers on hosts that may not be workers any more.
fn leaving(world: &World, cluster: &str) -> impl Iterator<Item = Steps> {
    world
        .hosts
        .values()
        .filter(move |host| {
            matches!(claimed_as(world, cluster, host), Some(Claim::Worker))
                && matches!(world.role(host), HostRole::Spare | HostRole::ControlPlane)
        })
        .filter_map(|host| {
            let key = Key::new(&host.metadata.namespace, host.consumer()?);
            let machine = world.owner_machine(world.metal3_machines.get(&key)?)?;
            let meta = &machine.metadata;
            let said = meta.annotations.contains_key(capi::DELETE_MACHINE_ANNOTATION);
            (!said && !meta.is_deleting()).then(|| {
                vec![Action::Patch {
                    kind: Kind::Machine,
                    key: Key::of(meta),
                    version: None,
                    patch: json!({"metadata": {"annotations": {capi::DELETE_MACHINE_ANNOTATION: "its host has another role"}}}),
                }]
            })
        })
}
