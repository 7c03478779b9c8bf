#![allow(clippy::unwrap_used)]
use firstlight_api::{
    bmh::{HardwareDetails, Nic},
    capi::Machine,
    capm3::Metal3Machine,
    ipam::PoolRef,
    object::Meta,
};
use serde::Deserialize;

use std::collections::BTreeMap;

use super::*;
use crate::capi::{
    addresses::{GivenAddress, IpamApi},
    world::Host,
};

#[test]
fn what_has_no_meaning_is_told() {
    let (host, metal3_machine) = (Host::default(), Metal3Machine::default());
    let subject = Subject {
        host: &host,
        metal3_machine: &metal3_machine,
        machine: None,
        address: None,
        ipv6_address: None,
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
        let template: NetworkDataTemplate = serde_json::from_value(network).unwrap();
        let told = network_data(&subject, &template, &FromPools::default()).unwrap_err();
        assert!(told.contains(why), "{told}");
    }
}

/// One line of upstream's tables.
#[derive(Deserialize)]
struct Case {
    name: String,
    template: NetworkDataTemplate,
    #[serde(default)]
    pools: Vec<Pool>,
    /// By kind of object.
    #[serde(default)]
    annotations: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    nics: Vec<Nic>,
    /// `None`: it is refused.
    rendered: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
struct Pool {
    #[serde(flatten)]
    named: PoolRef,
    address: Option<IpAddr>,
    prefix: Option<u8>,
    gateway: Option<IpAddr>,
    #[serde(default)]
    dns: Vec<IpAddr>,
}

impl Pool {
    fn given(&self) -> (PoolRef, GivenAddress) {
        let given = GivenAddress {
            api: IpamApi::Metal3,
            meta: Meta::default(),
            pool: self.named.clone(),
            claim: String::new(),
            ip: self.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            prefix: self.prefix,
            gateway: self.gateway,
            dns_servers: self.dns.clone(),
        };
        (self.named.clone(), given)
    }
}

/// An empty policy of a bond: upstream writes it, and cloud-init hands it on to the kernel. Here it is left out.
fn without_empty_policies(mut rendered: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let links = rendered.get_mut("links").and_then(Value::as_array_mut);
    for link in links.into_iter().flatten().filter_map(Value::as_object_mut) {
        let is_empty = link.get("bond_xmit_hash_policy") == Some(&json!(""));
        if is_empty {
            link.remove("bond_xmit_hash_policy");
        }
    }
    rendered
}

#[test]
fn it_is_rendered_as_upstream_does() {
    let mut table: Value = serde_json::from_str(include_str!("upstream.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_value(table["cases"].take()).unwrap();
    assert_eq!(cases.len(), 39);
    for case in cases {
        let annotations = |of: &str| case.annotations.get(of).cloned().unwrap_or_default();
        let (mut host, mut metal3_machine) = (Host::default(), Metal3Machine::default());
        let mut machine = Machine::default();
        host.metadata.annotations = annotations("baremetalhost");
        metal3_machine.metadata.annotations = annotations("metal3machine");
        machine.metadata.annotations = annotations("machine");
        host.status.hardware = Some(HardwareDetails {
            nics: case.nics.clone(),
            ..HardwareDetails::default()
        });
        let subject = Subject {
            host: &host,
            metal3_machine: &metal3_machine,
            machine: Some(&machine),
            address: None,
            ipv6_address: None,
        };
        let pools = FromPools(case.pools.iter().map(Pool::given).collect());
        let made = network_data(&subject, &case.template, &pools);
        let Some(rendered) = case.rendered else {
            assert!(made.is_err(), "{}: {made:?}", case.name);
            continue;
        };
        let made = made.unwrap_or_else(|why| panic!("{}: {why}", case.name));
        for (part, expected) in without_empty_policies(rendered) {
            assert_eq!(made[&part], expected, "{}", case.name);
        }
    }
}
