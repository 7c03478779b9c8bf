//! The key `cluster`: checked last, because it must fit the provisioning network and the hosts' addresses.

use std::{net::Ipv4Addr, ops::RangeInclusive};

use ipnet::Ipv6Net;

use super::{Fields, Walk};
use crate::site::{
    AddressRange, ClusterChoice, ClusterConfig, ClusterIpv6, ControlPlanes, HostName, Ipv4Network,
    SiteConfig, ValueError, Workers,
    cluster::{router_id, usual_ipv6},
    ipv6::{overlap, parse_ipv6_network},
    networks::PROVISIONING,
    schema,
    yaml::{Key, Node, Position, Value},
};

/// Bits of an IPv6 network of pods, of which each node has a /64: Kubernetes gives at most 65,536 of them.
const POD_SIZES: RangeInclusive<u8> = 48..=63;
/// Bits of an IPv6 network of services; an API server takes none that is larger.
const SERVICE_SIZES: RangeInclusive<u8> = 108..=123;
/// More than a box can boot.
const MOST_WORKERS: u32 = 1000;
/// Each has controllers of Cluster API that watch its API from the box.
const MOST_CLUSTERS: usize = 32;

impl Walk {
    /// `fits`: nothing was wrong before, so that the cluster can be judged against the rest of the site.
    pub(super) fn cluster(
        &mut self,
        site: &SiteConfig,
        fields: &Fields<'_>,
        root: Position,
        fits: bool,
    ) -> ClusterChoice {
        let node = match fields.get("cluster") {
            Some(node) if !matches!(node.value, Value::Null) => node,
            _ => {
                let place = fields.get("provisioning").map_or(root, |node| node.place);
                return self.own_cluster(site, &Fields::new(), place, fits);
            }
        };
        match &node.value {
            Value::Text(text) if text == "none" => ClusterChoice::None,
            Value::Text(text) if text == "manual" => ClusterChoice::Manual,
            Value::Text(text) => {
                self.report(node.place, format!("`{text}` is no cluster; use none, manual, or keys such as `controlPlanes: 1`"));
                ClusterChoice::None
            }
            _ => {
                let keys = self.fields(node, schema::CLUSTER_KEYS, "`cluster`");
                self.own_cluster(site, &keys, node.place, fits)
            }
        }
    }

    fn own_cluster(
        &mut self,
        site: &SiteConfig,
        fields: &Fields<'_>,
        place: Position,
        fits: bool,
    ) -> ClusterChoice {
        let config = self.generated(site, fields, place, fits);
        config.map_or(ClusterChoice::None, ClusterChoice::Generated)
    }

    /// Of the key `clusters`; hosts and rules may name them from then on.
    pub(super) fn cluster_names<'a>(
        &mut self,
        fields: &Fields<'a>,
        site: &SiteConfig,
    ) -> Vec<(HostName, &'a Node)> {
        let entries: &[(Key, Node)] = match fields.get("clusters").map(|node| (&node.value, node)) {
            None | Some((Value::Null, _)) => &[],
            Some((Value::Map(entries), _)) => entries,
            Some((other, node)) => {
                let message = format!(
                    "`clusters` has a key for each further cluster, its name, such as `edge: {{}}`; found {}",
                    other.kind()
                );
                self.report(node.place, message);
                &[]
            }
        };
        if let Some((key, _)) = entries.get(MOST_CLUSTERS) {
            let message = format!("a site has at most {MOST_CLUSTERS} further clusters");
            self.report(key.place, message);
        }
        let mut clusters: Vec<(HostName, &Node)> = Vec::new();
        for (key, node) in entries {
            match HostName::parse(&key.name) {
                Err(error) => self.report(key.place, error.0),
                Ok(name) if name == site.name => self.report(
                    key.place,
                    format!("`{name}` is the site's own cluster, which `cluster` is about; choose another name"),
                ),
                Ok(name) if clusters.iter().any(|(known, _)| *known == name) => {
                    self.report(key.place, format!("`{name}` is given twice; remove one"));
                }
                Ok(name) => clusters.push((name, node)),
            }
        }
        self.clusters = clusters.iter().map(|(name, _)| name.clone()).collect();
        clusters
    }

    /// Which one a host is for.
    pub(super) fn cluster_of(
        &mut self,
        fields: &Fields<'_>,
        site: &SiteConfig,
    ) -> Option<HostName> {
        let known: Vec<HostName> = [std::slice::from_ref(&site.name), &self.clusters].concat();
        self.value(fields, "cluster", |text| {
            let found = known.iter().find(|name| name.as_str() == text);
            found.cloned().ok_or_else(|| {
                let known: Vec<&str> = known.iter().map(HostName::as_str).collect();
                ValueError(format!(
                    "`{text}` is none of the site's clusters; use {}, or add it to `clusters`",
                    known.join(" or ")
                ))
            })
        })
    }

    /// `site` has those before it.
    pub(super) fn further_cluster(
        &mut self,
        site: &SiteConfig,
        node: &Node,
        fits: bool,
    ) -> Option<ClusterConfig> {
        let fields = self.fields(node, schema::CLUSTER_KEYS, "a cluster");
        if site.cluster == ClusterChoice::None && self.problems.is_empty() {
            self.report(
                node.place,
                "with `cluster: none` servers belong to no cluster; leave `cluster` out, or say `cluster: manual`",
            );
        }
        self.generated(site, &fields, node.place, fits)
    }

    fn generated(
        &mut self,
        site: &SiteConfig,
        fields: &Fields<'_>,
        place: Position,
        fits: bool,
    ) -> Option<ClusterConfig> {
        let control_planes = self.value(fields, "controlPlanes", parse_control_planes);
        let workers = self.value(fields, "workers", parse_workers);
        let (pods, ipv6_pods) =
            self.cluster_networks(site, fields, "podCidr", [8..=22, POD_SIZES], fits);
        let (services, ipv6_services) =
            self.cluster_networks(site, fields, "serviceCidr", [12..=24, SERVICE_SIZES], fits);
        let endpoint = self.value(fields, "endpoint", |text| {
            parse_endpoint(text, fits.then_some(site))
        });
        let network = self.value(fields, "network", |text| {
            parse_cluster_network(text, fits.then_some(site))
        });
        let network = network.filter(|name| name != PROVISIONING);
        let heal = self.value(fields, "heal", str::parse);
        if !fits {
            return None;
        }
        let named = (ipv6_pods, ipv6_services);
        let ipv6 = self.cluster_ipv6(site, fields, network.as_deref(), named, place);
        let mut others = site.all_networks();
        others.extend(services);
        let pod_cidr = pods.or_else(|| ClusterConfig::usual_pods(&others));
        let mut others = site.all_networks();
        others.extend(pod_cidr);
        let usual_services = ClusterConfig::usual_services(&others);
        let (Some(pod_cidr), Some(service_cidr)) = (pod_cidr, services.or(usual_services)) else {
            self.report(place, "the site's networks leave no private network for pods and services; name `podCidr` and `serviceCidr`, or say `cluster: none`");
            return None;
        };
        if pod_cidr.overlaps(&service_cidr) {
            let better = example(usual_services);
            let place = fields["serviceCidr"].place;
            self.report(
                place,
                format!("serviceCidr {service_cidr} overlaps podCidr {pod_cidr}{better}"),
            );
        }
        let endpoint = if fields.get("endpoint").is_some_and(|node| is_given(node)) {
            endpoint
        } else {
            let free = free_endpoint(site);
            if free.is_none() {
                self.report(place, format!(
                    "the cluster needs an address for its API, and {} has none left that is not leased; make `range` smaller, or say `cluster: none`",
                    site.provisioning.network()
                ));
            }
            free
        };
        // A missing endpoint was reported; the value is then never used.
        let endpoint = endpoint?;
        let load_balancer = if fields
            .get("loadBalancer")
            .is_some_and(|node| is_given(node))
        {
            let parse = |text: &str| parse_load_balancer(text, site, network.as_deref(), endpoint);
            self.value(fields, "loadBalancer", parse).flatten()
        } else if network.is_some() {
            None
        } else {
            let taken = [&taken(site)[..], &[AddressRange::of(endpoint)]].concat();
            site.provisioning.free_block(&taken)
        };
        Some(ClusterConfig {
            control_planes: control_planes.unwrap_or_default(),
            workers: workers.unwrap_or_default(),
            endpoint,
            pod_cidr,
            service_cidr,
            load_balancer,
            ipv6,
            network,
            heal: heal.unwrap_or_default(),
        })
    }

    /// Networks of the cluster, apart from the site's. `sizes`: bits of IPv4 and of IPv6.
    fn cluster_networks(
        &mut self,
        site: &SiteConfig,
        fields: &Fields<'_>,
        key: &str,
        sizes: [RangeInclusive<u8>; 2],
        fits: bool,
    ) -> (Option<Ipv4Network>, Option<Ipv6Net>) {
        let [ipv4_sizes, ipv6_sizes] = sizes;
        let ipv4 = |text: &str| {
            let network: Ipv4Network = text.parse()?;
            has_size(key, &network, network.prefix(), &ipv4_sizes)?;
            let all = site.all_networks();
            let booted = site.provisioning.networks().len();
            let other = all.iter().position(|other| network.overlaps(other));
            if let Some(at) = other.filter(|_| fits) {
                let better = example(match key {
                    "podCidr" => ClusterConfig::usual_pods(&all),
                    _ => ClusterConfig::usual_services(&all),
                });
                let kind = match at {
                    0 => "provisioning network",
                    at if at < booted => "relayed network",
                    _ => "site's network",
                };
                return Err(ValueError(format!(
                    "{key} {network} overlaps the {kind} {}{better}",
                    all[at]
                )));
            }
            Ok(network)
        };
        let ipv6 = |text: &str| {
            let network = parse_ipv6_network(text)?;
            has_size(key, &network, network.prefix_len(), &ipv6_sizes)?;
            let mut others = site.ipv6_networks();
            let other = others.find(|(_, other)| overlap(&network, other));
            match other.filter(|_| fits) {
                Some((name, other)) => Err(ValueError(format!(
                    "{key} {network} overlaps {other} of the network `{name}`; change one of them"
                ))),
                None => Ok(network),
            }
        };
        self.families(fields, key, ipv4, ipv6)
    }

    /// A cluster has both families where its nodes do.
    fn cluster_ipv6(
        &mut self,
        site: &SiteConfig,
        fields: &Fields<'_>,
        network: Option<&str>,
        (pods, services): (Option<Ipv6Net>, Option<Ipv6Net>),
        place: Position,
    ) -> Option<ClusterIpv6> {
        let mut networks = site.ipv6_networks();
        if !networks.any(|(name, _)| Some(name) == network) {
            let named = [("podCidr", pods), ("serviceCidr", services)];
            for (key, named) in named {
                if let Some(named) = named {
                    let message = format!(
                        "{key} {named} needs nodes with IPv6: name a `network` of the site for the cluster whose `subnet` has one of IPv6, too"
                    );
                    self.report(fields[key].place, message);
                }
            }
            return None;
        }
        let site: Vec<Ipv6Net> = site.ipv6_networks().map(|(_, network)| network).collect();
        let with = |other: Option<Ipv6Net>| site.iter().copied().chain(other).collect::<Vec<_>>();
        let pods = pods.or_else(|| usual_ipv6(0x244, 56, &with(services)))?;
        let services = services.or_else(|| usual_ipv6(0x96, 112, &with(Some(pods))))?;
        if overlap(&pods, &services) {
            let place = fields.get("serviceCidr").map_or(place, |node| node.place);
            self.report(
                place,
                format!("serviceCidr {services} overlaps podCidr {pods}"),
            );
        }
        Some(ClusterIpv6 { pods, services })
    }
}

fn has_size(
    key: &str,
    network: &dyn std::fmt::Display,
    bits: u8,
    sizes: &RangeInclusive<u8>,
) -> Result<(), ValueError> {
    if sizes.contains(&bits) {
        return Ok(());
    }
    Err(ValueError(format!(
        "{key} {network} cannot work: its prefix length must be {} to {}",
        sizes.start(),
        sizes.end()
    )))
}

/// The end of a sentence.
fn example(network: Option<Ipv4Network>) -> String {
    network.map_or_else(String::new, |network| {
        format!("; for example use {network}")
    })
}

fn is_given(node: &Node) -> bool {
    !matches!(node.value, Value::Null)
}

/// What hosts were promised, and clusters before this one have.
fn taken(site: &SiteConfig) -> Vec<AddressRange> {
    let hosts = site.hosts.iter().filter_map(|host| host.address);
    let clusters = site.generated_clusters().flat_map(|(_, cluster)| {
        let endpoint = AddressRange::of(cluster.endpoint);
        std::iter::once(endpoint).chain(cluster.load_balancer)
    });
    hosts.map(AddressRange::of).chain(clusters).collect()
}

fn free_endpoint(site: &SiteConfig) -> Option<Ipv4Addr> {
    let mut taken = taken(site);
    loop {
        let free = site.provisioning.free_address(&taken)?;
        if same_router(site, free).is_none() {
            return Some(free);
        }
        taken.push(AddressRange::of(free));
    }
}

/// A cluster whose control planes would take those of an endpoint here for their own.
fn same_router(site: &SiteConfig, endpoint: Ipv4Addr) -> Option<(&str, Ipv4Addr)> {
    let mut clusters = site.generated_clusters();
    let found = clusters.find(|(_, other)| router_id(other.endpoint) == router_id(endpoint));
    found.map(|(name, other)| (name, other.endpoint))
}

fn parse_control_planes(text: &str) -> Result<ControlPlanes, ValueError> {
    match text.parse::<u32>() {
        Ok(1) => Ok(ControlPlanes::One),
        Ok(3) => Ok(ControlPlanes::Three),
        Ok(2) => Err(ValueError(
            "2 control planes stop when either of them fails, so they are worse than one; use 1 or 3".to_owned(),
        )),
        _ => Err(ValueError(format!(
            "`{text}` control planes are not possible; use 1 or 3"
        ))),
    }
}

fn parse_workers(text: &str) -> Result<Workers, ValueError> {
    if text == "all" {
        return Ok(Workers::All);
    }
    let count = text.parse().ok().filter(|count| *count <= MOST_WORKERS);
    count.map(Workers::Exactly).ok_or_else(|| {
        ValueError(format!(
            "`{text}` is no number of workers; use all, or 0 to {MOST_WORKERS}"
        ))
    })
}

fn parse_cluster_network(text: &str, site: Option<&SiteConfig>) -> Result<String, ValueError> {
    let names = site.map(|site| {
        site.fixed_networks()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    });
    if let Some(names) = names.filter(|names| text != PROVISIONING && !names.contains(&text)) {
        return Err(ValueError(format!(
            "a cluster is on a network of the site that has a `subnet`; `{text}` is none, use {}",
            [&[PROVISIONING], &names[..]].concat().join(" or ")
        )));
    }
    Ok(text.to_owned())
}

/// For services of type `LoadBalancer`, on the network of the nodes.
fn parse_load_balancer(
    text: &str,
    site: &SiteConfig,
    network: Option<&str>,
    endpoint: Ipv4Addr,
) -> Result<Option<AddressRange>, ValueError> {
    if text == "none" {
        return Ok(None);
    }
    let range: AddressRange = text.parse().map_err(|ValueError(why)| {
        ValueError(format!(
            "{why}; or say `none`, and services of type LoadBalancer get no address"
        ))
    })?;
    let net = &site.provisioning;
    let fixed = network.and_then(|name| site.fixed_networks().find(|(known, _)| *known == name));
    let (subnet, given, router) = match &fixed {
        Some((_, fixed)) => (fixed.subnet, fixed.pool, fixed.gateway),
        None => (net.network(), net.range, net.gateway),
    };
    let promised = site.hosts.iter().filter_map(|host| match network {
        Some(name) => host.addresses.get(name)?.ipv4,
        None => host.address,
    });
    let promised: Vec<Ipv4Addr> = promised.collect();
    let holds = |address: Option<Ipv4Addr>| address.is_some_and(|it| range.contains(it));
    let (box_address, ends) = (net.address.address(), [range.first(), range.last()]);
    let why = if !ends.iter().all(|end| subnet.contains(*end)) {
        format!("is not inside {subnet}, the network of the cluster's servers")
    } else if ends[0] == subnet.first() || ends[1] == subnet.last() {
        format!("has an address that names the whole network {subnet}")
    } else if range.overlaps(given) {
        format!("overlaps {given}, which is given to servers")
    } else if holds(network.is_none().then_some(box_address)) {
        format!("has the box's own address {box_address}")
    } else if let Some(router) = router.filter(|it| range.contains(*it)) {
        format!("has the router's address {router}")
    } else if holds(Some(endpoint)) {
        format!("has the endpoint {endpoint} of the cluster's API")
    } else if let Some(address) = promised.iter().find(|it| range.contains(**it)) {
        format!("has {address}, which is promised to one of `hosts`")
    } else if let Some((name, other)) = site
        .generated_clusters()
        .find(|(_, other)| range.contains(other.endpoint))
    {
        format!("has the endpoint {} of the cluster {name}", other.endpoint)
    } else if let Some((name, other)) = site.generated_clusters().find_map(|(name, other)| {
        let other = other.load_balancer?;
        other.overlaps(range).then_some((name, other))
    }) {
        format!("overlaps {other}, which the cluster {name} has")
    } else {
        return Ok(Some(range));
    };
    let free = net.free_block(&[&taken(site)[..], &[AddressRange::of(endpoint)]].concat());
    let better = free.filter(|_| network.is_none());
    let better = better.map_or_else(
        || "; choose addresses that nobody has".to_owned(),
        |free| format!("; for example use {free}"),
    );
    Err(ValueError(format!("loadBalancer {range} {why}{better}")))
}

/// `site` is absent while the network is not known to be right.
fn parse_endpoint(text: &str, site: Option<&SiteConfig>) -> Result<Ipv4Addr, ValueError> {
    let address: Ipv4Addr = text.parse().map_err(|_| {
        ValueError(format!(
            "`{text}` is not an IPv4 address; write it like 172.22.0.254"
        ))
    })?;
    let Some(site) = site else {
        return Ok(address);
    };
    let (net, range) = (site.provisioning.address, site.provisioning.range);
    let better = free_endpoint(site).map_or_else(
        || "; make `range` smaller and use an address outside it".to_owned(),
        |free| format!("; for example use {free}"),
    );
    let why = if !net.has_host(address) {
        format!("is not a host address in the network of {net}")
    } else if address == net.address() {
        "is the box's own address".to_owned()
    } else if site.provisioning.gateway == Some(address) {
        "is the router's address".to_owned()
    } else if range.contains(address) {
        format!("is inside the range {range} that is leased to servers")
    } else if site.hosts.iter().any(|host| host.address == Some(address)) {
        "is promised to one of `hosts`".to_owned()
    } else if let Some((name, range)) = site.generated_clusters().find_map(|(name, other)| {
        let range = other.load_balancer?;
        range.contains(address).then_some((name, range))
    }) {
        format!("is one of {range}, which the cluster {name} has for its services")
    } else if let Some((name, other)) = same_router(site, address) {
        format!(
            "ends like {other}, the endpoint of the cluster {name}, and the end tells them apart"
        )
    } else {
        return Ok(address);
    };
    Err(ValueError(format!("the endpoint {address} {why}{better}")))
}
