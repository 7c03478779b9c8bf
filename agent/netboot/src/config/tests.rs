//! Settings that make no sense are refused, all of them at once.

use super::*;
use crate::testing::{ip, mac, small_site};

fn errors(change: impl FnOnce(&mut DhcpSpec)) -> Vec<ConfigError> {
    let mut spec = small_site();
    change(&mut spec);
    DhcpConfig::new(spec).err().unwrap_or_default()
}

#[test]
fn the_defaults_lease_the_upper_half_of_the_network() {
    for (subnet, first, last) in [
        ("172.22.0.1/24", "172.22.0.128", "172.22.0.254"),
        ("10.0.0.1/8", "10.255.127.255", "10.255.255.254"),
        ("192.168.7.1/30", "192.168.7.2", "192.168.7.2"),
    ] {
        let spec = DhcpSpec::for_box(subnet.parse().unwrap(), 80);
        assert_eq!(
            spec.subnets[0].range,
            AddressRange::new(ip(first), ip(last)).unwrap()
        );
        assert_eq!(
            spec.subnets[0].router, None,
            "there is no way out of the site"
        );
        assert!(DhcpConfig::new(spec).is_ok(), "{subnet}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let found = errors(|spec| {
        spec.server = ip("10.0.0.1");
        spec.lease_time = Duration::from_secs(1);
        spec.domain = Some("not a domain".to_owned());
        spec.subnets[0].range = AddressRange::new(ip("172.22.0.250"), ip("172.22.1.10")).unwrap();
        spec.subnets[0].router = Some(ip("172.22.1.1"));
    });
    assert_eq!(found.len(), 5, "{found:?}");
    assert_eq!(
        found[0].to_string(),
        "the box's address 10.0.0.1 is not in the provisioning network 172.22.0.1/24: correct one of them"
    );
}

#[test]
fn reservations_do_not_collide() {
    let reserve = |address| Reservation {
        address: ip(address),
        host_name: None,
    };
    let found = errors(|spec| {
        spec.reservations.insert(mac(1), reserve("172.22.0.20"));
        spec.reservations.insert(mac(2), reserve("172.22.0.20"));
        spec.reservations.insert(mac(3), reserve("172.22.0.1"));
        spec.reservations.insert(mac(4), reserve("10.1.1.1"));
    });
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "172.22.0.20 is reserved for 52:54:00:aa:00:02, but it is taken by 52:54:00:aa:00:01: choose another address",
            "172.22.0.1 is reserved for 52:54:00:aa:00:03, but it is taken by the box: choose another address",
            "10.1.1.1, reserved for 52:54:00:aa:00:04, is in none of the networks: choose an address of one of them",
        ]
    );
}

#[test]
fn networks_do_not_overlap() {
    let found = errors(|spec| {
        let mut other = spec.subnets[0].clone();
        other.subnet = "172.22.0.128/16".parse().unwrap();
        spec.subnets.push(other);
    });
    assert!(
        matches!(found.as_slice(), [ConfigError::Overlap(..)]),
        "{found:?}"
    );
    assert_eq!(errors(|spec| spec.subnets.clear()), [ConfigError::NoSubnet]);
}
