//! Metadata and network data of a machine, as cloud-init reads them. Pure.

mod network;
mod pools;

use std::{collections::BTreeMap, net::IpAddr};

use firstlight_api::{
    capi::Machine,
    capm3::{FromPool, MetaDataTemplate, Metal3DataTemplate, Metal3Machine, ObjectKind},
    object::Meta,
    packages::{KUBERNETES_METADATA_KEY, is_release},
};

use crate::capi::{addresses::GivenAddress, world::Host};

pub use network::network_data;
pub use pools::{FromPools, named};

/// Whose data it is.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub host: &'a Host,
    pub metal3_machine: &'a Metal3Machine,
    pub machine: Option<&'a Machine>,
    /// By which its cluster knows it.
    pub address: Option<&'a str>,
    /// Beside it, in a cluster with both families.
    pub ipv6_address: Option<&'a str>,
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
    let network = template.spec.network_data.as_ref()?;
    (!network.links.bridges.is_empty()).then(|| {
        format!(
            "Metal3DataTemplate {} asks for bridges (networkData.links.bridges), which OpenStack network data cannot express; \
             make them on the node",
            template.metadata.name
        )
    })
}

/// Every machine gets these keys; those of the template come on top.
pub fn meta_data(
    subject: &Subject,
    template: Option<(&MetaDataTemplate, i32)>,
    pools: &FromPools,
) -> Result<BTreeMap<String, String>, String> {
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
    // What its image brings may be another one.
    let version = subject.machine.map(|machine| machine.spec.version.as_str());
    let version = version.filter(|version| is_release(version));
    data.extend(version.map(|version| (KUBERNETES_METADATA_KEY.to_owned(), version.to_owned())));
    // cloud-init's own names for them; a site has no default route by which a node could tell its address.
    for (key, address) in [
        ("local_ipv4", subject.address),
        ("local_ipv6", subject.ipv6_address),
    ] {
        data.extend(address.map(|address| (key.to_owned(), address.to_owned())));
    }
    if let Some((template, index)) = template {
        data.extend(from_pools(template, pools)?);
        data.extend(from_template(subject, template, index));
    }
    Ok(data)
}

fn from_pools(
    template: &MetaDataTemplate,
    pools: &FromPools,
) -> Result<Vec<(String, String)>, String> {
    type Part = fn(&GivenAddress) -> String;
    let parts: [(&[FromPool], Part); 4] = [
        (&template.ip_addresses_from_pool, |it| it.ip.to_string()),
        (&template.prefixes_from_pool, |it| {
            it.prefix.map(|bits| bits.to_string()).unwrap_or_default()
        }),
        (&template.gateways_from_pool, |it| {
            it.gateway.map(|ip| ip.to_string()).unwrap_or_default()
        }),
        (&template.dns_servers_from_pool, |it| {
            let servers: Vec<String> = it.dns_servers.iter().map(IpAddr::to_string).collect();
            servers.join(",")
        }),
    ];
    let mut entries = Vec::new();
    for (wanted, part) in parts {
        for one in wanted {
            entries.push((one.key.clone(), part(pools.of(&one.pool)?)));
        }
    }
    Ok(entries)
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
