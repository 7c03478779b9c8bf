//! `site.yaml` as the DHCP server's settings: pure.

use std::net::Ipv4Addr;

use firstlight_api::site::SiteConfig;
use firstlight_netboot::{
    ConfigError, DhcpConfig, DhcpSpec, Guard, MacAddr, Reservation, SubnetSpec,
};

use firstlight_api::names::HTTP_PORT;

/// # Errors
/// Those of [`DhcpConfig`]; `site.yaml` has been checked for the same, so they are defects of ours.
/// `nic`: the box's own on its segment. `name_servers`: of the uplink, for servers that it lets out.
pub fn dhcp_config(
    site: &SiteConfig,
    nic: MacAddr,
    name_servers: &[Ipv4Addr],
    guard: Guard,
) -> Result<DhcpConfig, Vec<ConfigError>> {
    let mut spec = DhcpSpec::for_box(site.provisioning.address, HTTP_PORT);
    spec.nic = Some(nic);
    spec.guard = guard;
    spec.role = site.provisioning.dhcp;
    spec.subnets[0].range = site.provisioning.range;
    spec.subnets[0].router = site.router();
    if site.lets_servers_out() {
        spec.dns = name_servers.to_vec();
    }
    let relayed = site.provisioning.relayed.iter();
    spec.subnets.extend(relayed.map(|relayed| SubnetSpec {
        subnet: relayed.gateway,
        range: relayed.range,
        router: Some(relayed.gateway.address()),
    }));
    for host in &site.hosts {
        let Some(address) = host.address else {
            continue;
        };
        let host_name = Some(site.host_name(host.mac));
        spec.reservations
            .insert(host.mac, Reservation { address, host_name });
    }
    DhcpConfig::new(spec)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::site::parse_site;

    use super::*;

    fn nic() -> MacAddr {
        "52:54:00:00:00:01".parse().unwrap()
    }

    #[test]
    fn the_site_decides_range_and_reservations() {
        let site = parse_site(
            "provisioning: {address: 10.9.0.1/16, range: 10.9.1.0-10.9.1.9}\nhosts:\n- {mac: '52:54:00:00:00:02', name: n2, address: 10.9.0.2}\n- {mac: '52:54:00:00:00:03'}\n",
        )
        .unwrap();
        let config = dhcp_config(&site, nic(), &[], Guard::Up).unwrap();
        let spec = config.spec();
        assert_eq!(spec.subnets[0].range.to_string(), "10.9.1.0-10.9.1.9");
        assert_eq!(spec.server.to_string(), "10.9.0.1");
        let reservation = &spec.reservations[&"52:54:00:00:00:02".parse().unwrap()];
        assert_eq!(
            (
                reservation.address.to_string(),
                reservation.host_name.as_ref().unwrap().as_str()
            ),
            ("10.9.0.2".to_owned(), "n2")
        );
        assert_eq!(spec.reservations.len(), 1);
    }

    #[test]
    fn who_is_let_out_is_told_the_way() {
        let told = |text: &str| {
            let site = parse_site(text).unwrap();
            let servers = [Ipv4Addr::new(192, 0, 2, 53)];
            let config = dhcp_config(&site, nic(), &servers, Guard::Up).unwrap();
            let spec = config.spec();
            (spec.subnets[0].router, spec.dns.clone())
        };
        let own = Some(Ipv4Addr::new(172, 22, 0, 1));
        let servers = vec![Ipv4Addr::new(192, 0, 2, 53)];
        assert_eq!(told("uplink: {nic: enp2s0}"), (None, vec![]));
        assert_eq!(
            told("uplink: {nic: enp2s0, routing: nat}"),
            (own, servers.clone())
        );
        let other = Some(Ipv4Addr::new(172, 22, 0, 254));
        assert_eq!(
            told("uplink: {nic: enp2s0, routing: nat}\nprovisioning: {gateway: 172.22.0.254}"),
            (other, servers)
        );
    }

    #[test]
    fn relayed_networks_have_their_own_range_and_router() {
        let site = parse_site(
            "provisioning: {gateway: 172.22.0.254, relayed: [{subnet: 10.9.0.0/24, gateway: 10.9.0.1}]}\nhosts: [{mac: '52:54:00:00:00:02', address: 10.9.0.2}]",
        )
        .unwrap();
        let config = dhcp_config(&site, nic(), &[], Guard::Up).unwrap();
        let subnets = config.spec().subnets.iter();
        let shown = subnets.map(|subnet| (subnet.range.to_string(), subnet.router.unwrap()));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                (
                    "172.22.0.100-172.22.0.250".to_owned(),
                    [172, 22, 0, 254].into()
                ),
                ("10.9.0.100-10.9.0.250".to_owned(), [10, 9, 0, 1].into()),
            ]
        );
    }

    #[test]
    fn every_site_that_is_accepted_makes_a_config() {
        for address in [
            "172.22.0.1/24",
            "10.0.0.1/8",
            "10.0.0.1/30",
            "10.0.0.2/30",
            "192.168.1.254/24",
            "10.128.0.5/9",
        ] {
            let site = parse_site(format!(
                "cluster: none\nprovisioning: {{address: {address}}}"
            ))
            .unwrap();
            let config = dhcp_config(&site, nic(), &[], Guard::Up).unwrap();
            assert_eq!(config.spec().subnets[0].range, site.provisioning.range);
        }
    }
}
