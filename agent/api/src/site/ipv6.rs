//! IPv6 beside IPv4 on the site's networks. Pure.
//!
//! Only addresses that the box gives for good. The box neither advertises a router nor speaks `DHCPv6`: both are the site's own.

use std::{fmt, net::Ipv6Addr, str::FromStr};

use ipnet::Ipv6Net;

use super::ValueError;

/// Of a network whose addresses the box gives, beside the IPv4 ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Addresses {
    /// Overlaps no other network of the site.
    pub subnet: Ipv6Net,
    /// Given to servers that `hosts` names no address for; inside `subnet`, without `gateway`.
    pub pool: Ipv6Range,
    /// Its router, in `subnet` or link-local.
    pub gateway: Option<Ipv6Addr>,
}

/// Addresses from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Range {
    first: Ipv6Addr,
    last: Ipv6Addr,
}

impl Ipv6Range {
    /// Itself in the range.
    pub fn first(self) -> Ipv6Addr {
        self.first
    }

    /// Itself in the range.
    pub fn last(self) -> Ipv6Addr {
        self.last
    }

    /// Whether it is one of them.
    pub fn contains(self, address: Ipv6Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// `::1000` to `::1fff` in the subnet, which has at least that many addresses. Autoconfigured ones are elsewhere: they have the bits of a MAC
    /// address or chance ones in their lower half.
    #[must_use]
    pub fn derived_from(subnet: Ipv6Net) -> Self {
        let at = |offset: u128| Ipv6Addr::from_bits(subnet.network().to_bits() | offset);
        Self {
            first: at(0x1000),
            last: at(0x1fff),
        }
    }
}

impl FromStr for Ipv6Range {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let ends = text.split_once('-');
        let ends = ends.map(|(first, last)| (first.trim().parse(), last.trim().parse()));
        let Some((Ok(first), Ok(last))) = ends else {
            return Err(ValueError(format!(
                "`{text}` is not a range of IPv6 addresses; write it like fd00:20::1000-fd00:20::1fff"
            )));
        };
        if first > last {
            return Err(ValueError(format!(
                "the range ends before it starts; did you mean {last}-{first}?"
            )));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for Ipv6Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// A network by its first address.
pub(super) fn parse_ipv6_network(text: &str) -> Result<Ipv6Net, ValueError> {
    let network: Ipv6Net = text.parse().map_err(|_| {
        ValueError(format!(
            "`{text}` is not an IPv6 network; write it like fd00:20::/64"
        ))
    })?;
    let first = network.trunc();
    if first != network {
        return Err(ValueError(format!(
            "{network} is an address inside a network; did you mean {first}?"
        )));
    }
    let address = network.network();
    if address.is_multicast() || address.is_unicast_link_local() || address.is_loopback() {
        return Err(ValueError(format!(
            "{network} has no addresses for servers; use one of your own, or a unique local one such as fd00:20::/64"
        )));
    }
    Ok(network)
}

/// Networks have something in common.
pub(super) fn overlap(one: &Ipv6Net, other: &Ipv6Net) -> bool {
    one.contains(other) || other.contains(one)
}
