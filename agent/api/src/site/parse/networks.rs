//! The keys `networks`, `links` and `defaultRoute`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{
    Fields, Walk,
    value::{
        is_like_mac, parse_address, parse_any_address, parse_interface_name, parse_ipv6_address,
        parse_network,
    },
};
use crate::site::{
    AddressRange, HostName, Ipv4Network, SiteConfig, Subnet, ValueError,
    ipv6::{Ipv6Addresses, Ipv6Range, overlap, parse_ipv6_network},
    networks::{
        Addresses, Bond, Carrier, Fixed, HostAddresses, Layout, NicChoice, PROVISIONING, SiteLink,
        SiteNetwork, SiteRoute,
    },
    schema,
    yaml::{Node, Position, Value},
};

/// As many as a server has reason for.
const MOST_NETWORKS: usize = 32;
/// Bits of an IPv6 network: as large as a site gets one, and as small as still has a pool by itself.
const IPV6_SIZES: std::ops::RangeInclusive<u8> = 48..=112;
/// Of one bond.
const MOST_NICS: usize = 8;
/// Of the kernel's, those that are numbers or words on their own.
const BOND_PARAMETERS: [&str; 8] = [
    "ad_select",
    "downdelay",
    "fail_over_mac",
    "lacp_rate",
    "miimon",
    "min_links",
    "updelay",
    "xmit_hash_policy",
];

impl Walk {
    pub(super) fn networks(&mut self, fields: &Fields<'_>, site: &mut SiteConfig) {
        let Some(node) = fields.get("networks") else {
            return;
        };
        let entries = match &node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            other => {
                let message = format!(
                    "`networks` has the names of networks as keys, such as `storage:`; found {}",
                    other.kind()
                );
                self.report(node.place, message);
                return;
            }
        };
        if entries.len() > MOST_NETWORKS {
            let message = format!("a site has at most {MOST_NETWORKS} networks");
            self.report(node.place, message);
        }
        let mut lines: HashMap<&str, usize> = HashMap::new();
        for (key, node) in entries {
            let name = key.name.as_str();
            if let Err(ValueError(message)) = network_name(name) {
                self.report(key.place, message);
            } else if let Some(first) = lines.insert(name, key.place.line) {
                let message =
                    format!("the network `{name}` is given twice, at line {first} and here");
                self.report(key.place, message);
            } else if let Some(network) = self.site_network(name, node, site) {
                site.networks.insert(name.to_owned(), network);
            }
        }
    }

    fn site_network(&mut self, name: &str, node: &Node, site: &SiteConfig) -> Option<SiteNetwork> {
        let of = format!("the network `{name}`");
        let fields = said(self.fields(node, schema::NETWORK_KEYS, &of));
        let vlan = self.value(&fields, "vlan", vlan);
        let mtu = self.value(&fields, "mtu", mtu);
        let addresses = if self.value(&fields, "dhcp", dhcp).is_some() {
            self.nothing_but_dhcp(&fields);
            Addresses::Theirs
        } else if fields.contains_key("dhcp") {
            return None;
        } else {
            Addresses::Fixed(Box::new(self.fixed(&of, node.place, &fields, site)?))
        };
        Some(SiteNetwork {
            vlan,
            mtu,
            addresses,
        })
    }

    fn nothing_but_dhcp(&mut self, fields: &Fields<'_>) {
        for key in [
            "subnet", "gateway", "dns", "ntp", "search", "pool", "routes",
        ] {
            if let Some(node) = fields.get(key) {
                let message = format!(
                    "`{key}` is said by the site's own DHCP server with `dhcp: theirs`; take one of the two out"
                );
                self.report(node.place, message);
            }
        }
    }

    fn fixed(
        &mut self,
        of: &str,
        place: Position,
        fields: &Fields<'_>,
        site: &SiteConfig,
    ) -> Option<Fixed> {
        let before = self.problems.len();
        let (subnet, ipv6_subnet) = self.families(fields, "subnet", parse_network, |text| {
            site_ipv6(text, site)
        });
        if subnet.is_none() && self.problems.len() == before {
            let message = if ipv6_subnet.is_some() {
                format!(
                    "{of} needs a `subnet` of IPv4, too, such as `[10.20.0.0/24, fd00:20::/64]`"
                )
            } else {
                format!(
                    "{of} needs `subnet`, such as 10.20.0.0/24, or `dhcp: theirs` where the site has a DHCP server for it"
                )
            };
            self.report(place, message);
        }
        let subnet = subnet?;
        let place_of = |key: &str| fields[key].place;
        if let Some(other) = overlapping(subnet, site) {
            let message = format!("{subnet} of {of} overlaps {other}; change one of them");
            self.report(place_of("subnet"), message);
        }
        let inside = |text: &str| machine_in(subnet, of, parse_address(text)?);
        let via_ipv6 = |text: &str| ipv6_router_in(ipv6_subnet, of, parse_ipv6_address(text)?);
        let (gateway, ipv6_gateway) = self.families(fields, "gateway", inside, via_ipv6);
        let dns = self.all(fields, "dns", parse_any_address);
        let ntp = self.all(fields, "ntp", str::parse);
        let search = self.all(fields, "search", str::parse);
        let everywhere = "the route to everywhere is that of `gateway` and `defaultRoute`";
        let routes = self.routes(fields, everywhere, |text| {
            if text.contains(':') {
                via_ipv6(text).map(IpAddr::V6)
            } else {
                inside(text).map(IpAddr::V4)
            }
        });
        let holds_router = |pool: &dyn std::fmt::Display, gateway: IpAddr| {
            ValueError(format!(
                "the pool {pool} holds the router's address {gateway}; make it smaller"
            ))
        };
        let pool = |text: &str| {
            let pool: AddressRange = text.parse()?;
            machine_in(subnet, of, pool.first())?;
            machine_in(subnet, of, pool.last())?;
            match gateway.filter(|gateway| pool.contains(*gateway)) {
                Some(gateway) => Err(holds_router(&pool, gateway.into())),
                None => Ok(pool),
            }
        };
        let ipv6_pool = |text: &str| {
            let pool: Ipv6Range = text.parse()?;
            ipv6_machine_in(ipv6_subnet, of, pool.first())?;
            ipv6_machine_in(ipv6_subnet, of, pool.last())?;
            match ipv6_gateway.filter(|gateway| pool.contains(*gateway)) {
                Some(gateway) => Err(holds_router(&pool, gateway.into())),
                None => Ok(pool),
            }
        };
        let (pool, ipv6_pool) = self.families(fields, "pool", pool, ipv6_pool);
        let ipv6 = ipv6_subnet.map(|subnet| Ipv6Addresses {
            subnet,
            pool: ipv6_pool.unwrap_or_else(|| Ipv6Range::derived_from(subnet)),
            gateway: ipv6_gateway,
        });
        if let (Some(ipv6), None) = (ipv6, ipv6_pool)
            && let Some(gateway) = ipv6.gateway.filter(|it| ipv6.pool.contains(*it))
        {
            let message = format!(
                "without a `pool` of IPv6, {of} gives {}, which holds the router's address {gateway}; name another pool",
                ipv6.pool
            );
            self.report(place_of("gateway"), message);
        }
        let usual = || {
            let first = Ipv4Addr::from_bits(subnet.first().to_bits() + 1);
            let around = Subnet::new(gateway.unwrap_or(first), subnet.prefix());
            around.ok().map(AddressRange::derived_from)
        };
        Some(Fixed {
            subnet,
            pool: pool.or_else(usual)?,
            gateway,
            ipv6,
            dns,
            ntp,
            search,
            routes,
        })
    }

    /// `everywhere`: why there is none to all networks.
    pub(super) fn routes(
        &mut self,
        fields: &Fields<'_>,
        everywhere: &str,
        router: impl Fn(&str) -> Result<IpAddr, ValueError>,
    ) -> Vec<SiteRoute> {
        let mut found = Vec::new();
        for node in self.items(fields, "routes") {
            let keys = said(self.fields(node, schema::ROUTE_KEYS, "a route"));
            let to = self.value(&keys, "to", route_network);
            let via = self.value(&keys, "via", &router);
            if keys.len() < 2 && matches!(node.value, Value::Map(_)) {
                let message = "a route needs `to` (a network, such as 10.0.0.0/8) and `via` (a router's address)";
                self.report(node.place, message);
            }
            if let (Some(to), Some(via)) = (to, via) {
                if to.prefix_len() == 0 {
                    self.report(node.place, everywhere);
                }
                if to.addr().is_ipv4() != via.is_ipv4() {
                    let message = format!(
                        "{to} is not reached by {via}: a route and its router are both of IPv4 or both of IPv6"
                    );
                    self.report(node.place, message);
                }
                found.push(SiteRoute { to, via });
            }
        }
        found
    }

    pub(super) fn all<T>(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        parse: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Vec<T> {
        let nodes = self.items(fields, key).iter();
        nodes.filter_map(|node| self.scalar(node, &parse)).collect()
    }

    /// `links` and `defaultRoute` of a host or a rule.
    pub(super) fn layout(&mut self, fields: &Fields<'_>, site: &SiteConfig) -> Option<Layout> {
        let fields = &said(fields.clone());
        let Some(node) = fields.get("links") else {
            if let Some(node) = fields.get("defaultRoute") {
                let message =
                    "`defaultRoute` names one of the networks of `links`, which are not here";
                self.report(node.place, message);
            }
            return None;
        };
        let before = self.problems.len();
        let mut links = Vec::new();
        for node in self.items(fields, "links") {
            let link = self.link(node, site);
            links.extend(link.map(|link| (node.place, link)));
        }
        if self.problems.len() > before {
            return None;
        }
        if let Some((place, message)) = contradiction(&links, node.place) {
            self.report(place, message);
            return None;
        }
        let links: Vec<SiteLink> = links.into_iter().map(|(_, link)| link).collect();
        let default_route = self.default_route(fields, &links, site, node.place);
        Some(Layout {
            links,
            default_route,
        })
    }

    fn link(&mut self, node: &Node, site: &SiteConfig) -> Option<SiteLink> {
        let fields = said(self.fields(node, schema::LINK_KEYS, "a link"));
        let carrier = self.carrier(node, &fields, "a link", "boot")?;
        if let Carrier::Bond(bond) = &carrier
            && bond
                .parameters
                .get("fail_over_mac")
                .is_some_and(|it| it == "active" || it == "1")
        {
            let message = "with `fail_over_mac: active` the bond's address changes, and the box knows the server by that of `boot`; leave it out, or use follow";
            self.report(fields["parameters"].place, message);
        }
        let known = |text: &str| known_network(text, site);
        let networks = self.all(&fields, "networks", known);
        if networks.is_empty() {
            let message =
                "a link says which `networks` it carries, such as `networks: [provisioning]`";
            self.report(node.place, message);
        }
        let untagged: Vec<&str> = networks
            .iter()
            .map(String::as_str)
            .filter(|name| vlan_of(name, site).is_none())
            .collect();
        if let [one, other, ..] = untagged[..] {
            let message = format!(
                "the networks {one} and {other} have no `vlan`, so that one link cannot carry both"
            );
            self.report(node.place, message);
        }
        let mut tags = BTreeMap::new();
        for name in &networks {
            let Some(tag) = vlan_of(name, site) else {
                continue;
            };
            if let Some(other) = tags.insert(tag, name) {
                let message = format!("the networks {other} and {name} have the same `vlan` {tag}");
                self.report(node.place, message);
            }
        }
        Some(SiteLink { carrier, networks })
    }

    /// `of`: what has the NIC; `example`: how one is called there.
    pub(super) fn carrier(
        &mut self,
        node: &Node,
        fields: &Fields<'_>,
        of: &str,
        example: &str,
    ) -> Option<Carrier> {
        match (fields.get("nic"), fields.get("bond")) {
            (Some(_), None) => {
                for key in ["nics", "parameters"] {
                    if let Some(node) = fields.get(key) {
                        self.report(node.place, format!("`{key}` needs `bond`, not `nic`"));
                    }
                }
                Some(Carrier::Nic(self.value(fields, "nic", nic)?))
            }
            (None, Some(_)) => Some(Carrier::Bond(self.bond(node.place, fields, example)?)),
            _ => {
                let message = format!(
                    "{of} has either `nic`, such as `nic: {example}`, or `bond` (its mode) with `nics`"
                );
                self.report(node.place, message);
                None
            }
        }
    }

    fn bond(&mut self, place: Position, fields: &Fields<'_>, example: &str) -> Option<Bond> {
        let mode = self.value(fields, "bond", str::parse);
        let nics = self.all(fields, "nics", nic);
        if nics.is_empty() || nics.len() > MOST_NICS {
            let message =
                format!("a bond has 1 to {MOST_NICS} `nics`, such as `[{example}, eno2]`");
            self.report(place, message);
        }
        let mut parameters = BTreeMap::new();
        if let Some(node) = fields.get("parameters") {
            let given = self.fields(node, &BOND_PARAMETERS, "`parameters` of a bond");
            for key in given.keys() {
                if let Some(value) = self.value(&given, key, bond_parameter) {
                    parameters.insert((*key).to_owned(), value);
                }
            }
        }
        // Without it the kernel does not look whether a link is there (Documentation/networking/bonding.rst).
        parameters
            .entry("miimon".to_owned())
            .or_insert_with(|| "100".to_owned());
        Some(Bond {
            nics,
            mode: mode?,
            parameters,
        })
    }

    /// Routers beside each other have to be told apart by a person.
    fn default_route(
        &mut self,
        fields: &Fields<'_>,
        links: &[SiteLink],
        site: &SiteConfig,
        place: Position,
    ) -> Option<String> {
        let all = links.iter().flat_map(|link| &link.networks);
        let with_router: Vec<&String> = all.filter(|name| has_router(name, site)).collect();
        let is_fixed = |name: &str| site.fixed_networks().any(|(fixed, _)| fixed == name);
        let named = self.value(fields, "defaultRoute", |text| {
            if with_router.iter().any(|name| *name == text) {
                return Ok(text.to_owned());
            }
            Err(ValueError(format!(
                "the default route goes by a network of `links` that has a `gateway`; `{text}` is none"
            )))
        });
        let listed = || {
            let all = with_router.iter().map(|name| name.as_str());
            all.collect::<Vec<_>>().join(", ")
        };
        match (&named, &with_router[..]) {
            (None, []) => {}
            (None, [only]) if !fields.contains_key("defaultRoute") => return Some((*only).clone()),
            (None, _) if !fields.contains_key("defaultRoute") => {
                let message = format!(
                    "{} have routers: say with `defaultRoute` which of them is for everything else",
                    listed()
                );
                self.report(place, message);
            }
            // What two DHCP servers say has the same weight.
            (Some(name), [_, _, ..]) if !is_fixed(name) => {
                let leased = with_router.iter().filter(|name| !is_fixed(name));
                if leased.count() > 1 {
                    let message = format!(
                        "of {}, more than one is told by DHCP, and nothing makes a server prefer {name}; give one of them a `subnet`",
                        listed()
                    );
                    self.report(fields["defaultRoute"].place, message);
                }
            }
            _ => {}
        }
        named
    }

    /// `addresses` of a host.
    pub(super) fn addresses(
        &mut self,
        fields: &Fields<'_>,
        site: &SiteConfig,
        taken: &mut HashMap<String, Position>,
    ) -> BTreeMap<String, HostAddresses> {
        let Some(node) = fields.get("addresses") else {
            return BTreeMap::new();
        };
        let names: Vec<&str> = site.fixed_networks().map(|(name, _)| name).collect();
        let given = self.fields(node, &names, "`addresses` of a host");
        let mut addresses = BTreeMap::new();
        for (name, fixed) in site.fixed_networks() {
            let of = format!("the network {name}");
            let not_router = |address: IpAddr, gateway: Option<IpAddr>| {
                if gateway == Some(address) {
                    return Err(ValueError(format!("{address} is the router of {of}")));
                }
                Ok(())
            };
            let ipv4 = |text: &str| {
                let address = machine_in(fixed.subnet, &of, parse_address(text)?)?;
                not_router(address.into(), fixed.gateway.map(IpAddr::V4))?;
                Ok(address)
            };
            let ipv6 = |text: &str| {
                let subnet = fixed.ipv6.map(|ipv6| ipv6.subnet);
                let address = ipv6_machine_in(subnet, &of, parse_ipv6_address(text)?)?;
                let gateway = fixed.ipv6.and_then(|ipv6| ipv6.gateway);
                not_router(address.into(), gateway.map(IpAddr::V6))?;
                Ok(address)
            };
            let (ipv4, ipv6) = self.families(&given, name, ipv4, ipv6);
            let said = HostAddresses { ipv4, ipv6 };
            for address in said.iter() {
                self.once(taken, address.to_string(), "address", given[name].place);
            }
            if said != HostAddresses::default() {
                addresses.insert(name.to_owned(), said);
            }
        }
        addresses
    }
}

/// A key without a value is as one that is not there.
pub(super) fn said(mut fields: Fields<'_>) -> Fields<'_> {
    fields.retain(|_, node| !matches!(node.value, Value::Null));
    fields
}

/// What links have in common that they may not, or lack.
fn contradiction(links: &[(Position, SiteLink)], all: Position) -> Option<(Position, String)> {
    let (mut nics, mut networks) = (BTreeSet::new(), BTreeSet::new());
    for (place, link) in links {
        for nic in link.carrier.nics() {
            if !nics.insert(nic.to_string()) {
                return Some((*place, format!("the NIC {nic} is in two places of `links`")));
            }
        }
        for network in &link.networks {
            if !networks.insert(network) {
                let message = format!("the network {network} is in two places of `links`");
                return Some((*place, message));
            }
        }
    }
    let booted = |link: &SiteLink| link.carrier.nics().contains(&NicChoice::Boot);
    let home = links
        .iter()
        .find(|(_, link)| link.networks.iter().any(|name| name == PROVISIONING));
    match home {
        None => Some((
            all,
            "one of `links` has to carry `provisioning`, on which the box speaks with the server; write for example `- {nic: boot, networks: [provisioning]}`"
                .to_owned(),
        )),
        Some((place, link)) if !booted(link) => Some((
            *place,
            "the network provisioning is on the NIC that the server boots from; write `boot` for that NIC, alone or in the bond"
                .to_owned(),
        )),
        Some(_) => None,
    }
}

fn vlan_of(name: &str, site: &SiteConfig) -> Option<u16> {
    site.networks.get(name)?.vlan
}

fn has_router(name: &str, site: &SiteConfig) -> bool {
    match site.networks.get(name).map(|network| &network.addresses) {
        Some(Addresses::Fixed(fixed)) => {
            let of_ipv6 = fixed.ipv6.and_then(|ipv6| ipv6.gateway);
            fixed.gateway.is_some() || of_ipv6.is_some()
        }
        Some(Addresses::Theirs) => true,
        None => site.router().is_some(),
    }
}

fn known_network(text: &str, site: &SiteConfig) -> Result<String, ValueError> {
    if text == PROVISIONING || site.networks.contains_key(text) {
        return Ok(text.to_owned());
    }
    let names = site.networks.keys().map(String::as_str);
    let names: Vec<&str> = std::iter::once(PROVISIONING).chain(names).collect();
    Err(ValueError(format!(
        "`{text}` is no network of this site; there are {}",
        names.join(", ")
    )))
}

/// `of`: whose network it is, for the sentence.
pub(super) fn machine_in(
    subnet: Ipv4Network,
    of: &str,
    address: Ipv4Addr,
) -> Result<Ipv4Addr, ValueError> {
    if subnet.contains(address) && Subnet::new(address, subnet.prefix()).is_ok() {
        return Ok(address);
    }
    Err(ValueError(format!(
        "{address} is no address of a machine in {subnet} of {of}"
    )))
}

fn ipv6_machine_in(
    subnet: Option<Ipv6Net>,
    of: &str,
    address: Ipv6Addr,
) -> Result<Ipv6Addr, ValueError> {
    let Some(subnet) = subnet else {
        return Err(ValueError(format!(
            "{of} has no `subnet` of IPv6, so that {address} cannot be there; write for example `subnet: [10.20.0.0/24, fd00:20::/64]`"
        )));
    };
    // The first one is that of all its routers (RFC 4291 2.6.1).
    if subnet.contains(&address) && address != subnet.network() {
        return Ok(address);
    }
    Err(ValueError(format!(
        "{address} is no address of a machine in {subnet} of {of}"
    )))
}

/// Routers are also known by their link-local address.
fn ipv6_router_in(
    subnet: Option<Ipv6Net>,
    of: &str,
    address: Ipv6Addr,
) -> Result<Ipv6Addr, ValueError> {
    if subnet.is_some() && address.is_unicast_link_local() {
        return Ok(address);
    }
    ipv6_machine_in(subnet, of, address)
}

fn site_ipv6(text: &str, site: &SiteConfig) -> Result<Ipv6Net, ValueError> {
    let network = parse_ipv6_network(text)?;
    if !IPV6_SIZES.contains(&network.prefix_len()) {
        return Err(ValueError(format!(
            "a prefix length of {} is not possible here; use {} to {}, and 64 where the network has autoconfiguration",
            network.prefix_len(),
            IPV6_SIZES.start(),
            IPV6_SIZES.end()
        )));
    }
    let mut others = site.ipv6_networks();
    if let Some((name, other)) = others.find(|(_, other)| overlap(&network, other)) {
        return Err(ValueError(format!(
            "{network} overlaps {other} of the network `{name}`; change one of them"
        )));
    }
    Ok(network)
}

fn route_network(text: &str) -> Result<IpNet, ValueError> {
    if text.contains(':') {
        return parse_ipv6_network(text).map(IpNet::V6);
    }
    let network: Ipv4Network = text.parse()?;
    Ok(IpNet::V4(Ipv4Net::new_assert(
        network.first(),
        network.prefix(),
    )))
}

/// What of the site it overlaps.
pub(super) fn overlapping(subnet: Ipv4Network, site: &SiteConfig) -> Option<String> {
    let mut others = site.fixed_networks();
    let other = others.find(|(_, fixed)| fixed.subnet.overlaps(&subnet));
    if let Some((name, fixed)) = other {
        return Some(format!("{} of the network `{name}`", fixed.subnet));
    }
    let mut booted = site.provisioning.networks().into_iter();
    let other = booted.find(|other| other.overlaps(&subnet))?;
    Some(format!("{other}, which servers boot from"))
}

/// Of the objects that are made for it, too.
fn network_name(text: &str) -> Result<(), ValueError> {
    if text == PROVISIONING {
        return Err(ValueError(
            "the network `provisioning` is described by the key `provisioning` of the site"
                .to_owned(),
        ));
    }
    if text.len() > 32 || HostName::parse(text).is_err() {
        return Err(ValueError(format!(
            "`{text}` cannot be the name of a network; use 1 to 32 of a-z, 0-9 and `-`, such as storage"
        )));
    }
    Ok(())
}

fn dhcp(text: &str) -> Result<(), ValueError> {
    if text == "theirs" {
        return Ok(());
    }
    Err(ValueError(format!(
        "`{text}` is no DHCP server here; write `theirs` (the site has one), or take the key out: then the box gives each server an address for good"
    )))
}

pub(super) fn vlan(text: &str) -> Result<u16, ValueError> {
    let tag = text.parse().ok().filter(|tag| (1..=4094).contains(tag));
    tag.ok_or_else(|| ValueError(format!("`{text}` is no VLAN; its tag is 1 to 4094")))
}

pub(super) fn mtu(text: &str) -> Result<u16, ValueError> {
    let mtu = text.parse().ok().filter(|mtu| (1280..=9216).contains(mtu));
    mtu.ok_or_else(|| ValueError(format!("`{text}` is no MTU; it is 1280 to 9216 bytes")))
}

fn nic(text: &str) -> Result<NicChoice, ValueError> {
    if text == "boot" {
        return Ok(NicChoice::Boot);
    }
    if is_like_mac(text) {
        return text.parse().map(NicChoice::Mac);
    }
    parse_interface_name(text).map(NicChoice::Name)
}

fn bond_parameter(text: &str) -> Result<String, ValueError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"+-_".contains(&byte);
    if text.is_empty() || text.len() > 32 || !text.bytes().all(good) {
        return Err(ValueError(format!(
            "`{text}` is no value of a bond's parameter; it is a number or a word, such as fast"
        )));
    }
    Ok(text.to_owned())
}
