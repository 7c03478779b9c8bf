//! Values that cannot be wrong once they exist: hardware addresses, time, subnets, names.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a text is not the value that it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct ParseError {
    text: String,
    wanted: &'static str,
}

impl ParseError {
    pub(crate) fn new(text: &str, wanted: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            wanted,
        }
    }
}

/// A unicast Ethernet address, neither zero nor multicast. Written in lower case with colons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr([u8; 6]);

impl MacAddr {
    const WANTED: &str = "a unicast MAC address such as 52:54:00:aa:00:01";

    /// `None` for zero and for multicast addresses: no NIC has one.
    pub fn new(octets: [u8; 6]) -> Option<Self> {
        (octets != [0; 6] && octets[0] & 1 == 0).then_some(Self(octets))
    }

    pub fn octets(self) -> [u8; 6] {
        self.0
    }

    /// With dashes, as in `BOOTIF=01-52-54-00-aa-00-01`.
    pub fn dashed(self) -> String {
        self.to_string().replace(':', "-")
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

impl FromStr for MacAddr {
    type Err = ParseError;

    /// Six groups of two hex digits, all separated by `:` or all by `-`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let separator = if text.contains('-') { '-' } else { ':' };
            let mut octets = [0; 6];
            let mut groups = text.split(separator);
            for octet in &mut octets {
                let group = groups.next()?;
                if group.len() != 2 || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return None;
                }
                *octet = u8::from_str_radix(group, 16).ok()?;
            }
            if groups.next().is_some() {
                return None;
            }
            Self::new(octets)
        };
        parse().ok_or_else(|| ParseError::new(text, Self::WANTED))
    }
}

impl TryFrom<String> for MacAddr {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> Self {
        mac.to_string()
    }
}

/// The time, as seconds since the Unix epoch: leases outlive a restart of the box, so they need a clock that does too.
///
/// A clock that jumps is tolerated: backwards, leases last longer; forwards, they look expired, and an expired address
/// stays with its MAC until somebody else needs it and a conflict probe finds it unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Now(u64);

impl Now {
    pub const fn from_unix_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    pub const fn unix_seconds(self) -> u64 {
        self.0
    }

    /// Later by `duration`, whole seconds, never overflowing.
    #[must_use]
    pub const fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_secs()))
    }
}

/// An address with its network's prefix length, for example `172.22.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    address: Ipv4Addr,
    prefix: u8,
}

impl Subnet {
    /// `None` unless `prefix` is 8 to 30: anything else holds no hosts, or is a typing error.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Option<Self> {
        (8..=30)
            .contains(&prefix)
            .then_some(Self { address, prefix })
    }

    /// The address it was written with, not the network's first.
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    pub fn prefix(self) -> u8 {
        self.prefix
    }

    pub fn netmask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.mask())
    }

    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | !self.mask())
    }

    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() & self.mask())
    }

    /// Whether `address` can belong to a host of this subnet: inside, and neither its network nor broadcast address.
    pub fn holds(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask() == self.network().to_bits()
            && address != self.network()
            && address != self.broadcast()
    }

    fn mask(self) -> u32 {
        u32::MAX << (32 - self.prefix)
    }
}

impl FromStr for Subnet {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            Self::new(address.parse().ok()?, prefix.parse().ok()?)
        };
        parse().ok_or_else(|| {
            ParseError::new(
                text,
                "an address with a prefix length of 8 to 30, such as 172.22.0.1/24",
            )
        })
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Addresses from `first` to `last`, both included, at most 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

impl AddressRange {
    pub fn new(first: Ipv4Addr, last: Ipv4Addr) -> Option<Self> {
        (first <= last && last.to_bits() - first.to_bits() <= 0xffff)
            .then_some(Self { first, last })
    }

    pub fn first(self) -> Ipv4Addr {
        self.first
    }

    pub fn last(self) -> Ipv4Addr {
        self.last
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        self.first <= address && address <= self.last
    }

    pub fn iter(self) -> impl Iterator<Item = Ipv4Addr> {
        (self.first.to_bits()..=self.last.to_bits()).map(Ipv4Addr::from_bits)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.first, self.last)
    }
}

/// A host name of one label (RFC 1123 section 2.1): letters, digits and inner dashes, at most 63.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let good = (1..=63).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !text.starts_with('-')
            && !text.ends_with('-');
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseError::new(
                text,
                "a host name of letters, digits and inner dashes, at most 63 long",
            ))
        }
    }
}

/// Where the box's HTTP server answers. Shown as a URL without a trailing slash; port 80 stays unsaid, because shim and
/// some firmware handle a URL without port best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxHttp {
    address: Ipv4Addr,
    port: u16,
}

impl BoxHttp {
    pub fn new(address: Ipv4Addr, port: u16) -> Self {
        Self { address, port }
    }

    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// `172.22.0.1`, or `172.22.0.1:8080`.
    pub fn authority(self) -> String {
        match self.port {
            80 => self.address.to_string(),
            port => format!("{}:{port}", self.address),
        }
    }
}

impl fmt::Display for BoxHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}
