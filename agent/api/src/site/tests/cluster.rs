//! The key `cluster` and the role of a host.

use std::net::Ipv4Addr;

use super::{super::*, problems};

fn generated(text: &str) -> ClusterConfig {
    match parse_site(text).unwrap().cluster {
        ClusterChoice::Generated(cluster) => cluster,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn the_words_and_the_default() {
    let by_default = SiteConfig::default().cluster;
    assert!(matches!(by_default, ClusterChoice::Generated(_)));
    for (text, expected) in [
        ("cluster: none", ClusterChoice::None),
        ("cluster: manual", ClusterChoice::Manual),
        ("cluster:", by_default),
    ] {
        assert_eq!(parse_site(text).unwrap().cluster, expected, "{text}");
    }
    assert_eq!(
        SiteConfig::for_a_refused_file().cluster,
        ClusterChoice::None
    );
}

#[test]
fn an_empty_cluster_is_one_control_plane_and_all_others_as_workers() {
    let cluster = generated("cluster: {}");
    assert_eq!(
        cluster,
        ClusterConfig {
            control_planes: ControlPlanes::One,
            workers: Workers::All,
            endpoint: Ipv4Addr::new(172, 22, 0, 254),
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/12".parse().unwrap(),
            load_balancer: Some("172.22.0.80-172.22.0.95".parse().unwrap()),
            ipv6: None,
            network: None,
            heal: Heal::None,
        }
    );
    assert_eq!(
        Some(cluster),
        ClusterConfig::usual(&SiteConfig::default().provisioning)
    );
}

#[test]
fn a_full_cluster_is_read_whole() {
    let text = "cluster:\n  controlPlanes: 3\n  workers: 5\n  endpoint: 172.22.0.99\n  podCidr: 10.10.0.0/16\n  serviceCidr: 10.11.0.0/16\n  loadBalancer: 172.22.0.64-172.22.0.71\n";
    assert_eq!(
        generated(text),
        ClusterConfig {
            control_planes: ControlPlanes::Three,
            workers: Workers::Exactly(5),
            endpoint: Ipv4Addr::new(172, 22, 0, 99),
            pod_cidr: "10.10.0.0/16".parse().unwrap(),
            service_cidr: "10.11.0.0/16".parse().unwrap(),
            load_balancer: Some("172.22.0.64-172.22.0.71".parse().unwrap()),
            ipv6: None,
            network: None,
            heal: Heal::None,
        }
    );
}

#[test]
fn services_have_addresses_that_nobody_else_has() {
    let given = |text: &str| generated(text).load_balancer.map(|range| range.to_string());
    let hosts = |address: &str| {
        format!("hosts: [{{mac: 52:54:00:12:34:56, address: {address}}}]\ncluster: {{}}")
    };
    for (text, expected) in [
        ("cluster: {loadBalancer: none}", None),
        (
            "cluster: {endpoint: 172.22.0.90}",
            Some("172.22.0.64-172.22.0.79"),
        ),
        (&hosts("172.22.0.80"), Some("172.22.0.64-172.22.0.79")),
        ("provisioning: {address: 10.0.0.1/28}\ncluster: {}", None),
        (
            "provisioning: {address: 10.0.0.1/27, range: 10.0.0.2-10.0.0.15}\ncluster: {endpoint: 10.0.0.30}",
            None,
        ),
        (
            "provisioning: {address: 10.0.0.1/16}\ncluster: {}",
            Some("10.0.255.224-10.0.255.239"),
        ),
        ("provisioning: {dhcp: proxy}\ncluster: {}", None),
        (
            "networks: {n: {vlan: 20, subnet: 10.20.0.0/24}}\ncluster: {network: n}",
            None,
        ),
        (
            "networks: {n: {vlan: 20, subnet: 10.20.0.0/24, pool: 10.20.0.10-10.20.0.99}}\ncluster: {network: n, loadBalancer: 10.20.0.200-10.20.0.209}",
            Some("10.20.0.200-10.20.0.209"),
        ),
    ] {
        assert_eq!(given(text).as_deref(), expected, "{text}");
    }
    for (range, part) in [
        (
            "172.22.1.1-172.22.1.9",
            "is not inside 172.22.0.0/24, the network of the cluster's servers; for example use 172.22.0.80-172.22.0.95",
        ),
        (
            "172.22.0.240-172.22.0.255",
            "has an address that names the whole network",
        ),
        (
            "172.22.0.90-172.22.0.110",
            "overlaps 172.22.0.100-172.22.0.250, which is given to servers",
        ),
        (
            "172.22.0.1-172.22.0.9",
            "has the box's own address 172.22.0.1",
        ),
        (
            "172.22.0.252-172.22.0.253",
            "has the router's address 172.22.0.253",
        ),
        ("172.22.0.254-172.22.0.254", "has the endpoint 172.22.0.254"),
        (
            "172.22.0.20-172.22.0.29",
            "has 172.22.0.20, which is promised to one of `hosts`",
        ),
        ("172.22.0.20", "is not a range; write it like"),
        ("all", "or say `none`"),
    ] {
        let text = format!(
            "provisioning: {{gateway: 172.22.0.253}}\nhosts: [{{mac: 52:54:00:12:34:56, address: 172.22.0.20}}]\ncluster: {{loadBalancer: {range}}}"
        );
        let said = problems(&text);
        assert!(
            said.len() == 1 && said[0].contains(part),
            "{range}: {said:?}"
        );
    }
}

#[test]
fn defaults_make_way_for_the_site() {
    for (text, endpoint, pods, services) in [
        (
            "provisioning: {range: 172.22.0.100-172.22.0.254}\ncluster: {}",
            "172.22.0.99",
            "10.244.0.0/16",
            "10.96.0.0/12",
        ),
        (
            "hosts: [{mac: '52:54:00:12:34:56', address: 172.22.0.254}]\ncluster: {}",
            "172.22.0.253",
            "10.244.0.0/16",
            "10.96.0.0/12",
        ),
        (
            "provisioning: {address: 172.22.0.254/24}\ncluster: {}",
            "172.22.0.253",
            "10.244.0.0/16",
            "10.96.0.0/12",
        ),
        (
            "provisioning: {address: 10.0.0.1/8}\ncluster: {}",
            "10.255.255.254",
            "172.28.0.0/16",
            "172.29.0.0/16",
        ),
        (
            "cluster: {serviceCidr: 10.244.0.0/16}",
            "172.22.0.254",
            "172.28.0.0/16",
            "10.244.0.0/16",
        ),
        (
            "cluster: {podCidr: 10.100.0.0/16}",
            "172.22.0.254",
            "10.100.0.0/16",
            "172.29.0.0/16",
        ),
    ] {
        let cluster = generated(text);
        assert_eq!(
            (
                cluster.endpoint.to_string().as_str(),
                cluster.pod_cidr.to_string().as_str(),
                cluster.service_cidr.to_string().as_str()
            ),
            (endpoint, pods, services),
            "{text}"
        );
    }
}

#[test]
fn what_cannot_work_is_refused_with_what_would() {
    for (text, expected) in [
        (
            "cluster: {controlPlanes: 2}",
            "line 1, column 26: 2 control planes stop when either of them fails, so they are worse than one; use 1 or 3",
        ),
        ("cluster: {controlPlanes: 5}", "use 1 or 3"),
        ("cluster: {controlPlanes: all}", "use 1 or 3"),
        ("cluster: {workers: some}", "use all, or 0 to 1000"),
        ("cluster: {workers: -1}", "use all, or 0 to 1000"),
        ("cluster: {worker: 1}", "did you mean `workers`?"),
        (
            "cluster: non",
            "`non` is no cluster; use none, manual, or keys such as `controlPlanes: 1`",
        ),
        (
            "cluster: [1]",
            "`cluster` consists of keys (controlPlanes, workers, endpoint, podCidr, serviceCidr, loadBalancer, network, heal)",
        ),
        (
            "cluster: {endpoint: 172.23.0.5}",
            "the endpoint 172.23.0.5 is not a host address in the network of 172.22.0.1/24; for example use 172.22.0.254",
        ),
        (
            "cluster: {endpoint: 172.22.0.150}",
            "is inside the range 172.22.0.100-172.22.0.250 that is leased to servers; for example use 172.22.0.254",
        ),
        (
            "cluster: {endpoint: 172.22.0.1}",
            "is the box's own address; for example use 172.22.0.254",
        ),
        (
            "hosts: [{mac: '52:54:00:12:34:56', address: 172.22.0.9}]\ncluster: {endpoint: 172.22.0.9}",
            "line 2, column 21: the endpoint 172.22.0.9 is promised to one of `hosts`",
        ),
        ("cluster: {endpoint: vip}", "`vip` is not an IPv4 address"),
        (
            "cluster: {podCidr: 172.22.0.0/16}",
            "podCidr 172.22.0.0/16 overlaps the provisioning network 172.22.0.0/24; for example use 10.244.0.0/16",
        ),
        (
            "cluster: {serviceCidr: 172.16.0.0/12}",
            "serviceCidr 172.16.0.0/12 overlaps the provisioning network 172.22.0.0/24; for example use 10.96.0.0/12",
        ),
        (
            "cluster: {podCidr: 10.0.0.0/9, serviceCidr: 10.96.0.0/16}",
            "line 1, column 45: serviceCidr 10.96.0.0/16 overlaps podCidr 10.0.0.0/9; for example use 172.29.0.0/16",
        ),
        (
            "cluster: {podCidr: 10.244.0.1/16}",
            "did you mean 10.244.0.0/16?",
        ),
        (
            "cluster: {podCidr: 10.244.0.0/24}",
            "its prefix length must be 8 to 22",
        ),
        (
            "cluster: {serviceCidr: 10.0.0.0/8}",
            "its prefix length must be 12 to 24",
        ),
        ("cluster: {podCidr: 10.244.0.0}", "is not an IPv4 network"),
        (
            "cluster: {podCidr: 10.244.0.0/33}",
            "is not an IPv4 network",
        ),
        ("cluster: {podCidr: 224.0.0.0/16}", "cannot be a network of"),
        (
            "provisioning: {address: 10.0.0.1/30}\ncluster: {}",
            "line 2, column 10: the cluster needs an address for its API, and 10.0.0.0/30 has none left",
        ),
        (
            "hosts: [{mac: '52:54:00:12:34:56', role: master}]",
            "`master` is no role; use any, control-plane, worker, or spare",
        ),
    ] {
        let found = problems(text);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn a_wrong_network_does_not_accuse_the_cluster_too() {
    let text =
        "provisioning: {address: nonsense}\ncluster: {endpoint: 10.0.0.1, podCidr: 172.22.0.0/16}";
    assert_eq!(problems(text).len(), 1);
    let text = "install: blnk\ncluster: {controlPlanes: 2, podCidr: x}";
    assert_eq!(problems(text).len(), 3, "its own mistakes are told at once");
}

#[test]
fn a_host_has_the_role_that_the_file_gives_it() {
    let text = "hosts: [{mac: '52:54:00:12:34:56', role: spare}]";
    let site = parse_site(text).unwrap();
    assert_eq!(
        site.role(MacAddr::new([0x52, 0x54, 0, 0x12, 0x34, 0x56]).unwrap()),
        HostRole::Spare
    );
    assert_eq!(site.role(MacAddr::new([2; 6]).unwrap()), HostRole::Any);
}

#[test]
fn further_clusters_have_what_no_other_has() {
    let site = parse_site(
        "name: lab\nclusters:\n  edge: {heal: replace}\n  test: {controlPlanes: 3, workers: 2}\nhosts:\n- {mac: 52:54:00:12:34:56, cluster: edge}\n\
         rules:\n- {match: {vendor: QEMU}, cluster: test}\n- {match: any, cluster: lab}\n",
    )
    .unwrap();
    let clusters: Vec<_> = site.generated_clusters().collect();
    let shown: Vec<_> = clusters
        .iter()
        .map(|(name, config)| {
            let range = config.load_balancer.unwrap().to_string();
            (*name, config.endpoint.to_string(), range)
        })
        .collect();
    let row = |name, endpoint: &str, range: &str| (name, endpoint.to_owned(), range.to_owned());
    assert_eq!(
        shown,
        [
            row("lab", "172.22.0.254", "172.22.0.80-172.22.0.95"),
            row("edge", "172.22.0.253", "172.22.0.64-172.22.0.79"),
            row("test", "172.22.0.252", "172.22.0.48-172.22.0.63"),
        ]
    );
    assert_eq!(clusters[1].1.heal, Heal::Replace);
    assert_eq!(clusters[2].1.workers, Workers::Exactly(2));
    let named = |name: &str| Some(HostName::parse(name).unwrap());
    assert_eq!(site.hosts[0].cluster, named("edge"));
    let gives: Vec<_> = site
        .rules
        .iter()
        .map(|rule| rule.gives.cluster.clone())
        .collect();
    assert_eq!(gives, [named("test"), named("lab")]);
    // Where the site's own is somebody else's affair.
    let site = parse_site("cluster: manual\nclusters: {edge: {}}\n").unwrap();
    assert_eq!(site.generated_clusters().count(), 1);
}

#[test]
fn what_further_clusters_cannot_have_is_refused_with_who_has_it() {
    for (text, part) in [
        (
            "clusters: [edge]",
            "`clusters` has a key for each further cluster",
        ),
        ("clusters: {Edge: {}}", "line 1, column 12"),
        (
            "name: lab\nclusters: {lab: {}}",
            "`lab` is the site's own cluster",
        ),
        ("clusters: {edge: {}, edge: {}}", "`edge` is given twice"),
        (
            "cluster: none\nclusters: {edge: {}}",
            "servers belong to no cluster",
        ),
        (
            "clusters: {edge: {endpoint: 172.22.0.254}}",
            "the endpoint 172.22.0.254 ends like 172.22.0.254, the endpoint of the cluster firstlight, and the end tells them apart; for example use 172.22.0.253",
        ),
        (
            "provisioning: {address: 10.0.0.1/16}\nclusters: {edge: {endpoint: 10.0.7.254}}",
            "ends like 10.0.255.254",
        ),
        (
            "clusters: {edge: {endpoint: 172.22.0.90}}",
            "is one of 172.22.0.80-172.22.0.95, which the cluster firstlight has for its services",
        ),
        (
            "clusters: {edge: {loadBalancer: 172.22.0.90-172.22.0.99}}",
            "overlaps 172.22.0.80-172.22.0.95, which the cluster firstlight has; for example use 172.22.0.64-172.22.0.79",
        ),
        (
            "clusters: {edge: {loadBalancer: 172.22.0.254-172.22.0.254}}",
            "has the endpoint 172.22.0.254 of the cluster firstlight",
        ),
        ("clusters: {edge: {worker: 1}}", "workers"),
        (
            "clusters: {edge: {}}\nhosts: [{mac: 52:54:00:12:34:56, cluster: egde}]",
            "`egde` is none of the site's clusters; use firstlight or edge",
        ),
        (
            "rules: [{match: any, cluster: edge}]",
            "`edge` is none of the site's clusters; use firstlight, or add it to `clusters`",
        ),
        (
            "cluster: {heal: yes}",
            "`yes` heals nothing; use none, restart",
        ),
    ] {
        let said = problems(text);
        assert!(
            said.iter().any(|line| line.contains(part)),
            "{text}: {said:?}"
        );
    }
    let names: Vec<String> = (0..33).map(|number| format!("c{number}: {{}}")).collect();
    let said = problems(&format!(
        "provisioning: {{address: 10.0.0.1/16}}\nclusters: {{{}}}",
        names.join(", ")
    ));
    assert!(said[0].contains("at most 32 further clusters"), "{said:?}");
}
