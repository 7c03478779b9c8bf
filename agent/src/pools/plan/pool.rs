//! One pool: its claims, and what is said of it.

use std::{collections::BTreeMap, net::IpAddr};

use firstlight_api::{
    capi::{self, Cluster},
    ipam::{IpPool, IpPoolStatus, POOL_FINALIZER},
    object::{ConditionStatus, ConditionUpdate, OwnerReference, merge_conditions},
};
use serde_json::{Value, json};

use super::claim::{self, Lack, is_pool_paused, let_go};
use crate::{
    capi::addresses::READY,
    objects::{Key, Part},
    pools::{
        Action, Kind, Pools,
        book::{Book, KeptBack, is_of},
        range::{is_in, span},
    },
};

/// On a pool of a cluster: which provider of Cluster API it is of.
const PROVIDER_LABEL: &str = "cluster.x-k8s.io/provider";
/// Of each list in a sentence.
const MOST_NAMED: usize = 3;

pub fn plan(seen: &Pools, pool: &IpPool, kept_back: &[KeptBack], now: &str) -> Vec<Vec<Action>> {
    let meta = &pool.metadata;
    if is_pool_paused(seen, pool) {
        return Vec::new();
    }
    let name = pool.spec.cluster_name.as_ref();
    let cluster = name.and_then(|name| seen.clusters.get(&Key::new(&meta.namespace, name)));
    let own = own_meta(pool, cluster);
    let lack = lack(seen, pool, cluster);
    // Until it is held, it may go while an address of it is made.
    let gives = lack.is_none() && meta.has_finalizer(POOL_FINALIZER);
    let mut book = Book::new(seen, pool, kept_back);
    let mut all = vec![own.into_iter().collect()];
    let mut allocations = allocations(seen, pool);
    let claims = seen.addresses.claims.values().filter(|claim| {
        claim.pool.is_metal3()
            && claim.pool.name == meta.name
            && claim.meta.namespace == meta.namespace
            && claim.pool_namespace == meta.namespace
    });
    let mut waiting = 0;
    for claim in claims {
        if lack.is_none() && !gives && claim.address.is_none() && !claim.meta.is_deleting() {
            continue;
        }
        let (steps, new) = claim::plan(seen, claim, &mut book, pool, lack.as_ref(), now);
        let name = &claim.meta.name;
        if let Some(ip) = new {
            allocations.insert(name.clone(), ip);
        } else if !allocations.contains_key(name) && !claim.meta.is_deleting() {
            waiting += 1;
        }
        all.push(steps);
    }
    if meta.is_deleting() && allocations.is_empty() {
        all.push(
            let_go(Kind::Pool, meta, POOL_FINALIZER)
                .into_iter()
                .collect(),
        );
        return all;
    }
    let ready = ready(pool, lack, waiting, &allocations, kept_back);
    all.push(
        write_status(pool, allocations, ready, now)
            .into_iter()
            .collect(),
    );
    all
}

/// Why the pool gives nothing to anybody.
fn lack(seen: &Pools, pool: &IpPool, cluster: Option<&Cluster>) -> Option<Lack> {
    let name = &pool.metadata.name;
    let why = if pool.metadata.is_deleting() {
        format!("the IPPool {name} is being deleted; name another one")
    } else if let (None, Some(cluster)) = (cluster, &pool.spec.cluster_name) {
        format!(
            "the IPPool {name} waits for its Cluster {cluster} (spec.clusterName), which is not there; make it, or a pool without a cluster"
        )
    } else {
        let hidden = seen.addresses.hidden.first()?;
        format!("no address is given while one is unknown: {hidden}; mend or delete it")
    };
    Some(Lack::not_ready(why))
}

/// What upstream writes on it: it stays while addresses of it are in use, and goes with its cluster.
fn own_meta(pool: &IpPool, cluster: Option<&Cluster>) -> Option<Action> {
    let meta = &pool.metadata;
    if meta.is_deleting() {
        return None;
    }
    let mut patch = json!({});
    if !meta.has_finalizer(POOL_FINALIZER) {
        let held = [meta.finalizers.clone(), vec![POOL_FINALIZER.to_owned()]].concat();
        patch["finalizers"] = json!(held);
    }
    if let Some(name) = &pool.spec.cluster_name {
        let labels = json!({capi::CLUSTER_LABEL: name, PROVIDER_LABEL: "ipam-metal3"});
        let differs = |(key, value): (&String, &Value)| meta.label(key) != value.as_str();
        if labels.as_object().into_iter().flatten().any(differs) {
            patch["labels"] = labels;
        }
    }
    if let Some(cluster) = cluster {
        let owner = OwnerReference {
            api_version: format!("{}/{}", capi::GROUP, capi::VERSION),
            kind: "Cluster".to_owned(),
            name: cluster.metadata.name.clone(),
            uid: cluster.metadata.uid.clone(),
            controller: Some(false),
            block_owner_deletion: None,
        };
        let known = meta.owner(capi::GROUP, "Cluster");
        if known.is_none_or(|known| known.uid != owner.uid) {
            let mut owners = meta.owner_references.clone();
            owners.retain(|it| Some(it) != known);
            owners.push(owner);
            patch["ownerReferences"] = json!(owners);
        }
    }
    let is_whole = patch.as_object().is_some_and(serde_json::Map::is_empty);
    (!is_whole).then(|| Action::Patch {
        kind: Kind::Pool,
        part: Part::Object,
        meta: Box::new(meta.clone()),
        patch: json!({"metadata": patch}),
    })
}

/// By the names of claims. One name may be that of a claim in either API; then Metal3's is told.
fn allocations(seen: &Pools, pool: &IpPool) -> BTreeMap<String, IpAddr> {
    let mut all = BTreeMap::new();
    for given in seen.addresses.given.values() {
        if is_of(given, &pool.metadata) {
            all.entry(given.claim.clone()).or_insert(given.ip);
        }
    }
    all
}

fn ready(
    pool: &IpPool,
    lack: Option<Lack>,
    waiting: usize,
    allocations: &BTreeMap<String, IpAddr>,
    kept_back: &[KeptBack],
) -> ConditionUpdate {
    let ranges = &pool.spec.pools;
    let wrong = ranges.iter().enumerate().filter_map(|(at, range)| {
        let why = span(range).err()?;
        Some(format!("spec.pools[{at}] {why}, so nothing is given of it"))
    });
    let outside = |ip: &IpAddr| !ranges.iter().any(|range| is_in(range, *ip));
    let lost = allocations.iter().filter(|(_, ip)| outside(ip));
    let lost = lost.map(|(claim, ip)| format!("{ip} of the claim {claim} is in no range any more"));
    let kept = pool.spec.pre_allocations.iter();
    let kept = kept.filter(|(_, ip)| outside(ip));
    let kept = kept.map(|(claim, ip)| format!("{ip}, kept for the claim {claim}, is in no range"));
    let wrong: Vec<String> = wrong.chain(lost).chain(kept).collect();
    let overlaps = |kept: &&KeptBack| {
        let mut spans = ranges.iter().filter_map(|range| span(range).ok());
        spans.any(|(first, last)| first <= kept.last && kept.first <= last)
    };
    let skipped = kept_back.iter().filter(overlaps);
    let skipped: Vec<String> = skipped.map(skip).collect();
    let mut message = [first_of(&wrong), first_of(&skipped)].concat();
    let (status, reason) = match lack {
        Some(lack) => {
            message.insert(0, lack.message);
            (ConditionStatus::False, "NotReady")
        }
        None if waiting > 0 => {
            let why = format!("{waiting} claims wait for an address; each says why");
            message.insert(0, why);
            (ConditionStatus::False, "ClaimsWait")
        }
        None if !wrong.is_empty() => (ConditionStatus::False, "RangesWrong"),
        None => (ConditionStatus::True, READY),
    };
    ConditionUpdate {
        kind: READY,
        status,
        reason,
        message: message.join("; "),
    }
}

fn skip(kept: &KeptBack) -> String {
    let (first, last) = (kept.first, kept.last);
    let which = if first == last {
        format!("{first} is")
    } else {
        format!("{first}-{last} is")
    };
    format!("{which} {}, and is given to no claim", kept.what)
}

fn first_of(sentences: &[String]) -> Vec<String> {
    let mut first: Vec<String> = sentences.iter().take(MOST_NAMED).cloned().collect();
    if sentences.len() > MOST_NAMED {
        first.push(format!("and {} more", sentences.len() - MOST_NAMED));
    }
    first
}

fn write_status(
    pool: &IpPool,
    allocations: BTreeMap<String, IpAddr>,
    ready: ConditionUpdate,
    now: &str,
) -> Option<Action> {
    let (meta, old) = (&pool.metadata, &pool.status);
    let conditions = merge_conditions(&old.conditions, &[ready], meta.generation, now);
    let status = IpPoolStatus {
        last_updated: old.last_updated.clone(),
        allocations,
        conditions,
    };
    if status == *old {
        return None;
    }
    let mut patch =
        json!({"indexes": status.allocations, "conditions": status.conditions, "lastUpdated": now});
    // Of a map a merge patch takes away only what it names.
    for name in old.allocations.keys() {
        if !status.allocations.contains_key(name) {
            patch["indexes"][name] = Value::Null;
        }
    }
    Some(Action::Patch {
        kind: Kind::Pool,
        part: Part::Status,
        meta: Box::new(meta.clone()),
        patch: json!({"status": patch}),
    })
}
