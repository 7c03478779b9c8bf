//! Networks beyond a router, whose servers boot through a relay agent.

use std::net::Ipv4Addr;

use super::{AddressRange, Ipv4Network, ProvisioningConfig, Subnet};

/// As many as a site has rows of racks; the box keeps addresses of each probed ahead.
pub(super) const MOST_RELAYED: usize = 32;

/// One network that a relay agent forwards DHCP from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedNetwork {
    /// Its router's address there, with the length of its prefix: what its servers are told.
    pub gateway: Subnet,
    /// Leased to its servers; inside it, and never holds the router.
    pub range: AddressRange,
}

impl RelayedNetwork {
    /// All of it.
    pub fn network(&self) -> Ipv4Network {
        Ipv4Network::around(self.gateway.address(), self.gateway.prefix())
    }
}

impl ProvisioningConfig {
    /// The box's network and the relayed ones.
    pub fn networks(&self) -> Vec<Ipv4Network> {
        let relayed = self.relayed.iter().map(RelayedNetwork::network);
        std::iter::once(self.network()).chain(relayed).collect()
    }

    /// The network that `address` could be a host of.
    pub fn subnet_of(&self, address: Ipv4Addr) -> Option<Subnet> {
        let relayed = self.relayed.iter().map(|relayed| relayed.gateway);
        let mut subnets = std::iter::once(self.address).chain(relayed);
        subnets.find(|subnet| subnet.has_host(address))
    }

    /// Routers that site.yaml names.
    pub fn routers(&self) -> impl Iterator<Item = Ipv4Addr> {
        let relayed = self.relayed.iter().map(|relayed| relayed.gateway.address());
        self.gateway.into_iter().chain(relayed)
    }
}
