//! Pools, claims and Secrets that site.yaml and the hosts ask for, from one look at all objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use firstlight_api::{
    bmh::ProvisioningState,
    capm3::DATA_FINALIZER,
    ipam::{self, IpPool, POOL_KIND},
    object::OwnerReference,
    site::{HostAddresses, Standing, networks::Fixed},
};
use serde_json::{Value, json};

use super::{render, secret_name};
use crate::{
    capi::{
        Action, DATA_SECRET_TYPE, HOSTS, Steps,
        addresses::IpamApi,
        site_networks::{Family, HOST, claim, pool},
        world::{Host, HostExt, World},
    },
    objects::Key,
};

/// On pools and claims that are made here: the network's name.
const LABEL: &str = "firstlight.internal/network";

/// What is missing of them now; one list for each object.
pub fn plan(world: &World) -> Vec<Steps> {
    // Without a file nobody knows which addresses are wanted.
    if world.site.standing == Standing::Unknown {
        return Vec::new();
    }
    let pools = world.site.fixed_networks();
    let pools = pools.flat_map(|(name, fixed)| {
        Family::all_of(fixed).filter_map(move |family| pool_of(world, name, fixed, family))
    });
    let mut all: Vec<Steps> = pools.collect();
    let mut claimed = BTreeSet::new();
    let hosts = world.hosts.values();
    for host in hosts.filter(|_| world.site.has_links()) {
        if let Some(steps) = host_steps(world, host, &mut claimed) {
            all.push(steps);
        }
    }
    all.extend(released(world, &claimed));
    all
}

fn pool_of(world: &World, name: &str, fixed: &Fixed, family: Family) -> Option<Steps> {
    let key = pool(name, family);
    let (first, last, bits, gateway): (IpAddr, IpAddr, u8, Option<IpAddr>) =
        match (family, fixed.ipv6) {
            (Family::Ipv4, _) => (
                fixed.pool.first().into(),
                fixed.pool.last().into(),
                fixed.subnet.prefix(),
                fixed.gateway.map(IpAddr::V4),
            ),
            (Family::Ipv6, ipv6) => {
                let ipv6 = ipv6?;
                let (subnet, pool) = (ipv6.subnet, ipv6.pool);
                let gateway = ipv6.gateway.map(IpAddr::V6);
                let (first, last) = (pool.first(), pool.last());
                (first.into(), last.into(), subnet.prefix_len(), gateway)
            }
        };
    // Addresses that a person gave: nobody else gets them, whether their host is there already or not.
    let named = world.site.hosts.iter().filter_map(|entry| {
        let address = said(entry.addresses.get(name)?, family)?;
        let mut hosts = world.hosts.values();
        let known = hosts.find(|host| host.spec.boot_mac_address.parse() == Ok(entry.mac));
        let claim = known.map_or_else(
            || format!("{}-{}", world.site.host_name(entry.mac), key.name),
            |host| claim(&host.metadata, name, family).name,
        );
        Some((claim, address))
    });
    let named: BTreeMap<String, IpAddr> = named.collect();
    // What is kept for a claim has to be in a range, too.
    let outside = named.values().filter(|it| !(first..=last).contains(*it));
    let ranges = std::iter::once((first, last));
    let ranges = ranges.chain(outside.map(|it| (*it, *it)));
    let ranges = ranges.map(|(first, last)| json!({"start": first, "end": last}));
    let mut spec = json!({
        "pools": ranges.collect::<Vec<_>>(),
        "prefix": bits,
        "preAllocations": named,
        "dnsServers": fixed.dns,
        "namePrefix": key.name,
    });
    if let Some(gateway) = gateway {
        spec["gateway"] = json!(gateway);
    }
    let is_there = |pool: &IpPool| {
        let wanted = serde_json::from_value(spec.clone());
        wanted.is_ok_and(|wanted: ipam::IpPoolSpec| wanted == pool.spec)
    };
    if world.pools.get(&key).is_some_and(is_there) {
        return None;
    }
    Some(vec![Action::Put(json!({
        "apiVersion": format!("{}/{}", ipam::GROUP, ipam::VERSION),
        "kind": POOL_KIND,
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": {LABEL: name}},
        "spec": spec,
    }))])
}

/// Claims that are missing, and the Secret once each has its address.
fn host_steps(world: &World, host: &Host, claimed: &mut BTreeSet<Key>) -> Option<Steps> {
    let meta = &host.metadata;
    if meta.is_deleting() {
        return None;
    }
    let layout = world.layout(host)?;
    let mut steps = Steps::new();
    let mut addresses: BTreeMap<(String, Family), IpAddr> = BTreeMap::new();
    let mut is_whole = true;
    let wanted = world.site.fixed_networks();
    let wanted = wanted.filter(|(name, _)| layout.carries(name));
    let wanted = wanted.flat_map(|(name, fixed)| Family::all_of(fixed).map(move |it| (name, it)));
    for (network, family) in wanted {
        let key = claim(meta, network, family);
        let there = world.site_claim(meta, network, family);
        let given = world.site_address(meta, network, family);
        let named = named_address(world, host, network, family);
        let is_other = given.is_some() && named.is_some() && given != named;
        let is_going = there.is_some_and(|claim| claim.meta.is_deleting());
        if (is_other || is_going) && is_free(host) {
            // It comes back, with the address that a person names now.
            is_whole = false;
            continue;
        }
        let is_unused = !world
            .addresses
            .claims
            .contains_key(&(IpamApi::Metal3, key.clone()));
        if there.is_some() {
            claimed.insert(key.clone());
        } else if is_unused {
            let pool = pool(network, family).name;
            steps.push(Action::Create(claim_object(host, network, &pool, &key)));
        }
        match given {
            Some(given) => drop(addresses.insert((network.to_owned(), family), given)),
            None => is_whole = false,
        }
    }
    let hardware = host.status.hardware.as_ref()?;
    let boot = host.spec.boot_mac_address.parse().ok()?;
    let data = render::network_data(&world.site, &layout, boot, hardware, &addresses);
    // What is wrong with it is told by the hosts controller, where somebody waits for it.
    if let (true, Ok(data)) = (is_whole, data) {
        steps.extend(secret(world, host, &data));
    }
    (!steps.is_empty()).then_some(steps)
}

fn named_address(world: &World, host: &Host, network: &str, family: Family) -> Option<IpAddr> {
    let mac = host.spec.boot_mac_address.parse().ok()?;
    said(world.site.host(mac)?.addresses.get(network)?, family)
}

fn said(addresses: &HostAddresses, family: Family) -> Option<IpAddr> {
    match family {
        Family::Ipv4 => addresses.ipv4.map(IpAddr::V4),
        Family::Ipv6 => addresses.ipv6.map(IpAddr::V6),
    }
}

/// Nothing runs on it that was told an address.
fn is_free(host: &Host) -> bool {
    let is_used = matches!(
        host.state(),
        ProvisioningState::Provisioning
            | ProvisioningState::Provisioned
            | ProvisioningState::ExternallyProvisioned
            | ProvisioningState::Deprovisioning
    );
    !is_used && !host.spec.wants_system()
}

fn claim_object(host: &Host, network: &str, pool: &str, key: &Key) -> Value {
    let resource = IpamApi::Metal3.claim();
    json!({
        "apiVersion": format!("{}/{}", resource.0, resource.1),
        "kind": resource.2,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {LABEL: network},
            "annotations": {HOST: Key::of(&host.metadata).to_string()},
            "finalizers": [DATA_FINALIZER],
        },
        "spec": {"pool": {"name": pool, "namespace": key.namespace}},
    })
}

fn secret(world: &World, host: &Host, data: &Value) -> Option<Action> {
    let meta = &host.metadata;
    let key = Key::new(&meta.namespace, &secret_name(&meta.name));
    let text = data.to_string();
    let content = BTreeMap::from([("networkData".to_owned(), text)]);
    if world.data.get(&key) == Some(&content) {
        return None;
    }
    let owner = OwnerReference {
        api_version: format!("{}/{}", HOSTS.0, HOSTS.1),
        kind: HOSTS.2.to_owned(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    Some(Action::Put(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": DATA_SECRET_TYPE,
        "metadata": {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner]},
        "stringData": content,
    })))
}

/// Claims that nobody has a use for: the host is gone, or is free and is to have another address or none.
fn released(world: &World, claimed: &BTreeSet<Key>) -> Vec<Steps> {
    // A host that cannot be read is not gone.
    let odd = |sentence: &String| sentence.to_lowercase().contains("baremetalhost");
    if world.unreadable.iter().any(odd) {
        return Vec::new();
    }
    let ours = world.addresses.claims.values().filter(|claim| {
        claim.api == IpamApi::Metal3
            && claim.meta.label(LABEL).is_some()
            && claim.meta.has_finalizer(DATA_FINALIZER)
            && !claimed.contains(&Key::of(&claim.meta))
    });
    let unused = ours.filter(|claim| {
        let owner = claim
            .meta
            .annotation(HOST)
            .and_then(|it| it.split_once('/'));
        let host = owner.and_then(|(namespace, name)| world.hosts.get(&Key::new(namespace, name)));
        host.is_none_or(is_free)
    });
    unused
        .map(|claim| vec![Action::release(claim, DATA_FINALIZER)])
        .collect()
}
