//! How many machines there should be. Pure.

use firstlight_api::{
    bmh::ProvisioningState,
    capi::{self, Replicated},
    object::Meta,
    site::{ClusterConfig, HostRole, Workers},
};
use serde_json::json;

use super::object::{control_plane_name, workers_name};
use crate::capi::{
    Action, Kind, NAMESPACE, Steps,
    world::{Host, HostExt, Key, World, is_control_plane, is_left_alone, owner_name},
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
    // Unclaimed hosts by what they may become.
    let (mut only_control, mut only_worker, mut any) = (0, 0, 0);
    let hosts = world
        .hosts
        .values()
        .filter(|host| host.metadata.namespace == NAMESPACE && world.is_for(host, cluster));
    for host in hosts {
        let role = world.role(host);
        match claimed_as(world, cluster, host) {
            Some(Claim::ControlPlane) => have_control_planes += 1,
            Some(Claim::Worker) => {
                workers += u32::from(matches!(role, HostRole::Any | HostRole::Worker));
            }
            None if !joins(host) => {}
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

/// Nobody has another use for it, and nothing is wrong with it.
fn is_unused(host: &Host) -> bool {
    host.spec.consumer_ref.is_none()
        && !host.spec.wants_system()
        && !host.spec.externally_provisioned
        && !host.metadata.is_deleting()
        && !is_left_alone(host)
        && host.status.error_message.is_empty()
}

fn is_free(host: &Host) -> bool {
    is_unused(host)
        && matches!(
            host.state(),
            ProvisioningState::Available | ProvisioningState::Ready
        )
}

/// It is free or will be, once it is registered, inspected, cleaned, or has the image on its disk. Its machine is made
/// meanwhile, so that neither waits for the other afterwards.
fn joins(host: &Host) -> bool {
    use ProvisioningState as S;
    is_unused(host)
        && matches!(
            host.state(),
            S::Registering
                | S::Inspecting
                | S::Preparing
                | S::Available
                | S::Ready
                | S::Provisioning
                | S::Deprovisioning
        )
}

/// Could one more control plane start now?
pub fn has_spare_for_control_plane(world: &World, namespace: &str, cluster: &str) -> bool {
    world.hosts.values().any(|host| {
        host.metadata.namespace == namespace
            && is_free(host)
            && world.is_for(host, cluster)
            && matches!(world.role(host), HostRole::Any | HostRole::ControlPlane)
    })
}

/// Counts that changed, and the machines that go first when there are fewer.
pub fn plan(world: &World, config: &ClusterConfig, cluster: &str) -> Vec<Steps> {
    let counts = wanted(world, config, cluster);
    let control_plane = Key::new(NAMESPACE, &control_plane_name(cluster));
    let workers = Key::new(NAMESPACE, &workers_name(cluster));
    let mut plan: Vec<Steps> = leaving(world, cluster).collect();
    plan.extend(
        world
            .control_planes
            .get(&control_plane)
            .and_then(|found| set(Kind::ControlPlane, found, counts.control_planes)),
    );
    if let Some(found) = world.deployments.get(&workers)
        && let Some(mut steps) = set(Kind::Deployment, found, counts.workers)
    {
        let surplus = found
            .spec
            .replicas
            .unwrap_or(0)
            .saturating_sub(counts.workers);
        steps.splice(0..0, waiting(world, &workers, surplus));
        plan.push(steps);
    }
    plan
}

/// Machines without a host, marked to go before one that is being installed: to Cluster API both only lack a node.
fn waiting<'a>(world: &'a World, owner: &'a Key, count: u32) -> impl Iterator<Item = Action> + 'a {
    world
        .metal3_machines
        .values()
        .filter(|machine| {
            let meta = &machine.metadata;
            meta.namespace == owner.namespace && owner_name(meta) == Some(&owner.name)
        })
        .filter(|machine| world.host_of(machine).is_none())
        .filter_map(|machine| world.owner_machine(machine))
        .filter(|machine| !machine.metadata.is_deleting())
        .take(count as usize)
        .map(|machine| goes_first(&machine.metadata, "no host is left for it"))
}

fn goes_first(machine: &Meta, why: &str) -> Action {
    Action::Patch {
        kind: Kind::Machine,
        key: Key::of(machine),
        version: None,
        patch: json!({"metadata": {"annotations": {capi::DELETE_MACHINE_ANNOTATION: why}}}),
    }
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

/// Workers on hosts that may not be workers any more, or not of this cluster.
fn leaving(world: &World, cluster: &str) -> impl Iterator<Item = Steps> {
    world
        .hosts
        .values()
        .filter(move |host| {
            let is_other = matches!(world.role(host), HostRole::Spare | HostRole::ControlPlane);
            matches!(claimed_as(world, cluster, host), Some(Claim::Worker))
                && (is_other || !world.is_for(host, cluster))
        })
        .filter_map(|host| {
            let key = Key::new(&host.metadata.namespace, host.consumer()?);
            let machine = world.owner_machine(world.metal3_machines.get(&key)?)?;
            let meta = &machine.metadata;
            let said = meta
                .annotations
                .contains_key(capi::DELETE_MACHINE_ANNOTATION);
            (!said && !meta.is_deleting())
                .then(|| vec![goes_first(meta, "its host has another role or cluster")])
        })
}
