use super::problems;
use crate::site::{
    networks::{Addresses, BondMode, Carrier, NicChoice},
    *,
};

const SITE: &str = "
provisioning: {gateway: 172.22.0.254}
networks:
  cluster: {subnet: 10.20.0.0/24, vlan: 20, gateway: 10.20.0.1, dns: [10.20.0.1], ntp: [10.20.0.1, ntp.example], search: [site.example], routes: [{to: 10.0.0.0/8, via: 10.20.0.2}]}
  storage: {subnet: 10.30.0.0/24, mtu: 9000, pool: 10.30.0.10-10.30.0.19}
  office: {dhcp: theirs, vlan: 40}
hosts:
- mac: 52:54:00:00:00:01
  addresses: {storage: 10.30.0.11}
  links: [{nic: boot, networks: [provisioning]}, {nic: eno2, networks: [storage]}]
rules:
- match: any
  links:
  - {bond: 802.3ad, nics: [boot, 'aa:bb:cc:dd:ee:00'], parameters: {lacp_rate: fast}, networks: [provisioning, cluster]}
  - {nic: eno3, networks: [office]}
  defaultRoute: cluster
cluster: {network: cluster}
";

#[test]
fn networks_and_who_carries_them_are_read() {
    let site = parse_site(SITE).unwrap();
    let (name, cluster) = site.fixed_networks().next().unwrap();
    assert_eq!(
        (name, cluster.subnet.to_string()),
        ("cluster", "10.20.0.0/24".to_owned())
    );
    // As the box's own range is derived, and without the router.
    assert_eq!(cluster.pool.to_string(), "10.20.0.100-10.20.0.250");
    assert_eq!(cluster.routes[0].to.to_string(), "10.0.0.0/8");
    assert_eq!(cluster.ntp[1].to_string(), "ntp.example");
    assert_eq!(cluster.search[0].to_string(), "site.example");
    let office = &site.networks["office"];
    assert_eq!(
        (office.vlan, &office.addresses),
        (Some(40), &Addresses::Theirs)
    );
    let host = &site.hosts[0];
    assert_eq!(host.addresses["storage"].to_string(), "10.30.0.11");
    let mac = host.mac;
    let layout = site.gives(mac, site.rules.first()).layout.unwrap();
    assert_eq!(
        layout.networks().collect::<Vec<_>>(),
        ["provisioning", "storage"]
    );
    assert_eq!(layout.default_route.as_deref(), Some("provisioning"));
    let other = MacAddr::new([2, 0, 0, 0, 0, 1]).unwrap();
    let layout = site.gives(other, site.rules.first()).layout.unwrap();
    assert_eq!(layout.default_route.as_deref(), Some("cluster"));
    let Carrier::Bond(bond) = &layout.links[0].carrier else {
        panic!("{layout:?}");
    };
    assert_eq!(bond.mode, BondMode::Lacp);
    assert_eq!(bond.nics[0], NicChoice::Boot);
    assert_eq!(bond.parameters["lacp_rate"], "fast");
    assert_eq!(bond.parameters["miimon"], "100");
    let ClusterChoice::Generated(config) = &site.cluster else {
        panic!("{:?}", site.cluster);
    };
    assert_eq!(config.network.as_deref(), Some("cluster"));
    // Addresses of pods keep clear of every network.
    let site = parse_site("networks: {a: {subnet: 10.244.0.0/16}}").unwrap();
    let ClusterChoice::Generated(config) = &site.cluster else {
        panic!("{:?}", site.cluster);
    };
    assert!(!config.pod_cidr.overlaps(&"10.244.0.0/16".parse().unwrap()));
}

#[test]
fn what_cannot_be_a_network_is_refused_with_its_place() {
    for (network, said) in [
        (
            "Storage: {subnet: 10.30.0.0/24}",
            "line 2, column 3: `Storage` cannot be the name",
        ),
        (
            "provisioning: {subnet: 10.30.0.0/24}",
            "is described by the key `provisioning`",
        ),
        (
            "a: {}",
            "line 2, column 6: the network `a` needs `subnet`, such as 10.20.0.0/24, or `dhcp: theirs`",
        ),
        ("a: {subnet: 10.30.0.1/24}", "did you mean 10.30.0.0/24?"),
        (
            "a: {subnet: 172.22.0.0/16}",
            "172.22.0.0/16 of the network `a` overlaps 172.22.0.0/24, which servers boot from",
        ),
        ("a: {subnet: 100.64.0.0/24}", "which the box uses inside"),
        (
            "a: {subnet: 10.1.0.0/24}\n  b: {subnet: 10.1.0.0/16}",
            "line 3, column 15: 10.1.0.0/16 of the network `b` overlaps 10.1.0.0/24 of the network `a`",
        ),
        (
            "a: {subnet: 10.1.0.0/24}\n  a: {subnet: 10.2.0.0/24}",
            "the network `a` is given twice, at line 2",
        ),
        (
            "a: {subnet: 10.1.0.0/24, vlan: 4095}",
            "`4095` is no VLAN; its tag is 1 to 4094",
        ),
        (
            "a: {subnet: 10.1.0.0/24, mtu: 90000}",
            "it is 1280 to 9216 bytes",
        ),
        (
            "a: {subnet: 10.1.0.0/24, gateway: 10.2.0.1}",
            "10.2.0.1 is no address of a machine in 10.1.0.0/24",
        ),
        (
            "a: {subnet: 10.1.0.0/24, gateway: 10.1.0.255}",
            "10.1.0.255 is no address of a machine",
        ),
        (
            "a: {subnet: 10.1.0.0/24, gateway: 10.1.0.9, pool: 10.1.0.2-10.1.0.20}",
            "holds the router's address 10.1.0.9",
        ),
        (
            "a: {subnet: 10.1.0.0/24, pool: 10.1.0.2-10.1.1.20}",
            "10.1.1.20 is no address",
        ),
        (
            "a: {subnet: 10.1.0.0/24, dns: [dns.example]}",
            "is not an IP address",
        ),
        (
            "a: {subnet: 10.1.0.0/24, ntp: [10.1.0]}",
            "`10.1.0` is no time server",
        ),
        (
            "a: {subnet: 10.1.0.0/24, search: [a..b]}",
            "is no DNS domain",
        ),
        (
            "a: {subnet: 10.1.0.0/24, routes: [{to: 10.9.0.0/16}]}",
            "a route needs `to`",
        ),
        (
            "a: {subnet: 10.1.0.0/24, routes: [{to: 10.9.0.0/16, via: 10.2.0.1}]}",
            "10.2.0.1 is no address of a machine",
        ),
        ("a: {dhcp: ours}", "write `theirs`"),
        (
            "a: {dhcp: theirs, subnet: 10.1.0.0/24}",
            "`subnet` is said by the site's own DHCP server",
        ),
        (
            "a: {subnet: 10.1.0.0/24, gatway: 10.1.0.1}",
            "did you mean `gateway`?",
        ),
    ] {
        let text = format!("networks:\n  {network}\ncluster: none\n");
        let found = problems(&text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(said), "{text}: {found:?}");
    }
}

#[test]
fn links_that_contradict_themselves_are_refused() {
    let all = "[provisioning, cluster]";
    for (links, said) in [
        (format!("[{{nic: boot, networks: {all}}}, {{nic: eno2, networks: [cluster]}}]"), "the network cluster is in two places"),
        (format!("[{{nic: boot, networks: {all}}}, {{nic: boot, networks: [office]}}]"), "the NIC boot is in two places"),
        ("[{nic: eno2, networks: [cluster]}]".to_owned(), "one of `links` has to carry `provisioning`"),
        ("[{nic: eno2, networks: [provisioning]}]".to_owned(), "write `boot` for that NIC"),
        ("[{nic: boot, networks: [provisioning, storage]}]".to_owned(), "the networks provisioning and storage have no `vlan`"),
        ("[{nic: boot, networks: [provisioning, cluster, other]}]".to_owned(), "the networks cluster and other have the same `vlan` 20"),
        ("[{nic: boot, networks: [provisioning, clusters]}]".to_owned(), "`clusters` is no network of this site; there are provisioning, cluster,"),
        ("[{nic: boot}]".to_owned(), "a link says which `networks` it carries"),
        ("[{networks: [provisioning]}]".to_owned(), "a link has either `nic`"),
        ("[{bond: balance-rr, nics: [boot], networks: [provisioning]}]".to_owned(), "`balance-rr` is no mode of a bond here"),
        ("[{bond: active-backup, networks: [provisioning]}]".to_owned(), "a bond has 1 to 8 `nics`"),
        ("[{bond: active-backup, nics: [boot], parameters: {miimom: 1}, networks: [provisioning]}]".to_owned(), "did you mean `miimon`?"),
        ("[{bond: active-backup, nics: [boot], parameters: {fail_over_mac: active}, networks: [provisioning]}]".to_owned(), "the bond's address changes"),
        ("[{nic: boot, nics: [eno1], networks: [provisioning]}]".to_owned(), "`nics` needs `bond`, not `nic`"),
        (format!("[{{nic: boot, networks: {all}}}]"), "say with `defaultRoute` which of them"),
        (format!("[{{nic: boot, networks: {all}}}]\n  defaultRoute: storage"), "`storage` is none"),
        ("[{nic: boot, networks: [provisioning, office]}]\n  defaultRoute: office".to_owned(), "nothing makes a server prefer office"),
    ] {
        let text = format!(
            "provisioning: {{gateway: 172.22.0.254}}\nnetworks:\n  cluster: {{subnet: 10.20.0.0/24, vlan: 20, gateway: 10.20.0.1}}\n  \
             other: {{subnet: 10.21.0.0/24, vlan: 20}}\n  storage: {{subnet: 10.30.0.0/24}}\n  office: {{dhcp: theirs, vlan: 40}}\n\
             rules:\n- match: any\n  links: {links}\ncluster: none\n"
        );
        let found = problems(&text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(said), "{text}: {found:?}");
    }
    let alone = problems("rules:\n- {match: any, defaultRoute: provisioning}\n");
    assert!(
        alone[0].contains("`defaultRoute` names one of the networks of `links`"),
        "{alone:?}"
    );
}

#[test]
fn a_key_without_a_value_says_nothing() {
    for (text, said) in [
        ("networks: {a: {dhcp: }}", "needs `subnet`"),
        (
            "networks: {a: {subnet: 10.1.0.0/24, routes: [{to: 10.2.0.0/24, via: }]}}",
            "a route needs `to`",
        ),
        (
            "rules: [{match: any, links: [{nic: , networks: [provisioning]}]}]",
            "a link has either `nic`",
        ),
        (
            "rules: [{match: any, links: [{bond: , networks: [provisioning]}]}]",
            "a link has either `nic`",
        ),
        (
            "provisioning: {gateway: 172.22.0.254}\nnetworks: {a: {subnet: 10.1.0.0/24, vlan: 2, gateway: 10.1.0.1}}\n\
             rules: [{match: any, links: [{nic: boot, networks: [provisioning, a]}], defaultRoute: }]",
            "say with `defaultRoute`",
        ),
    ] {
        let found = problems(&format!("{text}\ncluster: none\n"));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(said), "{text}: {found:?}");
    }
    let without = parse_site("networks:\nrules: [{match: any, links: , defaultRoute: }]").unwrap();
    assert_eq!(without.rules[0].gives.layout, None);
}

#[test]
fn addresses_of_a_host_are_in_their_networks_and_its_own() {
    let site = |addresses: &str| {
        format!(
            "networks: {{a: {{subnet: 10.20.0.0/24, gateway: 10.20.0.1}}, b: {{dhcp: theirs}}}}\nhosts:\n- {{mac: '52:54:00:00:00:01', \
             addresses: {addresses}}}\n- {{mac: '52:54:00:00:00:02', addresses: {{a: 10.20.0.9}}}}\ncluster: none\n"
        )
    };
    for (addresses, said) in [
        (
            "{a: 10.21.0.5}",
            "10.21.0.5 is no address of a machine in 10.20.0.0/24 of the network a",
        ),
        ("{a: 10.20.0.1}", "10.20.0.1 is the router of the network a"),
        ("{a: 10.20.0.9}", "have the same address 10.20.0.9"),
        ("{b: 10.20.0.9}", "unknown key `b`"),
    ] {
        let found = problems(&site(addresses));
        assert_eq!(found.len(), 1, "{addresses}: {found:?}");
        assert!(found[0].contains(said), "{found:?}");
    }
}

#[test]
fn a_cluster_is_on_a_network_whose_addresses_the_box_gives() {
    let said = problems("networks: {a: {dhcp: theirs}}\ncluster: {network: a}\n");
    assert!(
        said[0].contains("`a` is none, use provisioning"),
        "{said:?}"
    );
    let usual = parse_site("cluster: {network: provisioning}").unwrap();
    assert_eq!(usual, SiteConfig::default());
}

#[test]
fn an_address_on_a_network_that_the_hosts_own_links_do_not_carry_is_refused() {
    let text = "networks: {storage: {subnet: 10.30.0.0/24, vlan: 30}}\nhosts:\n- {mac: '52:54:00:00:00:01', addresses: {storage: 10.30.0.9}, \
                links: [{nic: boot, networks: [provisioning]}]}\n- {mac: '52:54:00:00:00:02', addresses: {storage: 10.30.0.10}}\n";
    let found = problems(text);
    assert!(
        found.len() == 1 && found[0].contains("do not carry the network `storage`"),
        "{found:?}"
    );
}
