//! Networks of installed servers: what site.yaml says in `networks` and `links`, as pools and claims of addresses ([`plan()`]) and as network
//! data for cloud-init (`render`), in a Secret beside the host that the hosts controller hands over. Pure; `provider` looks and writes.
//!
//! Must not: touch a host that names network data of its own, or take an address from a server that runs with it.

mod plan;
mod render;
#[cfg(test)]
mod tests;

pub use plan::plan;
pub use render::{is_current, nics};

/// The Secret of a host with its network data, in the host's namespace.
pub fn secret_name(host: &str) -> String {
    format!("{host}-network-data")
}
