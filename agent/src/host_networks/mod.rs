//! Networks of installed servers: what site.yaml says in `networks` and `links`, as addresses ([`plan`]) and as network data for
//! cloud-init (`render`), in a Secret beside the host that the hosts controller hands over. Pure; `provider` looks and writes.
//!
//! Addresses are claimed from an `IPPool` for each network, so that each is a host's for good and `kubectl` shows whose it is. Pools and
//! claims are in one namespace, for hosts of all: two pools of one network would give one address twice.
//! Must not: touch a host that names network data of its own.

mod plan;
mod render;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use firstlight_api::{
    bmh::HardwareDetails,
    object::Meta,
    site::{Layout, SiteConfig},
    status::HardwareSummary,
};

pub use plan::plan;
pub use render::{is_current, nics};

use crate::{
    capi::{
        NAMESPACE,
        addresses::IpamApi,
        world::{Host, World},
    },
    objects::Key,
};

/// On pools and claims that are made here: the network's name.
const LABEL: &str = "firstlight.internal/network";

/// What site.yaml says of the server that boots from this NIC.
pub fn layout_of(site: &SiteConfig, mac: &str, hardware: &HardwareDetails) -> Option<Layout> {
    site.layout(mac.parse().ok()?, &HardwareSummary::from(hardware))
}

fn wanted(world: &World, host: &Host) -> Option<Layout> {
    let hardware = host.status.hardware.as_ref()?;
    layout_of(&world.site, &host.spec.boot_mac_address, hardware)
}

/// Do its NICs carry this network?
pub fn carries(world: &World, host: &Host, network: &str) -> bool {
    wanted(world, host).is_some_and(|layout| layout.networks().any(|it| it == network))
}

/// The Secret of a host with its network data, in the host's namespace.
pub fn secret_name(host: &str) -> String {
    format!("{host}-network-data")
}

fn pool(network: &str) -> Key {
    Key::new(NAMESPACE, &format!("site-{network}"))
}

/// Named like Metal3's: for whom, from which pool.
fn claim(host: &Meta, network: &str) -> Key {
    let pool = pool(network).name;
    let name = if host.namespace == NAMESPACE {
        format!("{}-{pool}", host.name)
    } else {
        format!("{}.{}-{pool}", host.namespace, host.name)
    };
    Key::new(NAMESPACE, &name)
}

/// What the host was given on a network of the site.
pub fn address(world: &World, host: &Meta, network: &str) -> Option<IpAddr> {
    let key = claim(host, network);
    let claims = &world.addresses.claims;
    let claim = claims.get(&(IpamApi::Metal3, key.clone()))?;
    let given = Key::new(NAMESPACE, claim.address.as_ref()?);
    let given = world.addresses.given.get(&(IpamApi::Metal3, given));
    given
        .filter(|given| given.claim == key.name)
        .map(|given| given.ip)
}
