//! Hosts on the networks of site.yaml: which of them a host's NICs carry, and the address that it was given there.
//!
//! Pools and claims of these networks are in one namespace, for hosts of all: two pools of one network would give one address twice.

use std::net::IpAddr;

use firstlight_api::{
    object::Meta,
    site::{Layout, networks::Fixed},
    status::HardwareSummary,
};

use super::{
    addresses::{AddressClaim, IpamApi},
    world::{Host, Key, NAMESPACE, World},
};

/// An address of a host on a network is of one of them, with a pool and a claim of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    pub fn all_of(network: &Fixed) -> impl Iterator<Item = Self> {
        std::iter::once(Self::Ipv4).chain(network.ipv6.map(|_| Self::Ipv6))
    }

    /// Behind a network's name, which has no dot.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Ipv4 => "",
            Self::Ipv6 => ".ipv6",
        }
    }
}

pub fn pool(network: &str, family: Family) -> Key {
    Key::new(NAMESPACE, &format!("site-{network}{}", family.suffix()))
}

/// Named like Metal3's: for whom, from which pool.
pub fn claim(host: &Meta, network: &str, family: Family) -> Key {
    let pool = pool(network, family).name;
    let name = if host.namespace == NAMESPACE {
        format!("{}-{pool}", host.name)
    } else {
        format!("{}.{}-{pool}", host.namespace, host.name)
    };
    Key::new(NAMESPACE, &name)
}

/// On a claim: whose it is, `NAMESPACE/NAME`. Names of claims may be alike where names of hosts have dots.
pub const HOST: &str = "firstlight.internal/host";

impl World {
    /// What site.yaml says of its NICs; absent too until they are known.
    pub fn layout(&self, host: &Host) -> Option<Layout> {
        let hardware = HardwareSummary::from(host.status.hardware.as_ref()?);
        let mac = host.spec.boot_mac_address.parse().ok()?;
        self.site.layout(mac, &hardware)
    }

    pub fn carries(&self, host: &Host, network: &str) -> bool {
        let layout = self.layout(host);
        layout.is_some_and(|layout| layout.networks().any(|it| it == network))
    }

    /// Its claim there, and nobody else's.
    pub fn site_claim(&self, host: &Meta, network: &str, family: Family) -> Option<&AddressClaim> {
        let key = (IpamApi::Metal3, claim(host, network, family));
        let claim = self.addresses.claims.get(&key)?;
        let whose = Key::of(host).to_string();
        (claim.meta.annotation(HOST) == Some(&whose)).then_some(claim)
    }

    pub fn site_address(&self, host: &Meta, network: &str, family: Family) -> Option<IpAddr> {
        let claim = self.site_claim(host, network, family)?;
        let given = Key::new(NAMESPACE, claim.address.as_ref()?);
        let given = self.addresses.given.get(&(IpamApi::Metal3, given));
        given
            .filter(|given| given.claim == claim.meta.name)
            .map(|given| given.ip)
    }
}
