//! Metadata and network data of a machine, as cloud-init reads them. Pure.

use std::collections::BTreeMap;

use firstlight_api::{
    capi::Machine,
    capm3::{
        Dhcp, Link, LinkMac, MetaDataTemplate, Metal3DataTemplate, Metal3Machine,
        NetworkDataTemplate, ObjectKind,
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
        links.push(Value::Object(value));
    }
    for link in &template.links.vlans {
        let mut value = common(link, "vlan")?;
        insert(&mut value, "vlan_mac_address", mac(subject, link)?);
        insert(&mut value, "vlan_id", link.vlan_id);
        insert(&mut value, "vlan_link", link.vlan_link.clone());
        links.push(Value::Object(value));
    }
    let of = |kind: &'static str| move |network: &Dhcp| json!({"id": network.id, "link": network.link, "type": kind, "routes": network.routes});
    let networks = &template.networks;
    let all: Vec<Value> = networks
        .ipv4_dhcp
        .iter()
        .map(of("ipv4_dhcp"))
        .chain(networks.ipv6_dhcp.iter().map(of("ipv6_dhcp")))
        .chain(networks.ipv6_slaac.iter().map(of("ipv6_slaac")))
        .collect();
    let services = template
        .services
        .dns
        .iter()
        .map(|address| json!({"type": "dns", "address": address}));
    Ok(json!({"links": links, "networks": all, "services": services.collect::<Vec<_>>()}))
}

fn common(link: &Link, kind: &str) -> Result<Map<String, Value>, String> {
    if link.id.is_empty() {
        return Err("a link of networkData has no id".to_owned());
    }
    let mut value = Map::new();
    insert(&mut value, "id", Some(link.id.clone()));
    insert(&mut value, "type", Some(kind));
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
