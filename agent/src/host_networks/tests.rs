#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use firstlight_api::{
    ipam::{IpAddress, IpClaim, IpRange},
    site::{SiteConfig, parse_site},
    status::HardwareSummary,
};
use serde_json::{Value, json};

use super::*;
use crate::{
    capi::{
        Action,
        addresses::{AddressClaim, GivenAddress, IpamApi},
        site_networks::{Family, claim, pool},
        world::{Host, World},
    },
    objects::Key,
};

const SITE: &str = "
provisioning: {gateway: 172.22.0.254}
networks:
  cluster: {subnet: 10.20.0.0/24, vlan: 20, gateway: 10.20.0.1, dns: [10.20.0.1], ntp: [ntp.example], search: [site.example], mtu: 9000, routes: [{to: 10.0.0.0/8, via: 10.20.0.2}]}
  storage: {subnet: 10.30.0.0/24, vlan: 30}
  office: {dhcp: theirs, vlan: 40}
cluster: {network: cluster}
hosts:
- {mac: '52:54:00:00:00:02', name: n2, addresses: {cluster: 10.20.0.12}}
rules:
- match: {nics: 1}
  links: [{nic: boot, networks: [provisioning, storage]}]
  defaultRoute: provisioning
- match: any
  links:
  - {bond: 802.3ad, nics: [boot, eth1], parameters: {xmit_hash_policy: layer3+4}, networks: [provisioning, cluster, storage]}
  - {nic: eth2, networks: [office]}
  defaultRoute: cluster
";

fn host(namespace: &str, name: &str, state: &str, nics: u8) -> Host {
    let number = name.trim_start_matches('n');
    let nics = (0..nics).map(|nic| {
        let mac = if nic == 0 {
            format!("52:54:00:00:00:0{number}")
        } else {
            format!("52:54:00:00:0{nic}:0{number}")
        };
        json!({"name": format!("eth{nic}"), "mac": mac, "ip": "", "pxe": nic == 0})
    });
    let nics: Vec<Value> = nics.collect();
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}")},
        "spec": {"bootMACAddress": nics[0]["mac"]},
        "status": {"provisioning": {"state": state}, "hardware": {"nics": nics}},
    }))
    .unwrap()
}

fn world(hosts: impl IntoIterator<Item = Host>) -> World {
    let hosts = hosts.into_iter();
    World {
        site: Arc::new(parse_site(SITE).unwrap()),
        hosts: hosts.map(|host| (Key::of(&host.metadata), host)).collect(),
        ..World::default()
    }
}

/// What the API server and the pools' controller do with the writes; the names of the objects in them.
fn carry_out(world: &mut World) -> Vec<String> {
    let mut written = Vec::new();
    for action in plan(world).into_iter().flatten() {
        match action {
            Action::Put(object) | Action::Create(object) => {
                let meta = &object["metadata"];
                let text = |name: &str| meta[name].as_str().unwrap().to_owned();
                let key = Key::new(&text("namespace"), &text("name"));
                let kind = object["kind"].as_str().unwrap();
                written.push(format!("{kind} {key}"));
                match kind {
                    "IPPool" => drop(
                        world
                            .pools
                            .insert(key, serde_json::from_value(object).unwrap()),
                    ),
                    "IPClaim" => give(world, key, object),
                    "Secret" => {
                        let data: BTreeMap<String, String> =
                            serde_json::from_value(object["stringData"].clone()).unwrap();
                        world.data.insert(key, data);
                    }
                    kind => panic!("{kind}"),
                }
            }
            Action::Delete(_, meta) => {
                written.push(format!("- {}", meta.name));
                let key = (IpamApi::Metal3, Key::of(&meta));
                world
                    .addresses
                    .claims
                    .get_mut(&key)
                    .unwrap()
                    .meta
                    .deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
            }
            Action::Patch { key, .. } => {
                written.push(format!("gone {}", key.name));
                world
                    .addresses
                    .claims
                    .remove(&(IpamApi::Metal3, key.clone()));
                world
                    .addresses
                    .given
                    .retain(|_, given| given.claim != key.name);
            }
            other => panic!("{other:?}"),
        }
    }
    written
}

fn give(world: &mut World, key: Key, object: Value) {
    // One that is there already stays as it is.
    let there = (IpamApi::Metal3, key.clone());
    if world.addresses.claims.contains_key(&there) {
        return;
    }
    let mut claim: IpClaim = serde_json::from_value(object).unwrap();
    let pool = &world.pools[&Key::new(&key.namespace, &claim.spec.pool.name)].spec;
    let taken: BTreeSet<IpAddr> = world.addresses.given.values().map(|it| it.ip).collect();
    let kept: BTreeSet<IpAddr> = pool.pre_allocations.values().copied().collect();
    let number = 0..100;
    let mut free = number.map(|number| match pool.pools[0].start.unwrap() {
        IpAddr::V4(first) => IpAddr::V4((first.to_bits() + number).into()),
        IpAddr::V6(first) => IpAddr::V6((first.to_bits() + u128::from(number)).into()),
    });
    let free = free
        .find(|ip| !taken.contains(ip) && !kept.contains(ip))
        .unwrap();
    let ip = pool.pre_allocations.get(&key.name).copied().unwrap_or(free);
    let inside = |range: &IpRange| range.start <= Some(ip) && Some(ip) <= range.end;
    assert!(
        pool.pools.iter().any(inside),
        "{ip} is in no range: {pool:?}"
    );
    let name = format!("{}-{ip}", claim.spec.pool.name);
    claim.status = serde_json::from_value(json!({"address": {"name": name}})).unwrap();
    let address: IpAddress = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": key.namespace},
        "spec": {"address": ip, "pool": claim.spec.pool, "claim": {"name": key.name}, "prefix": pool.prefix},
    }))
    .unwrap();
    let at = (IpamApi::Metal3, Key::new(&key.namespace, &name));
    world
        .addresses
        .given
        .insert(at, GivenAddress::metal3(&address).unwrap());
    world
        .addresses
        .claims
        .insert((IpamApi::Metal3, key), AddressClaim::metal3(&claim));
}

fn network_data(world: &World, namespace: &str, host: &str) -> Value {
    let secret = &world.data[&Key::new(namespace, &secret_name(host))];
    serde_json::from_str(&secret["networkData"]).unwrap()
}

#[test]
fn a_host_gets_its_addresses_and_then_its_network_data() {
    let mut world = world([
        host("default", "n1", "available", 3),
        host("racks", "n2", "available", 3),
    ]);
    assert_eq!(
        carry_out(&mut world),
        [
            "IPPool default/site-cluster",
            "IPPool default/site-storage",
            "IPClaim default/n1-site-cluster",
            "IPClaim default/n1-site-storage",
            "IPClaim default/racks.n2-site-cluster",
            "IPClaim default/racks.n2-site-storage",
        ]
    );
    let pool = &world.pools[&Key::new("default", "site-cluster")].spec;
    assert_eq!(pool.gateway.unwrap().to_string(), "10.20.0.1");
    assert_eq!(
        pool.pre_allocations["racks.n2-site-cluster"].to_string(),
        "10.20.0.12"
    );
    assert_eq!(
        carry_out(&mut world),
        [
            "Secret default/n1-network-data",
            "Secret racks/n2-network-data"
        ]
    );
    assert_eq!(carry_out(&mut world), Vec::<String>::new());
    let boot = "52:54:00:00:00:01";
    let first = |subnet: &str| pools_first(&world, subnet);
    assert_eq!(
        network_data(&world, "default", "n1"),
        json!({
            "links": [
                {"id": "link0-nic0", "type": "phy", "ethernet_mac_address": boot, "mtu": 9000},
                {"id": "link0-nic1", "type": "phy", "ethernet_mac_address": "52:54:00:00:01:01", "mtu": 9000},
                {
                    "id": "link0", "type": "bond", "ethernet_mac_address": boot, "mtu": 9000, "bond_mode": "802.3ad",
                    "bond_links": ["link0-nic0", "link0-nic1"], "bond_miimon": "100", "bond_xmit_hash_policy": "layer3+4",
                },
                {"id": "link0-20", "type": "vlan", "vlan_id": 20, "vlan_link": "link0", "vlan_mac_address": boot, "mtu": 9000},
                {"id": "link0-30", "type": "vlan", "vlan_id": 30, "vlan_link": "link0", "vlan_mac_address": boot, "mtu": 1500},
                {"id": "link1", "type": "phy", "ethernet_mac_address": "52:54:00:00:02:01"},
                {"id": "link1-40", "type": "vlan", "vlan_id": 40, "vlan_link": "link1", "vlan_mac_address": "52:54:00:00:02:01"},
            ],
            "networks": [
                {"id": "provisioning", "link": "link0", "type": "ipv4_dhcp"},
                {
                    "id": "cluster", "link": "link0-20", "type": "ipv4", "ip_address": first("cluster"), "netmask": "255.255.255.0",
                    "routes": [
                        {"network": "10.0.0.0", "netmask": "255.0.0.0", "gateway": "10.20.0.2"},
                        {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.20.0.1"},
                    ],
                    "services": [{"type": "dns", "address": "10.20.0.1"}, {"type": "ntp", "address": "ntp.example"}], "dns_search": ["site.example"],
                },
                {
                    "id": "storage", "link": "link0-30", "type": "ipv4", "ip_address": first("storage"), "netmask": "255.255.255.0",
                    "routes": [], "services": [], "dns_search": [],
                },
                {"id": "office", "link": "link1-40", "type": "ipv4_dhcp"},
            ],
            "services": [],
        })
    );
    let other = network_data(&world, "racks", "n2");
    assert_eq!(other["networks"][1]["ip_address"], "10.20.0.12");
}

fn pools_first(world: &World, network: &str) -> IpAddr {
    world.pools[&pool(network, Family::Ipv4)].spec.pools[0]
        .start
        .unwrap()
}

#[test]
fn a_network_of_both_families_has_a_pool_and_an_address_of_each() {
    let mut world = world([
        host("default", "n1", "available", 1),
        host("default", "n2", "available", 1),
    ]);
    let site = "
networks:
  nodes:
    subnet: [10.20.0.0/24, 'fd00:20::/64']
    gateway: [10.20.0.1, 'fe80::1']
    dns: [10.20.0.1, 'fd00:20::1']
    routes: [{to: 'fd00::/8', via: 'fd00:20::2'}]
    vlan: 20
hosts:
- {mac: '52:54:00:00:00:02', name: n2, addresses: {nodes: ['fd00:20::12', 10.20.0.12]}}
rules: [{match: any, links: [{nic: boot, networks: [provisioning, nodes]}]}]
";
    world.site = Arc::new(parse_site(site).unwrap());
    assert_eq!(
        carry_out(&mut world),
        [
            "IPPool default/site-nodes",
            "IPPool default/site-nodes.ipv6",
            "IPClaim default/n1-site-nodes",
            "IPClaim default/n1-site-nodes.ipv6",
            "IPClaim default/n2-site-nodes",
            "IPClaim default/n2-site-nodes.ipv6",
        ]
    );
    carry_out(&mut world);
    assert_eq!(carry_out(&mut world), Vec::<String>::new());
    let data = network_data(&world, "default", "n1");
    assert_eq!(
        data["networks"][2],
        json!({
            "id": "nodes.ipv6", "link": "link0-20", "type": "ipv6", "ip_address": "fd00:20::1000", "netmask": "ffff:ffff:ffff:ffff::",
            "routes": [
                {"network": "fd00::", "netmask": "ff00::", "gateway": "fd00:20::2"},
                {"network": "::", "netmask": "::", "gateway": "fe80::1"},
            ],
            "services": [{"type": "dns", "address": "fd00:20::1"}], "dns_search": [],
        })
    );
    assert_eq!(data["networks"][1]["routes"][0]["gateway"], "10.20.0.1");
    let named = network_data(&world, "default", "n2");
    let addresses = [1, 2].map(|at| named["networks"][at]["ip_address"].clone());
    assert_eq!(addresses, ["10.20.0.12", "fd00:20::12"]);
    // IPv6 goes away: nobody's address of IPv4 changes.
    let without = site
        .replace(", 'fd00:20::/64'", "")
        .replace(", 'fe80::1'", "")
        .replace("'fd00:20::12', ", "")
        .replace("{to: 'fd00::/8', via: 'fd00:20::2'}", "");
    world.site = Arc::new(parse_site(without).unwrap());
    for _ in 0..3 {
        carry_out(&mut world);
    }
    let data = network_data(&world, "default", "n1");
    assert_eq!(data["networks"].as_array().unwrap().len(), 2);
    let claims = world.addresses.claims.keys();
    let claims: Vec<&str> = claims.map(|(_, key)| key.name.as_str()).collect();
    assert_eq!(claims, ["n1-site-nodes", "n2-site-nodes"]);
}

#[test]
fn a_rule_by_what_a_server_is_made_of_gives_it_other_links() {
    let mut world = world([host("default", "n3", "available", 1)]);
    carry_out(&mut world);
    carry_out(&mut world);
    let data = network_data(&world, "default", "n3");
    assert_eq!(data["links"].as_array().unwrap().len(), 2);
    assert!(!world.carries(&world.hosts[&Key::new("default", "n3")], "cluster"));
}

#[test]
fn a_running_server_keeps_its_addresses_and_a_free_one_gives_them_back() {
    let mut world = world([
        host("default", "n1", "provisioned", 3),
        host("default", "n2", "available", 3),
    ]);
    carry_out(&mut world);
    carry_out(&mut world);
    let others = SITE
        .replace(
            "addresses: {cluster: 10.20.0.12}",
            "addresses: {cluster: 10.20.0.13}",
        )
        .replace(
            "networks: [provisioning, cluster, storage]",
            "networks: [provisioning, cluster]",
        );
    world.site = Arc::new(parse_site(others).unwrap());
    assert_eq!(
        carry_out(&mut world),
        [
            "IPPool default/site-cluster",
            "Secret default/n1-network-data",
            "- n2-site-cluster",
            "- n2-site-storage",
        ]
    );
    // What n1 was installed with stays its own.
    assert!(
        world
            .site_address(
                &world.hosts[&Key::new("default", "n1")].metadata,
                "storage",
                Family::Ipv4
            )
            .is_some()
    );
    assert_eq!(
        carry_out(&mut world),
        ["gone n2-site-cluster", "gone n2-site-storage"]
    );
    assert_eq!(carry_out(&mut world), ["IPClaim default/n2-site-cluster"]);
    assert_eq!(carry_out(&mut world), ["Secret default/n2-network-data"]);
    let data = network_data(&world, "default", "n2");
    assert_eq!(data["networks"][1]["ip_address"], "10.20.0.13");
    // A claim that somebody deletes is held while its address is in use.
    let claim = (
        IpamApi::Metal3,
        claim(
            &world.hosts[&Key::new("default", "n1")].metadata,
            "cluster",
            Family::Ipv4,
        ),
    );
    let meta = &mut world.addresses.claims.get_mut(&claim).unwrap().meta;
    meta.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
    assert_eq!(carry_out(&mut world), Vec::<String>::new());
    // Nothing is known of a site whose file cannot be read.
    let file = std::mem::replace(&mut world.site, Arc::new(SiteConfig::for_a_refused_file()));
    assert_eq!(carry_out(&mut world), Vec::<String>::new());
    world.site = file;
    // A host that cannot be read is not gone.
    world.hosts.remove(&Key::new("default", "n1"));
    world.unreadable = vec!["BareMetalHost default/n1 cannot be read".to_owned()];
    assert_eq!(carry_out(&mut world), Vec::<String>::new());
    world.unreadable.clear();
    assert_eq!(
        carry_out(&mut world),
        ["gone n1-site-cluster", "- n1-site-storage"]
    );
}

#[test]
fn hosts_whose_claims_would_have_one_name_share_no_address() {
    let hosts = ["racks.n1", "n1"].map(|name| {
        let mut host = host("racks", "n1", "available", 3);
        if name != "n1" {
            (host.metadata.namespace, host.metadata.name) = ("default".into(), name.into());
        }
        host
    });
    let mut world = world(hosts);
    for _ in 0..3 {
        carry_out(&mut world);
    }
    let metas = world.hosts.values().map(|host| &host.metadata);
    let given: Vec<_> = metas
        .filter_map(|meta| world.site_address(meta, "storage", Family::Ipv4))
        .collect();
    assert_eq!(given.len(), 1, "{given:?}");
    assert_eq!(world.data.len(), 1);
    assert_eq!(carry_out(&mut world), Vec::<String>::new());
}

#[test]
fn a_nic_that_is_not_there_is_named() {
    let found = host("default", "n1", "available", 2);
    let mut world = world([found.clone()]);
    for _ in 0..3 {
        carry_out(&mut world);
    }
    assert!(world.data.is_empty(), "{:?}", world.data);
    let hardware = found.status.hardware.unwrap();
    let boot = found.spec.boot_mac_address;
    let boot = boot.parse().unwrap();
    let layout = world
        .site
        .layout(boot, &HardwareSummary::from(&hardware))
        .unwrap();
    let why = nics(&layout, boot, &hardware).unwrap_err();
    assert_eq!(
        why,
        "`links` of site.yaml name the NIC eth2, and this server has eth0 (52:54:00:00:00:01), eth1 (52:54:00:00:01:01)"
    );
}

#[test]
fn network_data_of_another_site_yaml_is_not_current() {
    let found = host("default", "n1", "available", 3);
    let mut world = world([found.clone()]);
    carry_out(&mut world);
    carry_out(&mut world);
    let data = network_data(&world, "default", "n1");
    let hardware = found.status.hardware.unwrap();
    let boot = found.spec.boot_mac_address.parse().unwrap();
    let is_now = |text: &str| {
        let site = parse_site(text).unwrap();
        let layout = site
            .layout(boot, &HardwareSummary::from(&hardware))
            .unwrap();
        is_current(&site, &layout, boot, &hardware, &data)
    };
    assert!(is_now(SITE));
    assert!(!is_now(&SITE.replace("vlan: 30", "vlan: 31")));
    assert!(!is_now(&SITE.replace("10.20.0.2}", "10.20.0.3}")));
}
