//! The box's own way out, and what its DHCP does on the provisioning network.

use super::*;
use crate::site::{
    networks::{Carrier, NicChoice},
    uplink::Routing,
};

#[test]
fn an_uplink_is_a_nic_and_what_a_person_wants_of_it() {
    let of = |text: &str| {
        parse_site(format!("name: lab\nuplink: {text}"))
            .unwrap()
            .uplink
            .unwrap()
    };
    let plain = of("{nic: enp2s0}");
    assert_eq!(
        plain.carrier,
        Carrier::Nic(NicChoice::Name("enp2s0".to_owned()))
    );
    assert_eq!((plain.address, plain.routing), (None, Routing::None));
    let ports = |uplink: Uplink| uplink.clusters.into_iter().collect::<Vec<_>>();
    assert_eq!(ports(plain), [("lab".to_owned(), 6443)]);
    let full = of(
        "{bond: 802.3ad, nics: [enp2s0, 52:54:00:00:00:09], vlan: 20, mtu: 9000, address: 192.0.2.10/24, gateway: 192.0.2.1, dns: [192.0.2.53], \
         search: [site.example], ntp: [ntp.example], routes: [{to: 10.0.0.0/8, via: 192.0.2.2}], routing: nat, clusters: {edge: 6444}}",
    );
    let fixed = full.address.unwrap();
    assert_eq!(fixed.address, cidr("192.0.2.10/24"));
    assert_eq!(fixed.gateway, Some(Ipv4Addr::new(192, 0, 2, 1)));
    assert_eq!(
        (full.vlan, full.mtu, full.routing),
        (Some(20), Some(9000), Routing::Nat)
    );
    assert_eq!(ports(full), [("edge".to_owned(), 6444)]);
    assert_eq!(ports(of("{nic: enp2s0, clusters: {}}")), []);
    assert_eq!(parse_site("uplink:\n").unwrap().uplink, None);
}

#[test]
fn an_uplink_that_cannot_be_is_explained() {
    for (text, expected) in [
        (
            "uplink: {}",
            "`uplink` has either `nic`, such as `nic: enp2s0`, or `bond`",
        ),
        ("uplink: {nic: boot}", "`boot` is a NIC of a server"),
        ("uplink: {nic: box0}", "box0 is internal to the box"),
        (
            "uplink: {nic: enp2s0, nics: [enp3s0]}",
            "`nics` needs `bond`",
        ),
        (
            "uplink: {nic: enp2s0, gateway: 192.0.2.1}",
            "`gateway` is told by the DHCP server of the uplink",
        ),
        (
            "uplink: {nic: enp2s0, address: 172.22.0.9/24}",
            "overlaps 172.22.0.0/24, which servers boot from",
        ),
        ("uplink: {nic: enp2s0, address: 100.64.1.9/24}", "overlaps"),
        (
            "networks: {storage: {subnet: 10.30.0.0/24}}\nuplink: {nic: enp2s0, address: 10.30.0.9/16}",
            "overlaps 10.30.0.0/24 of the network `storage`",
        ),
        (
            "uplink: {nic: enp2s0, address: 192.0.2.10/24, gateway: 192.0.3.1}",
            "192.0.3.1 is no address of a machine in 192.0.2.0/24 of the uplink",
        ),
        (
            "uplink: {nic: enp2s0, address: 192.0.2.10/24, gateway: 192.0.2.10}",
            "the box's own address",
        ),
        (
            "provisioning: {interface: enp2s0}\nuplink: {nic: enp2s0}",
            "enp2s0 is the NIC of `provisioning`",
        ),
        ("uplink: {nic: enp2s0, routing: masquerade}", "use none"),
        (
            "uplink: {nic: enp2s0, clusters: {edge: 22}}",
            "from 1024 to 65535",
        ),
        (
            "uplink: {nic: enp2s0, clusters: {a: 6443, b: 6443}}",
            "the port 6443 is that of the cluster a",
        ),
        (
            "uplink: {nic: enp2s0, clusters: [a]}",
            "has the names of clusters as keys",
        ),
        (
            "uplink: {nic: enp2s0, adress: 192.0.2.10/24}",
            "did you mean `address`?",
        ),
        ("uplink: {nic: enp2s0, vlan: 4095}", "no VLAN"),
    ] {
        let problems = problems(text);
        assert!(
            !problems.is_empty() && problems[0].contains(expected),
            "{text}: {problems:?}"
        );
    }
}

#[test]
fn pods_and_services_keep_clear_of_the_uplink() {
    let site = parse_site("uplink: {nic: enp2s0, address: 10.244.3.9/16}").unwrap();
    let ClusterChoice::Generated(cluster) = site.cluster else {
        panic!("{:?}", site.cluster);
    };
    assert_ne!(
        cluster.pod_cidr,
        ClusterConfig::usual(&site.provisioning).unwrap().pod_cidr
    );
}

#[test]
fn what_dhcp_does_is_one_of_three_words_and_fits_the_rest() {
    let role = |text: &str| parse_site(text).unwrap().provisioning.dhcp;
    assert_eq!(role(""), DhcpRole::Serve);
    assert_eq!(role("provisioning: {dhcp: proxy}"), DhcpRole::Proxy);
    assert_eq!(
        role(
            "provisioning: {dhcp: relay, gateway: 172.22.0.254, relayed: [{subnet: 10.9.0.0/24, gateway: 10.9.0.1}]}"
        ),
        DhcpRole::Relay
    );
    for (text, expected) in [
        ("provisioning: {dhcp: auto}", "use serve"),
        (
            "provisioning: {dhcp: relay}",
            "answers only servers of `relayed` networks",
        ),
        (
            "provisioning: {dhcp: proxy, range: 172.22.0.10-172.22.0.20}",
            "leave `range` or `dhcp` out",
        ),
        (
            "provisioning: {dhcp: proxy}\nhosts: [{mac: '52:54:00:00:00:01', address: 172.22.0.9}]",
            "with `dhcp: proxy` the box leases no addresses on 172.22.0.0/24",
        ),
    ] {
        let problems = problems(text);
        assert!(
            problems.len() == 1 && problems[0].contains(expected),
            "{text}: {problems:?}"
        );
    }
}

#[test]
fn a_proxy_excepts_the_sites_own_networks() {
    let site = parse_site(
        "proxy: {http: 'http://proxy.example:3128', https: 'http://10.0.0.9:3129/', noProxy: [.example, 10.0.0.0/8]}\n\
         networks: {storage: {subnet: 10.30.0.0/24}}\nuplink: {nic: enp2s0, address: 192.0.2.10/24}",
    )
    .unwrap();
    let own = "localhost,127.0.0.0/8,100.64.0.0/22,.svc,.cluster.local,172.22.0.0/24,10.30.0.0/24,192.0.2.0/24,10.244.0.0/16,10.96.0.0/12,.example,10.0.0.0/8";
    assert_eq!(
        site.proxied(),
        [
            ("HTTP_PROXY", "http://proxy.example:3128".to_owned()),
            ("HTTPS_PROXY", "http://10.0.0.9:3129".to_owned()),
            ("NO_PROXY", own.to_owned())
        ]
    );
    assert_eq!(parse_site("").unwrap().proxied(), []);
    for (text, expected) in [
        ("proxy: {}", "`proxy` has `http`"),
        (
            "proxy: {http: proxy.example}",
            "write it like http://proxy.example:3128",
        ),
        (
            "proxy: {http: 'http://proxy.example'}",
            "its port is missing",
        ),
        (
            "proxy: {http: 'http://me:secret@proxy.example:3128'}",
            "a proxy with a login is not possible",
        ),
        ("proxy: {http: 'http://a b:1'}", "is no proxy"),
        (
            "proxy: {http: 'http://a:1', noProxy: ['a b']}",
            "reached without a proxy",
        ),
    ] {
        let problems = problems(text);
        assert!(
            problems.len() == 1 && problems[0].contains(expected),
            "{text}: {problems:?}"
        );
    }
}

#[test]
fn whom_alarms_are_told_to_is_read_or_refused_without_its_secret() {
    let site = parse_site(
        "alarms: {webhook: 'https://hooks.example/T0/s3cret', email: {server: mail.example, from: box@lab.example, to: [ada@lab.example]}}",
    )
    .unwrap();
    let alarms = site.alarms.unwrap();
    let webhook = alarms.webhook.unwrap();
    assert_eq!(webhook.as_str(), "https://hooks.example/T0/s3cret");
    assert!(!format!("{webhook:?}").contains("s3cret"));
    let email = alarms.email.unwrap();
    assert_eq!(email.server.to_string(), "mail.example:25");
    for (site, why) in [
        ("alarms: {}", "`alarms` has `webhook`"),
        (
            "alarms: {webhook: 'ftp://a.example/s3cret'}",
            "no address that alarms",
        ),
        (
            "alarms: {webhook: 'https:///s3cret'}",
            "no address that alarms",
        ),
        (
            "alarms: {email: {server: mail.example, to: [a@b.example]}}",
            "`email` has a `from`",
        ),
        (
            "alarms: {email: {server: 'mail.example:0', from: a@b, to: [a@b]}}",
            "is no mail server",
        ),
        (
            "alarms: {email: {server: mail.example, from: 'a b@c', to: [a@b]}}",
            "is no address of mail",
        ),
        ("alarms: {webhok: x}", "did you mean `webhook`?"),
    ] {
        let problems = problems(site).join("\n");
        assert!(problems.contains(why), "{site}: {problems}");
        assert!(!problems.contains("s3cret"), "{problems}");
    }
}
