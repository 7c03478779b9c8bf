//! `network_data.json`, as cloud-init reads it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firstlight_api::capm3::{
    Dhcp, Link, LinkMac, NetworkDataTemplate, NetworkServices, Networks, Route, StaticNetwork,
};
use serde_json::{Map, Value, json};

use super::{
    Subject,
    pools::{FromPools, name_servers, resolve},
};
use crate::capi::site_networks::Family;

/// `network_data.json`, or what is missing for it.
pub fn network_data(
    subject: &Subject,
    template: &NetworkDataTemplate,
    pools: &FromPools,
) -> Result<Value, String> {
    let links = links(subject, template)?;
    let networks = networks(subject, &template.networks, pools)?;
    let services = services(subject, &template.services, pools)?;
    Ok(json!({"links": links, "networks": networks, "services": services}))
}

fn links(subject: &Subject, template: &NetworkDataTemplate) -> Result<Vec<Value>, String> {
    let mut links = Vec::new();
    for link in &template.links.bonds {
        let mut value = common(link, "bond")?;
        insert(&mut value, "ethernet_mac_address", mac(subject, link)?);
        insert(&mut value, "bond_mode", link.bond_mode.clone());
        insert(
            &mut value,
            "bond_xmit_hash_policy",
            link.bond_xmit_hash_policy.clone(),
        );
        insert(&mut value, "bond_links", Some(link.bond_links.clone()));
        for parameter in &link.parameters {
            let key = format!("bond_{}", parameter.name);
            if value.contains_key(&key) {
                return Err(format!(
                    "the parameter `{}` of the bond {} of networkData has a field of its own",
                    parameter.name, link.id
                ));
            }
            value.insert(key, parameter.value.clone());
        }
        links.push(Value::Object(value));
    }
    for link in &template.links.ethernets {
        let mut value = common(link, link.kind.as_deref().unwrap_or("phy"))?;
        insert(&mut value, "ethernet_mac_address", mac(subject, link)?);
        links.push(Value::Object(value));
    }
    for link in &template.links.vlans {
        let mut value = common(link, "vlan")?;
        if link.vlan_id.is_none() {
            return Err(format!("the VLAN {} of networkData has no vlanID", link.id));
        }
        insert(&mut value, "vlan_mac_address", mac(subject, link)?);
        insert(&mut value, "vlan_id", link.vlan_id);
        insert(&mut value, "vlan_link", link.vlan_link.clone());
        links.push(Value::Object(value));
    }
    Ok(links)
}

fn networks(
    subject: &Subject,
    networks: &Networks,
    pools: &FromPools,
) -> Result<Vec<Value>, String> {
    let of = |id: &str, family, all: &[Route]| -> Result<Vec<Value>, String> {
        let routes = all.iter().map(|one| route(subject, one, family, pools));
        let routes: Result<Vec<Value>, String> = routes.collect();
        routes.map_err(|why| format!("a route of {id} of networkData {why}"))
    };
    let mut all = Vec::new();
    let fixed = [
        ("ipv4", Family::Ipv4, &networks.ipv4),
        ("ipv6", Family::Ipv6, &networks.ipv6),
    ];
    for (kind, family, networks) in fixed {
        for network in networks {
            let (ip, mask) = fixed_address(subject, network, family, pools)
                .map_err(|why| format!("the network {} of networkData: {why}", network.id))?;
            let routes = of(&network.id, family, &network.routes)?;
            all.push(json!({
                "id": network.id, "link": network.link, "type": kind,
                "ip_address": ip, "netmask": mask, "routes": routes,
            }));
        }
    }
    let leased = [
        ("ipv4_dhcp", Family::Ipv4, &networks.ipv4_dhcp),
        ("ipv6_dhcp", Family::Ipv6, &networks.ipv6_dhcp),
        ("ipv6_slaac", Family::Ipv6, &networks.ipv6_slaac),
    ];
    for (kind, family, networks) in leased {
        for Dhcp { id, link, routes } in networks {
            let routes = of(id, family, routes)?;
            all.push(json!({"id": id, "link": link, "type": kind, "routes": routes}));
        }
    }
    Ok(all)
}

/// With its mask.
fn fixed_address(
    subject: &Subject,
    network: &StaticNetwork,
    family: Family,
    pools: &FromPools,
) -> Result<(IpAddr, String), String> {
    let choice = network.pool().ok_or_else(|| {
        "it names no pool; say ipAddressFromIPPool, fromPoolRef or fromPoolAnnotation".to_owned()
    })?;
    let pool = resolve(subject, choice)?;
    let given = pools.of(&pool)?;
    if given.ip.is_ipv4() != matches!(family, Family::Ipv4) {
        return Err(format!(
            "the {} {} gives {}, which is of the other version of IP; name another pool",
            pool.kind, pool.name, given.ip
        ));
    }
    let bits = given.prefix.ok_or_else(|| {
        format!(
            "the {} {} does not say how large its network is (prefix)",
            pool.kind, pool.name
        )
    })?;
    let mask = mask(bits, family).map_err(|why| format!("the address of {} {why}", pool.name))?;
    Ok((given.ip, mask))
}

fn services(
    subject: &Subject,
    services: &NetworkServices,
    pools: &FromPools,
) -> Result<Vec<Value>, String> {
    let servers = name_servers(subject, pools, services)?.into_iter();
    let servers = servers.map(|address| json!({"type": "dns", "address": address}));
    Ok(servers.collect())
}

/// `network_data.json` has masks where people write bits.
fn mask(bits: u8, family: Family) -> Result<String, String> {
    let bits = u32::from(bits);
    match family {
        Family::Ipv4 if bits <= 32 => {
            Ok(Ipv4Addr::from(u32::MAX.checked_shl(32 - bits).unwrap_or(0)).to_string())
        }
        Family::Ipv6 if bits <= 128 => {
            Ok(Ipv6Addr::from(u128::MAX.checked_shl(128 - bits).unwrap_or(0)).to_string())
        }
        _ => Err(format!("has {bits} bits")),
    }
}

fn route(
    subject: &Subject,
    route: &Route,
    family: Family,
    pools: &FromPools,
) -> Result<Value, String> {
    let gateway = match route.gateway.pool() {
        None => route.gateway.string.clone(),
        Some(choice) => {
            let given = pools.of(&resolve(subject, choice)?)?;
            given.gateway.map(|it| it.to_string()).unwrap_or_default()
        }
    };
    Ok(json!({
        "network": route.network,
        "netmask": mask(route.prefix, family)?,
        "gateway": gateway,
        "services": services(subject, &route.services, pools)?,
    }))
}

fn common(link: &Link, kind: &str) -> Result<Map<String, Value>, String> {
    if link.id.is_empty() {
        return Err("a link of networkData has no id".to_owned());
    }
    let mut value = Map::new();
    insert(&mut value, "id", Some(link.id.clone()));
    insert(&mut value, "type", Some(kind));
    insert(&mut value, "name", link.name.clone());
    insert(&mut value, "mtu", link.mtu);
    Ok(value)
}

fn insert(map: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value.into());
    }
}

fn mac(subject: &Subject, link: &Link) -> Result<Option<String>, String> {
    let found = named_mac(subject, link)?;
    if let Some(mac) = found.as_deref().filter(|mac| !is_mac(mac)) {
        return Err(format!(
            "`{mac}` of link {} of networkData is no MAC address",
            link.id
        ));
    }
    Ok(found)
}

/// As upstream takes it.
fn is_mac(text: &str) -> bool {
    let mut parts = text.split([':', '-']);
    let hex = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.len() == 17 && parts.all(hex)
}

fn named_mac(subject: &Subject, link: &Link) -> Result<Option<String>, String> {
    let Some(LinkMac {
        string,
        from_host_interface,
        from_annotation,
    }) = &link.mac_address
    else {
        return Ok(None);
    };
    if let Some(mac) = string {
        return Ok(Some(mac.clone()));
    }
    if let Some(name) = from_host_interface {
        return subject.nic_mac(name).map(Some).ok_or_else(|| {
            format!(
                "the host {} has no NIC `{name}` (link {} of networkData)",
                subject.host.metadata.name, link.id
            )
        });
    }
    let Some(from) = from_annotation else {
        return Ok(None);
    };
    let meta = subject.meta(from.object);
    let value = meta.and_then(|meta| meta.annotation(&from.annotation));
    value.map(|mac| Some(mac.to_owned())).ok_or_else(|| {
        format!(
            "the annotation {} for link {} of networkData is not there",
            from.annotation, link.id
        )
    })
}

#[cfg(test)]
mod tests;
