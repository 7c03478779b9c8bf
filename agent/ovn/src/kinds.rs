//! `LogicalNetwork`, which people write, and `LogicalPort`, which the plugin of a node makes for an interface of a pod. What is said of a
//! network is checked here once.

use std::{collections::BTreeMap, net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub const GROUP: &str = "firstlight.internal";
const VERSION: &str = "v1alpha1";
/// Geneve takes 58 bytes of a packet, with IPv6 below it 78, and 1500 is what a cable has.
const OVERLAY_MTU: u32 = 1400;
const PROVIDER_MTU: u32 = 1500;
const MTU: RangeInclusive<u32> = 576..=9000;
const VLAN: RangeInclusive<u16> = 1..=4094;
const MOST_RULES: usize = 200;
/// One flow for each of them, and for each pod.
const MOST_OF_A_RULE: usize = 50;

pub fn networks() -> ApiResource {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, "LogicalNetwork");
    ApiResource::from_gvk_with_plural(&kind, "logicalnetworks")
}

pub fn ports() -> ApiResource {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, "LogicalPort");
    ApiResource::from_gvk_with_plural(&kind, "logicalports")
}

/// Multus finds networks by these.
pub fn definitions() -> ApiResource {
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions")
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NetworkSpec {
    subnet: IpNet,
    gateway: Option<IpAddr>,
    #[serde(default)]
    exclude: Vec<String>,
    mtu: Option<u32>,
    provider: Option<Provider>,
    #[serde(default)]
    routes: Vec<Route>,
    dhcp: Option<Dhcp>,
    #[serde(default)]
    acls: Vec<Acl>,
}

/// A network of the site, which nodes reach by a NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provider {
    /// As `physicalNetworks` of the addon's values names it.
    pub physical_network: String,
    pub vlan: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    pub to: IpNet,
    pub via: IpAddr,
}

/// For what asks in a pod, as a virtual machine there does; a pod has its address without it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Dhcp {
    #[serde(default)]
    pub dns: Vec<IpAddr>,
    pub domain: Option<String>,
    pub lease_seconds: Option<u32>,
}

/// The first that fits decides; what none fits passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acl {
    pub action: Verdict,
    pub direction: Direction,
    /// Labels of the pods that it is about; none: all of the network.
    #[serde(default)]
    pub pods: BTreeMap<String, String>,
    /// The other side; none: any.
    #[serde(default)]
    pub peers: Vec<IpNet>,
    pub protocol: Option<Protocol>,
    #[serde(default)]
    pub ports: Vec<Ports>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Allow,
    Drop,
    Reject,
}

/// As the pod sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    In,
    Out,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
    Icmp,
}

/// `80` or `"8000-8080"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ports {
    One(u16),
    Range(String),
}

impl Ports {
    pub fn range(&self) -> Option<RangeInclusive<u16>> {
        match self {
            Self::One(port) => Some(*port..=*port),
            Self::Range(text) => {
                let (first, last) = text.split_once('-')?;
                let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
                (!range.is_empty()).then_some(range)
            }
        }
    }
}

/// Namespace and name as one word, which is what it is called in OVN and in the plugin's configuration.
pub fn key(meta: &ObjectMeta) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&meta.namespace), part(&meta.name))
}

/// A network that can be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Network {
    pub key: String,
    pub subnet: IpNet,
    pub gateway: Option<IpAddr>,
    /// First and last of each range that is given to nobody.
    pub exclude: Vec<(IpAddr, IpAddr)>,
    pub mtu: u32,
    pub provider: Option<Provider>,
    pub routes: Vec<Route>,
    pub dhcp: Option<Dhcp>,
    pub acls: Vec<Acl>,
}

impl Network {
    /// An error is a sentence for who wrote it, with the place.
    pub fn parse(object: &DynamicObject) -> Result<Self, String> {
        let spec: NetworkSpec = part(object, "spec")?;
        let subnet = spec.subnet.trunc();
        if subnet != spec.subnet {
            return Err(format!(
                "spec.subnet: {} is an address in {subnet}, which is the network",
                spec.subnet
            ));
        }
        if subnet.max_prefix_len() - subnet.prefix_len() < 2 {
            return Err(format!("spec.subnet: {subnet} has no addresses for pods"));
        }
        let is_of = |place: &str, address: &IpAddr| {
            if subnet.contains(address) {
                Ok(())
            } else {
                Err(format!("spec.{place}: {address} is not in {subnet}"))
            }
        };
        if let Some(gateway) = &spec.gateway {
            is_of("gateway", gateway)?;
        }
        let mut exclude = Vec::new();
        for (index, text) in spec.exclude.iter().enumerate() {
            let place = format!("exclude[{index}]");
            let range = parse_range(text).ok_or_else(|| {
                format!("spec.{place}: `{text:.60}` is no address and no FIRST-LAST")
            })?;
            is_of(&place, &range.0)?;
            is_of(&place, &range.1)?;
            exclude.push(range);
        }
        for (index, route) in spec.routes.iter().enumerate() {
            is_of(&format!("routes[{index}].via"), &route.via)?;
        }
        let provider_mtu = spec.provider.as_ref().map(|_| PROVIDER_MTU);
        let mtu = spec.mtu.or(provider_mtu).unwrap_or(OVERLAY_MTU);
        if !MTU.contains(&mtu) {
            return Err(format!("spec.mtu: {mtu} is not within 576 and 9000"));
        }
        if let Some(Provider {
            vlan: Some(tag), ..
        }) = &spec.provider
            && !VLAN.contains(tag)
        {
            return Err(format!(
                "spec.provider.vlan: {tag} is not within 1 and 4094"
            ));
        }
        if spec.dhcp.is_some() && subnet.addr().is_ipv6() {
            return Err("spec.dhcp: is for IPv4; leave it out".to_owned());
        }
        if spec.acls.len() > MOST_RULES {
            return Err(format!("spec.acls: at most {MOST_RULES}"));
        }
        for (index, acl) in spec.acls.iter().enumerate() {
            check(acl).map_err(|why| format!("spec.acls[{index}].{why}"))?;
        }
        Ok(Self {
            key: key(&object.metadata),
            subnet,
            gateway: spec.gateway,
            exclude,
            mtu,
            provider: spec.provider,
            routes: spec.routes,
            dhcp: spec.dhcp,
            acls: spec.acls,
        })
    }
}

fn check(acl: &Acl) -> Result<(), String> {
    if acl.peers.len() > MOST_OF_A_RULE || acl.ports.len() > MOST_OF_A_RULE {
        return Err(format!("peers and ports: at most {MOST_OF_A_RULE} of each"));
    }
    if !acl.ports.is_empty() && matches!(acl.protocol, None | Some(Protocol::Icmp)) {
        return Err("ports: say which `protocol`: tcp, udp or sctp".to_owned());
    }
    let wrong = acl.ports.iter().find(|ports| ports.range().is_none());
    match wrong {
        Some(ports) => Err(format!(
            "ports: {} is no port and no \"FIRST-LAST\"",
            serde_json::to_string(ports).unwrap_or_default()
        )),
        None => Ok(()),
    }
}

fn parse_range(text: &str) -> Option<(IpAddr, IpAddr)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some((first, last))
}

/// An interface of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortSpec {
    /// Namespace and name of the network.
    pub network: String,
    pub pod: String,
    pub node: String,
    /// Asked for by the pod's annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// What the interface gets, or why it gets nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpNet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Written when there is none, too: one that was told goes.
    #[serde(default)]
    pub problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub key: String,
    pub spec: PortSpec,
    pub status: PortStatus,
}

impl Port {
    pub fn parse(object: &DynamicObject) -> Result<Self, String> {
        Ok(Self {
            key: key(&object.metadata),
            spec: part(object, "spec")?,
            status: part(object, "status").unwrap_or_default(),
        })
    }

    /// Of the pod that it is an interface of.
    pub fn pod_key(&self) -> String {
        let namespace = self.key.split('/').next().unwrap_or_default();
        format!("{namespace}/{}", self.spec.pod)
    }
}

fn part<T: DeserializeOwned>(object: &DynamicObject, name: &str) -> Result<T, String> {
    let part = object.data.get(name).cloned().unwrap_or_default();
    serde_json::from_value(part).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use crate::testing::{network, port};

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        for (spec, why) in [
            (json!({}), "spec: missing field `subnet`"),
            (
                json!({"subnet": "10.0.0.0/24", "sub": 1}),
                "unknown field `sub`",
            ),
            (
                json!({"subnet": "10.0.0.1/24"}),
                "is an address in 10.0.0.0/24",
            ),
            (json!({"subnet": "10.0.0.0/31"}), "no addresses for pods"),
            (
                json!({"subnet": "10.0.0.0/24", "gateway": "fd00::1"}),
                "spec.gateway: fd00::1 is not in 10.0.0.0/24",
            ),
            (
                json!({"subnet": "10.0.0.0/24", "exclude": ["10.0.0.9-10.0.0.1"]}),
                "spec.exclude[0]: `10.0.0.9-10.0.0.1`",
            ),
            (
                json!({"subnet": "10.0.0.0/24", "routes": [{"to": "10.1.0.0/16", "via": "10.2.0.1"}]}),
                "spec.routes[0].via",
            ),
            (json!({"subnet": "10.0.0.0/24", "mtu": 60}), "spec.mtu"),
            (
                json!({"subnet": "10.0.0.0/24", "provider": {"physicalNetwork": "a", "vlan": 4095}}),
                "spec.provider.vlan",
            ),
            (json!({"subnet": "fd00::/64", "dhcp": {}}), "spec.dhcp"),
            (
                json!({"subnet": "10.0.0.0/24", "acls": [{"action": "drop", "direction": "in", "ports": [80]}]}),
                "spec.acls[0].ports: say which `protocol`",
            ),
            (
                json!({"subnet": "10.0.0.0/24", "acls": [{"action": "drop", "direction": "in", "protocol": "tcp", "ports": ["9-1"]}]}),
                "spec.acls[0].ports: \"9-1\" is no port",
            ),
        ] {
            let told = network("a/blue", &spec).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    fn word() -> impl Strategy<Value = serde_json::Value> {
        prop_oneof![
            any::<String>().prop_map(|text| json!(text)),
            any::<i64>().prop_map(|number| json!(number)),
            prop::sample::select(vec![
                "10.0.0.0/8",
                "10.0.0.0/24",
                "fd00::/64",
                "::/0",
                "0.0.0.0/0",
                "255.255.255.252/30",
                "10.0.0.7",
                "10.255.255.255",
                "fd00::7",
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                "in",
                "drop",
                "tcp",
                "1-2",
                "65535",
            ])
            .prop_map(|text| json!(text)),
            Just(json!(null)),
        ]
    }

    proptest! {
        #[test]
        fn no_object_of_people_breaks_the_controller(words in prop::collection::vec(word(), 12), full in any::<bool>()) {
            let mut words = words.into_iter();
            let mut next = || words.next().unwrap_or_default();
            let mut spec = json!({"subnet": next(), "gateway": next(), "exclude": [next()], "mtu": next()});
            if full {
                spec["acls"] = json!([{"action": "drop", "direction": "in", "peers": [next()], "protocol": next(), "ports": [next()]}]);
                spec["routes"] = json!([{"to": next(), "via": next()}]);
                spec["dhcp"] = json!({"dns": [next()], "domain": next()});
            }
            if let Ok(network) = network("a/blue", &spec) {
                let networks = [(network.key.clone(), network)].into();
                let given = crate::addresses::give(&networks, &[port("a/1", "a/blue"), port("a/2", "a/blue")]);
                prop_assert_eq!(given.len(), 2);
            }
        }
    }
}
