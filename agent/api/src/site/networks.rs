//! `networks`, and `links`: which networks an installed server has, and which of its NICs carry them. Pure.
//!
//! The provisioning network is one of them by name, without a tag, on the NIC that the server boots from; the box leases its addresses.
//! To add a property of a network: [`SiteNetwork`] or [`Fixed`]; then the walk in `parse::networks` and the schema.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::{IpNet, Ipv6Net};

use super::{
    AddressRange, HostName, Ipv4Network, MacAddr, SiteConfig, ValueError, ipv6::Ipv6Addresses,
    uplink::Uplink,
};
use crate::status::HardwareSummary;

/// Of the network that servers boot from, in `links`.
pub const PROVISIONING: &str = "provisioning";

/// One entry of `networks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteNetwork {
    /// `vlan`: its tag on the wire; absent: without one.
    pub vlan: Option<u16>,
    /// `mtu`, in bytes.
    pub mtu: Option<u16>,
    /// Where its servers have their addresses from.
    pub addresses: Addresses,
}

/// Who says what address a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// `dhcp: theirs`: a DHCP server of the site.
    Theirs,
    /// The box, once and for good: the server keeps its address whether the box is there or not.
    Fixed(Box<Fixed>),
}

/// A network whose addresses the box gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Overlaps no other network of the site.
    pub subnet: Ipv4Network,
    /// Given to servers that `hosts` names no address for; inside `subnet`, without `gateway`.
    pub pool: AddressRange,
    /// Its router.
    pub gateway: Option<Ipv4Addr>,
    /// Where it has both families.
    pub ipv6: Option<Ipv6Addresses>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Time servers, by name or address.
    pub ntp: Vec<TimeServer>,
    /// Domains in which short names are looked for.
    pub search: Vec<Domain>,
    /// What is reached through its routers, beside everything else through `gateway`.
    pub routes: Vec<SiteRoute>,
}

/// One entry of `routes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteRoute {
    /// What is behind `via`.
    pub to: IpNet,
    /// A router in the network that has the route, of the same family.
    pub via: IpAddr,
}

/// What `hosts` says of one server's addresses on one network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    /// Absent: from the pool.
    pub ipv4: Option<Ipv4Addr>,
    /// Absent: from the pool, where the network has IPv6.
    pub ipv6: Option<Ipv6Addr>,
}

impl HostAddresses {
    /// Those that are said, IPv4 first.
    pub fn iter(self) -> impl Iterator<Item = IpAddr> {
        let both = [self.ipv4.map(IpAddr::V4), self.ipv6.map(IpAddr::V6)];
        both.into_iter().flatten()
    }
}

impl fmt::Display for HostAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.iter().map(|it| it.to_string()).collect();
        f.write_str(&all.join(" and "))
    }
}

/// A DNS domain, such as `site.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain(String);

impl FromStr for Domain {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let good = text.len() <= 253 && text.split('.').all(|label| HostName::parse(label).is_ok());
        if !good {
            return Err(ValueError(format!(
                "`{text}` is no DNS domain; write it like site.example"
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeServer(String);

impl FromStr for TimeServer {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // All digits is no domain, and a mistyped address is one otherwise.
        let is_address = text.parse::<IpAddr>().is_ok();
        let is_name =
            text.contains(|it: char| it.is_ascii_alphabetic()) && Domain::from_str(text).is_ok();
        if !is_address && !is_name {
            return Err(ValueError(format!(
                "`{text}` is no time server; write an address such as 10.0.0.1, or a name"
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for TimeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `links` and `defaultRoute`: which NIC carries which network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// No two have a NIC or a network in common, and one has the provisioning network.
    pub links: Vec<SiteLink>,
    /// The network whose router is for everything else; absent where none has one.
    pub default_route: Option<String>,
}

/// One entry of `links`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteLink {
    /// What the frames go through.
    pub carrier: Carrier,
    /// Names; at most one of them has no tag.
    pub networks: Vec<String>,
}

/// A NIC, or some that are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// `nic`.
    Nic(NicChoice),
    /// `bond`: its mode, with `nics`.
    Bond(Bond),
}

impl fmt::Display for SiteLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by ", self.networks.join("+"))?;
        match &self.carrier {
            Carrier::Nic(nic) => nic.fmt(f),
            Carrier::Bond(bond) => {
                let nics: Vec<String> = bond.nics.iter().map(ToString::to_string).collect();
                let (mode, nics) = (bond.mode.word(), nics.join(" and "));
                write!(f, "the bond {mode} of {nics}")
            }
        }
    }
}

/// NICs that carry the same networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bond {
    /// At least one.
    pub nics: Vec<NicChoice>,
    /// Of which kind.
    pub mode: BondMode,
    /// As the kernel's documentation calls them, without those that have a meaning elsewhere.
    pub parameters: BTreeMap<String, String>,
}

/// Who of a bond's NICs sends what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BondMode {
    /// One sends, the others wait: no switch has to know of it.
    ActiveBackup,
    /// By a hash of who speaks with whom: the switch has to take them for one link.
    BalanceXor,
    /// LACP.
    Lacp,
}

impl BondMode {
    const ALL: [Self; 3] = [Self::ActiveBackup, Self::BalanceXor, Self::Lacp];

    /// As in site.yaml, and as the kernel says it.
    pub fn word(self) -> &'static str {
        match self {
            Self::ActiveBackup => "active-backup",
            Self::BalanceXor => "balance-xor",
            Self::Lacp => "802.3ad",
        }
    }
}

impl FromStr for BondMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mode = Self::ALL.into_iter().find(|mode| mode.word() == text);
        mode.ok_or_else(|| {
            ValueError(format!(
                "`{text}` is no mode of a bond here; use active-backup (needs nothing of the switch), balance-xor or 802.3ad (LACP)"
            ))
        })
    }
}

/// How a person names a NIC of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NicChoice {
    /// The one that it boots from.
    Boot,
    /// By its address.
    Mac(MacAddr),
    /// As `status.hardware.nics` of its `BareMetalHost` calls it.
    Name(String),
}

impl fmt::Display for NicChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot => f.write_str("boot"),
            Self::Mac(mac) => mac.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Carrier {
    /// One, or those of the bond.
    pub fn nics(&self) -> &[NicChoice] {
        match self {
            Self::Nic(nic) => std::slice::from_ref(nic),
            Self::Bond(bond) => &bond.nics,
        }
    }
}

impl Layout {
    /// Whether one of the links carries this network.
    pub fn carries(&self, network: &str) -> bool {
        self.networks().any(|carried| carried == network)
    }

    /// Names of all networks, in the order of their links.
    pub fn networks(&self) -> impl Iterator<Item = &str> {
        let networks = self.links.iter().flat_map(|link| &link.networks);
        networks.map(String::as_str)
    }
}

impl SiteConfig {
    /// Networks whose addresses the box gives for good, by name.
    pub fn fixed_networks(&self) -> impl Iterator<Item = (&str, &Fixed)> {
        self.networks
            .iter()
            .filter_map(|(name, network)| match &network.addresses {
                Addresses::Fixed(fixed) => Some((name.as_str(), &**fixed)),
                Addresses::Theirs => None,
            })
    }

    /// Which NIC of a server carries what, as `hosts` or the first rule that fits says; absent: only the provisioning network.
    pub fn layout(&self, mac: MacAddr, hardware: &HardwareSummary) -> Option<Layout> {
        let rule = self.rule_of(mac, hardware).map(|(_, rule)| rule);
        self.gives(mac, rule).layout
    }

    /// Somebody has written `links`.
    pub fn has_links(&self) -> bool {
        let of_hosts = self.hosts.iter().map(|host| &host.layout);
        let of_rules = self.rules.iter().map(|rule| &rule.gives.layout);
        of_hosts.chain(of_rules).any(Option::is_some)
    }

    /// The IPv6 networks among [`Self::fixed_networks`], by name.
    pub fn ipv6_networks(&self) -> impl Iterator<Item = (&str, Ipv6Net)> {
        self.fixed_networks()
            .filter_map(|(name, fixed)| Some((name, fixed.ipv6?.subnet)))
    }

    /// Every IPv4 network of the site, apart from what is inside the cluster.
    pub fn all_networks(&self) -> Vec<Ipv4Network> {
        let mut all = self.provisioning.networks();
        all.extend(self.fixed_networks().map(|(_, fixed)| fixed.subnet));
        all.extend(self.uplink.as_ref().and_then(Uplink::network));
        all
    }
}
