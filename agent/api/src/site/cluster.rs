//! What `site.yaml` says about the workload cluster.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::Ipv6Net;

use super::{AddressRange, DhcpRole, ProvisioningConfig, ValueError, ipv6::overlap};

/// What the installed servers are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChoice {
    /// Hosts get the plain operating system image and belong to nobody.
    None,
    /// Hosts wait for Cluster API objects that a person applies.
    Manual,
    /// The agent writes the Cluster API objects.
    Generated(ClusterConfig),
}

/// A workload cluster. Its Kubernetes version is the one on the stick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// `controlPlanes`.
    pub control_planes: ControlPlanes,
    /// `workers`.
    pub workers: Workers,
    /// The virtual address of the cluster's API: in the provisioning network, leased to nobody.
    pub endpoint: Ipv4Addr,
    /// `podCidr`: for addresses of pods; overlaps neither the provisioning network nor `service_cidr`.
    pub pod_cidr: Ipv4Network,
    /// `serviceCidr`: for addresses of services; overlaps neither the provisioning network nor `pod_cidr`.
    pub service_cidr: Ipv4Network,
    /// `loadBalancer`: for services of type `LoadBalancer`; in the network of the nodes, given to nobody else. Absent: nobody gives them
    /// addresses.
    pub load_balancer: Option<AddressRange>,
    /// Where `network` has IPv6: pods and services have addresses of both families.
    pub ipv6: Option<ClusterIpv6>,
    /// `network`: one of [`SiteConfig::fixed_networks`](super::SiteConfig::fixed_networks) that its nodes have their addresses on; absent:
    /// the provisioning network.
    pub network: Option<String>,
    /// `heal`.
    pub heal: Heal,
}

/// What the box does by itself about a server whose node is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heal {
    /// It is told, and waits for a person.
    #[default]
    None,
    /// It is switched off and on, again and again.
    Restart,
    /// If a restart was in vain a free server takes its place, and its own disk is erased when it comes back.
    Replace,
}

impl Heal {
    /// As in `site.yaml`.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Restart => "restart",
            Self::Replace => "replace",
        }
    }
}

impl FromStr for Heal {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let all = [Self::None, Self::Restart, Self::Replace];
        let found = all.into_iter().find(|heal| heal.word() == text);
        found.ok_or_else(|| {
            ValueError(format!(
                "`{text}` heals nothing; use none, restart (a lost server is switched off and on) or replace (if that was in vain a free \
                 server takes its place, and its disk is erased when it comes back)"
            ))
        })
    }
}

/// The IPv6 networks of a cluster with both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterIpv6 {
    /// The second of `podCidr`; each node has a /64 of it.
    pub pods: Ipv6Net,
    /// The second of `serviceCidr`.
    pub services: Ipv6Net,
}

/// etcd keeps its data through the loss of a server with three members, and loses more often with two than with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControlPlanes {
    /// Its loss is the loss of the cluster's API.
    #[default]
    One,
    /// The cluster survives the loss of one of them.
    Three,
}

impl ControlPlanes {
    /// 1 or 3.
    pub fn count(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Three => 3,
        }
    }
}

/// How many hosts become workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// Every host that the rules allow and that is no control plane.
    #[default]
    All,
    /// Never more; fewer as long as there are not so many hosts.
    Exactly(u32),
}

/// Which machines of the cluster a host may become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostRole {
    /// Whatever the cluster needs.
    #[default]
    Any,
    /// Nothing but a control plane.
    ControlPlane,
    /// Nothing but a worker.
    Worker,
    /// None: it stays out of the cluster.
    Spare,
}

impl HostRole {
    /// In the order in which messages list them.
    pub const ALL: [Self; 4] = [Self::Any, Self::ControlPlane, Self::Worker, Self::Spare];

    /// As written in `site.yaml` and in the label of a `BareMetalHost`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::ControlPlane => "control-plane",
            Self::Worker => "worker",
            Self::Spare => "spare",
        }
    }
}

impl FromStr for HostRole {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let role = Self::ALL.into_iter().find(|role| role.word() == text);
        role.ok_or_else(|| {
            ValueError(format!(
                "`{text}` is no role; use any, control-plane, worker, or spare (stays out of the cluster)"
            ))
        })
    }
}

/// A network by its first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Network {
    first: Ipv4Addr,
    prefix: u8,
}

impl Ipv4Network {
    /// The network that `address` is in.
    ///
    /// # Panics
    /// With a prefix over 32.
    #[must_use]
    pub const fn around(address: Ipv4Addr, prefix: u8) -> Self {
        assert!(prefix <= 32, "an IPv4 prefix has at most 32 bits");
        let host_bits = if prefix == 32 { 0 } else { u32::MAX >> prefix };
        Self {
            first: Ipv4Addr::from_bits(address.to_bits() & !host_bits),
            prefix,
        }
    }

    /// The address by which it is written.
    pub fn first(&self) -> Ipv4Addr {
        self.first
    }

    /// Bits, 0 to 32.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The highest one.
    pub fn last(&self) -> Ipv4Addr {
        let host_bits = u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0);
        Ipv4Addr::from_bits(self.first.to_bits() | host_bits)
    }

    /// Ones for the bits of the network.
    pub fn netmask(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(!u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0))
    }

    /// Both ends are inside.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.first <= address && address <= self.last()
    }

    /// They have an address in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last() && other.first <= self.last()
    }
}

impl FromStr for Ipv4Network {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            ValueError(format!(
                "`{text}` is not an IPv4 network; write it like 10.244.0.0/16"
            ))
        };
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let prefix = prefix
            .parse()
            .ok()
            .filter(|prefix| *prefix <= 32)
            .ok_or_else(wrong)?;
        let network = Self::around(address, prefix);
        if network.first != address {
            return Err(ValueError(format!(
                "`{text}` is an address inside a network; did you mean {network}?"
            )));
        }
        if address.is_loopback()
            || address.is_multicast()
            || address.is_link_local()
            || address.octets()[0] == 0
        {
            return Err(ValueError(format!(
                "{text} cannot be a network of servers, pods or services; use a private network such as 10.244.0.0/16"
            )));
        }
        Ok(network)
    }
}

impl fmt::Display for Ipv4Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl ProvisioningConfig {
    /// The one that the box's address is in.
    pub fn network(&self) -> Ipv4Network {
        Ipv4Network::around(self.address.address(), self.address.prefix())
    }

    /// The highest address that is the box's, leased, or `taken` by nobody.
    pub fn free_address(&self, taken: &[AddressRange]) -> Option<Ipv4Addr> {
        let net = self.address;
        let mut at = net.last_host();
        while at >= net.first_host() {
            if self.range.contains(at) {
                at = self.range.first();
            } else if at != net.address()
                && Some(at) != self.gateway
                && !taken.iter().any(|range| range.contains(at))
            {
                return Some(at);
            }
            at = Ipv4Addr::from_bits(at.to_bits() - 1);
        }
        None
    }

    /// The highest sixteen addresses with a common beginning that are nobody's, neither the box's nor `taken`; none where another server
    /// leases the addresses, for nobody here knows which.
    pub fn free_block(&self, taken: &[AddressRange]) -> Option<AddressRange> {
        if self.dhcp != DhcpRole::Serve {
            return None;
        }
        let net = self.network();
        let own = [Some(self.address.address()), self.gateway];
        let is_free = |block: AddressRange| {
            net.first() < block.first()
                && !self.range.overlaps(block)
                && !own.iter().flatten().any(|other| block.contains(*other))
                && !taken.iter().any(|other| block.overlaps(*other))
        };
        let mut first = net.last().to_bits() & !(BLOCK - 1);
        while first > net.first().to_bits() {
            first -= BLOCK;
            let at = Ipv4Addr::from_bits;
            let block = AddressRange::new(at(first), at(first + BLOCK - 1)).ok()?;
            if is_free(block) {
                return Some(block);
            }
        }
        None
    }
}

/// Addresses that a cluster's services get if nobody says which.
const BLOCK: u32 = 16;

const POD_NETWORKS: [([u8; 4], u8); 3] = [
    ([10, 244, 0, 0], 16),
    ([172, 28, 0, 0], 16),
    ([192, 168, 0, 0], 16),
];
const SERVICE_NETWORKS: [([u8; 4], u8); 3] = [
    ([10, 96, 0, 0], 12),
    ([172, 29, 0, 0], 16),
    ([192, 168, 0, 0], 17),
];

/// `fd00:10:NUMBER::/56` for pods, /112 for services, as other makers of clusters have them; the first that overlaps none of `others`.
pub(super) fn usual_ipv6(number: u16, bits: u8, others: &[Ipv6Net]) -> Option<Ipv6Net> {
    let mut networks = (number..number + 1000).filter_map(|number| {
        let first = Ipv6Addr::new(0xfd00, 0x10, number, 0, 0, 0, 0, 0);
        Ipv6Net::new(first, bits).ok()
    });
    networks.find(|network| !others.iter().any(|other| overlap(network, other)))
}

/// The first of the usual networks, or else of the private ones, that overlaps none of `others`.
fn usual(candidates: &[([u8; 4], u8)], others: &[Ipv4Network]) -> Option<Ipv4Network> {
    let ten = (0..=255).map(|second| ([10, second, 0, 0], 16));
    let seventeen = (16..32).map(|second| ([172, second, 0, 0], 16));
    let mut networks = candidates
        .iter()
        .copied()
        .chain(ten)
        .chain(seventeen)
        .map(|(first, prefix)| Ipv4Network::around(Ipv4Addr::from(first), prefix));
    networks.find(|network| !others.iter().any(|other| network.overlaps(other)))
}

/// By which keepalived tells one cluster's endpoint on a segment from another's.
pub(super) fn router_id(endpoint: Ipv4Addr) -> u8 {
    endpoint.octets()[3].max(1)
}

impl ClusterConfig {
    /// By which keepalived tells its endpoint from another cluster's.
    pub fn router_id(&self) -> u8 {
        router_id(self.endpoint)
    }

    /// Networks of pods: of IPv4, and of IPv6 if there is one.
    pub fn pod_networks(&self) -> Vec<String> {
        let ipv6 = self.ipv6.map(|ipv6| ipv6.pods.to_string());
        let ipv4 = self.pod_cidr.to_string();
        std::iter::once(ipv4).chain(ipv6).collect()
    }

    /// Networks of services, in the same order.
    pub fn service_networks(&self) -> Vec<String> {
        let ipv6 = self.ipv6.map(|ipv6| ipv6.services.to_string());
        let ipv4 = self.service_cidr.to_string();
        std::iter::once(ipv4).chain(ipv6).collect()
    }

    /// For pods: 10.244.0.0/16 if it is free.
    pub(super) fn usual_pods(others: &[Ipv4Network]) -> Option<Ipv4Network> {
        usual(&POD_NETWORKS, others)
    }

    /// For services: 10.96.0.0/12 if it is free.
    pub(super) fn usual_services(others: &[Ipv4Network]) -> Option<Ipv4Network> {
        usual(&SERVICE_NETWORKS, others)
    }

    /// What `cluster: {}` means; `None` when the provisioning network has no address left for the endpoint, or the site's networks
    /// leave none for pods and services.
    pub fn usual(provisioning: &ProvisioningConfig) -> Option<Self> {
        let mut others = provisioning.networks();
        let pod_cidr = Self::usual_pods(&others)?;
        others.push(pod_cidr);
        let endpoint = provisioning.free_address(&[])?;
        Some(Self {
            control_planes: ControlPlanes::default(),
            workers: Workers::default(),
            endpoint,
            pod_cidr,
            service_cidr: Self::usual_services(&others)?,
            load_balancer: provisioning.free_block(&[AddressRange::of(endpoint)]),
            ipv6: None,
            network: None,
            heal: Heal::None,
        })
    }
}
