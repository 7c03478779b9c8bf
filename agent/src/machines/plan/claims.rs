//! Claims of addresses for machines: one of each pool that their template names, as upstream names them.

use firstlight_api::{
    capi,
    capm3::{self, DATA_FINALIZER, Metal3DataTemplate, Metal3Machine},
    ipam::PoolRef,
    object::OwnerReference,
};
use serde_json::{Value, json};

use super::draft::Waits;
use crate::{
    capi::{
        Action, Steps,
        addresses::{AddressClaim, GivenAddress, IpamApi},
        world::{Key, World, is_paused},
    },
    machines::data::{self, FromPools, Subject},
};

/// What is not there yet: why, and the writes that help.
#[derive(Debug)]
pub struct Lack {
    pub waits: Waits,
    pub steps: Steps,
}

impl From<Waits> for Lack {
    fn from(waits: Waits) -> Self {
        let steps = Vec::new();
        Self { waits, steps }
    }
}

/// What the claims of the machine with this number got.
pub fn from_pools(
    world: &World,
    subject: &Subject,
    template: &Metal3DataTemplate,
    index: i32,
) -> Result<FromPools, Lack> {
    let meta = &subject.metal3_machine.metadata;
    let waits = |message: String| ("WaitingForMetal3Data", message);
    let pools = data::named(subject, &template.spec).map_err(|why| {
        let name = &template.metadata.name;
        waits(format!("the Metal3DataTemplate {name}: {why}"))
    })?;
    let mut got = FromPools::default();
    let (mut steps, mut missing) = (Vec::new(), Vec::new());
    for pool in pools {
        let api = api_of(&pool);
        let name = format!("{}-{index}-{}", template.metadata.name, pool.name);
        let claim = Key::new(&meta.namespace, &name);
        let claim = world.addresses.claims.get(&(api, claim));
        match claim.map(|claim| address(world, claim, &meta.uid)) {
            Some(Ok(given)) => drop(got.0.insert(pool, given.clone())),
            Some(Err(why)) => missing.push(describe(&pool, &name, &why)),
            None => {
                missing.push(describe(&pool, &name, "is made now"));
                steps.push(Action::Create(object(subject, &pool, &name)));
            }
        }
    }
    if missing.is_empty() {
        return Ok(got);
    }
    // A claim is named by the number: it must be this machine's for good before.
    let mut known = template.status.indexes.iter();
    if !known.any(|entry| entry.name == meta.name && entry.index == index) {
        steps.clear();
    }
    let waits = waits(format!("it waits for addresses: {}", missing.join("; ")));
    Err(Lack { waits, steps })
}

fn api_of(pool: &PoolRef) -> IpamApi {
    if pool.is_metal3() {
        IpamApi::Metal3
    } else {
        IpamApi::Contract
    }
}

fn describe(pool: &PoolRef, claim: &str, what: &str) -> String {
    let kind = api_of(pool).claim().2;
    format!(
        "the {kind} {claim} of the {} {} {what}",
        pool.kind, pool.name
    )
}

/// Of its claim, or what that lacks.
fn address<'a>(
    world: &'a World,
    claim: &AddressClaim,
    machine: &str,
) -> Result<&'a GivenAddress, String> {
    let owner = claim.meta.owner(capm3::GROUP, "Metal3Machine");
    if owner.is_none_or(|owner| owner.uid != machine) {
        let whose = owner.map_or("nobody", |owner| owner.name.as_str());
        return Err(format!(
            "is that of another machine ({whose}), and waited for; delete it if nobody needs it"
        ));
    }
    let name = claim.address.as_ref().ok_or_else(|| {
        let error = claim.error.as_ref();
        error.map_or("has no address yet".to_owned(), |error| {
            format!("has none: {error}")
        })
    })?;
    let key = Key::new(&claim.meta.namespace, name);
    let given = world.addresses.given.get(&(claim.api, key));
    let given = given.filter(|given| given.claim == claim.meta.name);
    given.ok_or_else(|| format!("names the IPAddress {name}, which is not there"))
}

/// As upstream writes it, but owned by the machine: there is no `Metal3Data` here.
fn object(subject: &Subject, pool: &PoolRef, name: &str) -> Value {
    let meta = &subject.metal3_machine.metadata;
    let kind = api_of(pool).claim();
    let spec = match api_of(pool) {
        IpamApi::Metal3 => json!({"pool": {"name": pool.name, "namespace": meta.namespace}}),
        IpamApi::Contract => json!({"poolRef": pool}),
    };
    let mut labels = json!({});
    if let Some(cluster) = meta.label(capi::CLUSTER_LABEL) {
        labels[capi::CLUSTER_LABEL] = json!(cluster);
    }
    json!({
        "apiVersion": format!("{}/{}", kind.0, kind.1),
        "kind": kind.2,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": labels,
            "finalizers": [DATA_FINALIZER],
            "ownerReferences": [owner_of(subject.metal3_machine)],
        },
        "spec": spec,
    })
}

/// Claims of machines that are gone go, too. Kubernetes would delete them after their owner some time; an address is wanted sooner.
pub fn released(world: &World) -> impl Iterator<Item = Steps> {
    // A machine that cannot be read is not gone.
    let odd = |sentence: &String| sentence.to_lowercase().contains("metal3machine");
    let is_sure = !world.unreadable.iter().any(odd);
    let all = world.addresses.claims.values().filter(move |claim| {
        let meta = &claim.meta;
        let Some(owner) = meta.owner(capm3::GROUP, "Metal3Machine") else {
            return false;
        };
        let machine = Key::new(&meta.namespace, &owner.name);
        let machine = world.metal3_machines.get(&machine);
        is_sure
            && meta.has_finalizer(DATA_FINALIZER)
            && machine.is_none_or(|machine| machine.metadata.uid != owner.uid)
            && !is_paused(world.cluster_of(meta), meta)
    });
    all.map(|claim| vec![Action::release(claim, DATA_FINALIZER)])
}

/// Of whatever goes with the machine.
pub fn owner_of(object: &Metal3Machine) -> OwnerReference {
    OwnerReference {
        api_version: capm3::API_VERSION.to_owned(),
        kind: "Metal3Machine".to_owned(),
        name: object.metadata.name.clone(),
        uid: object.metadata.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}
