//! What a host will be told: the Secrets of its machine, and the writes that make them.

use std::collections::BTreeMap;

use firstlight_api::{
    capi::Machine,
    capm3::{self, Metal3Machine, ObjectRef},
    object::OwnerReference,
};
use serde_json::json;

use super::{
    draft::Waits,
    host::Data,
    indexes::{Indexes, template_key},
};
use crate::capi::{
    Action, Steps,
    world::{Host, Key, World},
};
use crate::machines::data::{self, Subject};

/// The Secrets that the host will be told of, and the writes that make them.
pub fn prepare(
    world: &World,
    object: &Metal3Machine,
    machine: &Machine,
    host: &Host,
    indexes: &Indexes,
) -> Result<(Data, Steps), Waits> {
    let meta = &object.metadata;
    let local = |name: &str| ObjectRef {
        name: name.to_owned(),
        namespace: meta.namespace.clone(),
    };
    let address = world.address(host);
    let subject = Subject {
        host,
        metal3_machine: object,
        machine: Some(machine),
        address: address.as_deref(),
    };
    let template = match template_key(object) {
        None => None,
        Some(key) => {
            let waits = |message| ("WaitingForMetal3Data", message);
            let template = world.data_templates.get(&key).ok_or_else(|| {
                waits(format!("the Metal3DataTemplate {} is not there", key.name))
            })?;
            if let Some(refused) = data::refuse(template) {
                return Err(("Metal3DataNotSupported", refused));
            }
            let entries = indexes.get(&key).into_iter().flatten();
            let index = entries
                .filter(|entry| entry.name == meta.name)
                .map(|entry| entry.index)
                .next();
            Some((template, index.unwrap_or_default()))
        }
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
    let meta_data = object.spec.meta_data.clone().unwrap_or_else(|| {
        let from =
            template.and_then(|(template, index)| Some((template.spec.meta_data.as_ref()?, index)));
        // JSON is YAML, and needs no thought about what a label may contain.
        let text = json!(data::meta_data(&subject, from)).to_string();
        put("metadata", "metaData", text)
    });
    let network = template.and_then(|(template, _)| template.spec.network_data.as_ref());
    let network_data = match (&object.spec.network_data, network) {
        (Some(given), _) => Some(local(&given.name)),
        (None, None) => None,
        (None, Some(network)) => {
            let value = data::network_data(&subject, network)
                .map_err(|missing| ("WaitingForMetal3Data", missing))?;
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
        meta: Some(local(&meta_data.name)),
        network: network_data,
    };
    Ok((data, steps))
}

fn owner_of(object: &Metal3Machine) -> OwnerReference {
    OwnerReference {
        api_version: capm3::API_VERSION.to_owned(),
        kind: "Metal3Machine".to_owned(),
        name: object.metadata.name.clone(),
        uid: object.metadata.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}
