//! The tree of `site.yaml` to a [`SiteConfig`], collecting every problem on the way.

mod alarms;
mod backup;
mod cluster;
mod networks;
mod provisioning;
mod proxy;
mod rules;
mod uplink;
mod value;

use std::{collections::HashMap, net::Ipv4Addr};

use crate::people::{self, PasswordHash, PersonName, Role, SiteOperator};

use super::{
    Addons, ClusterChoice, DhcpRole, HostConfig, HostName, HostRole, MacAddr, RootOfTrust,
    SiteConfig, SiteProblem, SiteProblems, SshKey, ValueError, schema,
    yaml::{Key, Node, Position, Value, parse_yaml},
};
use value::{
    boolean, parse_addon, parse_join, parse_log_host, parse_measured_boot, parse_package,
    parse_seal,
};

/// Parses and checks the content of `site.yaml`.
///
/// # Errors
/// Every problem of the file at once, in the order of its lines; only broken YAML stops at the first.
pub fn parse_site(bytes: impl AsRef<[u8]>) -> Result<SiteConfig, SiteProblems> {
    let text = text_of(bytes.as_ref()).map_err(|problem| SiteProblems(vec![problem]))?;
    let root = parse_yaml(text).map_err(|problem| SiteProblems(vec![problem]))?;
    let mut walk = Walk::default();
    let site = walk.site(&root);
    if walk.problems.is_empty() {
        return Ok(site);
    }
    walk.problems
        .sort_by_key(|problem| (problem.line, problem.column));
    Err(SiteProblems(walk.problems))
}

/// Editors on Windows put a byte order mark in front, which is no problem, or write UTF-16, which is one.
fn text_of(bytes: &[u8]) -> Result<&str, SiteProblem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count();
        let column = before
            .iter()
            .rev()
            .take_while(|byte| **byte != b'\n')
            .count()
            + 1;
        Position { line, column }
            .problem("the file is not UTF-8 text; save it again with encoding UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[derive(Default)]
struct Walk {
    problems: Vec<SiteProblem>,
    /// Names in `clusters`.
    clusters: Vec<HostName>,
}

type Fields<'a> = HashMap<&'a str, &'a Node>;

impl Walk {
    fn report(&mut self, place: Position, message: impl Into<String>) {
        self.problems.push(place.problem(message));
    }

    fn site(&mut self, root: &Node) -> SiteConfig {
        let mut site = SiteConfig::default();
        let fields = self.fields(root, schema::SITE_KEYS, "`site.yaml`");
        if let Some(name) = self.value(&fields, "name", HostName::parse) {
            site.name = name;
        }
        if let Some(node) = fields.get("provisioning") {
            site.provisioning = self.provisioning(node);
        }
        let clusters = self.cluster_names(&fields, &site);
        self.networks(&fields, &mut site);
        site.uplink = self.uplink(&fields, &site);
        site.proxy = self.proxy(&fields);
        site.alarms = self.alarms(&fields);
        if let Some(install) = self.value(&fields, "install", str::parse) {
            site.install = install;
        }
        if let Some(join) = self.value(&fields, "join", parse_join) {
            site.join = join;
        }
        if let Some(word) = self.value(&fields, "measuredBoot", parse_measured_boot) {
            site.measured_boot = word;
        }
        for node in self.items(&fields, "sshKeys") {
            site.ssh_keys.extend(self.scalar(node, SshKey::parse));
        }
        let mut seen = Seen::default();
        for node in self.items(&fields, "hosts") {
            let host = self.host(node, &site, &mut seen);
            site.hosts.extend(host);
        }
        for node in self.items(&fields, "rules") {
            let rule = self.rule(node, &site);
            site.rules.extend(rule);
        }
        let fits = self.problems.is_empty();
        // What is taken counts from here on.
        site.cluster = ClusterChoice::None;
        site.cluster = self.cluster(&site, &fields, root.place, fits);
        for (name, node) in clusters {
            let config = self.further_cluster(&site, node, fits);
            site.clusters.extend(config.map(|config| (name, config)));
        }
        site.addons = self.addons(&fields, &site.cluster);
        site.packages = self.packages(&fields);
        site.operators = self.operators(&fields);
        site.log_host = self.value(&fields, "logHost", parse_log_host);
        site.backup = self.backup(&fields);
        if let Some(node) = fields.get("box") {
            let fields = self.fields(node, schema::BOX_KEYS, "`box`");
            let workloads = self.value(&fields, "workloads", boolean);
            site.box_workloads = workloads.unwrap_or(false);
            let seal = self.value(&fields, "seal", parse_seal);
            site.box_seal = seal.unwrap_or(RootOfTrust::Tpm);
        }
        site
    }

    fn operators(&mut self, fields: &Fields<'_>) -> Vec<SiteOperator> {
        let mut operators: Vec<SiteOperator> = Vec::new();
        for node in self.items(fields, "operators") {
            let fields = self.fields(node, schema::OPERATOR_KEYS, "an operator");
            let said = |unfit: people::Unfit| ValueError(unfit.to_string());
            let name = self.value(&fields, "name", |text| {
                PersonName::parse(text).map_err(said)
            });
            let role = self.value(&fields, "role", |text| text.parse::<Role>().map_err(said));
            let password = self.value(&fields, "password", |text| {
                PasswordHash::parse(text).map_err(said)
            });
            for key in schema::OPERATOR_KEYS {
                if !fields.contains_key(key) {
                    self.report(node.place, format!("an operator has a `{key}`"));
                }
            }
            let (Some(name), Some(role), Some(password)) = (name, role, password) else {
                continue;
            };
            if operators.iter().any(|known| known.name == name) {
                self.report(node.place, format!("`{name}` is listed twice"));
            } else if operators.len() == people::MOST_OPERATORS {
                let message = format!("a site has {} operators at most", people::MOST_OPERATORS);
                self.report(node.place, message);
            } else {
                operators.push(SiteOperator {
                    name,
                    role,
                    password,
                });
            }
        }
        operators
    }

    fn packages(&mut self, fields: &Fields<'_>) -> Vec<String> {
        let mut packages = Vec::new();
        for node in self.items(fields, "packages") {
            let Some(name) = self.scalar(node, parse_package) else {
                continue;
            };
            if packages.contains(&name) {
                self.report(node.place, format!("`{name}` is listed twice"));
            } else {
                packages.push(name);
            }
        }
        packages
    }

    fn addons(&mut self, fields: &Fields<'_>, cluster: &ClusterChoice) -> Addons {
        let said = fields.get("addons");
        if said.is_none_or(|node| matches!(node.value, Value::Null)) {
            return Addons::Usual;
        }
        let mut addons = Vec::new();
        for node in self.items(fields, "addons") {
            let Some(name) = self.scalar(node, parse_addon) else {
                continue;
            };
            if addons.contains(&name) {
                self.report(node.place, format!("`{name}` is listed twice"));
            } else if *cluster == ClusterChoice::Manual {
                self.report(node.place, format!("`{name}` has no cluster here: with `cluster: manual`, make an Addon object when you make the cluster"));
            } else if *cluster == ClusterChoice::None && self.problems.is_empty() {
                self.report(
                    node.place,
                    format!("`{name}` has no cluster to be on: take it out, or `cluster: none`"),
                );
            } else {
                addons.push(name);
            }
        }
        Addons::Named(addons)
    }

    fn host(&mut self, node: &Node, site: &SiteConfig, seen: &mut Seen) -> Option<HostConfig> {
        let net = &site.provisioning;
        let fields = self.fields(node, schema::HOST_KEYS, "a host");
        let name = self.value(&fields, "name", HostName::parse);
        let install = self.value(&fields, "install", str::parse);
        let role = self.value(&fields, "role", str::parse::<HostRole>);
        let cluster = self.cluster_of(&fields, site);
        let root_disk = self.root_disk(&fields);
        let clean = self.value(&fields, "clean", str::parse);
        let layout = self.layout(&fields, site);
        let addresses = self.addresses(&fields, site, &mut seen.addresses);
        if let Some(layout) = &layout {
            for name in addresses.keys().filter(|name| !layout.carries(name)) {
                let message = format!(
                    "the `links` of this server do not carry the network `{name}`, so it cannot have an address there; add the network to one of them, or take the address out"
                );
                self.report(fields["addresses"].place, message);
            }
        }
        let address = self.value(&fields, "address", |text| {
            let address: Ipv4Addr = text.parse().map_err(|_| {
                ValueError(format!(
                    "`{text}` is not an IPv4 address; write it like {}",
                    net.range.first()
                ))
            })?;
            let on_own = net.network().contains(address);
            if on_own && net.dhcp != DhcpRole::Serve {
                return Err(ValueError(format!(
                    "with `dhcp: {}` the box leases no addresses on {}; leave `address` out, and name the host's address where that \
                     network's own server is told",
                    net.dhcp.word(),
                    net.network()
                )));
            }
            if net.subnet_of(address).is_none() {
                return Err(ValueError(format!(
                    "{address} is not a host address in the network of {}",
                    net.address
                )));
            }
            if address == net.address.address() {
                return Err(ValueError(format!(
                    "{address} is the box's own address; give the host another one"
                )));
            }
            if net.routers().any(|router| router == address) {
                return Err(ValueError(format!(
                    "{address} is a router's address; give the host another one"
                )));
            }
            Ok(address)
        });
        if let Some(name) = &name {
            self.once(
                &mut seen.names,
                name.to_string(),
                "name",
                fields["name"].place,
            );
        }
        if let Some(address) = address {
            self.once(
                &mut seen.addresses,
                address.to_string(),
                "address",
                fields["address"].place,
            );
        }
        let Some(mac_node) = fields.get("mac") else {
            if matches!(node.value, Value::Map(_)) {
                self.report(
                    node.place,
                    "a host needs `mac`, the address of the NIC that it boots from",
                );
            }
            return None;
        };
        let mac = self.scalar(mac_node, str::parse::<MacAddr>)?;
        self.once(&mut seen.macs, mac.to_string(), "MAC", mac_node.place);
        Some(HostConfig {
            mac,
            name,
            address,
            install,
            role: role.unwrap_or_default(),
            cluster,
            root_disk,
            clean,
            layout,
            addresses,
        })
    }

    fn once(
        &mut self,
        seen: &mut HashMap<String, Position>,
        value: String,
        what: &str,
        place: Position,
    ) {
        if let Some(first) = seen.get(&value) {
            let message = format!(
                "the hosts at line {} and line {} have the same {what} {value}; change or remove one of them",
                first.line, place.line
            );
            self.report(place, message);
        } else {
            seen.insert(value, place);
        }
    }

    /// The entries of a map by name; unknown and repeated keys are reported. Null counts as empty.
    fn fields<'a>(&mut self, node: &'a Node, known: &[&str], of: &str) -> Fields<'a> {
        let entries: &[(Key, Node)] = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => &[],
            other => {
                let message = format!(
                    "{of} consists of keys ({}), found {}",
                    known.join(", "),
                    other.kind()
                );
                self.report(node.place, message);
                &[]
            }
        };
        let mut fields: Fields<'a> = HashMap::new();
        let mut lines: HashMap<&str, usize> = HashMap::new();
        for (key, value) in entries {
            if !known.contains(&key.name.as_str()) {
                self.report(key.place, unknown_key(&key.name, known, of));
            } else if let Some(first) = lines.insert(&key.name, key.place.line) {
                let message = format!(
                    "`{}` is given twice, at line {first} and here; remove one",
                    key.name
                );
                self.report(key.place, message);
            } else {
                fields.insert(&key.name, value);
            }
        }
        fields
    }

    /// The parsed value of a key; `None` when it is absent, empty, or wrong (then it is reported).
    fn value<T>(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        match fields.get(key) {
            None => None,
            Some(node) if matches!(node.value, Value::Null) => None,
            Some(node) => self.scalar(node, parse),
        }
    }

    fn scalar<T>(
        &mut self,
        node: &Node,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        let Value::Text(text) = &node.value else {
            self.report(
                node.place,
                format!(
                    "a single value is expected here, found {}",
                    node.value.kind()
                ),
            );
            return None;
        };
        parse(text)
            .map_err(|error| self.report(node.place, error.0))
            .ok()
    }

    /// A key whose value is one of IPv4, or a list of one of IPv4 and one of IPv6.
    fn families<A, B>(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        ipv4: impl Fn(&str) -> Result<A, ValueError>,
        ipv6: impl Fn(&str) -> Result<B, ValueError>,
    ) -> (Option<A>, Option<B>) {
        let nodes = match fields.get(key) {
            None => &[],
            Some(node) => match &node.value {
                Value::Null => &[],
                Value::List(nodes) => nodes.as_slice(),
                _ => std::slice::from_ref(*node),
            },
        };
        let (mut found4, mut found6) = (None, None);
        let mut seen = (false, false);
        for node in nodes {
            // Nothing of IPv4 has a colon.
            let is_ipv6 = matches!(&node.value, Value::Text(text) if text.contains(':'));
            let before = if is_ipv6 { &mut seen.1 } else { &mut seen.0 };
            if std::mem::replace(before, true) {
                let family = if is_ipv6 { "IPv6" } else { "IPv4" };
                let message = format!(
                    "`{key}` has at most one value of IPv4 and one of IPv6; this is the second of {family}"
                );
                self.report(node.place, message);
            } else if is_ipv6 {
                found6 = self.scalar(node, &ipv6);
            } else {
                found4 = self.scalar(node, &ipv4);
            }
        }
        (found4, found6)
    }

    fn items<'a>(&mut self, fields: &Fields<'a>, key: &str) -> &'a [Node] {
        match fields.get(key).map(|node| (&node.value, node.place)) {
            None | Some((Value::Null, _)) => &[],
            Some((Value::List(items), _)) => items,
            Some((other, place)) => {
                self.report(
                    place,
                    format!(
                        "`{key}` is a list: start each entry with `- `; found {}",
                        other.kind()
                    ),
                );
                &[]
            }
        }
    }
}

#[derive(Default)]
struct Seen {
    macs: HashMap<String, Position>,
    names: HashMap<String, Position>,
    addresses: HashMap<String, Position>,
}

fn unknown_key(name: &str, known: &[&str], of: &str) -> String {
    let close = known
        .iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(
                    &name.to_ascii_lowercase(),
                    &candidate.to_ascii_lowercase(),
                ),
                candidate,
            )
        })
        .min()
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 3);
    match close {
        Some((_, candidate)) => format!("unknown key `{name}`; did you mean `{candidate}`?"),
        None => format!("unknown key `{name}`; {of} knows {}", known.join(", ")),
    }
}
