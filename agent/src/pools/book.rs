//! What of a pool is in use, by whom, and what the box keeps back. Addresses are looked for between what is in use, so that a range may
//! be as large as all of IPv6.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use firstlight_api::{
    ipam::{AllocationStrategy, IpPool, REQUEST_ANNOTATION},
    object::Meta,
};

use super::{
    Pools,
    range::{after, is_in, somewhere, span},
};
use crate::{
    capi::addresses::{AddressClaim, GivenAddress, IpamApi},
    objects::Key,
};

/// Addresses from `first` to `last` that are nobody's to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBack {
    pub first: IpAddr,
    pub last: IpAddr,
    /// What they are.
    pub what: String,
}

impl KeptBack {
    fn one(address: IpAddr, what: String) -> Self {
        Self {
            first: address,
            last: address,
            what,
        }
    }
}

/// What other machines of the site have: the box, whom it leases addresses, and the APIs and services of clusters.
pub fn kept_back(seen: &Pools) -> Vec<KeptBack> {
    let provisioning = &seen.site.provisioning;
    let leased = provisioning.range;
    let mut all = vec![
        KeptBack::one(
            provisioning.address.address().into(),
            "the box's own".to_owned(),
        ),
        KeptBack {
            first: leased.first().into(),
            last: leased.last().into(),
            what: "what the box leases to servers (provisioning.range of site.yaml)".to_owned(),
        },
    ];
    all.extend(provisioning.relayed.iter().map(|relayed| KeptBack {
        first: relayed.range.first().into(),
        last: relayed.range.last().into(),
        what: "what the box leases to servers (provisioning.relayed of site.yaml)".to_owned(),
    }));
    let routers = provisioning.routers();
    all.extend(routers.map(|router| KeptBack::one(router.into(), "a router's".to_owned())));
    let named = seen.site.hosts.iter().filter_map(|host| {
        let what = format!("the server {}'s (hosts of site.yaml)", host.mac);
        Some(KeptBack::one(host.address?.into(), what))
    });
    all.extend(named);
    all.extend(seen.clusters.values().filter_map(|cluster| {
        let endpoint = cluster.spec.control_plane_endpoint.host.parse().ok()?;
        let what = format!("the endpoint of the Cluster {}", Key::of(&cluster.metadata));
        Some(KeptBack::one(endpoint, what))
    }));
    let clusters = seen.site.generated_clusters();
    all.extend(clusters.filter_map(|(name, cluster)| {
        let services = cluster.load_balancer?;
        Some(KeptBack {
            first: services.first().into(),
            last: services.last().into(),
            what: format!("what services of the Cluster {name} have (loadBalancer of site.yaml)"),
        })
    }));
    all
}

/// Who has an address.
enum Holder<'a> {
    /// More than one only by accident, or by hand; the first one may keep it.
    Given(Vec<&'a GivenAddress>),
    /// The claim with this name is to get it, or had it before its object was lost.
    Kept(&'a str),
}

/// How an object stands to the address that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Rightful,
    /// Another one names it, too, and its claim does not know yet that it has to give way: what tells it that the address is its own
    /// may be on its way still.
    Waits,
    /// A sentence: it is another one's.
    Wrong(String),
}

/// Why a claim gets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Exhausted,
    /// A sentence.
    Failed(String),
}

/// What a claim gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub ip: IpAddr,
    /// Of the object.
    pub name: String,
    pub prefix: u8,
    pub gateway: Option<IpAddr>,
    pub dns_servers: Vec<IpAddr>,
}

pub struct Book<'a> {
    seen: &'a Pools,
    pool: &'a IpPool,
    taken: BTreeMap<IpAddr, Holder<'a>>,
    /// Of address objects in the namespace, whatever pool they are of.
    names: BTreeSet<(IpamApi, &'a str)>,
    kept_back: &'a [KeptBack],
    /// By this look.
    new: BTreeSet<IpAddr>,
}

impl<'a> Book<'a> {
    pub fn new(seen: &'a Pools, pool: &'a IpPool, kept_back: &'a [KeptBack]) -> Self {
        let meta = &pool.metadata;
        let mut book = Self {
            seen,
            pool,
            taken: BTreeMap::new(),
            names: BTreeSet::new(),
            kept_back,
            new: BTreeSet::new(),
        };
        let all = seen.addresses.given.iter();
        for ((api, key), given) in all.filter(|((_, key), _)| key.namespace == meta.namespace) {
            book.names.insert((*api, &key.name));
            if !is_of(given, meta) {
                continue;
            }
            let is_first = book.is_told(given);
            let holder = book.taken.entry(given.ip);
            match holder.or_insert_with(|| Holder::Given(Vec::new())) {
                Holder::Given(all) if is_first => all.insert(0, given),
                Holder::Given(all) => all.push(given),
                Holder::Kept(_) => {}
            }
        }
        let known = &pool.status.allocations;
        let lost = known.iter().filter(|(claim, _)| {
            let key = Key::new(&meta.namespace, claim);
            [IpamApi::Metal3, IpamApi::Contract]
                .into_iter()
                .filter_map(|api| seen.addresses.claims.get(&(api, key.clone())))
                .any(|claim| claim.address.is_some() && !claim.meta.is_deleting())
        });
        for (claim, ip) in lost.chain(&pool.spec.pre_allocations) {
            book.taken.entry(*ip).or_insert(Holder::Kept(claim));
        }
        book
    }

    /// Its claim was told of it.
    fn is_told(&self, given: &GivenAddress) -> bool {
        let claim = self.claim_of(given);
        claim.is_some_and(|claim| claim.address.as_ref() == Some(&given.meta.name))
    }

    fn claim_of(&self, given: &GivenAddress) -> Option<&'a AddressClaim> {
        let key = Key::new(&given.meta.namespace, &given.claim);
        self.seen.addresses.claims.get(&(given.api, key))
    }

    pub fn standing(&self, given: &GivenAddress) -> Standing {
        let Some(Holder::Given(all)) = self.taken.get(&given.ip) else {
            return Standing::Rightful;
        };
        let Some((first, others)) = all.split_first() else {
            return Standing::Rightful;
        };
        let wrong = |given: &GivenAddress| {
            format!(
                "the IPAddress {} says that it has {}, which is that of the {} {} by the IPAddress {}; delete one of the two",
                given.meta.name,
                given.ip,
                first.api.claim().2,
                first.claim,
                first.meta.name
            )
        };
        if *first != given {
            return Standing::Wrong(wrong(given));
        }
        let knows = |other: &&GivenAddress| {
            self.claim_of(other).is_none_or(|claim| {
                claim.meta.is_deleting()
                    || claim.address.is_some()
                    || claim.error.as_ref() == Some(&wrong(other))
            })
        };
        if self.is_told(given) || others.iter().all(knows) {
            Standing::Rightful
        } else {
            Standing::Waits
        }
    }

    /// The claim gets it from now on.
    pub fn allocate(&mut self, claim: &AddressClaim) -> Result<Allocation, Refusal> {
        let ip = match self.destined(claim)? {
            Some(ip) => ip,
            None => self.next(claim).ok_or(Refusal::Exhausted)?,
        };
        let name = self.name_of(ip);
        self.names_may_begin()?;
        let range = self.pool.spec.pools.iter().find(|range| is_in(range, ip));
        let (range, spec) = (range.cloned().unwrap_or_default(), &self.pool.spec);
        let prefixes = [range.prefix, spec.prefix];
        let prefix = prefixes.into_iter().find(|it| *it > 0).unwrap_or_default();
        if ip.is_ipv4() && prefix > 32 {
            return Err(Refusal::Failed(format!(
                "the prefix {prefix} of the pool is none of IPv4; write one up to 32"
            )));
        }
        self.new.insert(ip);
        let dns_servers = if range.dns_servers.is_empty() {
            spec.dns_servers.clone()
        } else {
            range.dns_servers
        };
        Ok(Allocation {
            ip,
            name,
            prefix,
            gateway: range.gateway.or(spec.gateway),
            dns_servers,
        })
    }

    /// The one address that it may be, if there is one: by `preAllocations`, its annotation, or because it had it.
    fn destined(&self, claim: &AddressClaim) -> Result<Option<IpAddr>, Refusal> {
        let refuse = |why: String| Err(Refusal::Failed(why));
        let (spec, name) = (&self.pool.spec, &claim.meta.name);
        let kept = spec.pre_allocations.get(name).copied();
        let asked = match claim.meta.annotation(REQUEST_ANNOTATION) {
            None | Some("") => None,
            Some(text) => match text.parse::<IpAddr>() {
                Ok(ip) => Some(ip),
                Err(_) => {
                    return refuse(format!(
                        "`{text}` of its annotation {REQUEST_ANNOTATION} is no IP address; write one, or take the annotation away"
                    ));
                }
            },
        };
        if let (Some(kept), Some(asked)) = (kept, asked)
            && kept != asked
        {
            return refuse(format!(
                "it asks for {asked}, and preAllocations of the pool say {kept}; change one of them"
            ));
        }
        let Some(ip) = kept.or(asked) else {
            let had = self.pool.status.allocations.get(name).copied();
            return Ok(had.filter(|ip| claim.address.is_some() && self.is_free_for(*ip, name)));
        };
        if !spec.pools.iter().any(|range| is_in(range, ip)) {
            return refuse(format!(
                "{ip} is in no range of the pool; add one to spec.pools, or choose another address"
            ));
        }
        if let Some(kept) = self.keeper(ip) {
            return refuse(format!("{ip} is {}; choose another address", kept.what));
        }
        if !self.is_free_for(ip, name) {
            return refuse(format!(
                "{ip} is {}; choose another address",
                self.whose(ip)
            ));
        }
        Ok(Some(ip))
    }

    fn is_free_for(&self, ip: IpAddr, claim: &str) -> bool {
        let is_its = match self.taken.get(&ip) {
            None => true,
            Some(Holder::Given(_)) => false,
            Some(Holder::Kept(name)) => *name == claim,
        };
        is_its && !self.new.contains(&ip) && !self.is_named(ip)
    }

    fn whose(&self, ip: IpAddr) -> String {
        match self.taken.get(&ip) {
            Some(Holder::Given(all)) => {
                let claims: Vec<&str> = all.iter().map(|given| given.claim.as_str()).collect();
                format!("that of the claim {}", claims.join(" and "))
            }
            Some(Holder::Kept(claim)) => format!("kept for the claim {claim}"),
            None if self.new.contains(&ip) => "that of another claim".to_owned(),
            None => format!("that of an IPAddress {}", self.name_of(ip)),
        }
    }

    fn next(&self, claim: &AddressClaim) -> Option<IpAddr> {
        let ranges = self.pool.spec.pools.iter();
        let mut spans = ranges.filter_map(|range| span(range).ok());
        spans.find_map(|(first, last)| match self.pool.spec.allocation_strategy {
            AllocationStrategy::Sequential => self.lowest(first, last),
            AllocationStrategy::Random => {
                let start = somewhere(&claim.meta.uid, first, last);
                self.lowest(start, last)
                    .or_else(|| self.lowest(first, start))
            }
        })
    }

    /// That is free, of `first` to `last`.
    fn lowest(&self, first: IpAddr, last: IpAddr) -> Option<IpAddr> {
        let mut at = first;
        while at <= last {
            let used = match self.keeper(at) {
                Some(kept) => kept.last,
                None if self.is_taken(at) => at,
                None => return Some(at),
            };
            at = after(used)?;
        }
        None
    }

    fn is_taken(&self, ip: IpAddr) -> bool {
        self.taken.contains_key(&ip) || self.new.contains(&ip) || self.is_named(ip)
    }

    fn keeper(&self, ip: IpAddr) -> Option<&KeptBack> {
        let mut all = self.kept_back.iter();
        all.find(|kept| (kept.first..=kept.last).contains(&ip))
    }

    /// An object of another pool may have the name already.
    fn is_named(&self, ip: IpAddr) -> bool {
        let name = self.name_of(ip);
        [IpamApi::Metal3, IpamApi::Contract]
            .into_iter()
            .any(|api| self.names.contains(&(api, name.as_str())))
    }

    /// As upstream names them: `PREFIX-192-168-0-10`.
    fn name_of(&self, ip: IpAddr) -> String {
        let ip = ip.to_string().replace([':', '.'], "-");
        let name = format!("{}-{ip}", self.pool.spec.name_prefix);
        name.trim_end_matches('-').to_owned()
    }

    fn names_may_begin(&self) -> Result<(), Refusal> {
        let prefix = &self.pool.spec.name_prefix;
        let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_name = prefix.starts_with(is_letter)
            && prefix.chars().all(|c| is_letter(c) || c == '-' || c == '.')
            && !prefix.contains("..")
            && !prefix.contains(".-")
            && !prefix.contains("-.")
            && !prefix.ends_with('.')
            && prefix.len() <= 200;
        is_name.then_some(()).ok_or_else(|| {
            Refusal::Failed(format!(
                "no name of an object can begin with `{prefix}` (namePrefix of the pool); make a pool with another one"
            ))
        })
    }
}

/// This pool's, whose metadata are given.
pub fn is_of(given: &GivenAddress, pool: &Meta) -> bool {
    given.pool.is_metal3() && given.pool.name == pool.name && given.meta.namespace == pool.namespace
}
