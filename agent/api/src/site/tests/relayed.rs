//! Networks behind a router.

use super::*;

const HEAD: &str = "provisioning:\n  gateway: 172.22.0.254\n  relayed:\n";

fn with(line: &str) -> Vec<String> {
    problems(&format!("{HEAD}{line}"))
}

#[test]
fn a_relayed_network_has_a_router_and_a_range_of_its_own() {
    let site = parse_site(format!(
        "{HEAD}  - {{subnet: 10.9.0.0/24, gateway: 10.9.0.1}}\n  - {{subnet: 10.10.0.0/16, range: 10.10.1.0-10.10.1.99, gateway: 10.10.0.1}}\n\
         hosts:\n- {{mac: '52:54:00:00:00:02', address: 10.9.0.7}}\n"
    ))
    .unwrap();
    let provisioning = &site.provisioning;
    assert_eq!(provisioning.gateway, Some(Ipv4Addr::new(172, 22, 0, 254)));
    let shown = provisioning.relayed.iter();
    let shown: Vec<_> = shown
        .map(|relayed| {
            format!(
                "{} {} {}",
                relayed.network(),
                relayed.range,
                relayed.gateway.address()
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "10.9.0.0/24 10.9.0.100-10.9.0.250 10.9.0.1",
            "10.10.0.0/16 10.10.1.0-10.10.1.99 10.10.0.1"
        ]
    );
    assert_eq!(
        provisioning.subnet_of(Ipv4Addr::new(10, 10, 7, 7)),
        Some(cidr("10.10.0.1/16"))
    );
    let ClusterChoice::Generated(cluster) = &site.cluster else {
        panic!("a cluster is made");
    };
    assert_eq!(cluster.endpoint, Ipv4Addr::new(172, 22, 0, 253));
}

#[test]
fn what_is_missing_or_does_not_fit_is_said_with_its_place() {
    for (line, wanted) in [
        (
            "  - {gateway: 10.9.0.1}",
            "line 4, column 5: a relayed network needs `subnet`, the network, such as 10.9.0.0/24",
        ),
        (
            "  - {subnet: 10.9.0.0/24}",
            "line 4, column 5: a relayed network needs `gateway`, its router, by which its servers reach the box",
        ),
        (
            "  - {subnet: 10.9.0.5/24, gateway: 10.9.0.1}",
            "line 4, column 14: `10.9.0.5/24` is an address inside a network; did you mean 10.9.0.0/24?",
        ),
        (
            "  - {subnet: 10.9.0.0/31, gateway: 10.9.0.1}",
            "line 4, column 14: a prefix length of 31 is not possible here; use 8 to 30, for example 10.9.0.0/24",
        ),
        (
            "  - {subnet: 100.64.0.0/16, gateway: 100.64.0.1}",
            "line 4, column 14: 100.64.0.0/16 overlaps 100.64.0.0/22, which the box uses inside; use another network",
        ),
        (
            "  - {subnet: 10.9.0.0/24, gateway: 10.8.0.1}",
            "line 4, column 36: the gateway 10.8.0.1 is not in the relayed network 10.9.0.0/24; name its router there",
        ),
        (
            "  - {subnet: 10.9.0.0/24, gateway: 10.9.0.0}",
            "line 4, column 36: 10.9.0.0 is the network address of its network; the box needs a host address such as 10.9.0.1",
        ),
        (
            "  - {subnet: 10.9.0.0/24, gateway: 10.9.0.1, range: 10.9.1.1-10.9.1.9}",
            "line 4, column 53: the range 10.9.1.1-10.9.1.9 is not inside the network of 10.9.0.1/24, which has 10.9.0.1-10.9.0.254",
        ),
        (
            "  - {subnet: 10.9.0.0/24, gateway: 10.9.0.1, range: 10.9.0.1-10.9.0.9}",
            "line 4, column 53: the range 10.9.0.1-10.9.0.9 holds its router's address 10.9.0.1; for example use 10.9.0.100-10.9.0.250",
        ),
        (
            "  - {subnet: 172.22.0.0/16, gateway: 172.22.1.1}",
            "line 4, column 5: the relayed network 172.22.0.0/16 overlaps the box's own, 172.22.0.0/24; servers of that one need no relay agent",
        ),
        (
            "  - {subnet: 10.9.0.0/24, gateway: 10.9.0.1}\n  - {subnet: 10.9.0.128/25, gateway: 10.9.0.129}",
            "line 5, column 5: the relayed networks 10.9.0.0/24 at line 4 and 10.9.0.128/25 overlap; change or remove one of them",
        ),
        (
            "  - {subnet: 10.9.0.0/24, gatway: 10.9.0.1}",
            "line 4, column 27: unknown key `gatway`; did you mean `gateway`?",
        ),
    ] {
        assert_eq!(with(line), [wanted], "{line}");
    }
}

#[test]
fn the_gateway_is_a_router_of_the_boxs_network_and_relayed_networks_need_it() {
    for (gateway, why) in [
        (
            "172.22.1.1",
            "is not in the network of 172.22.0.1/24, which has 172.22.0.1-172.22.0.254: the box could not reach it",
        ),
        (
            "172.22.0.1",
            "is the box's own address; name the router, or leave `gateway` out",
        ),
        (
            "172.22.0.100",
            "is inside the range 172.22.0.100-172.22.0.250 that is leased to servers; make `range` smaller",
        ),
    ] {
        let text = format!("provisioning: {{gateway: {gateway}}}");
        let wanted = format!("line 1, column 25: the gateway {gateway} {why}");
        assert_eq!(problems(&text), [wanted]);
    }
    assert_eq!(
        problems("provisioning:\n  relayed:\n  - {subnet: 10.9.0.0/24, gateway: 10.9.0.1}"),
        [
            "line 3, column 5: relayed networks are behind a router of the box's network: name its address as `gateway` of `provisioning`"
        ]
    );
}

#[test]
fn hosts_pods_and_services_keep_clear_of_routers_and_relayed_networks() {
    let relayed = format!("{HEAD}  - {{subnet: 10.244.0.0/16, gateway: 10.244.0.1}}\n");
    let ClusterChoice::Generated(cluster) = parse_site(&relayed).unwrap().cluster else {
        panic!("a cluster is made");
    };
    assert_eq!(cluster.pod_cidr.to_string(), "172.28.0.0/16");
    assert_eq!(
        problems(&format!("{relayed}cluster: {{podCidr: 10.244.0.0/18}}")),
        [
            "line 5, column 20: podCidr 10.244.0.0/18 overlaps the relayed network 10.244.0.0/16; for example use 172.28.0.0/16"
        ]
    );
    for router in ["172.22.0.254", "10.244.0.1"] {
        assert_eq!(
            problems(&format!(
                "{relayed}hosts: [{{mac: '52:54:00:00:00:02', address: {router}}}]"
            )),
            [format!(
                "line 5, column 45: {router} is a router's address; give the host another one"
            )]
        );
    }
    let told = problems(&format!("{relayed}cluster: {{endpoint: 172.22.0.254}}"));
    assert!(told[0].contains("is the router's address"), "{told:?}");
}

#[test]
fn more_networks_than_the_box_looks_after_and_networks_that_leave_nothing_are_refused() {
    let entry =
        |second: usize| format!("  - {{subnet: 10.{second}.0.0/24, gateway: 10.{second}.0.1}}\n");
    let many: String = (0..33).map(entry).collect();
    assert_eq!(
        with(&many),
        ["line 36, column 5: at most 32 networks are relayed; give one network to more servers"]
    );
    let wide = "  - {subnet: 10.0.0.0/8, gateway: 10.0.0.1}\n  - {subnet: 192.0.0.0/8, gateway: 192.0.0.1}\n";
    assert!(
        parse_site(format!("{HEAD}{wide}")).is_ok(),
        "172.16.0.0/12 is left"
    );
    let all = "provisioning:\n  address: 172.16.0.1/12\n  gateway: 172.16.0.2\n  range: 172.17.0.0-172.17.0.9\n  relayed:\n";
    let told = problems(&format!("{all}{wide}"));
    assert!(
        told[0].contains("leave no private network for pods"),
        "{told:?}"
    );
    assert!(parse_site(format!("{all}{wide}cluster: none")).is_ok());
}
