//! A `Metal3Machine` that is being deleted: its finalizer stays until the host is clean again, because Cluster API takes
//! the machine for gone once it is. And hosts whose machine went without that.

use firstlight_api::{
    bmh::ProvisioningState,
    capm3::{
        FORGET_HOST_ANNOTATION, HOST_ANNOTATION, MACHINE_FINALIZER, Metal3Machine,
        UNHEALTHY_ANNOTATIONS, UNHEALTHY_NODE,
    },
    object::ConditionUpdate,
};
use serde_json::json;

use super::{
    cluster::READY,
    draft::{ASSOCIATED, Draft},
    host,
};
use crate::capi::{
    Action, Kind, Steps,
    world::{Host, HostExt, Key, World, is_left_alone, is_paused, owner_name},
};

pub fn plan(world: &World, mut draft: Draft, host: Option<&Host>) -> Steps {
    let object = draft.object;
    if !object.metadata.has_finalizer(MACHINE_FINALIZER) {
        return Vec::new();
    }
    let Some(host) = host else {
        let mut steps: Steps = give_up(world, object, None).into_iter().collect();
        steps.push(drop_finalizer(&draft));
        return steps;
    };
    if is_forgotten(world, &draft) || is_given_up(host) {
        return vec![host::forget(host, object), drop_finalizer(&draft)];
    }
    if host.spec.wants_system() {
        deleting(&mut draft, host);
        let mut steps = vec![host::take_image_off(host)];
        steps.extend(draft.write());
        return steps;
    }
    if is_busy(host.state()) {
        deleting(&mut draft, host);
        return draft.write().into_iter().collect();
    }
    let keep_for = next_owner(world, &draft);
    vec![
        host::release(host, Some(&object.metadata.uid), keep_for),
        drop_finalizer(&draft),
    ]
}

/// The host that the machine was about to claim is free as far as is known, but the write may be on its way still: nothing
/// else is decided before it is refused.
pub fn give_up(world: &World, machine: &Metal3Machine, chosen: Option<&Host>) -> Option<Action> {
    let named = machine.metadata.annotation(HOST_ANNOTATION)?;
    let (namespace, name) = named.split_once('/')?;
    let key = Key::new(namespace, name);
    if chosen.is_some_and(|chosen| Key::of(&chosen.metadata) == key) {
        return None;
    }
    let host = world.hosts.get(&key)?;
    // Who else has claimed it has changed its version, too.
    let is_free = host.spec.consumer_ref.is_none();
    is_free.then(|| host::give_up(host, machine)).flatten()
}

/// Hosts that nothing was installed on for their machine before it went: free again.
pub fn untouched(world: &World) -> Vec<Steps> {
    let untouched = left_behind(world)
        .filter(|host| !host.spec.wants_system() && !is_busy(host.state()))
        .filter(|host| !is_left_alone(host));
    untouched
        .map(|host| vec![host::release(host, None, None)])
        .collect()
}

/// A sentence for each host that may have the data of a machine that went: a person decides.
pub fn installed(world: &World) -> Vec<String> {
    let installed =
        left_behind(world).filter(|host| host.spec.wants_system() || is_busy(host.state()));
    let sentence = |host: &Host| {
        let (name, namespace) = (&host.metadata.name, &host.metadata.namespace);
        let consumer = host.consumer().map_or("", String::as_str);
        format!(
            "host {name} is kept for the Metal3Machine {consumer}, which is gone or cannot be read; if nobody needs what is on \
             the host, give it back: kubectl -n {namespace} patch bmh {name} --type merge -p \
             '{{\"spec\":{{\"image\":null,\"consumerRef\":null}}}}'"
        )
    };
    installed.map(sentence).collect()
}

/// Claimed by a machine that is not there, although its cluster is. While objects are moved to another API server, where
/// machines come after hosts, the cluster is paused.
fn left_behind(world: &World) -> impl Iterator<Item = &Host> {
    world.hosts.values().filter(|host| {
        let meta = &host.metadata;
        let is_gone = host.consumer().is_some_and(|machine| {
            let key = Key::new(&meta.namespace, machine);
            !world.metal3_machines.contains_key(&key)
        });
        let cluster = world.cluster_of(meta);
        is_gone && cluster.is_some() && !is_paused(cluster, meta)
    })
}

fn deleting(draft: &mut Draft, host: &Host) {
    let message = format!("waiting until it is clean: {}", host::progress(host));
    draft.say([
        ConditionUpdate::no(ASSOCIATED, "Deleting", message.clone()),
        ConditionUpdate::no(READY, "Deleting", message),
    ]);
}

/// Still carries its system, or is losing it.
fn is_busy(state: ProvisioningState) -> bool {
    matches!(
        state,
        ProvisioningState::Provisioning
            | ProvisioningState::Provisioned
            | ProvisioningState::Deprovisioning
            | ProvisioningState::Preparing
    )
}

/// A person's word: the host is dead, go on without it.
fn is_forgotten(world: &World, draft: &Draft) -> bool {
    let machine = world.owner_machine(draft.object);
    let metas = [
        Some(&draft.object.metadata),
        machine.map(|machine| &machine.metadata),
    ];
    metas
        .into_iter()
        .flatten()
        .any(|meta| meta.annotations.contains_key(FORGET_HOST_ANNOTATION))
}

/// Restarts did not bring it back, and its owner wants another one: as far as anybody can tell its system does not run.
fn is_given_up(host: &Host) -> bool {
    host.metadata.annotation(UNHEALTHY_ANNOTATIONS[0]) == Some(UNHEALTHY_NODE)
        && (host.spec.stays_on() || host.status.powered_on == Some(false))
}

/// Who gets the host next, if its template says `nodeReuse` and its owner goes on.
fn next_owner<'a>(world: &World, draft: &Draft<'a>) -> Option<&'a str> {
    let meta = &draft.object.metadata;
    let reuse = world
        .template_of(draft.object)
        .is_some_and(|template| template.spec.node_reuse);
    let cluster_goes_on = world
        .cluster_of(meta)
        .is_some_and(|cluster| !cluster.metadata.is_deleting());
    let owner = owner_name(meta)?;
    // While this machine goes, its owner lacks one if it wants another in its place.
    (reuse && cluster_goes_on && world.lacks_hosts(&meta.namespace, owner)).then_some(owner)
}

fn drop_finalizer(draft: &Draft) -> Action {
    let meta = &draft.object.metadata;
    let mut finalizers = meta.finalizers.clone();
    finalizers.retain(|finalizer| finalizer != MACHINE_FINALIZER);
    Action::Patch {
        kind: Kind::Metal3Machine,
        key: Key::of(meta),
        version: Some(meta.resource_version.clone()),
        patch: json!({"metadata": {"finalizers": finalizers}}),
    }
}
