//! The one vocabulary of addresses: hardware addresses, subnets, ranges, host names. Each is parsed once and cannot be wrong
//! afterwards.

use std::{fmt, net::Ipv4Addr, str::FromStr};

use serde::{Deserialize, Serialize};

/// A value that was refused: what is wrong and what would be right, without the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(pub String);

fn refuse<T>(message: impl Into<String>) -> Result<T, ValueError> {
    Err(ValueError(message.into()))
}

/// A unicast Ethernet address, neither zero nor multicast. Written in lower case with colons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr([u8; 6]);

impl MacAddr {
    /// `None` for zero and for multicast addresses: no NIC has one.
    pub fn new(octets: [u8; 6]) -> Option<Self> {
        (octets != [0; 6] && octets[0] & 1 == 0).then_some(Self(octets))
    }

    /// In the order in which they are written and sent.
    pub fn octets(self) -> [u8; 6] {
        self.0
    }

    /// With dashes, as in `BOOTIF=01-52-54-00-aa-00-01`.
    pub fn dashed(self) -> String {
        self.to_string().replace(':', "-")
    }
}

impl FromStr for MacAddr {
    type Err = ValueError;

    /// Accepts `52:54:00:12:34:56` and `52-54-00-12-34-56`, in either case.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            ValueError(format!(
                "`{text}` is not a MAC address; write it like 52:54:00:12:34:56"
            ))
        };
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next().ok_or_else(wrong)?;
            if part.len() != 2 || !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Self::new(octets).ok_or_else(|| {
            ValueError(format!(
                "`{text}` is a group address or zero, no NIC has it; look at the label of the server"
            ))
        })
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}", self.0[0])?;
        self.0[1..]
            .iter()
            .try_for_each(|octet| write!(f, ":{octet:02x}"))
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for MacAddr {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> Self {
        mac.to_string()
    }
}

/// A host's address together with the length of its network's prefix, for example `172.22.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    address: Ipv4Addr,
    prefix: u8,
}

impl Subnet {
    /// # Errors
    /// What cannot be the address of a server on a network with at least one more host.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Result<Self, ValueError> {
        if !(8..=30).contains(&prefix) {
            return refuse(format!(
                "a prefix length of {prefix} is not possible here; use 8 to 30, for example {address}/24"
            ));
        }
        let net = Self { address, prefix };
        if address == net.network() || address == net.broadcast() {
            return refuse(format!(
                "{address} is the {} address of its network; the box needs a host address such as {}",
                if address == net.network() {
                    "network"
                } else {
                    "broadcast"
                },
                net.first_host()
            ));
        }
        if address.is_loopback()
            || address.is_multicast()
            || address.is_link_local()
            || address.octets()[0] == 0
        {
            return refuse(format!(
                "{address} cannot be the address of a server; use a private one such as 172.22.0.1/24"
            ));
        }
        Ok(net)
    }

    /// The host's own, not the network's.
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// Bits, 8 to 30.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// `255.255.255.0` for a prefix of 24.
    pub fn netmask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(self.prefix)))
    }

    /// The lowest address, which no host has.
    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() & self.netmask().to_bits())
    }

    /// The highest address, which no host has.
    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | !self.netmask().to_bits())
    }

    /// The lowest address that a host can have.
    pub fn first_host(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network().to_bits() + 1)
    }

    /// The highest address that a host can have.
    pub fn last_host(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.broadcast().to_bits() - 1)
    }

    /// Whether `address` could be a host of this network.
    pub fn has_host(self, address: Ipv4Addr) -> bool {
        (self.first_host()..=self.last_host()).contains(&address)
    }
}

impl FromStr for Subnet {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            ValueError(format!(
                "`{text}` is not an IPv4 address with a prefix length; write it like 172.22.0.1/24"
            ))
        };
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        Self::new(
            address.parse().map_err(|_| wrong())?,
            prefix.parse().map_err(|_| wrong())?,
        )
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Addresses from `first` to `last`, both included, at most [`Self::LARGEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

impl AddressRange {
    /// As many as the DHCP server can manage.
    pub const LARGEST: u32 = 0x1_0000;

    /// # Errors
    /// A range that ends before it starts, or is too large.
    pub fn new(first: Ipv4Addr, last: Ipv4Addr) -> Result<Self, ValueError> {
        if first > last {
            return refuse(format!(
                "the range ends before it starts; did you mean {last}-{first}?"
            ));
        }
        if last.to_bits() - first.to_bits() >= Self::LARGEST {
            return refuse(format!(
                "the range has more than {} addresses; make it smaller",
                Self::LARGEST
            ));
        }
        Ok(Self { first, last })
    }

    /// One address.
    #[must_use]
    pub const fn of(address: Ipv4Addr) -> Self {
        Self {
            first: address,
            last: address,
        }
    }

    /// Itself in the range.
    pub fn first(self) -> Ipv4Addr {
        self.first
    }

    /// Itself in the range.
    pub fn last(self) -> Ipv4Addr {
        self.last
    }

    /// How many addresses, at least one.
    pub fn size(self) -> u32 {
        self.last.to_bits() - self.first.to_bits() + 1
    }

    /// From the first to the last.
    pub fn iter(self) -> impl Iterator<Item = Ipv4Addr> {
        (self.first.to_bits()..=self.last.to_bits()).map(Ipv4Addr::from_bits)
    }

    /// In a /24 this is .100 to .250, elsewhere the same part of the network, on the larger side of the box's address.
    #[must_use]
    pub fn derived_from(net: Subnet) -> Self {
        let size = u64::from(net.broadcast().to_bits() - net.network().to_bits()) + 1;
        let at = |part: u64| {
            let offset = u32::try_from(size * part / 256)
                .expect("part of a network of at most 2^24 addresses");
            Ipv4Addr::from_bits(net.network().to_bits() + offset)
                .clamp(net.first_host(), net.last_host())
        };
        let (first, own) = (at(100), net.address());
        let most = Ipv4Addr::from_bits(first.to_bits().saturating_add(Self::LARGEST - 1));
        let last = at(250).min(most);
        let below = own.to_bits().saturating_sub(first.to_bits());
        let above = last.to_bits().saturating_sub(own.to_bits());
        if own < first || own > last {
            Self { first, last }
        } else if below > above {
            Self {
                first,
                last: Ipv4Addr::from_bits(own.to_bits() - 1),
            }
        } else {
            Self {
                first: Ipv4Addr::from_bits(own.to_bits() + 1),
                last,
            }
        }
    }

    /// Both ends are inside.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// They have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl FromStr for AddressRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            ValueError(format!(
                "`{text}` is not a range; write it like 172.22.0.100-172.22.0.250"
            ))
        };
        let (first, last) = text.split_once('-').ok_or_else(wrong)?;
        let address = |text: &str| text.trim().parse().map_err(|_| wrong());
        Self::new(address(first)?, address(last)?)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// One label of a DNS name (RFC 1123): also good as a Kubernetes object's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

impl HostName {
    /// # Errors
    /// Anything but at most 63 of a-z, 0-9 and inner dashes.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.is_empty()
            || text.len() > 63
            || !text.bytes().all(inner)
            || text.starts_with('-')
            || text.ends_with('-')
        {
            return refuse(format!(
                "`{text}` cannot be a host name; use at most 63 of a-z, 0-9 and -, with a letter or digit at both ends"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// `host-525400123456`: what a host is called that nobody has named.
    #[must_use]
    pub fn from_mac(mac: MacAddr) -> Self {
        Self(format!("host-{}", mac.to_string().replace(':', "")))
    }

    /// Lower case, 1 to 63 bytes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_read_is_written_as_it_is_read(
            text in "([0-9a-fA-F]{1,2}[:-]?){0,7}|([0-9]{1,3}[./-]?){0,9}|[a-z0-9-]{0,70}|.{0,20}",
        ) {
            if let Ok(mac) = text.parse::<MacAddr>() {
                prop_assert_eq!(mac.to_string(), text.to_lowercase().replace('-', ":"));
            }
            if let Ok(subnet) = text.parse::<Subnet>() {
                prop_assert_eq!(subnet.to_string().parse(), Ok(subnet));
            }
            if let Ok(range) = text.parse::<AddressRange>() {
                prop_assert_eq!(range.to_string().parse(), Ok(range));
            }
            if let Ok(name) = HostName::parse(&text) {
                prop_assert_eq!(name.as_str(), text);
            }
        }

        #[test]
        fn a_network_has_room_for_its_box_and_somebody_else(address in any::<u32>(), prefix in 0..40_u8) {
            let Ok(subnet) = Subnet::new(Ipv4Addr::from_bits(address), prefix) else {
                return Ok(());
            };
            prop_assert_eq!(subnet.to_string().parse(), Ok(subnet));
            prop_assert!(subnet.has_host(subnet.address()));
            let range = AddressRange::derived_from(subnet);
            prop_assert!((1..=AddressRange::LARGEST).contains(&range.size()));
            prop_assert!(subnet.has_host(range.first()) && subnet.has_host(range.last()));
            prop_assert!(!range.contains(subnet.address()), "{range}");
            prop_assert_eq!(range.to_string().parse(), Ok(range));
        }

        #[test]
        fn a_hardware_address_is_read_in_each_of_its_forms(octets: [u8; 6]) {
            if let Some(mac) = MacAddr::new(octets) {
                for form in [mac.to_string(), mac.dashed(), mac.to_string().to_uppercase()] {
                    prop_assert_eq!(form.parse(), Ok(mac));
                }
            }
        }
    }
}
