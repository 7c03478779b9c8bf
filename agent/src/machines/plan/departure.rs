//! Workers that leave: their drain waits for [`capi::BALANCER_HOOK`] until another node answers for addresses of services.
//! `machines/departures.rs` asks for that and looks.

use firstlight_api::{
    capi::{self, BALANCER_HOOK, Machine},
    capm3::Metal3Machine,
    object::Meta,
};
use serde_json::json;

use crate::capi::{
    Action, Kind, Steps,
    world::{Key, World, is_control_plane, is_managed, is_paused},
};

/// Each worker of a cluster that is not paused has the hook before it leaves.
pub fn hooks(world: &World) -> Vec<Steps> {
    let changed = ours(world).filter_map(|(object, machine)| {
        let meta = &machine.metadata;
        let has = meta.annotations.contains_key(BALANCER_HOOK);
        if is_paused(world.cluster_of(&object.metadata), &object.metadata) {
            None
        } else if has && meta.is_deleting() && goes_at_once(world, machine) {
            Some(vec![let_go(&Key::of(meta))])
        } else if !has && !meta.is_deleting() && !is_control_plane(meta) {
            Some(vec![hook(&Key::of(meta), Some(""))])
        } else {
            None
        }
    });
    changed.collect()
}

/// For the machine of one that is paused.
pub fn unhook(world: &World, object: &Metal3Machine) -> Option<Action> {
    let meta = &world.owner_machine(object)?.metadata;
    let has = meta.annotations.contains_key(BALANCER_HOOK);
    has.then(|| let_go(&Key::of(meta)))
}

/// Those that wait, with their nodes.
pub fn leaving(world: &World) -> impl Iterator<Item = (&Meta, &str)> {
    let machines = ours(world).map(|(_, machine)| machine);
    let waiting = machines.filter(|machine| {
        let meta = &machine.metadata;
        meta.is_deleting() && meta.annotations.contains_key(BALANCER_HOOK)
    });
    waiting
        .filter(|machine| !goes_at_once(world, machine))
        .filter_map(|machine| {
            let node = machine.status.node_ref.as_ref()?;
            Some((&machine.metadata, node.name.as_str()))
        })
}

/// Its drain may begin.
pub fn let_go(machine: &Key) -> Action {
    hook(machine, None)
}

fn hook(machine: &Key, value: Option<&str>) -> Action {
    Action::Patch {
        kind: Kind::Machine,
        key: machine.clone(),
        version: None,
        patch: json!({"metadata": {"annotations": {BALANCER_HOOK: value}}}),
    }
}

fn ours(world: &World) -> impl Iterator<Item = (&Metal3Machine, &Machine)> {
    let objects = world.metal3_machines.values();
    objects
        .filter(|object| !is_managed(&object.metadata))
        .filter_map(|object| Some((object, world.owner_machine(object)?)))
}

/// Nobody is served by it, or somebody does not want to wait.
fn goes_at_once(world: &World, machine: &Machine) -> bool {
    let meta = &machine.metadata;
    let cluster = world.cluster_of(meta);
    machine.status.node_ref.is_none()
        || meta.annotations.contains_key(capi::NO_DRAIN_ANNOTATION)
        || cluster.is_none_or(|cluster| cluster.metadata.is_deleting())
}
