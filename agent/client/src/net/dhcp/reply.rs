//! What comes from a DHCP server, with limits.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::v4::{MessageType, OptionCode};

use super::Lease;

/// A server's message, as far as a client cares. Read by hand: dhcproto's decoder asserts what a packet claims.
pub struct Reply {
    pub xid: u32,
    pub mac: [u8; 6],
    pub kind: MessageType,
    pub address: Ipv4Addr,
    options: BTreeMap<u8, Vec<u8>>,
}

/// Length of the fixed fields of BOOTP, with the four bytes that announce DHCP's options.
pub const FIXED: usize = 240;
pub const MAGIC: [u8; 4] = [99, 130, 83, 99];
pub const BOOT_REPLY: u8 = 2;
const ETHERNET: [u8; 2] = [1, 6];

impl Reply {
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (fixed, options) = packet.split_at_checked(FIXED)?;
        if fixed[0] != BOOT_REPLY || fixed[1..3] != ETHERNET || !fixed.ends_with(&MAGIC) {
            return None;
        }
        let options = collect_options(options);
        let [kind] = options.get(&u8::from(OptionCode::MessageType))?[..] else {
            return None;
        };
        Some(Self {
            xid: u32::from_be_bytes(fixed[4..8].try_into().ok()?),
            mac: fixed[28..34].try_into().ok()?,
            kind: MessageType::from(kind),
            address: Ipv4Addr::from(<[u8; 4]>::try_from(&fixed[16..20]).ok()?),
            options,
        })
    }

    fn option(&self, code: OptionCode) -> Option<&[u8]> {
        self.options.get(&u8::from(code)).map(Vec::as_slice)
    }

    /// The first address of an option that holds one or more.
    fn option_address(&self, code: OptionCode) -> Option<Ipv4Addr> {
        self.option(code)?
            .first_chunk::<4>()
            .map(|octets| Ipv4Addr::from(*octets))
    }

    fn seconds(&self, code: OptionCode) -> Option<Duration> {
        let bytes = self.option(code)?.try_into().ok()?;
        Some(Duration::from_secs(u64::from(u32::from_be_bytes(bytes))))
    }

    pub fn server(&self) -> Option<Ipv4Addr> {
        self.option_address(OptionCode::ServerIdentifier)
    }

    pub fn lease(&self) -> Option<Lease> {
        let mask = self
            .option_address(OptionCode::SubnetMask)
            .map(Ipv4Addr::to_bits);
        let prefix = match mask {
            Some(mask) if mask.leading_ones() == mask.count_ones() => mask.leading_ones(),
            _ => classful_prefix(self.address),
        };
        let hostname = self.option(OptionCode::Hostname).and_then(|name| {
            let name = std::str::from_utf8(name).ok()?.trim_end_matches('\0');
            (!name.is_empty() && name.len() <= 64).then(|| name.to_owned())
        });
        // Shorter than this is a mistake that would only flood the network.
        let expire = self
            .seconds(OptionCode::AddressLeaseTime)?
            .max(Duration::from_secs(30));
        let rebind = self
            .seconds(OptionCode::Rebinding)
            .filter(|t2| *t2 < expire)
            .unwrap_or(expire / 8 * 7);
        let renew = self
            .seconds(OptionCode::Renewal)
            .filter(|t1| *t1 < rebind)
            .unwrap_or(rebind.min(expire / 2));
        let usable = !self.address.is_unspecified()
            && !self.address.is_broadcast()
            && !self.address.is_multicast()
            && !self.address.is_loopback();
        usable.then_some(Lease {
            address: self.address,
            prefix: u8::try_from(prefix).ok()?,
            router: self.option_address(OptionCode::Router),
            server: self.server()?,
            hostname,
            renew: renew.max(Duration::from_secs(10)),
            rebind,
            expire,
        })
    }
}

/// By code; an option that comes in parts (RFC 3396) is joined, one that reaches beyond the packet ends the list.
fn collect_options(mut rest: &[u8]) -> BTreeMap<u8, Vec<u8>> {
    let mut options: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    loop {
        match rest {
            [0, after @ ..] => rest = after,
            [255, ..] | [] | [_] => return options,
            [code, length, after @ ..] => {
                let Some((data, after)) = after.split_at_checked(usize::from(*length)) else {
                    return options;
                };
                options.entry(*code).or_default().extend_from_slice(data);
                rest = after;
            }
        }
    }
}

/// RFC 791, for a server that gives no mask.
fn classful_prefix(address: Ipv4Addr) -> u32 {
    match address.octets()[0] {
        0..=127 => 8,
        128..=191 => 16,
        _ => 24,
    }
}
