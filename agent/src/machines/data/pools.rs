//! Which pools a template takes from, and what they gave a machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use firstlight_api::{
    capm3::{DataTemplateSpec, NetworkServices, PoolChoice, Route, StaticNetwork},
    ipam::PoolRef,
};

use super::Subject;
use crate::capi::addresses::GivenAddress;

/// What the machine has, by the pool that it is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FromPools(pub BTreeMap<PoolRef, GivenAddress>);

impl FromPools {
    pub fn of(&self, pool: &PoolRef) -> Result<&GivenAddress, String> {
        let found = self.0.get(pool);
        found.ok_or_else(|| format!("there is no address of the {} {}", pool.kind, pool.name))
    }
}

/// Each pool that the template names, or why that cannot be told.
pub fn named(subject: &Subject, template: &DataTemplateSpec) -> Result<BTreeSet<PoolRef>, String> {
    let mut all = BTreeSet::new();
    if let Some(meta) = &template.meta_data {
        let lists = [
            &meta.ip_addresses_from_pool,
            &meta.prefixes_from_pool,
            &meta.gateways_from_pool,
            &meta.dns_servers_from_pool,
        ];
        all.extend(lists.into_iter().flatten().map(|entry| entry.pool.clone()));
    }
    if let Some(network) = &template.network_data {
        let networks = &network.networks;
        let fixed = || networks.ipv4.iter().chain(&networks.ipv6);
        let leased = [
            &networks.ipv4_dhcp,
            &networks.ipv6_dhcp,
            &networks.ipv6_slaac,
        ];
        let leased = leased.into_iter().flatten();
        let mut choices: Vec<PoolChoice> = fixed().filter_map(StaticNetwork::pool).collect();
        choices.extend(network.services.pool());
        let routes = fixed().flat_map(|it| &it.routes);
        for route in routes.chain(leased.flat_map(|it| &it.routes)) {
            choices.extend(of_route(route));
        }
        for choice in choices {
            all.insert(resolve(subject, choice)?);
        }
    }
    // The names of claims say nothing of kinds.
    let names: BTreeSet<&str> = all.iter().map(|pool| pool.name.as_str()).collect();
    let twice = names
        .into_iter()
        .find(|name| all.iter().filter(|pool| pool.name == *name).count() > 1);
    match twice {
        Some(name) => Err(format!(
            "it names pools of two kinds that are called {name}; give one of them another name"
        )),
        None => Ok(all),
    }
}

fn of_route(route: &Route) -> impl Iterator<Item = PoolChoice<'_>> {
    let gateway = route.gateway.pool();
    gateway.into_iter().chain(route.services.pool())
}

/// The pool that is meant for this machine.
pub fn resolve(subject: &Subject, choice: PoolChoice) -> Result<PoolRef, String> {
    let from = match choice {
        PoolChoice::Pool(pool) => return Ok(pool),
        PoolChoice::Annotation(from) => from,
    };
    let meta = subject.meta(from.object);
    let name = meta.and_then(|meta| meta.annotation(&from.annotation));
    let name = name.filter(|name| !name.is_empty());
    name.map(PoolRef::metal3).ok_or_else(|| {
        let whose = match meta {
            Some(meta) => format!("of {}", meta.name),
            None => "of its object, which is not there".to_owned(),
        };
        format!(
            "the annotation {} {whose}, which is to say a pool, is not there",
            from.annotation
        )
    })
}

/// Those of the template, and then those of a pool.
pub fn name_servers(
    subject: &Subject,
    pools: &FromPools,
    services: &NetworkServices,
) -> Result<Vec<String>, String> {
    let mut all = services.dns.clone();
    if let Some(choice) = services.pool() {
        let given = pools.of(&resolve(subject, choice)?)?;
        all.extend(given.dns_servers.iter().map(IpAddr::to_string));
    }
    Ok(all)
}
