//! `Metal3Machine`: from its owner's wish to a provisioned host.

use std::collections::BTreeSet;

use firstlight_api::{
    bmh::ProvisioningState,
    capi::{self, Machine},
    capm3::{
        self, HOST_ANNOTATION, Initialization, MACHINE_FINALIZER, MachineAddress, Metal3Machine,
    },
    object::ConditionUpdate,
};
use serde_json::json;

use super::{
    claims::Lack,
    cluster::{PAUSED, READY},
    departure,
    draft::{ASSOCIATED, Draft, Waits},
    host::{self, Data},
    indexes::Indexes,
    release,
    secrets::prepare,
};
use crate::capi::{
    Action, Kind, Steps,
    site_networks::Family,
    world::{Host, HostExt, Key, World, is_control_plane, is_managed, is_paused, owner_name},
};
use crate::machines::{
    choose::{HostRequest, choose},
    data,
};

const DATA_READY: &str = "Metal3DataReady";

pub fn plan(
    world: &World,
    object: &Metal3Machine,
    indexes: &Indexes,
    taken: &mut BTreeSet<Key>,
    now: &str,
) -> Steps {
    let meta = &object.metadata;
    if is_managed(meta) {
        return Vec::new();
    }
    let host = world.host_of(object);
    let mut draft = Draft::new(object, now);
    if is_paused(world.cluster_of(meta), meta) {
        draft.say([ConditionUpdate::yes(PAUSED, "Paused")]);
        // Before its host may be moved: whoever gets it knows nothing of the hook.
        let mut steps: Steps = departure::unhook(world, object).into_iter().collect();
        steps.extend(host.and_then(|host| host::pause(host, true)));
        steps.extend(draft.write());
        return steps;
    }
    draft.say([ConditionUpdate::no(PAUSED, "NotPaused", "")]);
    if let Some(unpause) = host.and_then(|host| host::pause(host, false)) {
        // The host's version changes: go on at the next look.
        return vec![unpause];
    }
    if meta.is_deleting() {
        return release::plan(world, draft, host);
    }
    let Some(owner) = meta.owner(capi::GROUP, "Machine") else {
        draft.waits(
            "WaitingForMetal3MachineOwnerRef",
            "no Machine refers to this Metal3Machine yet",
        );
        return draft.write().into_iter().collect();
    };
    let Some(machine) = world.owner_machine(object) else {
        draft.waits(
            "WaitingForMetal3MachineOwnerRef",
            &format!("its Machine {} is not there", owner.name),
        );
        return draft.write().into_iter().collect();
    };
    match host {
        Some(host) => claimed(world, draft, machine, host, indexes),
        None => unclaimed(world, draft, machine, indexes, taken),
    }
}

/// Looks for a host once everything that it will be told is there.
fn unclaimed(
    world: &World,
    mut draft: Draft,
    machine: &Machine,
    indexes: &Indexes,
    taken: &mut BTreeSet<Key>,
) -> Steps {
    let object = draft.object;
    let result = match find_host(world, object, machine, taken) {
        Ok(host) => prepare(world, object, machine, host, indexes).map(|_| host),
        Err(waits) => Err(waits.into()),
    };
    let host = match result {
        Ok(host) => host,
        Err(Lack { waits, mut steps }) => {
            let (reason, message) = waits;
            draft.waits(reason, &message);
            steps.extend(draft.write());
            return steps;
        }
    };
    taken.insert(Key::of(&host.metadata));
    let cluster = &machine.spec.cluster_name;
    let mut steps: Steps = release::give_up(world, object, Some(host))
        .into_iter()
        .collect();
    steps.extend(intend(object, host));
    steps.push(host::claim(host, object, cluster));
    steps
}

fn find_host<'a>(
    world: &'a World,
    object: &Metal3Machine,
    machine: &Machine,
    taken: &BTreeSet<Key>,
) -> Result<&'a Host, Waits> {
    let spec = &object.spec;
    if let Some(lost) = object
        .metadata
        .annotation(HOST_ANNOTATION)
        .filter(|_| object.status.initialization.is_done())
    {
        return Err((
            "AssociateBareMetalHostFailed",
            format!(
                "its host {lost} is gone or has another consumer; delete the Machine {} to replace it",
                machine.metadata.name
            ),
        ));
    }
    if let Some(wrong) = wrong_spec(object) {
        return Err(("InvalidSpec", wrong));
    }
    let cluster = world.clusters.get(&Key::new(
        &machine.metadata.namespace,
        &machine.spec.cluster_name,
    ));
    if !cluster.is_some_and(|cluster| cluster.status.initialization.infrastructure_provisioned) {
        return Err((
            "WaitingForClusterInfrastructureReady",
            format!(
                "the infrastructure of the cluster {} is not ready",
                machine.spec.cluster_name
            ),
        ));
    }
    // Before that, a host would be held back from machines that can already use it.
    if machine.spec.bootstrap.data_secret_name.is_none() {
        let why = if is_control_plane(&object.metadata) {
            "its bootstrap data is not made yet; further control planes wait for the first one"
        } else {
            "its bootstrap data is not made yet; workers wait for the control plane"
        };
        return Err(("WaitingForBootstrapData", why.to_owned()));
    }
    let domain = [&machine.spec.failure_domain, &spec.failure_domain]
        .into_iter()
        .find(|domain| !domain.is_empty());
    let wish = HostRequest {
        namespace: &object.metadata.namespace,
        cluster: &machine.spec.cluster_name,
        control_plane: is_control_plane(&object.metadata),
        selector: spec.host_selector.as_ref(),
        failure_domain: domain.map(String::as_str),
        owner: owner_name(&object.metadata),
        image: spec.image.as_ref(),
        network: world.node_network(&object.metadata.namespace, &machine.spec.cluster_name),
    };
    choose(world, &wish, taken).map_err(|why| ("AssociateBareMetalHostFailed", why))
}

fn wrong_spec(object: &Metal3Machine) -> Option<String> {
    if object.spec.custom_deploy.is_some() {
        return None;
    }
    let Some(image) = &object.spec.image else {
        return Some("spec.image is missing: say which image the host gets".to_owned());
    };
    let live = image.disk_format.as_deref() == Some("live-iso") || image.url.starts_with("oci://");
    if image.url.is_empty() {
        Some("spec.image.url is empty".to_owned())
    } else if image.checksum.is_empty() && !live && image.url.contains("://") {
        Some("spec.image.checksum is missing: no image is written without a digest".to_owned())
    } else {
        None
    }
}

/// The machine stays until its host is free again, and says which it claims before it does: a claim may be on its way for
/// longer than the agent that sent it.
fn intend(object: &Metal3Machine, host: &Host) -> Option<Action> {
    let meta = &object.metadata;
    let at = Key::of(&host.metadata).to_string();
    if meta.has_finalizer(MACHINE_FINALIZER) && meta.annotation(HOST_ANNOTATION) == Some(&at) {
        return None;
    }
    let mut finalizers = meta.finalizers.clone();
    finalizers.retain(|finalizer| finalizer != MACHINE_FINALIZER);
    finalizers.push(MACHINE_FINALIZER.to_owned());
    Some(Action::Patch {
        kind: Kind::Metal3Machine,
        key: Key::of(meta),
        version: Some(meta.resource_version.clone()),
        patch: json!({"metadata": {
            "finalizers": finalizers,
            "annotations": {HOST_ANNOTATION: at},
        }}),
    })
}

/// Who it is as a node, once it is claimed.
fn mark(object: &Metal3Machine, host: &Host) -> Option<Action> {
    let id = data::provider_id(host, object);
    (object.spec.provider_id.as_ref() != Some(&id)).then(|| Action::Patch {
        kind: Kind::Metal3Machine,
        key: Key::of(&object.metadata),
        version: None,
        patch: json!({"spec": {"providerID": id}}),
    })
}

fn associate(draft: &mut Draft, world: &World, host: &Host, data: &Data) {
    let said = host::progress(host);
    draft.status.user_data.clone_from(&data.user);
    draft.status.meta_data.clone_from(&data.meta);
    draft.status.network_data.clone_from(&data.network);
    if let Some(domain) = host.metadata.label(capm3::FAILURE_DOMAIN_LABEL) {
        domain.clone_into(&mut draft.status.failure_domain);
    }
    draft.status.addresses = addresses(draft.object, host, world);
    draft.say([
        ConditionUpdate::yes(ASSOCIATED, "AssociateBareMetalHostSuccess"),
        ConditionUpdate::yes(DATA_READY, "Metal3DataSecretsReady"),
        ConditionUpdate::no(READY, "NotReady", said),
    ]);
}

fn addresses(object: &Metal3Machine, host: &Host, world: &World) -> Vec<MachineAddress> {
    let address = |kind: &str, address: &str| MachineAddress {
        kind: kind.to_owned(),
        address: address.to_owned(),
    };
    let mut addresses = Vec::new();
    let cluster = object.metadata.label(capi::CLUSTER_LABEL);
    let network = world.node_network(&object.metadata.namespace, cluster.unwrap_or_default());
    let families = [Family::Ipv4, Family::Ipv6].into_iter();
    let node = families
        .filter_map(|family| world.site_address(&host.metadata, network?, family))
        .map(|node| address("InternalIP", &node.to_string()));
    addresses.extend(node);
    let site = world.site.provisioning.network();
    if let Some(hardware) = &host.status.hardware {
        let mut nics: Vec<_> = hardware
            .nics
            .iter()
            .filter(|nic| !nic.ip.is_empty())
            .collect();
        // The one that other machines use comes first.
        let inside = |ip: &str| {
            ip.parse::<std::net::Ipv4Addr>()
                .is_ok_and(|ip| site.contains(ip))
        };
        nics.sort_by_key(|nic| (!nic.pxe, !inside(&nic.ip)));
        addresses.extend(nics.iter().map(|nic| address("InternalIP", &nic.ip)));
        addresses.dedup();
    }
    addresses.push(address("Hostname", &host.metadata.name));
    addresses.push(address("InternalDNS", &host.metadata.name));
    addresses
}

/// Follows its host until it is provisioned, and for ever after.
fn claimed(
    world: &World,
    mut draft: Draft,
    machine: &Machine,
    host: &Host,
    indexes: &Indexes,
) -> Steps {
    let object = draft.object;
    let mut steps: Steps = intend(object, host).into_iter().collect();
    let data = Data {
        user: host.spec.user_data.clone(),
        meta: host.spec.meta_data.clone(),
        network: host.spec.network_data.clone(),
    };
    associate(&mut draft, world, host, &data);
    if host.spec.wants_system() {
        steps.extend(mark(object, host));
    } else {
        // Claimed just now or by hand, or its image was taken off it by hand.
        match prepare(world, object, machine, host, indexes) {
            Ok((data, put)) if !object.status.initialization.is_done() => {
                steps.extend(put);
                // Also refused if the machine went meanwhile.
                steps.extend(mark(object, host));
                let cluster = &machine.spec.cluster_name;
                steps.push(host::install(host, object, cluster, &data));
                associate(&mut draft, world, host, &data);
            }
            Ok(_) => draft.say([ConditionUpdate::no(
                READY,
                "NotReady",
                format!(
                    "somebody took the image off its host {}; delete the Machine {} to install it again",
                    host.metadata.name, machine.metadata.name
                ),
            )]),
            Err(lack) => {
                steps.extend(lack.steps);
                let (reason, message) = lack.waits;
                draft.say([
                    ConditionUpdate::no(DATA_READY, reason, message.clone()),
                    ConditionUpdate::no(READY, reason, message),
                ]);
            }
        }
    }
    if host.spec.wants_system() && host.state() == ProvisioningState::Provisioned {
        draft.status.initialization = Initialization {
            provisioned: Some(true),
        };
        if host.status.error_message.is_empty() {
            draft.say([ConditionUpdate::yes(READY, "Ready")]);
        }
    }
    steps.extend(draft.write());
    steps
}
