//! One claim: from its wish to an address, and back.

use std::net::IpAddr;

use firstlight_api::{
    ipam::{self, IpPool, PoolRef},
    object::{ConditionUpdate, Meta, merge_conditions},
};
use serde_json::{Value, json};

use crate::{
    capi::{
        addresses::{AddressClaim, GivenAddress, IpamApi, READY},
        world::is_paused,
    },
    objects::{Key, Part, Resource},
    pools::{
        Action, Kind, Pools,
        book::{Allocation, Book, Refusal, Standing},
    },
};

type Steps = Vec<Action>;

/// Why a claim has no address: a word, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    reason: &'static str,
    pub message: String,
}

impl Lack {
    pub fn not_ready(message: String) -> Self {
        Self {
            reason: "PoolNotReady",
            message,
        }
    }

    fn failed(message: String) -> Self {
        Self {
            reason: "AllocationFailed",
            message,
        }
    }
}

/// `lack`: why the pool gives nothing now.
pub fn plan(
    seen: &Pools,
    claim: &AddressClaim,
    book: &mut Book,
    pool: &IpPool,
    lack: Option<&Lack>,
    now: &str,
) -> (Steps, Option<IpAddr>) {
    if is_claim_paused(seen, claim) {
        return (Vec::new(), None);
    }
    if claim.meta.is_deleting() {
        return (release(seen, claim), None);
    }
    let told = |lack: Lack| (tell(claim, Err(lack), now).into_iter().collect(), None);
    let is_told = |given: &GivenAddress| claim.address.as_ref() == Some(&given.meta.name);
    if let Some(given) = of_claim(seen, claim).max_by_key(|given| is_told(given)) {
        return match book.standing(given) {
            Standing::Waits => (Vec::new(), None),
            Standing::Wrong(why) => {
                let mut steps: Steps = tell(claim, Err(Lack::failed(why)), now)
                    .into_iter()
                    .collect();
                // It gets another one.
                steps.extend(is_made_here(given).then(|| take_back(given)).flatten());
                (steps, None)
            }
            Standing::Rightful => {
                let mut steps: Steps = hold(claim).into_iter().collect();
                steps.extend(tell(claim, Ok(&given.meta.name), now));
                if is_told(given) {
                    // Made by a write that was late.
                    let others = of_claim(seen, claim).filter(|other| !is_told(other));
                    steps.extend(others.filter(|it| is_made_here(it)).filter_map(take_back));
                }
                (steps, None)
            }
        };
    }
    if let Some(lack) = lack {
        return told(lack.clone());
    }
    match book.allocate(claim) {
        Ok(allocation) => {
            let mut steps: Steps = hold(claim).into_iter().collect();
            let kind = Kind::Address(claim.api);
            steps.push(Action::Create(kind, object(claim, pool, &allocation)));
            (steps, Some(allocation.ip))
        }
        Err(Refusal::Failed(why)) => told(Lack::failed(why)),
        Err(Refusal::Exhausted) => told(Lack {
            reason: "PoolExhausted",
            message: format!(
                "Exhausted IP Pools: the IPPool {} has no free address; add a range to its spec.pools, or delete claims that nobody needs",
                pool.metadata.name
            ),
        }),
    }
}

/// Its pool is not there.
pub fn without_pool(seen: &Pools, claim: &AddressClaim, now: &str) -> Steps {
    if is_claim_paused(seen, claim) {
        return Vec::new();
    }
    if claim.meta.is_deleting() {
        return release(seen, claim);
    }
    let (pool, namespace) = (&claim.pool.name, &claim.meta.namespace);
    let why = if claim.pool_namespace == *namespace {
        format!("there is no IPPool {pool} in the namespace {namespace}; make one")
    } else {
        format!(
            "a claim takes from pools of its own namespace, {namespace}, and this one names {}; make it there",
            claim.pool_namespace
        )
    };
    let lack = Lack::not_ready(why);
    tell(claim, Err(lack), now).into_iter().collect()
}

fn is_claim_paused(seen: &Pools, claim: &AddressClaim) -> bool {
    let cluster = Key::new(&claim.meta.namespace, &claim.cluster);
    is_paused(seen.clusters.get(&cluster), &claim.meta)
}

fn of_claim<'a>(seen: &'a Pools, claim: &AddressClaim) -> impl Iterator<Item = &'a GivenAddress> {
    let all = seen.addresses.given.values();
    all.filter(|given| {
        given.api == claim.api
            && given.meta.namespace == claim.meta.namespace
            && given.claim == claim.meta.name
            && given.pool == claim.pool
    })
}

/// Those of Kubernetes' garbage collector: nobody who holds them uses an address, and the first waits for the address itself to go.
const COLLECTOR: [&str; 2] = ["foregroundDeletion", "orphan"];

/// The address goes first. While others hold the claim, they use it.
fn release(seen: &Pools, claim: &AddressClaim) -> Steps {
    let own = claim.api.claim_finalizer();
    let mut held = claim.meta.finalizers.iter().map(String::as_str);
    if held.any(|it| it != own && !COLLECTOR.contains(&it)) {
        return Vec::new();
    }
    let mut steps: Steps = of_claim(seen, claim).filter_map(take_back).collect();
    if of_claim(seen, claim).next().is_none() {
        steps.extend(let_go(Kind::Claim(claim.api), &claim.meta, own));
    }
    steps
}

/// Its finalizer is taken off when it is on its way, so that nothing is left of it in between that looks like somebody's.
fn take_back(given: &GivenAddress) -> Option<Action> {
    let kind = Kind::Address(given.api);
    if given.meta.is_deleting() {
        let_go(kind, &given.meta, given.api.address_finalizer())
    } else {
        Some(Action::Delete(kind, Box::new(given.meta.clone())))
    }
}

fn is_made_here(given: &GivenAddress) -> bool {
    let Resource(group, _, kind, _) = given.api.claim();
    given.meta.has_finalizer(given.api.address_finalizer())
        && given.meta.owner(group, kind).is_some()
}

/// Addresses whose claim went before they were made, or was taken away by force. What a person wrote down stays.
pub fn left_behind(seen: &Pools) -> impl Iterator<Item = Steps> {
    let all = seen.addresses.given.values().filter(|it| is_made_here(it));
    let left = all.filter(|given| {
        let meta = &given.meta;
        let claim = (given.api, Key::new(&meta.namespace, &given.claim));
        let pool = seen.pools.get(&Key::new(&meta.namespace, &given.pool.name));
        let is_paused = pool.is_some_and(|pool| is_pool_paused(seen, pool));
        given.pool.is_metal3() && !seen.addresses.claims.contains_key(&claim) && !is_paused
    });
    left.map(|given| take_back(given).into_iter().collect())
}

pub fn is_pool_paused(seen: &Pools, pool: &IpPool) -> bool {
    let cluster = pool.spec.cluster_name.as_ref();
    let cluster = cluster.and_then(|name| {
        let key = Key::new(&pool.metadata.namespace, name);
        seen.clusters.get(&key)
    });
    is_paused(cluster, &pool.metadata)
}

fn hold(claim: &AddressClaim) -> Option<Action> {
    let own = claim.api.claim_finalizer();
    let meta = &claim.meta;
    (!meta.has_finalizer(own)).then(|| {
        let finalizers = [meta.finalizers.clone(), vec![own.to_owned()]].concat();
        with_finalizers(Kind::Claim(claim.api), meta, &finalizers)
    })
}

pub fn let_go(kind: Kind, meta: &Meta, finalizer: &str) -> Option<Action> {
    meta.has_finalizer(finalizer).then(|| {
        let mut finalizers = meta.finalizers.clone();
        finalizers.retain(|it| it != finalizer);
        with_finalizers(kind, meta, &finalizers)
    })
}

fn with_finalizers(kind: Kind, meta: &Meta, finalizers: &[String]) -> Action {
    Action::Patch {
        kind,
        part: Part::Object,
        meta: Box::new(meta.clone()),
        patch: json!({"metadata": {"finalizers": finalizers}}),
    }
}

/// The name of its address, or why there is none; nothing if it knows.
fn tell(claim: &AddressClaim, news: Result<&String, Lack>, now: &str) -> Option<Action> {
    let meta = &claim.meta;
    let (name, lack) = match news {
        Ok(name) => (Some(name), None),
        Err(lack) => (None, Some(lack)),
    };
    let status = match claim.api {
        IpamApi::Metal3 => {
            let message = lack.map(|lack| lack.message);
            if claim.address.as_ref() == name && claim.error == message {
                return None;
            }
            let address = name.map(|name| json!({"name": name, "namespace": meta.namespace}));
            json!({"address": address, "errorMessage": message})
        }
        IpamApi::Contract => {
            let update = match lack {
                None => ConditionUpdate::yes(READY, READY),
                Some(lack) => ConditionUpdate::no(READY, lack.reason, lack.message),
            };
            let conditions = merge_conditions(&claim.conditions, &[update], meta.generation, now);
            if claim.address.as_ref() == name && claim.conditions == conditions {
                return None;
            }
            let address = name.map(|name| json!({"name": name}));
            json!({"addressRef": address, "conditions": conditions})
        }
    };
    Some(Action::Patch {
        kind: Kind::Claim(claim.api),
        part: Part::Status,
        meta: Box::new(meta.clone()),
        patch: json!({"status": status}),
    })
}

/// As upstream writes it.
fn object(claim: &AddressClaim, pool: &IpPool, allocation: &Allocation) -> Value {
    let namespace = &claim.meta.namespace;
    let owner = |kind: &str, version: &str, meta: &Meta| json!({"apiVersion": version, "kind": kind, "name": meta.name, "uid": meta.uid});
    let (kind, own) = (claim.api.address(), claim.api.claim());
    let of_claim = owner(own.2, &format!("{}/{}", own.0, own.1), &claim.meta);
    let owners = [
        owner(ipam::POOL_KIND, ipam::API_VERSION, &pool.metadata),
        of_claim,
    ];
    let spec = match claim.api {
        IpamApi::Metal3 => {
            let local = |name: &str| json!({"name": name, "namespace": namespace});
            let mut spec = json!({
                "address": allocation.ip,
                "pool": local(&pool.metadata.name),
                "claim": local(&claim.meta.name),
                "prefix": allocation.prefix,
            });
            if let Some(gateway) = allocation.gateway {
                spec["gateway"] = json!(gateway);
            }
            if !allocation.dns_servers.is_empty() {
                spec["dnsServers"] = json!(allocation.dns_servers);
            }
            spec
        }
        IpamApi::Contract => {
            let mut spec = json!({
                "address": allocation.ip,
                "poolRef": PoolRef::metal3(&pool.metadata.name),
                "claimRef": {"name": claim.meta.name},
                "prefix": allocation.prefix,
            });
            if let Some(gateway) = allocation.gateway {
                spec["gateway"] = json!(gateway);
            }
            spec
        }
    };
    json!({
        "apiVersion": format!("{}/{}", kind.0, kind.1),
        "kind": kind.2,
        "metadata": {
            "name": allocation.name,
            "namespace": namespace,
            "finalizers": [claim.api.address_finalizer()],
            "ownerReferences": owners,
            "labels": claim.meta.labels,
        },
        "spec": spec,
    })
}
