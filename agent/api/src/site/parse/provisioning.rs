//! The key `provisioning`: the box's network, and those that are relayed to it.

use std::net::Ipv4Addr;

use super::{
    Fields, Walk,
    value::{parse_address, parse_box_address, parse_dhcp, parse_interface, parse_network},
};
use crate::site::{
    AddressRange, DhcpRole, Ipv4Network, ProvisioningConfig, RelayedNetwork, SiteConfig, Subnet,
    relayed::MOST_RELAYED,
    schema,
    yaml::{Node, Position},
};

impl Walk {
    pub(super) fn provisioning(&mut self, node: &Node) -> ProvisioningConfig {
        let mut config = SiteConfig::default().provisioning;
        let fields = self.fields(node, schema::PROVISIONING_KEYS, "`provisioning`");
        if let Some(interface) = self.value(&fields, "interface", parse_interface) {
            config.interface = interface;
        }
        let before = self.problems.len();
        if let Some(address) = self.value(&fields, "address", parse_box_address) {
            config.address = address;
            config.range = AddressRange::derived_from(address);
        }
        // Others can only be judged against a network that is known.
        let net = (self.problems.len() == before).then_some(config.address);
        if let Some(range) = self.range(&fields, net, "the box's own") {
            config.range = range;
        }
        config.bandwidth = self.value(&fields, "bandwidth", str::parse);
        config.gateway = self.value(&fields, "gateway", parse_address);
        if let (Some(net), Some(gateway)) = (net, config.gateway) {
            self.gateway(net, gateway, config.range, fields["gateway"].place);
        }
        self.relayed(&fields, net.is_some(), &mut config);
        self.role(&fields, &mut config);
        config
    }

    fn role(&mut self, fields: &Fields<'_>, config: &mut ProvisioningConfig) {
        let Some(role) = self.value(fields, "dhcp", parse_dhcp) else {
            return;
        };
        config.dhcp = role;
        if role == DhcpRole::Relay && !fields.contains_key("relayed") {
            self.report(
                fields["dhcp"].place,
                "with `dhcp: relay` the box answers only servers of `relayed` networks, and there is none; name them, or leave `dhcp` out",
            );
        }
        if let (Some(range), true) = (fields.get("range"), role != DhcpRole::Serve) {
            self.report(
                range.place,
                "with this `dhcp` the box leases no addresses on this network; leave `range` or `dhcp` out",
            );
        }
    }

    /// `net`: whose address may not be in the range, absent where it is not known.
    fn range(
        &mut self,
        fields: &Fields<'_>,
        net: Option<Subnet>,
        whose: &str,
    ) -> Option<AddressRange> {
        let range = self.value(fields, "range", str::parse::<AddressRange>)?;
        let (net, place) = (net?, fields["range"].place);
        if !net.has_host(range.first()) || !net.has_host(range.last()) {
            let (first, last) = (net.first_host(), net.last_host());
            self.report(
                place,
                format!(
                    "the range {range} is not inside the network of {net}, which has {first}-{last}"
                ),
            );
            None
        } else if range.contains(net.address()) {
            let better = AddressRange::derived_from(net);
            self.report(
                place,
                format!(
                    "the range {range} holds {whose} address {}; for example use {better}",
                    net.address()
                ),
            );
            None
        } else {
            Some(range)
        }
    }

    /// The router of the box's own network.
    fn gateway(&mut self, net: Subnet, gateway: Ipv4Addr, range: AddressRange, place: Position) {
        let wrong = if !net.has_host(gateway) {
            let (first, last) = (net.first_host(), net.last_host());
            format!(
                "is not in the network of {net}, which has {first}-{last}: the box could not reach it"
            )
        } else if gateway == net.address() {
            "is the box's own address; name the router, or leave `gateway` out".to_owned()
        } else if range.contains(gateway) {
            format!("is inside the range {range} that is leased to servers; make `range` smaller")
        } else {
            return;
        };
        self.report(place, format!("the gateway {gateway} {wrong}"));
    }

    fn relayed(&mut self, fields: &Fields<'_>, is_known: bool, config: &mut ProvisioningConfig) {
        let nodes = self.items(fields, "relayed");
        if let (Some(node), None) = (nodes.first(), fields.get("gateway")) {
            self.report(
                node.place,
                "relayed networks are behind a router of the box's network: name its address as `gateway` of `provisioning`",
            );
        }
        if let Some(node) = nodes.get(MOST_RELAYED) {
            self.report(
                node.place,
                format!(
                    "at most {MOST_RELAYED} networks are relayed; give one network to more servers"
                ),
            );
            return;
        }
        let mut lines: Vec<(Ipv4Network, usize)> = Vec::new();
        for node in nodes {
            let Some(relayed) = self.relayed_network(node) else {
                continue;
            };
            let network = relayed.network();
            let own = config.network();
            if is_known && network.overlaps(&own) {
                self.report(
                    node.place,
                    format!("the relayed network {network} overlaps the box's own, {own}; servers of that one need no relay agent"),
                );
            } else if let Some((other, line)) =
                lines.iter().find(|(other, _)| other.overlaps(&network))
            {
                let message = format!(
                    "the relayed networks {other} at line {line} and {network} overlap; change or remove one of them"
                );
                self.report(node.place, message);
            } else {
                lines.push((network, node.place.line));
                config.relayed.push(relayed);
            }
        }
    }

    fn relayed_network(&mut self, node: &Node) -> Option<RelayedNetwork> {
        let before = self.problems.len();
        let fields = self.fields(node, schema::RELAYED_KEYS, "a relayed network");
        let network = self.value(&fields, "subnet", parse_network);
        let gateway = self.value(&fields, "gateway", parse_address);
        if self.problems.len() == before {
            for (key, given, why) in [
                (
                    "subnet",
                    network.is_some(),
                    "the network, such as 10.9.0.0/24",
                ),
                (
                    "gateway",
                    gateway.is_some(),
                    "its router, by which its servers reach the box",
                ),
            ] {
                if !given {
                    self.report(
                        node.place,
                        format!("a relayed network needs `{key}`, {why}"),
                    );
                }
            }
        }
        let (network, gateway) = (network?, gateway?);
        let subnet = if network.contains(gateway) {
            Subnet::new(gateway, network.prefix()).map_err(|error| error.0)
        } else {
            Err(format!(
                "the gateway {gateway} is not in the relayed network {network}; name its router there"
            ))
        };
        let subnet = subnet
            .map_err(|wrong| self.report(fields["gateway"].place, wrong))
            .ok()?;
        let usual = AddressRange::derived_from(subnet);
        let range = self.range(&fields, Some(subnet), "its router's");
        Some(RelayedNetwork {
            gateway: subnet,
            range: range.unwrap_or(usual),
        })
    }
}
