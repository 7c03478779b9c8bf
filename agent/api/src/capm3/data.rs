use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pools::{FromPool, Gateway, NetworkServices, StaticNetwork};
use crate::object::Object;

/// What the metadata and network data of machines are made from.
pub type Metal3DataTemplate = Object<DataTemplateSpec, DataTemplateStatus>;

/// Upstream's `Metal3DataTemplateSpec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataTemplateSpec {
    /// The `Cluster` whose machines use it.
    #[serde(default)]
    pub cluster_name: String,
    /// Absent: only the keys that every machine gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<MetaDataTemplate>,
    /// Absent: no network data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<NetworkDataTemplate>,
}

/// Upstream's `Metal3DataTemplateStatus`, written by `machines`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataTemplateStatus {
    /// Stable for the life of a machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexEntry>,
}

/// One machine's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// Of the `Metal3Machine`.
    pub name: String,
    /// From 0: the lowest that was free.
    pub index: i32,
}

/// Each entry becomes one key of the metadata.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetaDataTemplate {
    /// Fixed values.
    pub strings: Vec<NamedString>,
    /// Names of objects.
    pub object_names: Vec<FromObjectName>,
    /// Made of the machine's number.
    pub indexes: Vec<NamedIndex>,
    /// The machine's namespace.
    pub namespaces: Vec<NamedNamespace>,
    /// Labels of objects.
    pub from_labels: Vec<FromLabel>,
    /// Annotations of objects.
    pub from_annotations: Vec<FromAnnotation>,
    /// MAC addresses of the host.
    pub from_host_interfaces: Vec<FromHostInterface>,
    /// The machine's address out of a pool.
    pub ip_addresses_from_pool: Vec<FromPool>,
    /// Bits of the network that the address is in.
    pub prefixes_from_pool: Vec<FromPool>,
    /// The gateway of that network; empty if the pool says none.
    pub gateways_from_pool: Vec<FromPool>,
    /// `dnsServersFromPool`: name servers in that network, with commas between them.
    #[serde(rename = "dnsServersFromPool")]
    pub dns_servers_from_pool: Vec<FromPool>,
}

/// Which of a machine's three objects; written in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectKind {
    /// Cluster API's.
    Machine,
    /// Ours.
    Metal3Machine,
    /// The host that it has.
    BareMetalHost,
}

/// Upstream's `MetaDataString`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedString {
    /// Of the metadata.
    pub key: String,
    /// As it is.
    pub value: String,
}

/// Upstream's `MetaDataObjectName`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromObjectName {
    /// Of the metadata.
    pub key: String,
    /// Whose name is the value.
    pub object: ObjectKind,
}

/// Upstream's `MetaDataIndex`: the value is `PREFIX`, `offset + index * step`, `SUFFIX`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedIndex {
    /// Of the metadata.
    pub key: String,
    /// Absent: 0.
    #[serde(default)]
    pub offset: i32,
    /// Absent: 1.
    #[serde(default = "one")]
    pub step: i32,
    /// May be empty.
    #[serde(default)]
    pub prefix: String,
    /// May be empty.
    #[serde(default)]
    pub suffix: String,
}

fn one() -> i32 {
    1
}

/// Upstream's `MetaDataNamespace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedNamespace {
    /// Of the metadata; the value is the namespace of the `Metal3Machine`.
    pub key: String,
}

/// Upstream's `MetaDataFromLabel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromLabel {
    /// Of the metadata.
    pub key: String,
    /// Whose label it is.
    pub object: ObjectKind,
    /// Its key; without such a label the value is empty.
    pub label: String,
}

/// Upstream's `MetaDataFromAnnotation`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromAnnotation {
    /// Of the metadata.
    pub key: String,
    /// Whose annotation it is.
    pub object: ObjectKind,
    /// Its key; without such an annotation the value is empty.
    pub annotation: String,
}

/// Upstream's `MetaDataHostInterface`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FromHostInterface {
    /// Of the metadata.
    pub key: String,
    /// Name of a NIC in the host's `status.hardware`; without such a NIC the value is empty.
    #[serde(default)]
    pub interface: String,
    /// `fromBootMAC`: the value is the host's `bootMACAddress`, whatever `interface` says.
    #[serde(rename = "fromBootMAC", default)]
    pub from_boot_mac: bool,
}

/// Upstream's `NetworkData`; it becomes `network_data.json` as cloud-init reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkDataTemplate {
    /// Interfaces.
    pub links: NetworkLinks,
    /// How interfaces get their addresses.
    pub networks: Networks,
    /// Whom nodes ask.
    pub services: NetworkServices,
}

/// Upstream's `NetworkDataLink`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkLinks {
    /// NICs.
    pub ethernets: Vec<Link>,
    /// Several NICs as one.
    pub bonds: Vec<Link>,
    /// Tagged networks on top of another link.
    pub vlans: Vec<Link>,
    /// Known, and refused: cloud-init's network data has no bridges.
    pub bridges: Vec<Value>,
}

/// An Ethernet NIC, a bond or a VLAN; fields of the other kinds are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Link {
    /// By which others refer to it; a link without one is refused.
    pub id: String,
    /// What the node calls the interface from then on; absent: as it does.
    pub name: Option<String>,
    /// `type` of a NIC; absent: `phy`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Bytes, 9000 at most; absent: as the NIC has it.
    pub mtu: Option<u32>,
    /// By which the node finds the NIC.
    pub mac_address: Option<LinkMac>,
    /// As Linux calls it: `802.3ad`.
    pub bond_mode: Option<String>,
    /// As Linux calls it: `layer2`, `layer3+4` or `layer2+3`.
    pub bond_xmit_hash_policy: Option<String>,
    /// `id` of each NIC in the bond.
    pub bond_links: Vec<String>,
    /// Of the bond, each with `bond_` before its name in `network_data.json`: `miimon`, `lacp_rate`.
    pub parameters: Vec<BondParameter>,
    /// `vlanID`: 1 to 4094.
    #[serde(rename = "vlanID")]
    pub vlan_id: Option<u32>,
    /// `id` of the link that carries it.
    pub vlan_link: Option<String>,
}

/// Upstream's `NetworkDataLinkBondParam`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BondParameter {
    /// Without `bond_`.
    pub name: String,
    /// As it is; upstream's schema wants an object, and its samples have numbers and texts.
    pub value: Value,
}

/// Upstream's `NetworkLinkEthernetMac`: the first field that is there counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkMac {
    /// The address itself.
    pub string: Option<String>,
    /// Name of a NIC in the host's `status.hardware`.
    pub from_host_interface: Option<String>,
    /// The value of an annotation; the machine waits while it is not there.
    pub from_annotation: Option<AnnotationOf>,
}

/// Upstream's `NetworkLinkEthernetMacFromAnnotation`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnotationOf {
    /// Whose annotation it is.
    pub object: ObjectKind,
    /// Its key.
    pub annotation: String,
}

/// Upstream's `NetworkDataNetwork`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Networks {
    /// With addresses of IPv4 out of pools.
    pub ipv4: Vec<StaticNetwork>,
    /// With addresses of IPv6 out of pools.
    pub ipv6: Vec<StaticNetwork>,
    /// `ipv4DHCP`.
    #[serde(rename = "ipv4DHCP")]
    pub ipv4_dhcp: Vec<Dhcp>,
    /// `ipv6DHCP`.
    #[serde(rename = "ipv6DHCP")]
    pub ipv6_dhcp: Vec<Dhcp>,
    /// `ipv6SLAAC`: addresses out of router advertisements.
    #[serde(rename = "ipv6SLAAC")]
    pub ipv6_slaac: Vec<Dhcp>,
}

/// Upstream's `NetworkDataIPv4DHCP` and its two likes: a network that gives addresses itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dhcp {
    /// Of the network.
    pub id: String,
    /// [`Link::id`] of the interface.
    pub link: String,
    /// Beside those that the network itself gives.
    pub routes: Vec<Route>,
}

/// Upstream's `NetworkDataRoutev4` and `NetworkDataRoutev6`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// Its address: `10.0.0.0`.
    pub network: String,
    /// Bits of the network, 32 or 128 at most; absent: 0.
    pub prefix: u8,
    /// Whom the node sends to.
    pub gateway: Gateway,
    /// Whom it asks there.
    pub services: NetworkServices,
}
