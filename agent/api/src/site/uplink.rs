//! `uplink`: the box's own way to the rest of the customer's network, on a NIC of its own. Pure.
//!
//! To add a property: [`Uplink`]; then the walk in `parse::uplink`, the schema, and what the box's `uplink` room makes of it.

use std::{collections::BTreeMap, net::Ipv4Addr};

use super::{
    Ipv4Network, SiteConfig, Subnet, ValueError,
    networks::{Carrier, Domain, SiteRoute, TimeServer},
};

/// Of a cluster's API, where `clusters` says nothing else.
pub const API_PORT: u16 = 6443;

/// How the box is reached from outside, and what it reaches there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The box's NIC, by name or MAC address, or several that are one. Never that of the provisioning network.
    pub carrier: Carrier,
    /// `vlan`: its tag on the wire; absent: without one.
    pub vlan: Option<u16>,
    /// `mtu`, in bytes.
    pub mtu: Option<u16>,
    /// Absent: told by the DHCP server there, which then also tells what is not written here.
    pub address: Option<FixedUplink>,
    /// Name servers for the box; empty: those that the DHCP server there tells.
    pub dns: Vec<Ipv4Addr>,
    /// Domains in which the box looks for short names.
    pub search: Vec<Domain>,
    /// Where the box takes its time from; empty: from those that the DHCP server there tells.
    pub ntp: Vec<TimeServer>,
    /// What is reached through its routers, beside everything else.
    pub routes: Vec<SiteRoute>,
    /// What servers reach through it.
    pub routing: Routing,
    /// Clusters whose API is reached at the box's address there, and at which port.
    pub clusters: BTreeMap<String, u16>,
}

/// An address that a person has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedUplink {
    /// The box's, with the length of its network, which overlaps no other of the site.
    pub address: Subnet,
    /// The router for everything else.
    pub gateway: Option<Ipv4Addr>,
}

/// What the box does for servers that want to go out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// Nothing: it is nobody's router.
    #[default]
    None,
    /// It lets them out under its own address.
    Nat,
}

impl std::str::FromStr for Routing {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "none" => Ok(Self::None),
            "nat" => Ok(Self::Nat),
            _ => Err(ValueError(format!(
                "`{text}` is nothing that the box does for servers; use none (they stay on their networks) or nat (they go out under the box's address)"
            ))),
        }
    }
}

impl FixedUplink {
    /// Its network.
    pub fn network(&self) -> Ipv4Network {
        Ipv4Network::around(self.address.address(), self.address.prefix())
    }
}

impl Uplink {
    /// The network of an address that a person has chosen.
    pub fn network(&self) -> Option<Ipv4Network> {
        self.address.map(|fixed| fixed.network())
    }
}

impl SiteConfig {
    /// The box is the way out for its servers.
    pub fn lets_servers_out(&self) -> bool {
        let mut uplink = self.uplink.iter();
        uplink.any(|uplink| uplink.routing == Routing::Nat)
    }

    /// The router of the network that servers boot from: the one that is written down, or the box where it lets them out.
    pub fn router(&self) -> Option<Ipv4Addr> {
        let own = self.provisioning.address.address();
        let is_own = self.lets_servers_out();
        self.provisioning.gateway.or(is_own.then_some(own))
    }
}
