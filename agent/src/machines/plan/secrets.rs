//! What a host will be told: the Secrets of its machine, and the writes that make them.

use std::collections::BTreeMap;

use firstlight_api::{
    capi::Machine,
    capm3::{Metal3Machine, ObjectRef},
};
use serde_json::json;

use super::{
    claims::{Lack, from_pools, owner_of},
    host::Data,
    indexes::{Indexes, template_key},
};
use crate::capi::{
    Action, Steps,
    site_networks::Family,
    world::{Host, Key, World},
};
use crate::machines::data::{self, FromPools, Subject};

/// By which its cluster knows it: of IPv4, and of IPv6 where the cluster's network has that.
fn node_addresses(
    world: &World,
    machine: &Machine,
    host: &Host,
) -> Result<[Option<String>; 2], Lack> {
    let (namespace, cluster) = (&machine.metadata.namespace, &machine.spec.cluster_name);
    let Some(network) = world.node_network(namespace, cluster) else {
        return Ok([world.address(host), None]);
    };
    let given = |family| {
        let given = world.site_address(&host.metadata, network, family);
        given.map(|address| address.to_string()).ok_or_else(|| {
            let host = &host.metadata.name;
            Lack::from((
                "WaitingForMetal3Data",
                format!("the cluster is on the network {network} of site.yaml, and the host {host} has no address there yet"),
            ))
        })
    };
    let mut with_ipv6 = world.site.ipv6_networks();
    let has_ipv6 = with_ipv6.any(|(name, _)| name == network);
    let ipv6 = has_ipv6.then(|| given(Family::Ipv6)).transpose()?;
    Ok([Some(given(Family::Ipv4)?), ipv6])
}

/// The Secrets that the host will be told of, and the writes that make them.
pub fn prepare(
    world: &World,
    object: &Metal3Machine,
    machine: &Machine,
    host: &Host,
    indexes: &Indexes,
) -> Result<(Data, Steps), Lack> {
    let meta = &object.metadata;
    let local = |name: &str| ObjectRef {
        name: name.to_owned(),
        namespace: meta.namespace.clone(),
    };
    let [address, ipv6_address] = node_addresses(world, machine, host)?;
    let subject = Subject {
        host,
        metal3_machine: object,
        machine: Some(machine),
        address: address.as_deref(),
        ipv6_address: ipv6_address.as_deref(),
    };
    let waits = |message: String| Lack::from(("WaitingForMetal3Data", message));
    let template = match template_key(object) {
        None => None,
        Some(key) => {
            let template = world.data_templates.get(&key).ok_or_else(|| {
                waits(format!("the Metal3DataTemplate {} is not there", key.name))
            })?;
            if let Some(refused) = data::refuse(template) {
                return Err(("Metal3DataNotSupported", refused).into());
            }
            let entries = indexes.get(&key).into_iter().flatten();
            let index = entries
                .filter(|entry| entry.name == meta.name)
                .map(|entry| entry.index)
                .next();
            Some((template, index.unwrap_or_default()))
        }
    };
    let pools = match template {
        None => FromPools::default(),
        Some((template, index)) => from_pools(world, &subject, template, index)?,
    };
    let mut steps = Vec::new();
    let mut put = |suffix: &str, key: &str, value: String| {
        let name = format!("{}-{suffix}", meta.name);
        let content = BTreeMap::from([(key.to_owned(), value)]);
        let at = Key::new(&meta.namespace, &name);
        if world.data.get(&at) != Some(&content) {
            steps.push(Action::PutData {
                key: at,
                owner: Box::new(owner_of(object)),
                cluster: machine.spec.cluster_name.clone(),
                data: content,
            });
        }
        local(&name)
    };
    let meta_data = if let Some(given) = &object.spec.meta_data {
        given.name.clone()
    } else {
        let from =
            template.and_then(|(template, index)| Some((template.spec.meta_data.as_ref()?, index)));
        let data = data::meta_data(&subject, from, &pools).map_err(waits)?;
        // JSON is YAML, and needs no thought about what a label may contain.
        put("metadata", "metaData", json!(data).to_string()).name
    };
    let network = template.and_then(|(template, _)| template.spec.network_data.as_ref());
    let network_data = match (&object.spec.network_data, network) {
        (Some(given), _) => Some(local(&given.name)),
        (None, None) => None,
        (None, Some(network)) => {
            let value = data::network_data(&subject, network, &pools).map_err(waits)?;
            Some(put("networkdata", "networkData", value.to_string()))
        }
    };
    let bootstrap = machine.spec.bootstrap.data_secret_name.as_deref();
    let given = object
        .spec
        .user_data
        .as_ref()
        .map(|given| given.name.as_str());
    let data = Data {
        user: given.or(bootstrap).map(local),
        meta: Some(local(&meta_data)),
        network: network_data,
    };
    Ok((data, steps))
}
