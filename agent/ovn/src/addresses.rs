//! Which address a port gets: the one that its pod asked for, or the lowest that is free. What was given stays as long as the port.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use sha2::{Digest as _, Sha256};

use crate::kinds::{Network, Port, PortStatus};

/// For each port that has not what it should, what its status is to be.
pub fn give(networks: &BTreeMap<String, Network>, ports: &[Port]) -> Vec<(String, PortStatus)> {
    let mut taken: BTreeSet<(&str, IpAddr)> = ports
        .iter()
        .filter_map(|port| Some((&*port.spec.network, port.status.address?.addr())))
        .collect();
    let mut given = Vec::new();
    for port in ports.iter().filter(|port| port.status.address.is_none()) {
        let status = match networks.get(&port.spec.network) {
            Some(network) => match choose(network, port, &taken) {
                Ok(address) => {
                    taken.insert((&port.spec.network, address));
                    status(network, port, address)
                }
                Err(problem) => with_problem(problem),
            },
            None => with_problem(format!(
                "there is no usable LogicalNetwork {}: `kubectl get logicalnetworks -A` says more",
                port.spec.network
            )),
        };
        if status != port.status {
            given.push((port.key.clone(), status));
        }
    }
    given
}

fn with_problem(problem: String) -> PortStatus {
    PortStatus {
        problem: Some(problem),
        ..PortStatus::default()
    }
}

fn status(network: &Network, port: &Port, address: IpAddr) -> PortStatus {
    PortStatus {
        address: IpNet::new(address, network.subnet.prefix_len()).ok(),
        mac: Some(
            port.spec
                .mac
                .clone()
                .unwrap_or_else(|| mac(network, address)),
        ),
        mtu: Some(network.mtu),
        routes: network.routes.clone(),
        problem: None,
    }
}

fn choose(
    network: &Network,
    port: &Port,
    taken: &BTreeSet<(&str, IpAddr)>,
) -> Result<IpAddr, String> {
    let is_taken = |address: &IpAddr| taken.contains(&(&*port.spec.network, *address));
    if let Some(asked) = port.spec.address {
        if !network.subnet.contains(&asked) {
            return Err(format!(
                "the pod asks for {asked}, which is not in {}",
                network.subnet
            ));
        }
        return if is_taken(&asked) {
            Err(format!("the pod asks for {asked}, which another pod has"))
        } else {
            Ok(asked)
        };
    }
    let mut next = first(&network.subnet);
    while let Some(address) = next.filter(|address| is_usable(&network.subnet, *address)) {
        let excluded = network
            .exclude
            .iter()
            .find(|(first, last)| (*first..=*last).contains(&address));
        match excluded {
            Some((_, last)) => next = after(*last),
            None if Some(address) == network.gateway || is_taken(&address) => {
                next = after(address);
            }
            None => return Ok(address),
        }
    }
    Err(format!(
        "{} has no free address: `kubectl get logicalports -A` shows who has them",
        port.spec.network
    ))
}

fn first(subnet: &IpNet) -> Option<IpAddr> {
    after(subnet.network())
}

fn after(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => {
            let next = u32::from(address).checked_add(1)?;
            Some(Ipv4Addr::from(next).into())
        }
        IpAddr::V6(address) => {
            let next = u128::from(address).checked_add(1)?;
            Some(Ipv6Addr::from(next).into())
        }
    }
}

/// The last one of IPv4 is for everybody.
fn is_usable(subnet: &IpNet, address: IpAddr) -> bool {
    subnet.contains(&address) && (address.is_ipv6() || address != subnet.broadcast())
}

/// The same for the same address of a network, so that neighbours need not learn it anew.
fn mac(network: &Network, address: IpAddr) -> String {
    let digest = Sha256::digest(format!("{} {address}", network.key));
    // Of one station, and of nobody's range.
    let bytes = digest.iter().take(5);
    bytes.fold("0a".to_owned(), |mac, byte| format!("{mac}:{byte:02x}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::{network, port};

    fn given(network: &Network, ports: &[Port]) -> Vec<String> {
        let networks = [(network.key.clone(), network.clone())].into();
        let given = give(&networks, ports);
        let told = given.into_iter().map(|(_, status)| match status.problem {
            Some(problem) => problem,
            None => status.address.unwrap().to_string(),
        });
        told.collect()
    }

    #[test]
    fn ports_get_the_lowest_free_addresses_and_keep_them() {
        let spec = json!({"subnet": "10.20.0.0/29", "gateway": "10.20.0.1", "exclude": ["10.20.0.3-10.20.0.4"]});
        let blue = network("a/blue", &spec).unwrap();
        let mut ports: Vec<Port> = ["a/1", "a/2", "a/3", "a/4"]
            .map(|key| port(key, "a/blue"))
            .into();
        assert_eq!(
            given(&blue, &ports),
            [
                "10.20.0.2/29",
                "10.20.0.5/29",
                "10.20.0.6/29",
                "a/blue has no free address: `kubectl get logicalports -A` shows who has them"
            ]
        );
        ports[2].status.address = Some("10.20.0.2/29".parse().unwrap());
        assert_eq!(given(&blue, &ports[..3]), ["10.20.0.5/29", "10.20.0.6/29"]);
        assert!(
            given(&blue, &[port("a/1", "a/red")])[0].contains("no usable LogicalNetwork a/red")
        );
    }

    #[test]
    fn a_pod_gets_the_address_that_it_asks_for_or_a_sentence() {
        let blue = network("a/blue", &json!({"subnet": "fd00::/64"})).unwrap();
        let asks = |address: &str| {
            let mut port = port("a/1", "a/blue");
            port.spec.address = Some(address.parse().unwrap());
            port
        };
        let told = given(
            &blue,
            &[
                asks("fd00::1"),
                asks("fd00::1"),
                asks("fd01::1"),
                port("a/4", "a/blue"),
            ],
        );
        assert_eq!(told[0], "fd00::1/64");
        assert!(told[1].contains("another pod has"), "{told:?}");
        assert!(told[2].contains("not in fd00::/64"), "{told:?}");
        assert_eq!(told[3], "fd00::2/64");
    }

    proptest! {
        #[test]
        fn no_two_ports_have_one_address(count in 1usize..40, bits in 24u8..30, excluded in 0u8..4) {
            let spec = json!({"subnet": format!("10.0.0.0/{bits}"), "exclude": [format!("10.0.0.{excluded}")]});
            let blue = network("a/blue", &spec).unwrap();
            let ports: Vec<Port> = (0..count).map(|index| port(&format!("a/{index}"), "a/blue")).collect();
            let networks = [(blue.key.clone(), blue.clone())].into();
            let mut seen = BTreeSet::new();
            let mut macs = BTreeSet::new();
            for (_, status) in give(&networks, &ports) {
                if let Some(address) = status.address {
                    prop_assert!(seen.insert(address) && macs.insert(status.mac));
                    prop_assert!(address.addr() != address.network() && address.addr() != address.broadcast());
                }
            }
            let room = (1usize << (32 - bits)) - 2;
            prop_assert!(seen.len() >= count.min(room - 1));
        }
    }
}
