use super::problems;
use crate::site::*;

#[test]
fn what_cannot_be_of_ipv6_is_refused_with_its_place() {
    for (network, said) in [
        (
            "a: {subnet: 'fd00:1::/64'}",
            "needs a `subnet` of IPv4, too, such as `[10.20.0.0/24, fd00:20::/64]`",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 10.2.0.0/24]}",
            "line 2, column 29: `subnet` has at most one value of IPv4 and one of IPv6; this is the second of IPv4",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fd00:1::1/64']}",
            "did you mean fd00:1::/64?",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fd00:1::/120']}",
            "use 48 to 112, and 64 where",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fe80::/64']}",
            "has no addresses for servers",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fd00:1/64']}",
            "is not an IPv6 network; write it like fd00:20::/64",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fd00:1::/64']}\n  b: {subnet: [10.2.0.0/24, 'fd00:1::/48']}",
            "line 3, column 29: fd00:1::/48 overlaps fd00:1::/64 of the network `a`",
        ),
        (
            "a: {subnet: 10.1.0.0/24, gateway: [10.1.0.1, 'fd00:1::1']}",
            "has no `subnet` of IPv6, so that fd00:1::1 cannot be there",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fd00:1::/64'], gateway: 'fd00:1::'}",
            "fd00:1:: is no address of a machine in fd00:1::/64",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fd00:1::/64'], gateway: 'fd00:1::1001'}",
            "gives fd00:1::1000-fd00:1::1fff, which holds the router's address fd00:1::1001",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fd00:1::/64'], gateway: 'fd00:1::5', pool: 'fd00:1::1-fd00:1::9'}",
            "holds the router's address fd00:1::5; make it smaller",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fd00:1::/64'], pool: 'fd00:1::9-fd00:1::1'}",
            "did you mean fd00:1::1-fd00:1::9?",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fd00:1::/64'], pool: 'fd00:1::9-fd00:2::1'}",
            "fd00:2::1 is no address of a machine",
        ),
        (
            "a: {subnet: [10.1.0.0/24, 'fd00:1::/64'], routes: [{to: 10.9.0.0/16, via: 'fd00:1::1'}]}",
            "a route and its router are both of IPv4 or both of IPv6",
        ),
    ] {
        let found = problems(&format!("networks:\n  {network}\ncluster: none\n"));
        assert_eq!(found.len(), 1, "{network}: {found:?}");
        assert!(found[0].contains(said), "{network}: {found:?}");
    }
}

#[test]
fn a_cluster_on_a_network_of_both_families_has_pods_and_services_of_both() {
    let cluster = |keys: &str| {
        let text = format!(
            "networks: {{a: {{subnet: [10.20.0.0/24, 'fd00:20::/64']}}}}\ncluster: {{network: a{keys}}}\n"
        );
        match parse_site(&text).unwrap().cluster {
            ClusterChoice::Generated(cluster) => cluster,
            other => panic!("{other:?}"),
        }
    };
    let usual = cluster("");
    assert_eq!(usual.pod_networks(), ["10.244.0.0/16", "fd00:10:244::/56"]);
    assert_eq!(
        usual.service_networks(),
        ["10.96.0.0/12", "fd00:10:96::/112"]
    );
    let named = cluster(", podCidr: ['fd00:10:96::/56'], serviceCidr: [10.97.0.0/16]");
    assert_eq!(named.pod_networks(), ["10.244.0.0/16", "fd00:10:96::/56"]);
    // Beside the pods that are named.
    assert_eq!(
        named.service_networks(),
        ["10.97.0.0/16", "fd00:10:97::/112"]
    );
    for (keys, said) in [
        (
            "podCidr: [10.244.0.0/16, 'fd00:5::/64']",
            "its prefix length must be 48 to 63",
        ),
        (
            "serviceCidr: 'fd00:5::/64'",
            "its prefix length must be 108 to 123",
        ),
        (
            "podCidr: 'fd00:20::/56'",
            "overlaps fd00:20::/64 of the network `a`",
        ),
        (
            "podCidr: 'fd00:5::/56', serviceCidr: 'fd00:5::/112'",
            "serviceCidr fd00:5::/112 overlaps podCidr fd00:5::/56",
        ),
    ] {
        let text = format!(
            "networks: {{a: {{subnet: [10.20.0.0/24, 'fd00:20::/64']}}}}\ncluster: {{network: a, {keys}}}\n"
        );
        let found = problems(&text);
        assert!(
            found.len() == 1 && found[0].contains(said),
            "{keys}: {found:?}"
        );
    }
    let alone = problems("cluster: {podCidr: 'fd00:5::/56'}");
    assert!(
        alone.len() == 1 && alone[0].contains("needs nodes with IPv6"),
        "{alone:?}"
    );
}

#[test]
fn addresses_of_a_host_are_of_the_families_of_their_network() {
    let of = |addresses: &str| {
        format!(
            "networks: {{a: {{subnet: [10.20.0.0/24, 'fd00:20::/64'], gateway: 'fd00:20::1'}}, b: {{subnet: 10.30.0.0/24}}}}\nhosts:\n\
             - {{mac: '52:54:00:00:00:01', addresses: {{{addresses}}}}}\n\
             - {{mac: '52:54:00:00:00:02', addresses: {{a: 'fd00:20::9'}}}}\ncluster: none\n"
        )
    };
    let site = parse_site(of("a: [10.20.0.8, 'fd00:20::8']")).unwrap();
    assert_eq!(
        site.hosts[0].addresses["a"].to_string(),
        "10.20.0.8 and fd00:20::8"
    );
    for (addresses, said) in [
        (
            "a: 'fd00:20::1'",
            "fd00:20::1 is the router of the network a",
        ),
        ("a: 'fd00:20::9'", "have the same address fd00:20::9"),
        (
            "a: 'fd00:21::9'",
            "is no address of a machine in fd00:20::/64",
        ),
        ("b: 'fd00:20::8'", "the network b has no `subnet` of IPv6"),
    ] {
        let found = problems(&of(addresses));
        assert!(
            found.len() == 1 && found[0].contains(said),
            "{addresses}: {found:?}"
        );
    }
}

#[test]
fn a_router_of_ipv6_alone_is_for_everything_else_too() {
    let text = "networks: {a: {subnet: [10.20.0.0/24, 'fd00:20::/64'], gateway: 'fe80::1', vlan: 20}}\n\
                rules: [{match: any, links: [{nic: boot, networks: [provisioning, a]}]}]\ncluster: none\n";
    let site = parse_site(text).unwrap();
    let layout = site.rules[0].gives.layout.as_ref().unwrap();
    assert_eq!(layout.default_route.as_deref(), Some("a"));
}
