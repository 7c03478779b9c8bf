use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object::Object;

/// What the metadata and network data of machines are made from.
pub type Metal3DataTemplate = Object<DataTemplateSpec, DataTemplateStatus>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataTemplateSpec {
    #[serde(default)]
    pub cluster_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<MetaDataTemplate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<NetworkDataTemplate>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataTemplateStatus {
    /// Stable for the life of a machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    pub name: String,
    pub index: i32,
}

/// Each entry becomes one key of the metadata.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetaDataTemplate {
    pub strings: Vec<NamedString>,
    pub object_names: Vec<FromObjectName>,
    pub indexes: Vec<NamedIndex>,
    pub namespaces: Vec<NamedNamespace>,
    pub from_labels: Vec<FromLabel>,
    pub from_annotations: Vec<FromAnnotation>,
    pub from_host_interfaces: Vec<FromHostInterface>,
    /// Known, and refused: they need IP pools.
    pub ip_addresses_from_pool: Vec<Value>,
    pub prefixes_from_pool: Vec<Value>,
    pub gateways_from_pool: Vec<Value>,
    #[serde(rename = "dnsServersFromPool")]
    pub dns_servers_from_pool: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectKind {
    Machine,
    Metal3Machine,
    BareMetalHost,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedString {
    pub key: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromObjectName {
    pub key: String,
    pub object: ObjectKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedIndex {
    pub key: String,
    #[serde(default)]
    pub offset: i32,
    #[serde(default = "one")]
    pub step: i32,
    #[serde(default)]
    pub prefix: String,
    #[serde(default)]
    pub suffix: String,
}

fn one() -> i32 {
    1
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedNamespace {
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromLabel {
    pub key: String,
    pub object: ObjectKind,
    pub label: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromAnnotation {
    pub key: String,
    pub object: ObjectKind,
    pub annotation: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FromHostInterface {
    pub key: String,
    #[serde(default)]
    pub interface: String,
    #[serde(rename = "fromBootMAC", default)]
    pub from_boot_mac: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkDataTemplate {
    pub links: NetworkLinks,
    pub networks: Networks,
    pub services: NetworkServices,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkLinks {
    pub ethernets: Vec<Link>,
    pub bonds: Vec<Link>,
    pub vlans: Vec<Link>,
    /// Known, and refused: cloud-init's network data has no bridges.
    pub bridges: Vec<Value>,
}

/// An Ethernet NIC, a bond or a VLAN; fields of the other kinds are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Link {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub mtu: Option<u32>,
    pub mac_address: Option<LinkMac>,
    pub bond_mode: Option<String>,
    pub bond_xmit_hash_policy: Option<String>,
    pub bond_links: Vec<String>,
    #[serde(rename = "vlanID")]
    pub vlan_id: Option<u32>,
    pub vlan_link: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkMac {
    pub string: Option<String>,
    /// Name of a NIC in the host's `status.hardware`.
    pub from_host_interface: Option<String>,
    pub from_annotation: Option<AnnotationOf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnotationOf {
    pub object: ObjectKind,
    pub annotation: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Networks {
    /// Known, and refused: their addresses come from IP pools.
    pub ipv4: Vec<Value>,
    pub ipv6: Vec<Value>,
    #[serde(rename = "ipv4DHCP")]
    pub ipv4_dhcp: Vec<Dhcp>,
    #[serde(rename = "ipv6DHCP")]
    pub ipv6_dhcp: Vec<Dhcp>,
    #[serde(rename = "ipv6SLAAC")]
    pub ipv6_slaac: Vec<Dhcp>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dhcp {
    pub id: String,
    pub link: String,
    pub routes: Vec<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkServices {
    pub dns: Vec<String>,
    #[serde(rename = "dnsFromIPPool")]
    pub dns_from_ip_pool: Option<String>,
}
