//! Metadata and network data of a machine, as cloud-init reads them. Pure.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

use firstlight_api::{
    capi::Machine,
    capm3::{
        Dhcp, Link, LinkMac, MetaDataTemplate, Metal3DataTemplate, Metal3Machine,
        NetworkDataTemplate, NetworkServices, ObjectKind, Route,
    },
    object::Meta,
};
use serde_json::{Map, Value, json};

use crate::capi::world::Host;

/// Whose data it is.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub host: &'a Host,
    pub metal3_machine: &'a Metal3Machine,
    pub machine: Option<&'a Machine>,
    /// Of the host, on the provisioning network.
    pub address: Option<&'a str>,
}

impl Subject<'_> {
    fn meta(&self, kind: ObjectKind) -> Option<&Meta> {
        match kind {
            ObjectKind::Machine => self.machine.map(|machine| &machine.metadata),
            ObjectKind::Metal3Machine => Some(&self.metal3_machine.metadata),
            ObjectKind::BareMetalHost => Some(&self.host.metadata),
        }
    }

    fn nic_mac(&self, name: &str) -> Option<String> {
        let hardware = self.host.status.hardware.as_ref()?;
        let nic = hardware.nics.iter().find(|nic| nic.name == name)?;
        Some(nic.mac.clone())
    }
}

/// `metal3://NAMESPACE/HOST/MACHINE`
pub fn provider_id(host: &Host, machine: &Metal3Machine) -> String {
    format!("metal3://{}", provider_path(host, machine))
}

fn provider_path(host: &Host, machine: &Metal3Machine) -> String {
    format!(
        "{}/{}/{}",
        host.metadata.namespace, host.metadata.name, machine.metadata.name
    )
}

/// What of a template cannot be had here, as a sentence.
pub fn refuse(template: &Metal3DataTemplate) -> Option<String> {
    let meta = template.spec.meta_data.clone().unwrap_or_default();
    let network = template.spec.network_data.clone().unwrap_or_default();
    let pools = [
        ("metaData.ipAddressesFromPool", &meta.ip_addresses_from_pool),
        ("metaData.prefixesFromPool", &meta.prefixes_from_pool),
        ("metaData.gatewaysFromPool", &meta.gateways_from_pool),
        ("metaData.dnsServersFromPool", &meta.dns_servers_from_pool),
        ("networkData.networks.ipv4", &network.networks.ipv4),
        ("networkData.networks.ipv6", &network.networks.ipv6),
    ];
    let mut used: Vec<&str> = pools
        .into_iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(name, _)| name)
        .collect();
    if network.services.dns_from_ip_pool.is_some() {
        used.push("networkData.services.dnsFromIPPool");
    }
    let networks = &network.networks;
    let dhcp = [
        &networks.ipv4_dhcp,
        &networks.ipv6_dhcp,
        &networks.ipv6_slaac,
    ];
    if dhcp
        .into_iter()
        .flatten()
        .any(|network| network.routes.iter().any(takes_from_pool))
    {
        used.push("a route of networkData.networks");
    }
    let name = &template.metadata.name;
    if !used.is_empty() {
        return Some(format!(
            "Metal3DataTemplate {name} takes addresses from IP pools ({}), which Firstlight does not have; use ipv4DHCP: a \
             server keeps the address that the box leases it, and `hosts` in site.yaml can choose it",
            used.join(", ")
        ));
    }
    (!network.links.bridges.is_empty()).then(|| {
        format!(
            "Metal3DataTemplate {name} asks for bridges (networkData.links.bridges), which OpenStack network data cannot express; \
             make them on the node"
        )
    })
}

fn takes_from_pool(route: &Route) -> bool {
    let gateway = &route.gateway;
    gateway.from_ip_pool.is_some()
        || gateway.from_pool_ref.is_some()
        || gateway.from_pool_annotation.is_some()
        || route.services.dns_from_ip_pool.is_some()
}

/// Every machine gets these keys; those of the template come on top.
pub fn meta_data(
    subject: &Subject,
    template: Option<(&MetaDataTemplate, i32)>,
) -> BTreeMap<String, String> {
    let host = &subject.host.metadata;
    let provider = provider_path(subject.host, subject.metal3_machine);
    let mut data: BTreeMap<String, String> = [
        ("uuid", host.uid.as_str()),
        ("metal3-namespace", &host.namespace),
        ("metal3-name", &host.name),
        ("local-hostname", &host.name),
        ("local_hostname", &host.name),
        ("name", &host.name),
        ("providerid", &provider),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    // cloud-init's own name for it; a site has no default route by which a node could tell its address.
    if let Some(address) = subject.address {
        data.insert("local_ipv4".to_owned(), address.to_owned());
    }
    if let Some((template, index)) = template {
        data.extend(from_template(subject, template, index));
    }
    data
}

fn from_template(
    subject: &Subject,
    template: &MetaDataTemplate,
    index: i32,
) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    let mut add = |key: &str, value: String| entries.push((key.to_owned(), value));
    for one in &template.strings {
        add(&one.key, one.value.clone());
    }
    for one in &template.object_names {
        let meta = subject.meta(one.object);
        add(
            &one.key,
            meta.map(|meta| meta.name.clone()).unwrap_or_default(),
        );
    }
    for one in &template.indexes {
        let number = i64::from(one.offset) + i64::from(index) * i64::from(one.step);
        add(&one.key, format!("{}{number}{}", one.prefix, one.suffix));
    }
    for one in &template.namespaces {
        add(&one.key, subject.metal3_machine.metadata.namespace.clone());
    }
    for one in &template.from_labels {
        let label = subject
            .meta(one.object)
            .and_then(|meta| meta.label(&one.label));
        add(&one.key, label.unwrap_or_default().to_owned());
    }
    for one in &template.from_annotations {
        let meta = subject.meta(one.object);
        let annotation = meta.and_then(|meta| meta.annotation(&one.annotation));
        add(&one.key, annotation.unwrap_or_default().to_owned());
    }
    for one in &template.from_host_interfaces {
        let mac = if one.from_boot_mac {
            Some(subject.host.spec.boot_mac_address.clone())
        } else {
            subject.nic_mac(&one.interface)
        };
        add(&one.key, mac.unwrap_or_default());
    }
    entries
}

/// `network_data.json`, or what is missing for it.
pub fn network_data(subject: &Subject, template: &NetworkDataTemplate) -> Result<Value, String> {
    let mut links = Vec::new();
    for link in &template.links.ethernets {
        let mut value = common(link, link.kind.as_deref().unwrap_or("phy"))?;
        insert(&mut value, "ethernet_mac_address", mac(subject, link)?);
        links.push(Value::Object(value));
    }
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
    let networks = &template.networks;
    let kinds = [
        ("ipv4_dhcp", Family::V4, &networks.ipv4_dhcp),
        ("ipv6_dhcp", Family::V6, &networks.ipv6_dhcp),
        ("ipv6_slaac", Family::V6, &networks.ipv6_slaac),
    ];
    let mut all = Vec::new();
    for (kind, family, networks) in kinds {
        for Dhcp { id, link, routes } in networks {
            let routes: Result<Vec<_>, _> = routes.iter().map(|one| route(one, family)).collect();
            let routes = routes.map_err(|why| format!("a route of {id} of networkData {why}"))?;
            all.push(json!({"id": id, "link": link, "type": kind, "routes": routes}));
        }
    }
    let services = services(&template.services);
    Ok(json!({"links": links, "networks": all, "services": services}))
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

fn services(services: &NetworkServices) -> Vec<Value> {
    let servers = services.dns.iter();
    servers
        .map(|address| json!({"type": "dns", "address": address}))
        .collect()
}

/// `network_data.json` has masks where people write bits.
fn route(route: &Route, family: Family) -> Result<Value, String> {
    let bits = u32::from(route.prefix);
    let mask = match family {
        Family::V4 if bits <= 32 => {
            Ipv4Addr::from(u32::MAX.checked_shl(32 - bits).unwrap_or(0)).to_string()
        }
        Family::V6 if bits <= 128 => {
            Ipv6Addr::from(u128::MAX.checked_shl(128 - bits).unwrap_or(0)).to_string()
        }
        _ => return Err(format!("has {bits} bits")),
    };
    Ok(json!({
        "network": route.network,
        "netmask": mask,
        "gateway": route.gateway.string,
        "services": services(&route.services),
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn template(network: &Value) -> Metal3DataTemplate {
        let spec = json!({"clusterName": "lab", "networkData": network});
        serde_json::from_value(json!({"metadata": {"name": "d"}, "spec": spec})).unwrap()
    }

    #[test]
    fn routes_that_take_from_pools_are_refused() {
        for route in [
            json!({"gateway": {"fromIPPool": "p"}}),
            json!({"gateway": {"fromPoolRef": {"name": "p"}}}),
            json!({"gateway": {"fromPoolAnnotation": {"object": "machine"}}}),
            json!({"gateway": {"string": "10.0.0.1"}, "services": {"dnsFromIPPool": "p"}}),
        ] {
            for kind in ["ipv4DHCP", "ipv6DHCP", "ipv6SLAAC"] {
                let network = json!({"id": "n", "link": "e", "routes": [route]});
                let refused = refuse(&template(&json!({"networks": {kind: [network]}})));
                let refused = refused.unwrap();
                assert!(
                    refused.contains("(a route of networkData.networks)"),
                    "{refused}"
                );
            }
        }
    }

    #[test]
    fn what_has_no_meaning_is_told() {
        let (host, metal3_machine) = (Host::default(), Metal3Machine::default());
        let subject = Subject {
            host: &host,
            metal3_machine: &metal3_machine,
            machine: None,
            address: None,
        };
        let route = |prefix| json!({"id": "n", "link": "e", "routes": [{"network": "10.0.0.0", "prefix": prefix}]});
        let bond = json!({"id": "b", "parameters": [{"name": "links", "value": []}]});
        for (network, why) in [
            (
                json!({"links": {"vlans": [{"id": "v5"}]}}),
                "the VLAN v5 of networkData has no vlanID",
            ),
            (
                json!({"links": {"bonds": [bond]}}),
                "the parameter `links` of the bond b",
            ),
            (json!({"links": {"ethernets": [{}]}}), "has no id"),
            (
                json!({"networks": {"ipv4DHCP": [route(33)]}}),
                "a route of n of networkData has 33 bits",
            ),
            (
                json!({"networks": {"ipv6DHCP": [route(129)]}}),
                "has 129 bits",
            ),
        ] {
            let template = template(&network).spec.network_data.unwrap();
            let told = network_data(&subject, &template).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
