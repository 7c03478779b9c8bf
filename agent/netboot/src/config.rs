//! What the DHCP server is told: [`DhcpSpec`] as written, [`DhcpConfig`] once it is known to make sense.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::{AddressRange, BoxHttp, DhcpRole, HostName, MacAddr, Subnet};

/// Whether the server refuses what it knows nothing of (RFC 2131 section 4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// It is the only server of its subnets: a client with a wrong address is told so at once.
    Authoritative,
    /// Another server may know better: stay silent.
    NotAuthoritative,
}

/// Whether strangers, and single clients, are held to what a site's servers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// On every site.
    Up,
    /// Where the server is measured.
    Down,
}

/// An address that one host always gets, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// In one of the subnets; it need not be inside the range.
    pub address: Ipv4Addr,
    /// Option 12.
    pub host_name: Option<HostName>,
}

/// One subnet that addresses are leased in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetSpec {
    /// For the box's own segment with the box's address; for a relayed one with any address of it.
    pub subnet: Subnet,
    /// First and last address that are leased, inside the subnet.
    pub range: AddressRange,
    /// Option 3. None by default: the site has no way out.
    pub router: Option<Ipv4Addr>,
}

/// The settings as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpSpec {
    /// The box's address on the provisioning network: server identifier, TFTP server, NTP server.
    pub server: Ipv4Addr,
    /// Where loaders and scripts are fetched from.
    pub http: BoxHttp,
    /// The box's own NIC on its segment: what it asks is not answered.
    pub nic: Option<MacAddr>,
    /// Towards clients with addresses that nobody here leased.
    pub authority: Authority,
    /// What it does on its own segment.
    pub role: DhcpRole,
    /// The first is the box's own segment, the others are reached through relay agents.
    pub subnets: Vec<SubnetSpec>,
    /// By NIC; each address once.
    pub reservations: BTreeMap<MacAddr, Reservation>,
    /// Option 51; T1 and T2 are 1/2 and 7/8 of it.
    pub lease_time: Duration,
    /// Option 6.
    pub dns: Vec<Ipv4Addr>,
    /// Option 42.
    pub ntp: Vec<Ipv4Addr>,
    /// Option 15.
    pub domain: Option<String>,
    /// Against floods.
    pub guard: Guard,
}

impl DhcpSpec {
    /// The defaults for a box with this address: addresses from the upper half of the network, NTP from the box,
    /// neither router nor name server.
    pub fn for_box(subnet: Subnet, http_port: u16) -> Self {
        let server = subnet.address();
        let (network, broadcast) = (subnet.network().to_bits(), subnet.broadcast().to_bits());
        let middle = network + (broadcast - network).div_ceil(2);
        let first = middle.max(broadcast - 0x8000);
        let range = AddressRange::new(
            Ipv4Addr::from_bits(first),
            Ipv4Addr::from_bits(broadcast - 1),
        )
        .expect("half of a network of at least four addresses, at most 32768");
        Self {
            server,
            http: BoxHttp::new(server, http_port),
            nic: None,
            authority: Authority::Authoritative,
            role: DhcpRole::Serve,
            subnets: vec![SubnetSpec {
                subnet,
                range,
                router: None,
            }],
            reservations: BTreeMap::new(),
            lease_time: Duration::from_hours(4),
            dns: Vec::new(),
            ntp: vec![server],
            domain: None,
            guard: Guard::Up,
        }
    }
}

/// What is wrong with a [`DhcpSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ConfigError {
    #[error("no subnet to lease addresses in: name at least the provisioning network")]
    NoSubnet,
    #[error(
        "the box's address {server} is not in the provisioning network {subnet}: correct one of them"
    )]
    ServerOutside { server: Ipv4Addr, subnet: Subnet },
    #[error("the address range {range} is not inside {subnet}: choose addresses of that network")]
    RangeOutside { range: AddressRange, subnet: Subnet },
    #[error("the networks {0} and {1} overlap: a request would fit both")]
    Overlap(Subnet, Subnet),
    #[error("the router {router} is not in {subnet}: hosts could not reach it")]
    RouterOutside { router: Ipv4Addr, subnet: Subnet },
    #[error(
        "{address}, reserved for {mac}, is in none of the networks: choose an address of one of them"
    )]
    ReservationOutside { mac: MacAddr, address: Ipv4Addr },
    #[error("{address} is reserved for {mac}, but it is taken by {other}: choose another address")]
    ReservationTaken {
        mac: MacAddr,
        address: Ipv4Addr,
        other: String,
    },
    #[error("a lease time of {} s is not between 120 s and 30 days", .0.as_secs())]
    LeaseTime(Duration),
    #[error("{0:?} is no domain name of at most 253 letters, digits, dashes and dots")]
    Domain(String),
}

/// Settings that were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpConfig(DhcpSpec);

impl DhcpConfig {
    /// Checks everything and reports all that is wrong.
    pub fn new(spec: DhcpSpec) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        check_subnets(&spec, &mut errors);
        check_reservations(&spec, &mut errors);
        if !(120..=30 * 86400).contains(&spec.lease_time.as_secs()) {
            errors.push(ConfigError::LeaseTime(spec.lease_time));
        }
        if let Some(domain) = &spec.domain
            && (domain.len() > 253
                || !domain
                    .split('.')
                    .all(|label| HostName::parse(label).is_ok()))
        {
            errors.push(ConfigError::Domain(domain.clone()));
        }
        if errors.is_empty() {
            Ok(Self(spec))
        } else {
            Err(errors)
        }
    }

    /// As they were written.
    pub fn spec(&self) -> &DhcpSpec {
        &self.0
    }

    /// The box's own segment.
    pub(crate) fn local_subnet(&self) -> &SubnetSpec {
        &self.0.subnets[0]
    }

    pub(crate) fn reserved_for(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.0
            .reservations
            .iter()
            .find(|(_, reservation)| reservation.address == address)
            .map(|(mac, _)| *mac)
    }
}

fn check_subnets(spec: &DhcpSpec, errors: &mut Vec<ConfigError>) {
    match spec.subnets.first() {
        None => errors.push(ConfigError::NoSubnet),
        Some(local) if !local.subnet.has_host(spec.server) => {
            errors.push(ConfigError::ServerOutside {
                server: spec.server,
                subnet: local.subnet,
            });
        }
        Some(_) => {}
    }
    for (
        index,
        SubnetSpec {
            subnet,
            range,
            router,
        },
    ) in spec.subnets.iter().enumerate()
    {
        if !subnet.has_host(range.first()) || !subnet.has_host(range.last()) {
            errors.push(ConfigError::RangeOutside {
                range: *range,
                subnet: *subnet,
            });
        }
        if let Some(router) = router.filter(|router| !subnet.has_host(*router)) {
            errors.push(ConfigError::RouterOutside {
                router,
                subnet: *subnet,
            });
        }
        for other in &spec.subnets[..index] {
            let (a, b) = (other.subnet, *subnet);
            if a.network() <= b.broadcast() && b.network() <= a.broadcast() {
                errors.push(ConfigError::Overlap(a, b));
            }
        }
    }
}

fn check_reservations(spec: &DhcpSpec, errors: &mut Vec<ConfigError>) {
    let mut taken: BTreeMap<Ipv4Addr, String> =
        BTreeMap::from([(spec.server, "the box".to_owned())]);
    for router in spec.subnets.iter().filter_map(|s| s.router) {
        taken.insert(router, "the router".to_owned());
    }
    for (mac, Reservation { address, .. }) in &spec.reservations {
        if !spec.subnets.iter().any(|s| s.subnet.has_host(*address)) {
            errors.push(ConfigError::ReservationOutside {
                mac: *mac,
                address: *address,
            });
        }
        if let Some(other) = taken.insert(*address, mac.to_string()) {
            errors.push(ConfigError::ReservationTaken {
                mac: *mac,
                address: *address,
                other,
            });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
