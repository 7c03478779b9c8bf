//! Reads Ethernet frames just far enough to say where they want to go. Pure: no sockets, no clock.
//!
//! To let another kind of address pass, add it to [`Site::permits_v4`] or [`Site::permits_v6`], with a test.

use std::net::{Ipv4Addr, Ipv6Addr};

use firstlight_api::site::Ipv4Network;
use ipnet::Ipv6Net;

/// An Ethernet address.
pub type Mac = [u8; 6];

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The network that machines on the wire may talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    network: Ipv4Network,
    /// Others, with the tags that their frames have.
    networks: Vec<(Option<u16>, Ipv4Network)>,
    /// The same of IPv6, with that of the cluster's pods.
    ipv6_networks: Vec<(Option<u16>, Ipv6Net)>,
    /// Of the cluster: its nodes send packets between pods to each other as they are.
    pods: Option<Ipv4Network>,
}

impl Site {
    /// `network`/`prefix`; host bits are ignored.
    pub fn new(network: Ipv4Addr, prefix: u8) -> Self {
        Self {
            network: Ipv4Network::around(network, prefix.min(32)),
            networks: Vec::new(),
            ipv6_networks: Vec::new(),
            pods: None,
        }
    }

    #[must_use]
    pub fn with_pods(self, pods: Option<Ipv4Network>) -> Self {
        Self { pods, ..self }
    }

    #[must_use]
    pub fn with_networks(self, networks: Vec<(Option<u16>, Ipv4Network)>) -> Self {
        Self { networks, ..self }
    }

    #[must_use]
    pub fn with_ipv6(self, ipv6_networks: Vec<(Option<u16>, Ipv6Net)>) -> Self {
        Self {
            ipv6_networks,
            ..self
        }
    }

    pub fn prefix(&self) -> u8 {
        self.network.prefix()
    }

    fn contains(&self, vlan: Option<u16>, address: Ipv4Addr) -> bool {
        let mut others = self.networks.iter();
        (vlan.is_none() && self.network.contains(address))
            || others.any(|(tag, network)| *tag == vlan && network.contains(address))
    }

    fn permits_v4(&self, vlan: Option<u16>, address: Ipv4Addr) -> bool {
        self.contains(vlan, address)
            || address.is_unspecified()
            || address.is_broadcast()
            || address.is_multicast()
            || address.is_link_local()
    }

    fn permits_v6(&self, vlan: Option<u16>, address: Ipv6Addr) -> bool {
        let mut networks = self.ipv6_networks.iter();
        address.is_unspecified()
            || address.is_multicast()
            || address.is_unicast_link_local()
            || networks.any(|(tag, network)| *tag == vlan && network.contains(&address))
    }

    fn has_pod(&self, address: Ipv4Addr) -> bool {
        self.pods.is_some_and(|pods| pods.contains(address))
    }
}

/// Destination and source address of a frame; `None` for a runt.
pub fn addresses(frame: &[u8]) -> Option<(Mac, Mac)> {
    let (to, rest) = frame.split_first_chunk::<6>()?;
    let (from, _) = rest.split_first_chunk::<6>()?;
    Some((*to, *from))
}

pub fn is_group(mac: Mac) -> bool {
    mac[0] & 1 == 1
}

pub fn format_mac(mac: Mac) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// Says what is wrong with a frame that leaves or enters the site, e.g. `52:54:00:… sends TCP 172.22.0.20 to
/// 1.1.1.1 port 443`; `None` for a frame that stays inside.
pub fn leak(frame: &[u8], site: &Site) -> Option<String> {
    let (_, from) = addresses(frame)?;
    let (ethertype, payload) = payload(frame)?;
    let vlan = vlan(frame);
    let what = match ethertype {
        ETHERTYPE_ARP => arp_leak(payload, site, vlan),
        ETHERTYPE_IPV4 => ipv4_leak(payload, site, vlan),
        ETHERTYPE_IPV6 => ipv6_leak(payload, site, vlan),
        _ => None,
    }?;
    let tag = vlan.map_or_else(String::new, |vlan| format!(" on VLAN {vlan}"));
    Some(format!("{} sends {what}{tag}", format_mac(from)))
}

/// An answer of a DHCP server (BOOTREPLY from port 67): whom, and from which address.
pub fn dhcp_answer(frame: &[u8]) -> Option<(Mac, Ipv4Addr)> {
    let (ETHERTYPE_IPV4, packet) = payload(frame)? else {
        return None;
    };
    let header = Ipv4Header::parse(packet)?;
    let message = packet.get(header.length + 8..)?;
    let is_answer =
        header.protocol == UDP && header.source_port == Some(67) && message.first() == Some(&2);
    let client = message.get(28..34)?.try_into().ok()?;
    is_answer.then_some((client, header.source))
}

/// True for a request to a TFTP server.
pub fn is_tftp_request(frame: &[u8]) -> bool {
    let Some((ETHERTYPE_IPV4, packet)) = payload(frame) else {
        return false;
    };
    Ipv4Header::parse(packet)
        .is_some_and(|header| header.protocol == UDP && header.target_port == Some(69))
}

/// The sender address of an ARP packet, for noticing that somebody else uses ours.
pub fn arp_sender(frame: &[u8]) -> Option<Ipv4Addr> {
    match payload(frame)? {
        (ETHERTYPE_ARP, packet) => ipv4_at(packet, 14),
        _ => None,
    }
}

/// How much of a frame a capture keeps: TCP payload is images and keys, nobody reads it there.
pub fn capture_length(frame: &[u8]) -> usize {
    let tcp = matches!(payload(frame), Some((ETHERTYPE_IPV4, p)) if p.get(9) == Some(&TCP));
    if tcp {
        frame.len().min(128)
    } else {
        frame.len()
    }
}

fn payload(frame: &[u8]) -> Option<(u16, &[u8])> {
    let (ethertype, rest) = ethertype(frame.get(12..)?)?;
    if ethertype == ETHERTYPE_VLAN {
        self::ethertype(rest.get(2..)?)
    } else {
        Some((ethertype, rest))
    }
}

/// Its tag.
fn vlan(frame: &[u8]) -> Option<u16> {
    let (kind, rest) = ethertype(frame.get(12..)?)?;
    let tag = rest.first_chunk::<2>()?;
    (kind == ETHERTYPE_VLAN).then(|| u16::from_be_bytes(*tag) & 0x0fff)
}

fn ethertype(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (kind, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*kind), rest))
}

fn ipv4_at(bytes: &[u8], offset: usize) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = bytes.get(offset..offset + 4)?.try_into().ok()?;
    Some(Ipv4Addr::from(octets))
}

fn ipv6_at(bytes: &[u8], offset: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = bytes.get(offset..offset + 16)?.try_into().ok()?;
    Some(Ipv6Addr::from(octets))
}

fn arp_leak(packet: &[u8], site: &Site, vlan: Option<u16>) -> Option<String> {
    let (sender, target) = (ipv4_at(packet, 14)?, ipv4_at(packet, 24)?);
    if !site.permits_v4(vlan, target) {
        return Some(format!("ARP for {target}"));
    }
    (!site.permits_v4(vlan, sender)).then(|| format!("ARP from {sender} for {target}"))
}

struct Ipv4Header {
    length: usize,
    protocol: u8,
    source: Ipv4Addr,
    target: Ipv4Addr,
    /// Ports of TCP and UDP, where the packet is not a later fragment.
    source_port: Option<u16>,
    target_port: Option<u16>,
}

impl Ipv4Header {
    fn parse(packet: &[u8]) -> Option<Self> {
        let length = usize::from(packet.first()? & 0x0f) * 4;
        let protocol = *packet.get(9)?;
        let fragment = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?) & 0x1fff;
        let ports = matches!(protocol, TCP | UDP) && fragment == 0;
        let port = |offset: usize| {
            let bytes: [u8; 2] = packet
                .get(length + offset..length + offset + 2)?
                .try_into()
                .ok()?;
            ports.then_some(u16::from_be_bytes(bytes))
        };
        Some(Self {
            length,
            protocol,
            source: ipv4_at(packet, 12)?,
            target: ipv4_at(packet, 16)?,
            source_port: port(0),
            target_port: port(2),
        })
    }
}

fn ipv4_leak(packet: &[u8], site: &Site, vlan: Option<u16>) -> Option<String> {
    let header = Ipv4Header::parse(packet)?;
    let inside = |address| site.permits_v4(vlan, address) || site.has_pod(address);
    if inside(header.target) && inside(header.source) {
        return None;
    }
    let protocol = match header.protocol {
        1 => "ICMP".to_owned(),
        TCP => "TCP".to_owned(),
        UDP => "UDP".to_owned(),
        other => format!("IP protocol {other}"),
    };
    let port = header
        .target_port
        .map(|port| format!(" port {port}"))
        .unwrap_or_default();
    Some(format!(
        "{protocol} {} to {}{port}",
        header.source, header.target
    ))
}

fn ipv6_leak(packet: &[u8], site: &Site, vlan: Option<u16>) -> Option<String> {
    let (source, target) = (ipv6_at(packet, 8)?, ipv6_at(packet, 24)?);
    (!site.permits_v6(vlan, target)).then(|| format!("IPv6 {source} to {target}"))
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
