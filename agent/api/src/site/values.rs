//! The values inside `site.yaml`: each is parsed once and cannot be wrong afterwards.

use std::{fmt, net::Ipv4Addr, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// A value that was refused: what is wrong and what would be right, without the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(pub String);

fn refuse<T>(message: impl Into<String>) -> Result<T, ValueError> {
    Err(ValueError(message.into()))
}

/// The address of an Ethernet NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

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
        if octets[0] & 1 == 1 || octets == [0; 6] {
            return refuse(format!(
                "`{text}` is a group address or zero, no NIC has it; look at the label of the server"
            ));
        }
        Ok(Self(octets))
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, octet) in self.0.iter().enumerate() {
            write!(f, "{}{octet:02x}", if index == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

/// A host's address together with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Cidr {
    address: Ipv4Addr,
    prefix: u8,
}

impl Ipv4Cidr {
    /// Refuses what cannot be the box's address on a network with at least one more host.
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

    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    pub fn netmask(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(self.prefix)))
    }

    pub fn network(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() & self.netmask().to_bits())
    }

    pub fn broadcast(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | !self.netmask().to_bits())
    }

    pub fn first_host(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network().to_bits() + 1)
    }

    pub fn last_host(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.broadcast().to_bits() - 1)
    }

    /// Whether `address` could be a host of this network.
    pub fn has_host(&self, address: Ipv4Addr) -> bool {
        (self.first_host()..=self.last_host()).contains(&address)
    }
}

impl FromStr for Ipv4Cidr {
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

impl fmt::Display for Ipv4Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Addresses from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    pub first: Ipv4Addr,
    pub last: Ipv4Addr,
}

impl AddressRange {
    /// As many as the DHCP server can manage.
    pub const LARGEST: u32 = 0x1_0000;

    /// In a /24 this is .100 to .250, elsewhere the same part of the network, on the larger side of the box's address.
    #[must_use]
    pub fn derived_from(net: &Ipv4Cidr) -> Self {
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

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
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
        let first: Ipv4Addr = first.trim().parse().map_err(|_| wrong())?;
        let last: Ipv4Addr = last.trim().parse().map_err(|_| wrong())?;
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

    #[must_use]
    pub fn from_mac(mac: MacAddr) -> Self {
        Self(format!("host-{}", mac.to_string().replace(':', "")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One line of an `authorized_keys` file, without options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshKey(String);

const SSH_KEY_TYPES: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

impl SshKey {
    /// Accepts the content of an `id_*.pub` file (RFC 4253 section 6.6: the type is repeated inside the base64).
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        if text.contains("PRIVATE KEY") {
            return refuse(
                "this is a private key; it must never leave your machine. Put the content of its .pub file here",
            );
        }
        let wrong = |why: &str| {
            ValueError(format!(
                "not an SSH public key ({why}); paste the line of your id_ed25519.pub here"
            ))
        };
        if text.contains(['\n', '\r']) {
            return Err(wrong("more than one line"));
        }
        let mut words = text.split_ascii_whitespace();
        let (Some(kind), Some(blob)) = (words.next(), words.next()) else {
            return Err(wrong("it needs a type and a base64 part"));
        };
        if !SSH_KEY_TYPES.contains(&kind) {
            return Err(wrong(&format!("unknown type `{kind}`")));
        }
        let blob = STANDARD
            .decode(blob)
            .map_err(|_| wrong("its base64 part is damaged or cut off"))?;
        let fields = ssh_strings(&blob).ok_or_else(|| wrong("its base64 part is cut off"))?;
        if fields.first() != Some(&kind.as_bytes()) || fields.len() < 2 {
            return Err(wrong("its base64 part is of another type"));
        }
        Ok(Self(text.trim().to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The length-prefixed strings that fill `blob` exactly (RFC 4251 section 5).
fn ssh_strings(mut blob: &[u8]) -> Option<Vec<&[u8]>> {
    let mut strings = Vec::new();
    while !blob.is_empty() {
        let (length, rest) = blob.split_first_chunk::<4>()?;
        let (string, rest) =
            rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        strings.push(string);
        blob = rest;
    }
    Some(strings)
}

impl fmt::Display for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
